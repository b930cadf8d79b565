"""Work that is longer than a turn of the loop may be: jobs that go on step by step, each in its turn.

A step is what may be done without asking again: about a millisecond. Between two turns the loop looks at its
descriptors and timers, so a client that costs much delays the others by one turn, whatever it costs in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Env

TURN_MS: Final = 2
"""After so long the other work of the loop has its turn; the clock counts whole milliseconds."""

STEPS_A_TURN: Final = 16
"""The bound where time stands still (simulation), and for steps that are much shorter than a turn."""


class Turns:
    """The jobs of one owner, in the order in which they wait."""

    __slots__ = ("_clock", "_queue", "_scheduled", "_scheduler")

    def __init__(self, env: Env) -> None:
        self._clock = env.clock
        self._scheduler = env.scheduler
        self._queue: deque[Callable[[], bool]] = deque()
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, step: Callable[[], bool]) -> None:
        """Call `step` in a later turn, and again in later ones as long as it returns True."""
        self._queue.append(step)
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._run)

    def _run(self) -> None:
        try:
            self._take_turn()
        finally:  # a step that raises is gone; those behind it go on
            self._scheduled = bool(self._queue)
            if self._queue:
                self._scheduler.call_soon(self._run)

    def _take_turn(self) -> None:
        queue = self._queue
        start_ms = self._clock.monotonic_ms()
        for _ in range(STEPS_A_TURN):
            step = queue.popleft()
            if step():
                queue.append(step)
            if not queue or self._clock.monotonic_ms() - start_ms >= TURN_MS:
                return
