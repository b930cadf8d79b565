"""The client side: one connection to another node, with many requests on it (`Channel`).

The first request makes the connection; after a failure the next request makes it again. After failures, attempts pause
for increasing times. `kraft_protocol.client.session` holds the protocol of one connection. It negotiates versions, so
`version=None` means the newest version that both sides know. It matches responses with requests. Each request has its
own time-out. Each `done` is called exactly once, on the event loop, never from within `send`.

Limits: pending requests, response size, and unsent request bytes.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final, cast

from kraft_node.base.version import VERSION
from kraft_protocol.client.backoff import Pauses
from kraft_protocol.client.errors import AuthenticationError, ClientError, ProtocolError, VersionError
from kraft_protocol.client.security import NO_SECURITY, ClientSecurity
from kraft_protocol.client.session import Session, Software, frame_length
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.errors import WireError
from kraft_protocol.wire.frames import LENGTH_SIZE

if TYPE_CHECKING:
    from kraft_node.base.env import Env, Timer
    from kraft_node.base.net import Receiver, Transport
    from kraft_node.base.request import RequestContext
    from kraft_node.server.tls.listener_tls import ListenerTls
    from kraft_protocol.wire.classes import Message

log = logging.getLogger("kraft_node.server.channels.channel")

UNDER_WAY_MAX: Final = 1_000
"""Maximum of pending requests: a few are usual between nodes; more means that the other side hangs."""

RESPONSE_BYTES_MAX: Final = 100 << 20
"""A longer response counts as garbage: this is the limit of `socket.request.max.bytes` in the other direction."""

UNSENT_MAX: Final = 1 << 20
"""If more request bytes than this wait in the socket's queue, further requests are refused."""

BUFFER_BYTES: Final = 16 * 1024
"""The initial size of the receive buffer, and its size after a large response."""

TRUSTED: Final = 2 << 20
"""A response that announces at most this size gets its buffer at once and keeps it, without copying."""

PAUSE_FIRST_MS: Final = 20
PAUSE_MAX_MS: Final = 1_000
"""Pauses between attempts to connect double from the first to the maximum: a node that returns is found within a
second.
"""

CONNECT_TIMEOUT_MS: Final = 10_000
"""Maximum time for connecting, ApiVersions and authentication together."""

LANE: Final = "sasl:dial"
"""The background lane of slow mechanisms."""


class _Pending:
    """A pending request."""

    __slots__ = ("api_key", "done", "request", "timer", "version")

    def __init__(self, request: Message, version: int | None, done: Callable[[Any], None]) -> None:
        self.api_key = request.SCHEMA.api_key
        self.request: Message | None = request
        self.version = version
        self.done: Callable[[Any], None] | None = done
        self.timer: Timer | None = None

    def finish(self, result: Any) -> None:
        done, self.done = self.done, None
        if self.timer is not None:
            self.timer.cancel()
        if done is not None:
            done(result)


