"""One client connection: bytes in, requests to handlers, responses out in the order of the requests.

Sans-IO (`base.net.Receiver`). A read's worth of requests is handled in one go, and what they answer leaves in one
write. What a client may cost is bounded:

- Only Produce may be pipelined into the handlers while it waits (for replicas); any other unanswered request stops the
  connection from handling more, and from reading, as Kafka mutes a channel. What has been read stays undecoded.
- While more than `UNSENT_MAX` bytes wait to be sent, nothing is handled or read.
- A request longer than `socket.request.max.bytes`, an unknown api or version, or bytes that do not decode close the
  connection, with a line in the log; ApiVersions of an unknown version is answered in version 0 (KIP-511).
"""

from __future__ import annotations

import logging
from collections import deque
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.request import ANONYMOUS, RequestContext
from kraft_node.server.buffers import LARGE, LARGE_BEGUN
from kraft_node.wire.codec import decode_from
from kraft_node.wire.error_response import error_response
from kraft_node.wire.errors import DecodeError, WireError
from kraft_node.wire.frames import decode_request_header, encode_response

if TYPE_CHECKING:
    from kraft_node.base.net import Outgoing, Transport
    from kraft_node.server.listener import ServerListener
    from kraft_node.server.metrics import ApiMetrics

log = logging.getLogger("kraft_node.server.connection")

PRODUCE: Final = 0
API_VERSIONS: Final = 18

PIPELINED_MAX: Final = 256
"""Produce requests of one connection that may wait for replicas: far more than any client's window (Java: 5)."""

CORKED_MAX: Final = 256 * 1024
"""Response bytes collected before they are handed to the socket even though more requests are at hand."""

TURN_MS: Final = 2
TURN_COSTS: Final = 1024
"""What a connection may use of the loop before others have their turn: a read of 256 KiB may hold 18,000 requests."""

COSTS_OF_OTHERS: Final = 4
"""What requests count that are not Produce, which is cheap and comes in hundreds."""

CLOCK_COSTS: Final = 32
"""How much is handled between two looks at the clock."""

COSTLY_BYTES: Final = 16 * 1024
"""A request that is not Produce and has more bytes names thousands of things: one a turn is decoded, of all clients."""

UNSENT_MAX: Final = 1 << 20
"""Unsent response bytes above which the connection rests: one default max.partition.fetch.bytes."""

_PENDING: Final = object()
"""In `ctx.output` of a request that its handler has not answered."""

_SIZE: Final = Struct(">i")
_KEY: Final = Struct(">h")
_KEY_VERSION_CORRELATION: Final = Struct(">hhi")


