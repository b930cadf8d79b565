"""How long loads, batches and commits of one coordinator took, for its metrics."""

from __future__ import annotations

from collections import deque
from typing import Final

from kraft_node.base.histogram import Histogram

LOADS_OF_MS: Final = 30_000
"""Load times are of the last 30 seconds, as in Kafka."""


class RuntimeMeasures:
    """The durations in one runtime, in milliseconds."""

    __slots__ = ("_loads", "batches", "linger_ms", "purgatory_ms")

    def __init__(self) -> None:
        self.batches = 0
        """Batches appended since the start."""
        self.linger_ms = Histogram()
        """From the first operation of a batch to its append."""
        self.purgatory_ms = Histogram()
        """From an operation's append, or its joining a batch, to its answer."""
        self._loads: deque[tuple[int, int]] = deque()

    def loaded(self, duration_ms: int, now_ms: int) -> None:
        """A partition was loaded."""
        self._loads.append((now_ms, duration_ms))
        self.recent_loads(now_ms)

    def recent_loads(self, now_ms: int) -> list[int]:
        """The durations of the loads in the last 30 seconds."""
        loads = self._loads
        while loads and loads[0][0] <= now_ms - LOADS_OF_MS:
            loads.popleft()
        return [duration_ms for _, duration_ms in loads]
