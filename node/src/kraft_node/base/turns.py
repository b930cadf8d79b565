"""Work that is longer than a turn of the loop may be: jobs that go on step by step, each in its turn.

A step is what may be done without asking again: about a millisecond. Between two turns the loop looks at its
descriptors and timers, so a client that costs much delays the others by one turn, whatever it costs in all.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Env

TURN_MS: Final = 2
"""After so long the other work of the loop has its turn; the clock counts whole milliseconds."""

STEPS_A_TURN: Final = 16
"""The bound where time stands still (simulation), and for steps that are much shorter than a turn."""


class Turns:
    """The jobs of one owner, in the order in which they wait."""

    __slots__ = ("_clock", "_latest", "_queue", "_scheduled", "_scheduler")

    def __init__(self, env: Env) -> None:
        self._clock = env.clock
        self._scheduler = env.scheduler
        self._queue: deque[Callable[[], bool]] = deque()
        self._latest: Callable[[], bool] | None = None
        self._scheduled = False

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, step: Callable[[], bool]) -> None:
        """Call `step` in a later turn, and again in later ones as long as it returns True."""
        self._queue.append(step)
        if not self._scheduled:
            self._scheduled = True
            self._scheduler.call_soon(self._run)

    def callback_name(self) -> str:
        """For the log line of a slow callback: the latest step."""
        return f"step={getattr(self._latest, '__qualname__', '')}"

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
            step = self._latest = queue.popleft()
            if step():
                queue.append(step)
            if not queue or self._clock.monotonic_ms() - start_ms >= TURN_MS:
                return


class OneByOne:
    """Generators that run in turns, one after the other: the next begins when the one before it has ended.

    `done` of each is called exactly once, with what the generator returned or raised. A `done` that raises does not
    stop those behind it.
    """

    __slots__ = ("_busy", "_queue", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._busy = False
        self._queue: deque[tuple[Generator[Any, None, Any], Callable[[Any], None]]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, steps: Generator[Any, None, Any], done: Callable[[Any], None]) -> None:
        """Run `steps` after those before it, then call `done` with its value or its exception."""
        self._queue.append((steps, done))
        if not self._busy:
            self._busy = True
            self._turns.add(self._step)

    def _step(self) -> bool:
        steps, done = self._queue[0]
        outcome: Any
        try:
            next(steps)
        except StopIteration as end:
            outcome = end.value
        except Exception as error:  # told to `done`, which knows what it costs
            outcome = error
        else:
            return True
        self._queue.popleft()
        try:
            done(outcome)
        finally:  # a `done` that raises is the loop's business; those behind it go on
            self._busy = bool(self._queue)
            if self._busy:
                self._turns.add(self._step)
        return False
