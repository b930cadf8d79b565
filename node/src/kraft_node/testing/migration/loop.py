"""The surroundings of one simulated controller: time, timers, lanes and randomness, all from one seed."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

JOB_MS_MAX: Final = 40
WALL_MS: Final = 1_700_000_000_000


class SimCall:
    """A scheduled call (`base.env.Timer`)."""

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.function: Callable[..., None] | None = function
        self.args = args

    def cancel(self) -> None:
        """Drop the call; time still passes up to its place in the queue."""
        self.function = None


class SimTime:
    """Clock and event queue of a run."""

    def __init__(self, seed: int) -> None:
        self.rng = random.Random(seed)
        self.now_ms = 0.0
        self._queue: list[tuple[float, int, SimCall]] = []
        self._numbers = itertools.count()

    def at(self, delay_ms: float, function: Callable[..., None], *args: Any) -> SimCall:
        """Call `function` in `delay_ms` milliseconds, never negative; calls of one moment keep their order."""
        call = SimCall(function, args)
        heapq.heappush(self._queue, (self.now_ms + delay_ms, next(self._numbers), call))
        return call

    def run(self, until_ms: float) -> None:
        """Run what is due up to that time."""
        while self._queue and self._queue[0][0] <= until_ms:
            self.now_ms, _, call = heapq.heappop(self._queue)
            if call.function is not None:
                call.function(*call.args)
        self.now_ms = until_ms


@dataclass
class SimSurroundings:
    """What a driver takes from `base.env.Env`. `dead`: nothing of this process runs any more."""

    time: SimTime
    dead: bool = False

    def __post_init__(self) -> None:
        self._lane_free_ms = 0.0
        self.clock = SimpleNamespace(
            monotonic_ms=lambda: int(self.time.now_ms), wall_ms=lambda: WALL_MS + int(self.time.now_ms)
        )
        self.scheduler = SimpleNamespace(
            call_later=self._call_later, call_soon=lambda function, *args: self._call_later(0, function, *args)
        )
        self.background = SimpleNamespace(submit=self._submit)
        self.rng = SimpleNamespace(random_bytes=self.time.rng.randbytes, randrange=self.time.rng.randrange)

    def _call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> SimCall:
        return self.time.at(delay_ms, self.alive, function, *args)

    def alive(self, function: Callable[..., None], *args: Any) -> None:
        """Call `function` unless the process is dead."""
        if not self.dead:
            function(*args)

    def _submit(self, lane: str, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        """One lane: jobs keep their order, take a random time, and happen at its end."""
        del lane
        self._lane_free_ms = max(self._lane_free_ms, self.time.now_ms) + self.time.rng.uniform(0.1, JOB_MS_MAX)
        self.time.at(self._lane_free_ms - self.time.now_ms, self.alive, self._work, work, done)

    def _work(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        try:
            result = work()
        except Exception as e:  # the lane's contract: an exception is a result
            result = e
        self.time.at(self.time.rng.uniform(0.1, 3), self.alive, done, result)
