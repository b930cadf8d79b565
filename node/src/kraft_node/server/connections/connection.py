"""One client connection: bytes in, requests to handlers, responses out in the order of the requests.

Sans-IO (`base.net.Receiver`). All requests of a read are handled together, and their responses leave in one write. The
cost of a client is limited:

- Only Produce may be pipelined into the handlers while it waits for replicas. Any other unanswered request stops the
  connection from handling further requests and from reading, like Kafka's muted channels. Received bytes stay
  undecoded.
- While more than `UNSENT_MAX` bytes wait to be sent, the connection handles and reads nothing. While all connections
  together hold too much (`server.connections.unread`), connections with unread answers handle nothing.
- A request longer than `socket.request.max.bytes`, an unknown API or version, or undecodable bytes close the connection
  and are logged. ApiVersions of an unknown version is answered in version 0 (KIP-511).
"""

from __future__ import annotations

import logging
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import refuse_later
from kraft_node.base.request import RequestContext
from kraft_node.server.connections.answering import PRODUCE, SIZE
from kraft_node.server.connections.authentication import Authenticating
from kraft_node.server.connections.buffers import LARGE, LARGE_BEGUN
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.codec import decode_few, decode_from
from kraft_protocol.wire.error_response import error_response
from kraft_protocol.wire.errors import DecodeError, TooManyItems
from kraft_protocol.wire.frames import decode_request_header

if TYPE_CHECKING:
    from kraft_node.base.net import Transport
    from kraft_node.server.connections.context import ListenerContext, ServedApi
    from kraft_node.server.monitoring.metrics import ApiMetrics

log = logging.getLogger("kraft_node.server.connections.connection")

API_VERSIONS: Final = 18

PIPELINED_MAX: Final = 256
"""Maximum of Produce requests of one connection that wait for replicas: far more than any client's window (Java: 5)."""

CORKED_MAX: Final = 256 * 1024
"""Response bytes that are collected before they are passed to the socket, even if more requests are available."""

TURN_MS: Final = 1
TURN_COSTS: Final = 1024
"""The loop time of a connection before others get their turn: a read of 256 KiB may hold 18,000 requests."""

COSTS_OF_OTHERS: Final = 4
"""The cost of a request other than Produce. Produce is cheap and comes in hundreds."""

CLOCK_COSTS: Final = 32
"""The cost that is handled between two readings of the clock."""

COSTLY_BYTES: Final = 16 * 1024
"""A larger request other than Produce names thousands of items: it is decoded in turns of the loop, like a Produce with
many items."""

UNSENT_MAX: Final = 1 << 20
"""Unsent response bytes above which the connection pauses: one default max.partition.fetch.bytes."""

_KEY: Final = Struct(">h")
_KEY_VERSION_CORRELATION: Final = Struct(">hhi")


