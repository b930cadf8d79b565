"""The sending half of a connection: responses in the order of the requests, encoded, corked, and sent in few writes."""

from __future__ import annotations

import logging
from abc import abstractmethod
from collections import deque
from collections.abc import Generator
from functools import partial
from struct import Struct
from typing import TYPE_CHECKING, Any, Final

from kraft_node.server.connections.received import Received
from kraft_protocol.wire.errors import WireError
from kraft_protocol.wire.frames import encode_response, encode_response_in_steps

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.base.net import Outgoing, Transport
    from kraft_node.base.request import RequestContext
    from kraft_node.server.connections.context import ListenerContext
    from kraft_protocol.wire.classes import Message

log = logging.getLogger("kraft_node.server.connections.connection")

PRODUCE: Final = 0
PENDING: Final = object()
"""The value of `ctx.output` while the handler has not answered, or while its answer is being encoded."""
SIZE: Final = Struct(">i")


class Answering(Received):
    """The answering half of a connection."""

    __slots__ = (
        "_burst",
        "_corked_bytes",
        "_items",
        "_large_requests",
        "_muted_until_ms",
        "_out",
        "_resting",
        "_touched",
        "_unmuting",
        "_waiting",
        "closed",
        "held_bytes",
    )

    def __init__(self, server: ListenerContext, transport: Transport) -> None:
        super().__init__(server, transport)
        self.closed = False
        self.held_bytes = 0
        """Bytes of answers in memory that the client has not read, as counted by `server.connections.unread`."""
        # Unanswered requests in order, once a request waits; the bytes to send; whether requests are being handled;
        # whether reading is paused; the items in unanswered large requests.
        self._waiting: deque[RequestContext] | None = None
        self._out: list[Outgoing] = []
        self._corked_bytes = 0
        self._burst = False
        self._resting = False
        self._touched = False
        self._unmuting: Timer | None = None
        """Ends the time without requests; None if the connection is not muted."""
        self._muted_until_ms = 0
        self._items = 0
        # The large requests that have these items, if any.
        self._large_requests: list[Message] | None = None

    @abstractmethod
    def _goes_on_at_once(self) -> bool:
        """Send corked responses and continue reading, if nothing has been received meanwhile.

        Returns whether all is sent.
        """

    @abstractmethod
    def catch_up(self) -> None:
        """Send responses that were given meanwhile, and continue."""

    def _take(self, ctx: RequestContext, message: Any) -> None:
        """Take the answer to the newest request: send it, or queue it behind unanswered requests."""
        if self._waiting:
            ctx.output = (message,)
            self._waiting.append(ctx)
        elif not self._send(ctx, message):
            self._wait(ctx)

    def _wait(self, ctx: RequestContext) -> None:
        """Note the newest request as unanswered."""
        ctx.output = PENDING
        if self._waiting is None:
            self._waiting = deque()
        self._waiting.append(ctx)

    def _answer(self, ctx: RequestContext, message: Any) -> None:
        """`ctx.respond`: take the answer to an older request, or to the newest before its handler has returned."""
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
        self._send_answered()

    def _send_answered(self) -> None:
        """Send the answers that have no unanswered request before them."""
        waiting = self._waiting
        while waiting and waiting[0].output is not PENDING:
            first = waiting.popleft()
            (answer,) = first.output
            first.output = None
            if not self._send(first, answer):
                first.output = PENDING
                waiting.appendleft(first)
        if self._burst or self._touched or (not waiting and self._goes_on_at_once()):
            return
        if self._out or self._resting:
            self._touched = True
            self.server.touch(self)

    def _send(self, ctx: RequestContext, message: Any) -> bool:
        """Encode a response and cork it.

        None: the request has no response. Returns False if it is long and comes later.
        """
        if ctx.handled_ms >= 0:
            throttle_ms = self.server.quotas.charge(ctx, message)
            if throttle_ms > 0:
                self.mute(throttle_ms)
        items = self._items
        if items:
            self._release_items()
        if message is None:
            return True
        key = ctx.api_key
        api = self.server.apis[key]
        if (key != PRODUCE or items) and api.is_long(message):
            self.server.encoding.add(self._encoding(ctx, message), partial(self._encoded, ctx))
            return False
        api.metrics.answered(message)
        try:
            parts = encode_response(ctx.correlation_id, key, ctx.api_version, message)
        except WireError:
            self._unfit(ctx)
            return True
        self._out += parts
        self._corked_bytes += SIZE.unpack_from(parts[0])[0]  # type: ignore[arg-type]  # the head is never a file
        return True

    def _encoding(self, ctx: RequestContext, message: Any) -> Generator[None, None, list[Outgoing] | None]:
        """Encode a long answer. Returns None if the connection is closed."""
        if not self.closed:
            yield from self.server.apis[ctx.api_key].metrics.answered_in_steps(message)
        steps = encode_response_in_steps(ctx.correlation_id, ctx.api_key, ctx.api_version, message)
        try:
            while not self.closed:
                try:
                    next(steps)
                except StopIteration as end:
                    parts: list[Outgoing] = end.value
                    return parts
                yield
            return None
        finally:
            self.server.large.release(message)

    def _encoded(self, ctx: RequestContext, outcome: list[Outgoing] | Exception | None) -> None:
        waiting = self._waiting
        if self.closed or outcome is None or not waiting:
            return
        if isinstance(outcome, Exception):
            self._unfit(ctx, outcome)
            return
        assert waiting[0] is ctx, "law: a long answer is the next to send"
        waiting.popleft().output = None
        self._out += outcome
        self._corked_bytes += SIZE.unpack_from(outcome[0])[0]  # type: ignore[arg-type]
        self._send_answered()

    def _unfit(self, ctx: RequestContext, error: Exception | None = None) -> None:
        log.error("response does not encode, connection closed request=%r", ctx, exc_info=error or True)
        self.transport.abort()
        self.closed = True

    def _release_items(self) -> None:
        """The items of this connection's large requests no longer count."""
        large = self.server.large
        large.held -= self._items
        self._items = 0
        requests, self._large_requests = self._large_requests, None
        for request in requests or ():
            large.release(request)

    def mute(self, for_ms: int) -> None:
        """Handle no requests for this time: the next answer makes the client pause (KIP-219)."""
        until_ms = self.server.clock.monotonic_ms() + for_ms
        if self._unmuting is None or until_ms > self._muted_until_ms:
            self._end_mute()
            self._muted_until_ms = until_ms
            self._unmuting = self.server.env.scheduler.call_later(for_ms, self._unmute)

    def _unmute(self) -> None:
        self._unmuting = None
        if not self.closed:
            self.catch_up()

    def _end_mute(self) -> None:
        """Cancel the timer: with a low quota it may run for weeks, and it holds the connection."""
        if self._unmuting is not None:
            self._unmuting.cancel()
            self._unmuting = None

    def _flush(self) -> None:
        out = self._out
        if out:
            self._out = []
            self._corked_bytes = 0
            self.transport.write(out)
            if self.held_bytes or self.transport.held_bytes:
                self.server.unread.note(self)
