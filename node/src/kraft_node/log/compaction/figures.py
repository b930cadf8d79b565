"""The figures of compaction for the metrics: Apache Kafka's gauges of LogCleaner and LogCleanerManager."""

from __future__ import annotations

from collections import deque
from typing import Final, NamedTuple

PASSES_KEPT: Final = 8
"""Passes that the gauges cover. Apache Kafka's gauges cover the last pass of each thread."""


class PassFigures(NamedTuple):
    """One finished pass."""

    took_ms: int
    utilization: float
    """Share of the memory for keys, 0 to 1."""
    bytes_read: int
    bytes_written: int


class Figures:
    """The figures of one node's cleaner."""

    __slots__ = ("last_run_ms", "max_delay_ms", "max_dirty_ratio", "passes")

    def __init__(self) -> None:
        self.passes: deque[PassFigures] = deque(maxlen=PASSES_KEPT)
        self.last_run_ms = 0
        """When the cleaner last looked for work, monotonic milliseconds."""
        self.max_dirty_ratio = 0.0
        """Of the logs that the cleaner checked last."""
        self.max_delay_ms = 0
        """How long `max.compaction.lag.ms` of the most overdue log had passed then."""

    @property
    def max_clean_time_secs(self) -> int:
        """Duration of the longest of the last passes in whole seconds, rounded down; 0 without a pass."""
        return max((each.took_ms for each in self.passes), default=0) // 1000

    @property
    def max_buffer_utilization_percent(self) -> int:
        """The largest share of the memory for keys in one of the last passes, 0 to 100."""
        return int(100 * max((each.utilization for each in self.passes), default=0.0))

    @property
    def recopy_percent(self) -> int:
        """The remaining share of the copied bytes."""
        read = sum(each.bytes_read for each in self.passes)
        return 100 * sum(each.bytes_written for each in self.passes) // max(read, 1)
