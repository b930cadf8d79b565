"""Work that is longer than a turn of the loop may be: jobs that run step by step in turns.

A step takes at most about a millisecond. Between two turns the loop handles its descriptors and timers. So an expensive
client delays others by one turn only. All owners of jobs on a loop share its turns (`Line`): however many work at the
same time, a turn does not become longer.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Generator
from typing import Any, Final, Protocol

from kraft_node.base import rare

TURN_MS: Final = 1
"""After this time other work of the loop gets its turn; the clock counts whole milliseconds."""

STEPS_A_TURN: Final = 16
"""Maximum of steps per turn, for very short steps; in simulations only disk operations take time."""


class Line:
    """The owners of jobs on one loop. They take steps one after the other, whatever the number of their jobs."""

    __slots__ = ("_call_soon", "_latest", "_monotonic_ms", "_owners", "_scheduled", "after_long_turn")

    def __init__(self, monotonic_ms: Callable[[], int], call_soon: Callable[..., object]) -> None:
        """The functions of the clock and of the scheduler (`base.env`)."""
        self._monotonic_ms = monotonic_ms
        self._call_soon = call_soon
        self._owners: deque[Turns] = deque()
        self._latest: Turns | None = None
        self._scheduled = False
        self.after_long_turn: Callable[[], None] | None = None
        """Called at the end of a turn that took all of its time."""

    @property
    def is_busy(self) -> bool:
        """Whether jobs wait for a turn."""
        return bool(self._owners)

    def add(self, owner: Turns) -> None:
        """Let `owner` take steps in later turns, as long as it has jobs."""
        self._owners.append(owner)
        if not self._scheduled:
            self._scheduled = True
            self._call_soon(self._run)

    def callback_name(self) -> str:
        """For the log line of a slow callback: the latest step."""
        latest = None if self._latest is None else self._latest.latest
        return f"step={getattr(latest, '__qualname__', '')}"

    def _run(self) -> None:
        try:
            self._take_turn()
        finally:  # a step that raises is dropped; the others continue
            self._scheduled = bool(self._owners)
            if self._owners:
                self._call_soon(self._run)

    def _take_turn(self) -> None:
        owners = self._owners
        start_ms = self._monotonic_ms()
        for _ in range(STEPS_A_TURN):
            owner = self._latest = owners.popleft()
            try:
                owner.take_step()
            finally:
                if owner.goes_on():
                    owners.append(owner)
            if self._monotonic_ms() - start_ms >= TURN_MS or rare.takes("turn short"):
                if self.after_long_turn is not None:
                    self.after_long_turn()
                return
            if not owners:
                return


class LineSource(Protocol):
    """The environment, for its line."""

    @property
    def line(self) -> Line:
        """Long work of all parts of the process."""
        ...


class Turns:
    """The jobs of one owner, in the order of their arrival."""

    __slots__ = ("_is_in_line", "_line", "_queue", "latest")

    def __init__(self, env: LineSource) -> None:
        self._line = env.line
        self._queue: deque[Callable[[], bool]] = deque()
        self._is_in_line = False
        self.latest: Callable[[], bool] | None = None
        """The job that took the latest step."""

    def __len__(self) -> int:
        return len(self._queue)

    def add(self, step: Callable[[], bool]) -> None:
        """Call `step` in a later turn, and again in later turns as long as it returns True."""
        self._queue.append(step)
        if not self._is_in_line:
            self._is_in_line = True
            self._line.add(self)

    def take_step(self) -> None:
        """For the line: run one step of the first job. A job whose step raises is dropped."""
        step = self.latest = self._queue.popleft()
        if step():
            self._queue.append(step)

    def goes_on(self) -> bool:
        """For the line, after a step: whether jobs are left."""
        self._is_in_line = bool(self._queue)
        return self._is_in_line


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