class Channel:
    """Sends requests to the node at `host:port`; `done` gets a response message, a KafkaError or an OSError."""

    def __init__(
        self,
        env: Env,
        host: str,
        port: int,
        client_id: str,
        *,
        patient: bool = True,
        security: ClientSecurity = NO_SECURITY,
    ) -> None:
        """`patient`: after a failed attempt to connect, requests wait for the next attempt instead of failing at
        once."""
        self.env = env
        self.host = host
        self.port = port
        self.client_id = client_id
        self.on_lost: Callable[[], None] | None = None
        """Called when the other side closes or refuses a connection: its process is gone or stopping."""
        self._patient = patient
        self._security = security
        self._transport: Transport | None = None
        self._session: Session | None = None
        """The protocol's state of the connection; None while not connected."""
        self._connecting = False
        self._renewing = False
        """Whether no request may be sent, because the connection must be authenticated again."""
        self._attempt = 0
        self._not_before_ms = 0
        self._pauses = Pauses(PAUSE_FIRST_MS, PAUSE_MAX_MS)
        self._last_problem = "no connection"
        self._waiting: list[_Pending] = []
        self._sent: deque[_Pending] = deque()
        self._buffer = bytearray(BUFFER_BYTES)
        self._have = 0
        self._closed = False

    # For users

    def send(
        self,
        request: Any,
        version: int | None,
        done: Callable[[Any], None],
        timeout_ms: int,
        *,
        on_behalf_of: RequestContext | None = None,
    ) -> None:
        """Send a request. `done` gets the answer or the failure within about `timeout_ms`.

        The failure is KafkaError UNSUPPORTED_VERSION if the other side does not know the API in `version` (None: in any
        of our versions). Requests of clients must be wrapped in an Envelope by the caller.
        """
        assert on_behalf_of is None, "law: forwarded requests are in an Envelope (KIP-590)"
        pending = _Pending(request, version, done)
        if self._closed or len(self._waiting) + len(self._sent) >= UNDER_WAY_MAX or self._is_clogged():
            reason = "closed" if self._closed else "too many requests are under way"
            self.env.scheduler.call_soon(pending.finish, ConnectionAbortedError(f"{self.host}:{self.port}: {reason}"))
            return
        if not self._patient and self._is_pausing():
            self.env.scheduler.call_soon(pending.finish, ConnectionAbortedError(self._last_problem))
            return
        pending.timer = self.env.scheduler.call_later(timeout_ms, self._timed_out, pending)
        self._waiting.append(pending)
        if self._is_ready:
            self.env.scheduler.call_soon(self._send_waiting)
        else:
            self._connect_soon()

    def close(self) -> None:
        """Refuse all pending requests and close the connection."""
        self._closed = True
        if self._transport is not None:
            self._transport.close()
        self._broken(ConnectionAbortedError(f"{self.host}:{self.port}: closed"))

    @property
    def _is_ready(self) -> bool:
        return self._session is not None and self._session.is_ready

    def _is_clogged(self) -> bool:
        return self._transport is not None and self._transport.unsent_bytes > UNSENT_MAX

    def _is_pausing(self) -> bool:
        connected = self._connecting or self._transport is not None
        return not connected and self.env.clock.monotonic_ms() < self._not_before_ms

    # Connecting

    def _connect_soon(self) -> None:
        if self._connecting or self._transport is not None:
            return
        self._connecting = True
        delay_ms = max(0, self._not_before_ms - self.env.clock.monotonic_ms())
        self._attempt += 1
        self.env.scheduler.call_later(delay_ms, self._connect, self._attempt)

    def _connect(self, attempt: int) -> None:
        if self._closed or attempt != self._attempt:
            return
        self.env.scheduler.call_later(CONNECT_TIMEOUT_MS, self._connect_timed_out, attempt)

        def connected(raw: Transport) -> Receiver:
            tls = cast("ListenerTls | None", self._security.tls)
            return link(raw) if tls is None else tls.dial(raw, self.host, link)

        def link(transport: Transport) -> _Link:
            link = _Link(self, transport)
            if self._closed or attempt != self._attempt:
                transport.abort()
            else:
                self._connected(transport)
            return link

        def failed(error: OSError) -> None:
            if attempt == self._attempt:
                self._broken(error)
                if isinstance(error, ConnectionRefusedError):
                    self._notify_lost()

        self.env.net.connect(self.host, self.port, connected, failed)

    def _connect_timed_out(self, attempt: int) -> None:
        if attempt == self._attempt and not self._is_ready and not self._closed:
            transport = self._transport
            self._broken(TimeoutError(f"{self.host}:{self.port} did not answer within {CONNECT_TIMEOUT_MS} ms"))
            if transport is not None:
                transport.abort()

    def _connected(self, transport: Transport) -> None:
        self._transport = transport
        self._have = 0
        self._session = Session(
            Software(self.client_id, "kraftcluster", VERSION), login=self._security.new_login(self.host)
        )
        transport.write([self._session.hello()])

    def _welcome(self, session: Session, frame: memoryview) -> None:
        """Process an answer before the session is ready, in a thread if the mechanism is slow."""
        if session.is_slow:
            self.env.background.submit(LANE, partial(session.welcome, frame), partial(self._welcomed, session))
            return
        try:
            session.welcome(frame)
        except (ClientError, OSError) as error:
            self._welcomed(session, error)
        else:
            self._welcomed(session, None)

    def _welcomed(self, session: Session, failure: BaseException | None) -> None:
        if session is not self._session:
            return
        assert self._transport is not None
        if failure is not None:
            if isinstance(failure, AuthenticationError):
                log.warning("authentication failed node=%s:%d error=%s", self.host, self.port, failure)
            elif not isinstance(failure, ClientError | OSError):
                log.error("authentication failed node=%s:%d", self.host, self.port, exc_info=failure)
            self._drop(ConnectionAbortedError(f"{self.host}:{self.port} {failure}"))
            return
        if not session.is_ready:
            self._transport.write([session.hello()])
            return
        self._pauses.reset()
        self._connecting = self._renewing = False
        if session.renews_after_ms:
            self.env.scheduler.call_later(session.renews_after_ms, self._renew, session)
        self._send_waiting()

    def _renew(self, session: Session) -> None:
        """Authenticate again (KIP-368) once all requests under way are answered; new requests wait."""
        if session is self._session:
            self._renewing = True
            self.env.scheduler.call_later(CONNECT_TIMEOUT_MS, self._renewal_timed_out, session)
            self._renew_if_idle(session)

    def _renew_if_idle(self, session: Session) -> None:
        login = self._security.new_login(self.host)
        if not self._sent and login is not None and self._transport is not None:
            session.authenticate_again(login)
            self._transport.write([session.hello()])

    def _renewal_timed_out(self, session: Session) -> None:
        if session is self._session and self._renewing:
            self._drop(TimeoutError(f"{self.host}:{self.port} did not authenticate within {CONNECT_TIMEOUT_MS} ms"))

    # Sending

    def _send_waiting(self) -> None:
        session = self._session
        if session is None or not session.is_ready:
            if self._waiting:
                self._connect_soon()
            return
        if self._renewing:
            return
        waiting, self._waiting = self._waiting, []
        for pending in waiting:
            if pending.done is not None:
                self._transmit(session, pending)

    def _transmit(self, session: Session, pending: _Pending) -> None:
        assert self._transport is not None
        try:
            frame = session.request(pending.request, pending.version)
        except VersionError as error:
            pending.finish(KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"{self.host}:{self.port} {error}"))
            return
        except WireError as e:
            log.exception("request does not encode")
            pending.finish(KafkaError(ErrorCode.INVALID_REQUEST, str(e)))
            return
        pending.request = None
        self._sent.append(pending)
        self._transport.write([frame])

    def _timed_out(self, pending: _Pending) -> None:
        """Fail the request. If it was sent, also close the connection: answers come in order, so the connection
        hangs."""
        if pending.done is None:
            return
        error = TimeoutError(f"{self.host}:{self.port} did not answer {ApiKey(pending.api_key).name} in time")
        if pending in self._waiting:
            self._waiting.remove(pending)
            pending.finish(error)
        else:
            self._drop(error)

    # Receiving

    def get_buffer(self) -> memoryview:
        """The buffer for the next bytes."""
        return memoryview(self._buffer)[self._have :]

    def received(self, count: int) -> None:
        """Handle complete responses; make room for the rest of an incomplete response."""
        self._have += count
        position = 0
        while self._have - position >= LENGTH_SIZE:
            try:
                size = frame_length(self._buffer, position, RESPONSE_BYTES_MAX)
            except ProtocolError as error:
                self._drop(ConnectionAbortedError(f"{self.host}:{self.port} {error}"))
                return
            end = position + LENGTH_SIZE + size
            if end > self._have:
                self._make_room(position, LENGTH_SIZE + size)
                return
            self._answered(self._take(position + LENGTH_SIZE, end))
            if self._transport is None:
                return
            position = end
        self._make_room(position, LENGTH_SIZE)

    def _take(self, position: int, end: int) -> memoryview:
        """The bytes of one response, for keeping: a copy, unless a large response has the buffer to itself."""
        buffer = self._buffer
        if end == self._have == len(buffer) > BUFFER_BYTES:
            self._buffer = bytearray(BUFFER_BYTES)
            self._have = 0
            return memoryview(buffer)[position:end]
        return memoryview(bytes(memoryview(buffer)[position:end]))

    def _make_room(self, position: int, need: int) -> None:
        """Move the bytes of the response at `position`, which needs `need` bytes, to the front, with room after it."""
        buffer, left = self._buffer, max(0, self._have - position)
        size = len(buffer)
        if need <= BUFFER_BYTES:
            size = BUFFER_BYTES
        elif need <= TRUSTED:
            size = need
        elif left >= size or size <= BUFFER_BYTES:
            size = min(need, max(2 * left, 4 * BUFFER_BYTES))
        if size != len(buffer):
            self._buffer = bytearray(size)
            self._buffer[:left] = memoryview(buffer)[position : position + left]
        elif position:
            buffer[:left] = buffer[position : position + left]
        self._have = left

    def _answered(self, frame: memoryview) -> None:
        session = self._session
        assert session is not None, "a connection has a session"
        if not session.is_ready:
            self._welcome(session, frame)
            return
        try:
            response = session.response(frame)
        except ProtocolError as error:
            self._drop(ConnectionAbortedError(f"{self.host}:{self.port} {error}"))
            return
        self._sent.popleft().finish(response)
        if self._renewing and session is self._session:
            self._renew_if_idle(session)

    # The end of a connection

    def lost(self, transport: Transport, error: OSError | None) -> None:
        """The transport is closed."""
        if transport is self._transport:
            self._broken(error or ConnectionResetError(f"{self.host}:{self.port} closed the connection"))
            self._notify_lost()

    def _notify_lost(self) -> None:
        """Called last, after the failures of pending requests."""
        if self.on_lost is not None and not self._closed:
            self.env.scheduler.call_soon(self.on_lost)

    def _drop(self, error: OSError) -> None:
        transport = self._transport
        self._broken(error)
        if transport is not None:
            transport.abort()

    def _broken(self, error: OSError) -> None:
        """Fail all pending requests; the next request connects again, after a pause."""
        log.debug("connection failed node=%s:%d error=%s", self.host, self.port, error)
        self._last_problem = str(error)
        self._transport = None
        self._session = None
        self._connecting = self._renewing = False
        self._attempt += 1
        self._not_before_ms = self.env.clock.monotonic_ms() + self._pauses.take()
        pending = [*self._sent, *self._waiting]
        self._sent.clear()
        self._waiting = []
        for one in pending:
            self.env.scheduler.call_soon(one.finish, error)


class _Link:
    """The receiver of one connection of a channel (`base.net.Receiver`)."""

    __slots__ = ("channel", "transport")

    def __init__(self, channel: Channel, transport: Transport) -> None:
        self.channel = channel
        self.transport = transport

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        if self.channel._transport is not self.transport:
            return memoryview(bytearray(64))
        return self.channel.get_buffer()

    def buffer_updated(self, count: int) -> None:
        if self.channel._transport is self.transport:
            self.channel.received(count)

    def drained(self) -> None:
        """There is room again; `send` checks this itself."""

    def connection_lost(self, error: OSError | None) -> None:
        self.channel.lost(self.transport, error)
