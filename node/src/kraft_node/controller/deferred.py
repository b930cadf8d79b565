"""Answers that wait for the commit of what they say."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.request import RequestContext

DEFERRED_MAX: Final = 20_000
"""Answers that may wait. A connection has one unanswered request to us, so this is beyond any number of honest clients;
when commits have stopped for long enough to fill it, saying so is better than growing."""

Refuse = Callable[[RequestContext, Any, KafkaError], Any]
"""Makes the error response to a request."""


class Deferred:
    """Waiting answers in the order of the offsets that they wait for."""

    __slots__ = ("_waiting",)

    def __init__(self) -> None:
        self._waiting: deque[tuple[int, RequestContext, Any, Any]] = deque()

    def __len__(self) -> int:
        return len(self._waiting)

    @property
    def highest_offset(self) -> int:
        """The offset that the last of them waits for; -1 when none waits."""
        return self._waiting[-1][0] if self._waiting else -1

    def check_room(self) -> None:
        if len(self._waiting) >= DEFERRED_MAX:
            message = f"{DEFERRED_MAX} answers already wait for the metadata log to be committed."
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, message)

    def add(self, offset: int, ctx: RequestContext, request: Any, response: Any) -> None:
        assert offset >= self.highest_offset, "law: answers are deferred in the order of the log"
        self._waiting.append((offset, ctx, request, response))

    def committed(self, offset: int) -> None:
        """Give all answers whose records are committed by now."""
        waiting = self._waiting
        while waiting and waiting[0][0] <= offset:
            _, ctx, _, response = waiting.popleft()
            ctx.respond(response)

    def drop(self, error: KafkaError, refuse: Refuse) -> None:
        """Leadership is lost: nobody knows whether the records will be committed."""
        waiting, self._waiting = self._waiting, deque()
        for _, ctx, request, _ in waiting:
            ctx.respond(refuse(ctx, request, error))
