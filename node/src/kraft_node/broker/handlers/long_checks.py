"""Produce requests with batches that have too many records to be read at once (`log.validate.LongCheck`).

The records are copied and read in turns of the loop, one batch of the broker after the other, so that one is
decompressed at a time. The connection handles nothing more until its request has been appended, so sequences stay in
order.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.turns import Turns

log = logging.getLogger("kraft_node.broker.handlers.long_checks")

WAITING_MAX: Final = 1000
"""Batches that may wait; beyond it producers are told to try again."""

Steps: TypeAlias = "Generator[int, None, int]"
Done: TypeAlias = "Callable[[int | KafkaError], None]"


class LongChecks:
    """The checks of one broker."""

    __slots__ = ("_busy", "_queue", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._queue: deque[tuple[Steps, Done]] = deque()
        self._busy = False

    def add(self, steps: Steps, done: Done) -> None:
        """Run `steps` after those before it, then call `done` with what it returns or raises."""
        if len(self._queue) >= WAITING_MAX:
            done(KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{WAITING_MAX} batches wait for their check"))
            return
        self._queue.append((steps, done))
        if not self._busy:
            self._busy = True
            self._turns.add(self._step)

    def _step(self) -> bool:
        steps, done = self._queue[0]
        result: int | KafkaError
        try:
            next(steps)
        except StopIteration as end:
            result = end.value
        except KafkaError as error:
            result = error
        except Exception:
            log.exception("check of a batch failed")
            result = KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        else:
            return True
        self._queue.popleft()
        try:
            done(result)
        finally:
            self._busy = bool(self._queue)
            if self._busy:
                self._turns.add(self._step)
        return False
