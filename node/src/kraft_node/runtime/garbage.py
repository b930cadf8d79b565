"""When Python looks for cyclic garbage in a node.

Reference counting frees the node's objects, so the collector only has to find rare cycles. Its own times would stop the
loop for too long:

- Python looks through the young objects after `YOUNG` allocations more than objects were freed. While one large request
  is freed, the objects of another are not counted, and one look takes 20 ms. So long jobs end each of their turns with
  a look through the young objects.
- A look through all objects takes seconds while large requests hold millions. So it waits until no long job is left.
"""

from __future__ import annotations

import gc
import logging
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Clock, Scheduler
    from kraft_node.base.turns import Line

log = logging.getLogger("kraft_node.runtime.garbage")

YOUNG: Final = 2_000
"""Allocations after which Python looks through the youngest objects."""

MIDDLE: Final = 5
"""Looks through the youngest objects, after which one includes those that stayed from the looks before: ten thousand
objects, a millisecond.
"""

FULL: Final = 4_200
"""Looks through the first two generations after which one through all objects is due: 42 million allocations."""

NEVER: Final = (1 << 31) - 1

LOOK_MS: Final = 10_000
"""Time between two checks whether a full collection is due."""

REST: Final = 1_000
"""After a full collection the next one waits for this many times its duration: full collections take at most a
thousandth of the time, also with millions of partitions."""

WAIT_MAX_MS: Final = 600_000
"""A full collection that is due waits for the end of all long jobs, but no longer than this."""


class Garbage:
    """The collections of one process with one loop."""

    def __init__(self, line: Line, clock: Clock, scheduler: Scheduler) -> None:
        self._line = line
        self._clock = clock
        self._scheduler = scheduler
        self._turns = 0
        self._not_before_ms = 0
        self._due_since_ms: int | None = None

    def start(self) -> None:
        """Begin to collect; objects that exist already are never looked through."""
        gc.collect()
        gc.freeze()
        gc.set_threshold(YOUNG, MIDDLE, NEVER)
        gc.enable()
        self._line.after_long_turn = self.long_turn_ended
        self._scheduler.call_later(LOOK_MS, self.look)

    def long_turn_ended(self) -> None:
        """Look through the young objects."""
        self._turns += 1
        gc.collect(1 if self._turns % MIDDLE == 0 else 0)

    def look(self) -> None:
        """Look through all objects, if that is due and no long job waits."""
        self._scheduler.call_later(LOOK_MS, self.look)
        now_ms = self._clock.monotonic_ms()
        if gc.get_count()[2] < FULL or now_ms < self._not_before_ms:
            return
        if self._due_since_ms is None:
            self._due_since_ms = now_ms
        if self._line.is_busy and now_ms - self._due_since_ms < WAIT_MAX_MS:
            return
        self._due_since_ms = None
        found = gc.collect()
        end_ms = self._clock.monotonic_ms()
        self._not_before_ms = end_ms + REST * (end_ms - now_ms)
        log.debug("full collection objects=%d ms=%d", found, end_ms - now_ms)
