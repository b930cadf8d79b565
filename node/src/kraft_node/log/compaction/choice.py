"""The dirty part of a log, and whether to compact it now: the rules of Apache Kafka's LogCleanerManager."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from kraft_node.log.log import Log


class Dirt(NamedTuple):
    """The dirty part of a log, in whole segments."""

    first_dirty: int
    """The offset where the dirty part begins."""
    end: int
    """The offset where it ends: the base of the first segment that may not be compacted yet."""
    clean_bytes: int
    dirty_bytes: int
    delay_ms: int
    """How long ago `max.compaction.lag.ms` has passed (KIP-354); 0 if it has not."""

    @property
    def ratio(self) -> float:
        """The dirty share of the compactable bytes; 0 without compactable bytes."""
        total = self.clean_bytes + self.dirty_bytes
        return self.dirty_bytes / total if total else 0.0

    def is_due(self, min_ratio: float) -> bool:
        """Whether the log is dirty enough, or overdue."""
        return self.dirty_bytes > 0 and (self.delay_ms > 0 or self.ratio > min_ratio)


def first_dirty_offset(log: Log, checkpointed: int | None) -> int:
    """Where the dirty part begins: the checkpointed offset, or the log's start if the checkpoint cannot be right."""
    if checkpointed is None or not log.start_offset <= checkpointed <= log.end_offset:
        return log.start_offset
    return checkpointed


def first_uncleanable(log: Log, first_dirty: int, now_ms: int) -> int:
    """The base of the first segment that may not be compacted yet.

    This is the first of three segments: the active segment, the segment with the last stable offset, and the first
    dirty segment with a record younger than `min.compaction.lag.ms`. Raises OSError.
    """
    bases = log.segment_bases
    last = log.segment_number(min(log.last_stable_offset, bases[-1]))
    lag = log.config.min_compaction_lag_ms
    if lag > 0:
        for number in range(log.segment_number(first_dirty), last):
            if log.segments.at(number).largest_timestamp() > now_ms - lag:
                return bases[number]
    return bases[last]


def look(log: Log, first_dirty: int, now_ms: int) -> Dirt:
    """The dirty part of a log. Raises OSError, LogDirDamaged."""
    end = first_uncleanable(log, first_dirty, now_ms)
    clean = dirty = 0
    first, bases, sizes = log.segment_number(first_dirty), log.segment_bases, log.segments.sizes
    for number in range(len(bases) - 1):
        if bases[number] >= end:
            break
        if number < first:
            clean += sizes[number]
        else:
            dirty += sizes[number]
    return Dirt(first_dirty, end, clean, dirty, _delay_ms(log, first, now_ms))


def _delay_ms(log: Log, first: int, now_ms: int) -> int:
    latest = now_ms - log.config.max_compaction_lag_ms
    if latest <= 0:
        return 0  # the default: nothing is read
    delay, sizes = 0, log.segments.sizes
    for number in range(first, len(sizes) - 1):
        if sizes[number]:
            segment = log.segments.at(number)
            segment.load_first_timestamp()
            if segment.first_timestamp > 0:
                delay = max(delay, latest - segment.first_timestamp)
    return delay
