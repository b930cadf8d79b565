"""Answers that wait until their records are committed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraft_node.base.request import RequestContext
from kraft_protocol.errors import ErrorCode, KafkaError

DEFERRED_MAX: Final = 20_000
"""Maximum of waiting answers. A connection has one unanswered request, so honest clients never reach this number. If
commits have stopped for so long that it is reached, an error is better than growth."""

Refuse = Callable[[RequestContext, Any, KafkaError], Any]
"""Makes the error response to a request."""


class Deferred:
    """Waiting answers, ordered by the offset that they wait for."""

    __slots__ = ("_waiting", "reached")

    def __init__(self) -> None:
        self.reached = -1
        """Everything up to this offset is committed; the image may be behind, if a transaction holds records."""
        self._waiting: deque[tuple[int, RequestContext, Any, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def highest_offset(self) -> int:
        """The offset that the last answer waits for; -1 if no answer waits."""
        return self._waiting[-1][0] if self._waiting else -1

    def check_room(self) -> None:
        """Raise REQUEST_TIMED_OUT if too many answers wait already."""
        if len(self._waiting) >= DEFERRED_MAX:
            message = f"{DEFERRED_MAX} answers already wait for the metadata log to be committed."
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    def add(self, offset: int, ctx: RequestContext, request: Any, response: Any) -> None:
        """Send `response` once the record at `offset` is committed."""
        assert offset >= self.highest_offset, "law: answers are deferred in the order of the log"
        self._waiting.append((offset, ctx, request, response))

    def committed(self, offset: int) -> None:
        """Send all answers with committed records."""
        self.reached = max(self.reached, offset)
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, ctx, _, response = waiting.popleft()
            ctx.respond(response)

    def drop(self, error: KafkaError, refuse: Refuse) -> None:
        """Refuse all waiting requests: leadership is lost, and whether the records will be committed is unknown."""
        waiting, self._waiting = self._waiting, deque()
        for _, ctx, request, _ in waiting:
            ctx.respond(refuse(ctx, request, error))
