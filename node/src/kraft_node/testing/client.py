"""A client's connection on a simulated host: sends requests of the wire protocol and delivers responses.

It does not know retries or metadata: `workloads` implement client behaviour. If the listener has SASL, the client logs
in first, and again before its session ends.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_protocol.client.errors import ClientError
from kraft_protocol.wire import frames
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.base.net import Net, Transport
    from kraft_protocol.client.session import Login
    from kraft_protocol.wire.classes import Message

Answered = Callable[["Message | None"], None]
Asked = tuple[int, int, int, Answered]
BUFFER_BYTES: Final = 64 * 1024
VERSIONS: Final = {ApiKey.SASL_HANDSHAKE: 1, ApiKey.SASL_AUTHENTICATE: 2}
RENEWS_AFTER: Final = 0.8
"""The part of a session after which the client logs in again."""


class Security:
    """How the clients of a cluster log in."""

    def __init__(self, login: Callable[[], Login], now_ms: Callable[[], float]) -> None:
        self.login, self.now_ms = login, now_ms


class SimClient:
    """At most one connection, opened on demand. Responses come in order; None if the connection broke."""

    def __init__(
        self, net: Net, host: str, port: int, client_id: str = "sim", security: Security | None = None
    ) -> None:
        self._net = net
        self._host = host
        self._port = port
        self._client_id = client_id
        self._security = security
        self._link: _Link | None = None
        self._correlation = 0

    def request(self, api_key: int, version: int, request: Message, done: Answered | None) -> None:
        """Send a request; calls `done(response)`, or `done(None)` if no response can come. Without `done`, no response
        is expected."""
        if self._link is None or self._link.ended:
            self._link = _Link(self._security)
            self._net.connect(self._host, self._port, self._link.connected, self._link.failed)
        self._correlation += 1
        frame = b"".join(
            map(bytes, frames.encode_request(self._correlation, api_key, version, self._client_id, request))  # type: ignore[arg-type]
        )
        self._link.send(frame, None if done is None else (self._correlation, api_key, version, done))

    def close(self) -> None:
        """Give up the connection: requests under way get None, and later responses are ignored."""
        if self._link is not None:
            self._link.give_up()


class _Link:
    """One connection, from the attempt to open it to its end (`base.net.Receiver`)."""

    def __init__(self, security: Security | None) -> None:
        self.ended = False
        self._security = security
        self._login: Login | None = None
        self._renews_ms: float | None = 0.0 if security is not None else None
        self._transport: Transport | None = None
        self._unsent: deque[tuple[bytes, Asked | None]] = deque()
        self._asked: deque[Asked] = deque()
        self._buffer = memoryview(bytearray(BUFFER_BYTES))
        self._got = bytearray()

    def send(self, frame: bytes, asked: Asked | None) -> None:
        self._unsent.append((frame, asked))
        self._flush()

    def _flush(self) -> None:
        """Send the requests, unless a login must end first."""
        if self._transport is None or self._login is not None:
            return
        if self._security is not None and self._renews_ms is not None and self._security.now_ms() >= self._renews_ms:
            if not self._asked:  # a client logs in again when no request is under way
                self._login = self._security.login()
                self._continue_login()
            return
        while self._unsent:
            frame, asked = self._unsent.popleft()
            if asked is not None:
                self._asked.append(asked)
            self._transport.write([frame])

    def _continue_login(self) -> None:
        assert self._login is not None and self._transport is not None
        request = self._login.request()
        key = request.SCHEMA.api_key
        parts = frames.encode_request(0, key, VERSIONS[key], "sim", request)
        self._asked.append((0, key, VERSIONS[key], self._logging_in))
        self._transport.write([b"".join(map(bytes, parts))])  # type: ignore[arg-type]

    def _logging_in(self, response: Message | None) -> None:
        login = self._login
        if response is None or login is None or self._security is None:
            return
        try:
            login.answered(response)
        except ClientError:
            self.give_up()
            return
        if not login.is_done:
            self._continue_login()
            return
        self._login = None
        self._renews_ms = self._security.now_ms() + login.lifetime_ms * RENEWS_AFTER if login.lifetime_ms else None
        self._flush()

    def connected(self, transport: Transport) -> _Link:
        self._transport = transport
        if self.ended:
            transport.abort()
        else:
            self._flush()
        return self

    def failed(self, _error: OSError) -> None:
        self.give_up()

    def give_up(self) -> None:
        """Close it from this side."""
        if self.ended:
            return
        self.ended = True
        if self._transport is not None:
            self._transport.abort()
        asked = [*self._asked, *(row for _, row in self._unsent if row is not None)]
        self._asked.clear()
        self._unsent.clear()
        for *_, done in asked:
            done(None)

    # -- base.net.Receiver

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        return self._buffer

    def buffer_updated(self, count: int) -> None:
        self._got += self._buffer[:count]
        while len(self._got) >= frames.LENGTH_SIZE and not self.ended:
            size = int.from_bytes(self._got[: frames.LENGTH_SIZE], "big")
            end = frames.LENGTH_SIZE + size
            if len(self._got) < end:
                return
            frame = bytes(self._got[frames.LENGTH_SIZE : end])
            del self._got[:end]
            expected, api_key, version, done = self._asked.popleft()
            found = frames.response_correlation_id(frame)
            assert found == expected, f"answers in order: answer {found} came to request {expected}"
            done(frames.decode_response(frame, api_key, version)[1])
        self._flush()

    def drained(self) -> None:
        """Does nothing: no sender waits for buffer space here."""

    def connection_lost(self, error: OSError | None) -> None:  # noqa: ARG002
        self._transport = None
        self.give_up()
