"""Work that is longer than a turn of the loop may be: jobs that go on step by step, each in its turn.

A step is what may be done without asking again: about a millisecond. Between two turns the loop looks at its
descriptors and timers, so a client that costs much delays the others by one turn, whatever it costs in all.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Env

log = logging.getLogger("kraft_node.base.turns")

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
        """Call `step` in a later turn, and again in later ones as long as it returns True. It must not raise."""
        self._queue.append(step)
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._run)

    def _run(self) -> None:
        queue = self._queue
        start_ms = self._clock.monotonic_ms()
        for _ in range(STEPS_A_TURN):
            step = queue.popleft()
            try:
                more = step()
            except Exception:
                log.exception("job ended by a failure job=%r", step)
                more = False
            if more:
                queue.append(step)
            if not queue or self._clock.monotonic_ms() - start_ms >= TURN_MS:
                break
        self._scheduled = bool(queue)
        if queue:
            self._scheduler.call_soon(self._run)