class Connection(Authenticating):
    """Reads requests for its listener `server`, and answers through `transport`."""

    __slots__ = (
        "_barred",
        "_costly",
        "_decoded",
        "_held",
        "_last_header",
        "_short",
        "_unsent_seen",
        "_yielded",
        "client_software",
        "last_active_ms",
    )

    def __init__(self, server: ListenerContext, transport: Transport, now_ms: int) -> None:
        super().__init__(server, transport)
        self.client_software: tuple[str, str] | None = None
        """Name and version in ApiVersions (KIP-511)."""
        self.last_active_ms = now_ms
        # Of the last request: key, version, the header's bytes after the correlation id, their end, client id. The
        # next request mostly has the same.
        self._last_header: tuple[int, int, bytes, int, str | None] | None = None
        # Whether a request that may not pass a waiting Produce is next, and whether a handler has barred all others.
        self._held = False
        self._barred = False
        self._unsent_seen = 0
        # Whether more bytes wait for their turn; whether they are a request to decode in steps; the result of this
        # decoding.
        self._yielded = False
        self._costly = False
        self._decoded: Any = None
        # Whether the rest of a large request waits for memory.
        self._short = False

    # Receiver

    def drained(self) -> None:
        """There is room for responses again."""
        if self.held_bytes:
            self.server.unread.note(self)
        if self._resting and not self._yielded and not self._short:
            self._work_again()

    def connection_lost(self, error: OSError | None) -> None:
        """The connection is closed: drop everything, and ignore later answers of handlers."""
        if error is not None:
            log.debug("connection lost peer=%s listener=%s error=%s", self.peer_host, self.server.name, error)
        self.closed = True
        self._out = []
        self._waiting = None
        self._rest = None
        self._end_mute()
        self._release_large()
        self._release_items()
        if self.authentication is not None:
            self.authentication.closed()
        self.server.unread.forget(self)
        self.server.forget(self)

    # Requests

    @property
    def lost(self) -> bool:
        """Whether it is closed; for the controller a sign that the broker died."""
        return self.closed

    def callback_name(self) -> str:
        """The latest request, for the log line of a slow callback."""
        last = self._last_header
        return "" if last is None else f"api={self.server.apis[last[0]].metrics.name} client={last[4]!r}"

    def idle_ms(self, now_ms: int) -> int:
        """How long the connection has waited for its client, in milliseconds; 0 while a request is unanswered.

        A client that reads answers is active: the unsent bytes have changed since the last call.
        """
        unsent = self.transport.unsent_bytes
        if unsent != self._unsent_seen:
            self._unsent_seen = unsent
            self.last_active_ms = now_ms
        return 0 if self._waiting and not self.closed else now_ms - self.last_active_ms

    def expire(self) -> None:
        """Close an idle connection.

        If its client reads nothing, a clean close would wait for a drain that never happens.
        """
        if self.closed or self.transport.unsent_bytes:
            self.closed = True
            self.transport.abort()
        else:
            self.close()

    def _work(self, view: memoryview, end: int) -> None:
        """Handle the received bytes view[:end] within the limits; send responses; keep the rest."""
        if self._exchanges_tokens:
            self._work_tokens(view, end)
            return
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
            (size,) = SIZE.unpack_from(view, position)
            if not 8 <= size <= self.request_bytes_max:
                self._refuse_size(size)
                return
            frame_end = position + 4 + size
            if frame_end > end:
                break
            if (self._waiting or size > COSTLY_BYTES) and not self._may_begin(view, position + 4, size):
                size = 0
                break
            metric = self._handle(view[position + 4 : frame_end], now_ms)
            if metric is None:
                if self._costly:
                    self._yielded = True
                    size = 0
                    break
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
            if self._waiting or self._corked_bytes > CORKED_MAX or self._unmuting:
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

    def _may_begin(self, view: memoryview, position: int, size: int) -> bool:
        """Whether the request at `position` may be handled now, although others wait or it is large."""
        key, version, _ = _KEY_VERSION_CORRELATION.unpack_from(view, position)
        if key == PRODUCE:
            return True
        if self._waiting:
            self._held = True
            return False
        api = self.apis.get(key)
        if size > COSTLY_BYTES and self._decoded is None and api is not None and api.speaks(version):
            self._yielded = self._costly = True
            return False
        return True

    def _begin_decoding(self) -> None:
        """Decode the first received request in turns."""
        self._costly = False
        kept = memoryview(self._large if self._large is not None else self._rest or b"")
        (size,) = SIZE.unpack_from(kept)
        frame = kept[4 : 4 + size]
        key, version, _ = _KEY_VERSION_CORRELATION.unpack_from(frame)
        self.server.large.decode(
            self.server.apis[key].request, frame, version, lambda: not self.closed, self._decoding_ended
        )

    def _decoding_ended(self, outcome: tuple[Any, int] | Exception | None) -> None:
        self._yielded = False
        if isinstance(outcome, tuple):
            request, items = outcome
            self._decoded = request
            if self.closed:
                self.server.large.held -= items
                return
            self._items += items
            self._large_requests = [*(self._large_requests or ()), request]
        elif self.closed or outcome is None:
            return
        elif isinstance(outcome, DecodeError):
            self._decoded = outcome
        else:
            log.error("request cannot be decoded peer=%s", self.peer_host, exc_info=outcome)
            self._decoded = DecodeError(str(outcome))
        if self._may_handle():
            self._work_again()

    def _decode_large(self, api: ServedApi, frame: memoryview, position: int, version: int) -> Any:
        """Decode a large request; None for a Produce that must be decoded in turns. Raises DecodeError."""
        decoded, self._decoded = self._decoded, None
        if decoded is None:
            try:
                decoded, _ = decode_few(api.request, frame, position, version)
            except TooManyItems:
                self._costly = True
        if isinstance(decoded, DecodeError):
            raise decoded
        return decoded

    def _is_turn_over(self, handled: int, start_ms: int) -> bool:
        return handled >= TURN_COSTS or self.server.clock.monotonic_ms() - start_ms >= TURN_MS

    def _turn(self) -> bool:
        """Continue with received bytes, in a job of the listener."""
        self._yielded = False
        if not self.closed and self._may_handle():
            self._work_again()
        return False

    def bar(self) -> None:
        """Handle no further request, not even a Produce, until `unbar`: for a handler with a request that must finish
        first."""
        self._barred = True

    def unbar(self) -> None:
        """Continue once the request has been answered."""
        self._barred = False

    def _may_handle(self) -> bool:
        """Whether the limits allow another request now; sends corked responses if they are large."""
        if self._corked_bytes > CORKED_MAX:
            self._flush()
        unsent = self.transport.unsent_bytes
        if unsent > UNSENT_MAX or self.closed or self._unmuting or self._barred:
            return False
        if unsent and self.server.unread.is_over:
            return False
        waiting = self._waiting
        if not waiting:
            self._held = False
            return True
        return not self._held and waiting[-1].api_key == PRODUCE and len(waiting) < PIPELINED_MAX

    def _settle(self, view: memoryview, position: int, end: int, size: int) -> None:
        """Keep view[position:end], the beginning of a request of `size` bytes (0: unknown), and continue reading or
        pause.
        """
        large = self._large
        if large is None:
            if position != end:
                is_large = size + 4 > LARGE and end - position >= LARGE_BEGUN
                if is_large and not self.server.pool.is_exhausted(self._memory_freed):
                    self._begin_large(view[position:end], size + 4)
                else:
                    left = view[position:end]
                    # The rest for later turns is copied once, not once per turn.
                    self._rest = left if self._yielded and view.readonly else bytes(left)
                    self._short = is_large
        elif position and position == end:
            self._release_large()
        if self._yielded:
            if self._costly:
                self._begin_decoding()
            else:
                self.server.turns.add(self._turn)
        rest = self._yielded or self._short or not self._may_handle()
        if rest != self._resting:
            self._resting = rest
            if rest:
                self.transport.pause_reading()
            else:
                self.transport.resume_reading()

    def _memory_freed(self) -> None:
        """Another large request was handled: this request may have memory now."""
        self._short = False
        if not self.closed and not self._yielded:
            self._yielded = True
            self.server.turns.add(self._turn)

    def _handle(self, frame: memoryview, now_ms: int) -> ApiMetrics | None:
        """Handle one request; None if the connection must be closed."""
        server = self.server
        key, version, correlation_id = _KEY_VERSION_CORRELATION.unpack_from(frame)
        api = self.apis.get(key)
        if api is None or not api.min_version <= version <= api.max_version:
            return self._refuse_api(frame, key, version, correlation_id, now_ms)
        try:
            last = self._last_header
            if last is None or last[0] != key or last[1] != version or frame[8 : last[3]] != last[2]:
                header = decode_request_header(frame)
                body = header.body_offset
                self._last_header = last = (key, version, bytes(frame[8:body]), body, header.client_id)
            # Extra bytes after the message are ignored, as in Kafka: librdkafka's Metadata 13 has three of them.
            if len(frame) > COSTLY_BYTES:
                request = self._decode_large(api, frame, last[3], version)
                if request is None:
                    return None
            else:
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
            response = self._failed(ctx, request, e, len(frame))
        except Exception:
            log.exception("request failed api=%s version=%d peer=%s", api.name, version, self.peer_host)
            response = self._failed(ctx, request, KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR), len(frame))
        if response is None:
            if not ctx.answered and not self.closed:
                if counts:
                    ctx.spent_ms = server.clock.monotonic_ms() - ctx.handled_ms
                self._wait(ctx)
        else:
            ctx.finish()
            self._take(ctx, response)
        return None if self.closed else metric

    def _failed(self, ctx: RequestContext, request: Any, error: KafkaError, size: int) -> Any:
        """The answer to a failed request of `size` bytes; None if it is large, so that its answer comes later.

        Closes the connection after a Produce with acks=0: this is the only signal for it.
        """
        if getattr(request, "acks", None) == 0:
            self.close()
            return None
        if size > COSTLY_BYTES:
            refuse_later(self.server.turns, ctx, request, error.code, error.message)
            return None
        return error_response(request, ctx.api_version, error.code, error.message)

    def _goes_on_at_once(self) -> bool:
        if self._yielded or self._short or self._rest is not None or self._large is not None:
            return False
        self.last_active_ms = self.server.clock.monotonic_ms()
        self._flush()
        if self._resting and self._may_handle():
            self._resting = False
            self.transport.resume_reading()
        return True

    def catch_up(self) -> None:
        """Send responses that were given meanwhile, and continue with waiting work; the listener calls it."""
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
        """Send the remaining responses, then close."""
        self.closed = True
        self._flush()
        self.transport.close()

    def _refuse_size(self, size: int) -> None:
        self._burst = False
        key = "socket.request.max.bytes" if self.apis is self.server.apis else "sasl.server.max.receive.size"
        self._log_refusal(f"request size {size} is outside of 8 to {self.request_bytes_max} ({key})")
        self.close()

    def _refuse_api(
        self, frame: memoryview, key: int, version: int, correlation_id: int, now_ms: int
    ) -> ApiMetrics | None:
        """Handle an unsupported request: ApiVersions falls back to version 0, all others close the connection."""
        api = self.apis.get(API_VERSIONS)
        if key == API_VERSIONS and api is not None and self.server.versions_fallback is not None:
            if self.authentication is not None and not self.authentication.begin_versions():
                self._log_refusal(f"{api.name} version {version} during authentication, after a first one")
                return None
            try:
                # Whatever the version, the header has a known form.
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
        if self.apis is self.server.early_apis:
            return self._refuse_early(frame, key, version, now_ms)
        self._log_refusal(f"api key {key} version {version} is not served on this listener")
        return None


def _as_version(frame: memoryview, version: int) -> memoryview:
    """The frame with another version in its header."""
    return memoryview(frame[:2].tobytes() + _KEY.pack(version) + frame[4:].tobytes())
