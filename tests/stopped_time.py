"""Time that stands still until a test lets it pass: the clock, scheduler and randomness of an `Env`."""

from __future__ import annotations

import heapq
import itertools
import random
from collections.abc import Callable
from typing import Any

WALL_BASE_MS = 1_700_000_000_000
"""The calendar's time when the clock shows 0."""


class Call:
    """A scheduled call (`base.env.Timer`)."""

    def __init__(self, function: Callable[..., None], args: tuple[Any, ...]) -> None:
        self.function = function
        self.args = args
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True

    def run(self) -> None:
        """Call the function unless the call was cancelled."""
        if not self.cancelled:
            self.function(*self.args)


class StoppedTime:
    """Clock and scheduler in one. Calls run only in `advance` and `step`, in the order of their times.

    A test may also set `now`, in milliseconds: then the process stalled, and late calls run at the next `advance`.
    """

    def __init__(self, now: int = 0) -> None:
        self.now = now
        self._queue: list[tuple[float, int, Call]] = []
        self._numbers = itertools.count()

    def monotonic_ms(self) -> int:
        return self.now

    def wall_ms(self) -> int:
        return WALL_BASE_MS + self.now

    def call_soon(self, function: Callable[..., None], *args: Any) -> Call:
        return self.call_later(0, function, *args)

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> Call:
        call = Call(function, args)
        heapq.heappush(self._queue, (self.now + delay_ms, next(self._numbers), call))
        return call

    @property
    def pending(self) -> int:
        """The number of scheduled calls."""
        return sum(not call.cancelled for _, _, call in self._queue)

    def take(self, until: float = float("inf")) -> list[Call]:
        """Remove the calls that are due by `until` from the queue. Returns them in the order of their times."""
        found = []
        while self._queue and self._queue[0][0] <= until:
            found.append(heapq.heappop(self._queue)[2])
        return found

    def step(self, until: float) -> bool:
        """Run the next call that is due by `until`. Returns False without a due call."""
        if not self._queue or self._queue[0][0] > until:
            return False
        at, _, call = heapq.heappop(self._queue)
        self.now = max(self.now, int(at))
        call.run()
        return True

    def advance(self, ms: int = 0) -> None:
        """Let `ms` pass, and run the calls that become due. Without `ms`: the calls that are due now."""
        end = self.now + ms
        while self.step(end):
            pass
        self.now = end


class SeededRandom:
    """Randomness under a seed (`base.env.Rng`)."""

    def __init__(self, seed: int = 7) -> None:
        self._random = random.Random(seed)

    def random_bytes(self, count: int) -> bytes:
        return self._random.randbytes(count)

    def randrange(self, stop: int) -> int:
        return self._random.randrange(stop)