class Connection:
    """Reads requests for `server`, its listener, and answers through `transport`."""

    __slots__ = (
        "_barred",
        "_burst",
        "_corked_bytes",
        "_have",
        "_held",
        "_is_turn",
        "_large",
        "_last_header",
        "_muted",
        "_muted_until_ms",
        "_need",
        "_out",
        "_rest",
        "_resting",
        "_short",
        "_touched",
        "_unsent_seen",
        "_waiting",
        "_yielded",
        "client_software",
        "closed",
        "last_active_ms",
        "peer_host",
        "principal",
        "reply",
        "server",
        "transport",
    )

    def __init__(self, server: ServerListener, transport: Transport, now_ms: int) -> None:
        self.server = server
        self.transport = transport
        self.peer_host = transport.peer[0]
        self.principal = ANONYMOUS
        self.client_software: tuple[str, str] | None = None
        """Name and version, as ApiVersions said (KIP-511)."""
        self.closed = False
        self.last_active_ms = now_ms
        self.reply = self._answer
        # Received and not handled: nothing, or some bytes, or the first `_have` of a large request's `_need`.
        self._rest: bytes | memoryview | None = None
        self._large: bytearray | None = None
        self._have = 0
        self._need = 0
        # Of the last request: key, version, the header's bytes after the correlation id, their end, client id. The next
        # one mostly has the same.
        self._last_header: tuple[int, int, bytes, int, str | None] | None = None
        # Unanswered requests in order, once there is one; what is to be sent; whether requests are being
        # handled, whether one that may not pass a waiting Produce is next, whether reading is paused.
        self._waiting: deque[RequestContext] | None = None
        self._out: list[Outgoing] = []
        self._corked_bytes = 0
        self._burst = False
        self._held = False
        self._resting = False
        self._touched = False
        self._muted = False
        self._muted_until_ms = 0
        self._unsent_seen = 0
        self._barred = False
        # Whether more waits for its turn, and whether this is one.
        self._yielded = False
        self._is_turn = False
        # Whether the rest of a large request waits for memory.
        self._short = False

    # Receiver

    def get_buffer(self, size_hint: int) -> memoryview:  # noqa: ARG002
        """Where the next bytes go: the shared scratch, behind what is left from before, or the large request's rest."""
        large = self._large
        if large is not None:
            return memoryview(large)[self._have : self._need]
        rest = self._rest
        scratch = self.server.pool.scratch
        if rest is None:
            return scratch
        scratch[: len(rest)] = rest
        return scratch[len(rest) :]

    def buffer_updated(self, count: int) -> None:
        """Handle every request that is complete now."""
        large = self._large
        if large is not None:
            self._have += count
            if self._have == self._need:
                self._work(memoryview(large), self._need)
            elif self._have == len(large):
                self._grow(large)
        elif self._rest is not None:
            count += len(self._rest)
            self._rest = None
            self._work(self.server.pool.scratch, count)
        else:
            self._work(self.server.pool.scratch, count)

    def drained(self) -> None:
        """There is room again for responses."""
        if self._resting and not self._yielded and not self._short:
            self._work_again()

    def connection_lost(self, error: OSError | None) -> None:
        """Forget everything; handlers that still answer are ignored."""
        if error is not None:
            log.debug("connection lost peer=%s listener=%s error=%s", self.peer_host, self.server.name, error)
        self.closed = True
        self._out = []
        self._waiting = None
        self._rest = None
        self._release_large()
        self.server.forget(self)

    # Requests

    @property
    def lost(self) -> bool:
        """Whether it is closed: the controller takes it for a sign that a broker died."""
        return self.closed

    def idle_ms(self, now_ms: int) -> int:
        """For how long the client alone has been waited for; 0 while a request is unanswered.

        A client that takes answers is active: what waits to be sent has changed since the last call.
        """
        unsent = self.transport.unsent_bytes
        if unsent != self._unsent_seen:
            self._unsent_seen = unsent
            self.last_active_ms = now_ms
        return 0 if self._waiting and not self.closed else now_ms - self.last_active_ms

    def expire(self) -> None:
        """End an idle connection. If its client takes nothing, closing would wait for a drain that never comes."""
        if self.closed or self.transport.unsent_bytes:
            self.closed = True
            self.transport.abort()
        else:
            self.close()

    def _work(self, view: memoryview, end: int) -> None:
        """Handle what has arrived, view[:end], as far as the limits allow; send; settle what is left over."""
        now_ms = self.server.clock.monotonic_ms()
        self.last_active_ms = now_ms
        position = 0
        metrics: list[ApiMetrics] = []
        self._burst = True
        size = handled = 0
        look_at = CLOCK_COSTS
        produce = self.server.produce_metrics
        may = self._may_handle()
        while may and end - position >= 4:
            (size,) = _SIZE.unpack_from(view, position)
            if not 8 <= size <= self.server.request_bytes_max:
                self._refuse_size(size)
                return
            frame_end = position + 4 + size
            if frame_end > end:
                break
            if (self._waiting or size > COSTLY_BYTES) and _KEY.unpack_from(view, position + 4)[0] != PRODUCE:
                self._held = bool(self._waiting)
                self._yielded = not self._held and not self._is_turn
                if self._held or self._yielded:
                    size = 0
                    break
            metric = self._handle(view[position + 4 : frame_end], now_ms)
            if metric is None:
                self._burst = False
                self._flush()
                self.close()
                return
            if not metric.burst:
                metrics.append(metric)
            metric.burst += 1
            metric.bytes_in += size
            position = frame_end
            handled += 1 if metric is produce else COSTS_OF_OTHERS if size <= COSTLY_BYTES else CLOCK_COSTS
            if handled >= look_at:
                look_at = handled + CLOCK_COSTS
                if self._is_turn_over(handled, now_ms):
                    self._yielded = position != end
                    size = 0
                    break
            size = 0
            if self._waiting or self._corked_bytes > CORKED_MAX or self._muted:
                may = self._may_handle()
        self._burst = False
        if self._out:
            self._flush()
        if metrics:
            elapsed_ms = self.server.clock.monotonic_ms() - now_ms
            for metric in metrics:
                metric.latency_ms.observe(elapsed_ms, metric.burst)
                metric.burst = 0
        if not self.closed:
            self._settle(view, position, end, size)

    def _is_turn_over(self, handled: int, start_ms: int) -> bool:
        return handled >= TURN_COSTS or self.server.clock.monotonic_ms() - start_ms >= TURN_MS

    def _turn(self) -> bool:
        """Go on with what has been received, as a job of the listener."""
        self._yielded = False
        if not self.closed and self._may_handle():
            self._is_turn = True
            self._work_again()
            self._is_turn = False
        return False

    def bar(self) -> None:
        """Handle nothing more, not even a Produce, until `unbar`: for a handler whose request must be done first."""
        self._barred = True

    def unbar(self) -> None:
        """Go on once the request has been answered."""
        self._barred = False

    def _may_handle(self) -> bool:
        """Whether the limits allow another request now; sends what is corked when that is much."""
        if self._corked_bytes > CORKED_MAX:
            self._flush()
        if self.transport.unsent_bytes > UNSENT_MAX or self.closed or self._muted or self._barred:
            return False
        waiting = self._waiting
        if not waiting:
            self._held = False
            return True
        return not self._held and waiting[-1].api_key == PRODUCE and len(waiting) < PIPELINED_MAX

    def _work_again(self) -> None:
        """Go on with what had been received when the limits stopped us."""
        if self._large is not None:
            self._work(memoryview(self._large), self._need if self._have == self._need else 0)
        else:
            rest, self._rest = memoryview(self._rest or b""), None
            self._work(rest, len(rest))

    def _settle(self, view: memoryview, position: int, end: int, size: int) -> None:
        """Keep view[position:end], the begin of a request of `size` bytes (0: not known), and read on or rest."""
        large = self._large
        if large is None:
            if position != end:
                is_large = size + 4 > LARGE and end - position >= LARGE_BEGUN
                if is_large and not self.server.pool.is_exhausted(self._memory_freed):
                    self._begin_large(view[position:end], size + 4)
                else:
                    left = view[position:end]
                    # What goes on in turns is copied once, not once a turn.
                    self._rest = left if self._yielded and view.readonly else bytes(left)
                    self._short = is_large
        elif position and position == end:
            self._release_large()
        if self._yielded:
            self.server.turns.add(self._turn)
        rest = self._yielded or self._short or not self._may_handle()
        if rest != self._resting:
            self._resting = rest
            if rest:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _memory_freed(self) -> None:
        """Another large request has been handled: there may be memory for this one."""
        self._short = False
        if not self.closed and not self._yielded:
            self._yielded = True
            self.server.turns.add(self._turn)

    def _begin_large(self, begin: memoryview, need: int) -> None:
        self._have = len(begin)
        self._need = need
        self._large = large = self.server.pool.take(self._have, need)
        large[: self._have] = begin

    def _grow(self, large: bytearray) -> None:
        """A request whose length was not trusted has filled its buffer."""
        self._large = larger = self.server.pool.take(self._have, self._need)
        larger[: self._have] = large
        self.server.pool.give(large)

    def _release_large(self) -> None:
        large, self._large = self._large, None
        if large is not None:
            self.server.pool.give(large)

    def _handle(self, frame: memoryview, now_ms: int) -> ApiMetrics | None:
        """Handle one request; None when the connection must end."""
        server = self.server
        key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
        api = server.apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return self._refuse_api(frame, key, version, correlation_id, now_ms)
        try:
            last = self._last_header
            if last is None or last[0] != key or last[1] != version or frame[8 : last[3]] != last[2]:
                header = decode_request_header(frame)
                body = header.body_offset
                self._last_header = last = (key, version, bytes(frame[8:body]), body, header.client_id)
            # Bytes behind the message are ignored, as Kafka does: librdkafka's Metadata 13 has three of them.
            request, _ = decode_from(api.request, frame, last[3], version)
        except DecodeError as e:
            self._log_refusal(f"request does not decode: api={api.name} version={version}: {e}")
            return None
        ctx = RequestContext(
            key, version, correlation_id, last[4], self.peer_host, server.name, self.principal, self,
            now_ms, self.reply,
        )  # fmt: skip
        metric = api.metrics
        metric.versions[version] = metric.versions.get(version, 0) + 1
        counts = server.quotas.is_active
        if counts:
            ctx.handled_ms = server.clock.monotonic_ms()
            ctx.received_bytes, ctx.spent_ms = len(frame), -1
        try:
            response = api.handler(ctx, request)
        except KafkaError as e:
            response = self._failed(request, version, e)
        except Exception:
            log.exception("request failed api=%s version=%d peer=%s", api.name, version, self.peer_host)
            response = self._failed(request, version, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR))
        if response is None:
            if not ctx.answered and not self.closed:
                if counts:
                    ctx.spent_ms = server.clock.monotonic_ms() - ctx.handled_ms
                ctx.output = _PENDING
                if self._waiting is None:
                    self._waiting = deque()
                self._waiting.append(ctx)
        else:
            ctx.finish()
            self._take(ctx, response)
        return None if self.closed else metric

    def _failed(self, request: Any, version: int, error: KafkaError) -> Any:
        """The answer to a request that failed; None closes the connection, the only sign for a Produce with acks=0."""
        if getattr(request, "acks", None) == 0:
            self.close()
            return None
        return error_response(request, version, error.code, error.message)

    # Responses

    def _take(self, ctx: RequestContext, message: Any) -> None:
        """The answer to the newest request: send it, or queue it behind those that are not answered yet."""
        if self._waiting:
            ctx.output = (message,)
            self._waiting.append(ctx)
        else:
            self._send(ctx, message)

    def _answer(self, ctx: RequestContext, message: Any) -> None:
        """`ctx.respond`: the answer to an older request, or to the newest before its handler has returned."""
        waiting = self._waiting
        if self.closed:
            return
        if ctx.output is None:
            self._take(ctx, message)
            return
        assert waiting
        ctx.output = (message,)
        api = self.server.apis[ctx.api_key]
        api.metrics.latency_ms.observe(max(0, self.server.clock.monotonic_ms() - ctx.received_ms))
        while waiting and waiting[0].output is not _PENDING:
            first = waiting.popleft()
            (answer,) = first.output
            first.output = None
            self._send(first, answer)
        if not self._burst and not self._touched and (self._out or self._resting):
            self._touched = True
            self.server.touch(self)

    def _send(self, ctx: RequestContext, message: Any) -> None:
        """Encode a response and cork it; None for a request that wants none."""
        if ctx.handled_ms >= 0:
            throttle_ms = self.server.quotas.charge(ctx, message)
            if throttle_ms > 0:
                self.mute(throttle_ms)
        if message is None:
            return
        self.server.apis[ctx.api_key].metrics.answered(message)
        try:
            parts = encode_response(ctx.correlation_id, ctx.api_key, ctx.api_version, message)
        except WireError:
            log.exception("response does not encode, connection closed: %r", ctx)
            self.transport.abort()
            self.closed = True
            return
        self._out += parts
        self._corked_bytes += _SIZE.unpack_from(parts[0])[0]  # type: ignore[arg-type]  # the head is never a file

    def mute(self, for_ms: int) -> None:
        """Handle nothing more for so long: the answer that goes out next tells the client to be silent (KIP-219)."""
        until_ms = self.server.clock.monotonic_ms() + for_ms
        if not self._muted or until_ms > self._muted_until_ms:
            self._muted = True
            self._muted_until_ms = until_ms
            self.server.env.scheduler.call_later(for_ms, self._unmute, until_ms)

    def _unmute(self, until_ms: int) -> None:
        if until_ms < self._muted_until_ms:
            return  # it was told to be silent for longer meanwhile
        self._muted = False
        if not self.closed:
            self.catch_up()

    def _flush(self) -> None:
        out = self._out
        if out:
            self._out = []
            self._corked_bytes = 0
            self.transport.write(out)

    def catch_up(self) -> None:
        """Send what was answered meanwhile, go on with what had to wait; called by the listener."""
        self._touched = False
        if self.closed:
            return
        self.last_active_ms = self.server.clock.monotonic_ms()
        self._flush()
        if self._resting and not self._yielded and not self._short and self._may_handle():
            if self._rest is None and self._large is None:
                self._work_again()
            else:
                self._yielded = True
                self.server.turns.add(self._turn)

    # The end

    def close(self) -> None:
        """Send what there is, then close."""
        self.closed = True
        self._flush()
        self.transport.close()

    def _refuse_size(self, size: int) -> None:
        self._burst = False
        limit = self.server.request_bytes_max
        self._log_refusal(f"request size {size} is outside of 8 to {limit} (socket.request.max.bytes)")
        self.close()

    def _refuse_api(
        self, frame: memoryview, key: int, version: int, correlation_id: int, now_ms: int
    ) -> ApiMetrics | None:
        """What this listener does not speak: ApiVersions falls back to version 0, all else ends the connection."""
        api = self.server.apis.get(API_VERSIONS)
        if key == API_VERSIONS and api is not None and self.server.versions_fallback is not None:
            try:
                # Whatever the version, its header is one of those known.
                decode_request_header(frame)
                if version > api.max_version:
                    decode_request_header(_as_version(frame, api.max_version))
            except DecodeError as e:
                self._log_refusal(f"request does not decode: api={api.name} version={version}: {e}")
                return None
            ctx = RequestContext(
                key, 0, correlation_id, None, self.peer_host, self.server.name, self.principal, self, now_ms, self.reply
            )
            ctx.finish()
            self._take(ctx, self.server.versions_fallback())
            return api.metrics
        self._log_refusal(f"api key {key} version {version} is not served on this listener")
        return None

    def _log_refusal(self, reason: str) -> None:
        self.server.refused(self.peer_host, reason)


def _as_version(frame: memoryview, version: int) -> memoryview:
    """The frame with another version in its header."""
    return memoryview(frame[:2].tobytes() + _KEY.pack(version) + frame[4:].tobytes())
