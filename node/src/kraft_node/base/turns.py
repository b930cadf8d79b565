"""Work that is longer than a turn of the loop may be: jobs that run step by step in turns.

A step takes at most about a millisecond. Between two turns the loop handles its descriptors and timers. So an expensive
client delays others by one turn only.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from kraft_node.base.env import Env

TURN_MS: Final = 2
"""After this time other work of the loop gets its turn; the clock counts whole milliseconds."""

STEPS_A_TURN: Final = 16
"""Maximum of steps per turn, for simulations (where time does not advance) and for very short steps."""


class Turns:
    """The jobs of one owner, in the order of their arrival."""

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
        """Call `step` in a later turn, and again in later turns as long as it returns True."""
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
        finally:  # a step that raises is dropped; the others continue
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
    """Generators that run in turns, one after the other.

    `done` of each is called exactly once, with the value or exception of the generator. A `done` that raises does not
    stop the next generators.
    """

    __slots__ = ("_busy", "_queue", "_turns")

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._busy = False
        self._queue: deque[tuple[Generator[Any, None, Any], Callable[[Any], None]]] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, steps: Generator[Any, None, Any], done: Callable[[Any], None]) -> None:
        """Run `steps` after earlier generators, then call `done` with its value or its exception."""
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
        except Exception as error:  # passed to `done`, which handles it
            outcome = error
        else:
            return True
        self._queue.popleft()
        try:
            done(outcome)
        finally:  # the loop logs a `done` that raises; the next generators continue
            self._busy = bool(self._queue)
            if self._busy:
                self._turns.add(self._step)
        return False
