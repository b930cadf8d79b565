"""Shortening a log: retention, deleted records, truncation.

This file decides which segments are dropped; `log.segments.segment_list` drops them.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.log import flushing, names
from kraft_node.log.errors import CutLater
from kraft_node.log.producers.replay import load_producers
from kraft_node.log.segments import txn_index
from kraft_node.log.waiting import policy_flush
from kraft_protocol.errors import KafkaError

if TYPE_CHECKING:
    from kraft_node.log.seams import CopiedLog, LogT, TrimmedLog

TURN_STEP: Final = 2
"""Segments dropped per step of a turn."""

CUT_STEP: Final = 32
"""Segments that a truncation or a reset drops in one go: about two milliseconds, five files each."""

DROP_STEP: Final = 16
"""Segments checked and dropped at once: about a millisecond, five files each."""


def _drop_first(log: TrimmedLog, count: int) -> int:
    """Drop the first `count` closed segments. Returns the freed bytes."""
    dropped = {log.segments.base_at(number) for number in range(count)}
    snapshots = log.producer_snapshots  # ascending, and perhaps one for each of very many segments
    old = [at for at in snapshots[: bisect_right(snapshots, max(dropped))] if at in dropped]
    freed = log.segments.drop_first(count, old)
    log.forget_times()
    _forget_snapshots(log, old)
    first = log.segments.first_base
    if log.start_offset < first:
        log.start_offset = first
        log.leader_epochs.truncate_from_start(first)
    return freed


def _drop_snapshots(log: TrimmedLog, offsets: Sequence[int]) -> None:
    log.segments.drop_snapshots(offsets)
    _forget_snapshots(log, offsets)


def _forget_snapshots(log: TrimmedLog, offsets: Sequence[int]) -> None:
    """`offsets` are ascending. The cost follows them, not all snapshots."""
    if not offsets:
        return
    known, doomed = log.producers.snapshots, set(offsets)
    first, last = bisect_left(known, offsets[0]), bisect_right(known, offsets[-1])
    log.producers.snapshots = (*known[:first], *(at for at in known[first:last] if at not in doomed), *known[last:])


def drop_old_snapshots(log: TrimmedLog, recovery_point: int) -> None:
    """Drop the snapshots inside segments that a recovery from `recovery_point` or later does not need."""
    known = [at for at in log.producer_snapshots if at <= recovery_point][:-1]
    if known:
        bases = set(log.segments.bases)
        _drop_snapshots(log, [at for at in known if at not in bases])


def drop_before_start(log: TrimmedLog, most: int | None = None) -> int:
    """Drop up to `most` segments that end at or before the log's start. Returns the freed bytes. Raises OSError."""
    closed = len(log.segments) - 1
    last = closed if most is None else min(most, closed)
    count = 0
    while count < last and log.segment_end(count) <= log.start_offset:
        count += 1
    return _drop_first(log, count) if count else 0


def drop_later(log: TrimmedLog) -> None:
    """Drop the rest before the log's start in later turns of the loop."""

    def step() -> bool:
        if log.closed or log.dir.failed is not None:
            return False
        try:
            log.drop_before_start(TURN_STEP)
        except KafkaError:
            return False  # the directory is dead and was reported; or retention tries again
        return begins_early(log)

    if begins_early(log):
        log.dir.turns.add(step)


def begins_early(log: TrimmedLog) -> bool:
    """Whether a whole segment is before the log's start."""
    return len(log.segments) > 1 and log.segment_end(0) <= log.start_offset


def retain(log: TrimmedLog, now_ms: int, most: int | None = None) -> int:
    """Drop segments that retention by time and size, and the log's start, no longer need. Returns the freed bytes.

    At most `most` segments: there may be more as long as some are freed. Raises OSError.
    """
    freed = 0
    if log.config.delete:
        bound = len(log.segments) if most is None else min(most, len(log.segments))
        count = max(_expired(log, now_ms, bound), _too_many(log, bound))
        if count == len(log.segments) and log.segments.active.size:
            log.roll(log.end_offset)
        count = min(count, len(log.segments) - 1)
        if count:
            freed = _drop_first(log, count)
    return freed + drop_before_start(log, most)


def _expired(log: TrimmedLog, now_ms: int, bound: int) -> int:
    """How many segments, from the first and up to `bound`, are older than retention.ms and replicated."""
    keep_ms = log.config.retention_ms
    count = 0
    if keep_ms >= 0:
        while count < bound and log.segment_end(count) <= log.high_watermark:
            is_unused = count == len(log.segments) - 1 and log.segments.active.size == 0
            if is_unused or now_ms - log.segments.age_timestamp(count) <= keep_ms:
                break
            count += 1
    return count


def _too_many(log: TrimmedLog, bound: int) -> int:
    """How many segments, from the first and up to `bound`, must be dropped to respect retention.bytes."""
    keep_bytes = log.config.retention_bytes
    if keep_bytes < 0:
        return 0
    excess = log.segments.size_bytes - keep_bytes
    count = 0
    while count < bound:
        size = log.segments.size_at(count)
        if excess < size or log.segment_end(count) > log.high_watermark:
            break
        excess -= size
        count += 1
    return count


def promised_high_watermark(log: TrimmedLog) -> int:
    """The checkpoint value: a power loss may restore records above the recovery point that were truncated."""
    if log.truncations > max(log.cuts_synced, 0):
        return min(log.high_watermark, log.recovery_point)
    return log.high_watermark


def with_twin(log: CopiedLog[LogT], work: Callable[[LogT], object]) -> None:
    """Do `work` with the copy, if it exists. A copy that fails reports to its directory; the log continues without it.

    Raises CutLater: both wait.
    """
    if log.twin is None:
        return
    try:
        work(log.twin)
    except CutLater:
        raise
    except KafkaError:
        log.twin = None


def truncate_to(log: TrimmedLog, offset: int) -> bool:
    """See `Log.truncate_to`. Raises CutLater, OSError, LogDirDamaged."""
    if offset >= log.end_offset:
        # An epoch without records that began here as leader must be removed, too: the leader does not know it.
        log.leader_epochs.truncate_from_end(offset)
        if log.leader_epochs.dirty:
            flushing.write_epochs(log)
        return False
    if offset < log.segments.first_base:
        reset_to(log, offset)
        return True
    number = log.segment_number(offset)
    segment = log.segments.at(number)
    position, end, left = 0, offset, offset
    if offset > segment.base:
        position, length, first, _ = segment.find(offset)
        end = min(first, offset) if length else offset
        left = segment.end_before(position, end)
    # First lower the promise, then truncate: after a crash in between, the log must not end below the recovery point.
    log.dir.promise_less(log.topic, log.partition, left)
    log.recovery_point = min(log.recovery_point, left)
    _drop_last(log, number, offset)
    _cut_at(log, number, position, end, has_gap=left < end)
    return True


def _drop_last(log: TrimmedLog, number: int, offset: int) -> None:
    """Leave few segments behind segment `number`: of many segments, drop the last and raise CutLater.

    After each call the log is a log truncated to the base of a segment, so it is valid even if no retry follows.
    """
    step = log.dir.cut_step
    last = len(log.segments) - 1 - (step or 0)
    if step is not None and last > number:
        _cut_at(log, last, 0, log.segments.base_at(last))
        raise CutLater(log.topic, log.partition, offset, is_soon=True)


def _cut_at(log: TrimmedLog, number: int, position: int, end: int, *, has_gap: bool = False) -> None:
    """Cut the log at `position` of a segment, where offset `end` would come; `has_gap` if compaction has left a gap."""
    log.truncations += 1
    log.recovery_point = min(log.recovery_point, end)
    log.forget_times()
    segment = log.segments.keep_first(number + 1)
    segment.truncate_to_position(position, end)
    txn_index.truncate(log.dir.env.disk, segment.path(names.TXN_INDEX), end)
    segment.load_first_timestamp()
    if segment.size == 0:
        log.roll(end)  # marks where the log continues after a restart
    log.end_offset = end
    policy_flush.truncated(log, end)
    log.start_offset = min(log.start_offset, end)
    log.high_watermark = min(log.high_watermark, end)
    log.leader_epochs.truncate_from_end(end)
    flushing.write_epochs(log)
    _drop_snapshots(log, [at for at in log.producer_snapshots if at > end])
    _producers_of_the_rest(log)
    if segment.size and has_gap:
        log.roll(end)  # compaction has removed the records there


def _producers_of_the_rest(log: TrimmedLog) -> None:
    """Restore the producers after a truncation. A log that knows no producer at its end needs to read no batches."""
    producers = log.known_producers
    if producers is None:
        return
    if len(producers):
        load_producers(log, replay_from=None)
    else:
        producers.clear()


def reset_to(log: TrimmedLog, offset: int, *, in_steps: bool = True) -> None:
    """See `Log.reset_to`. Raises CutLater, OSError."""
    step = log.dir.cut_step
    if in_steps and step is not None and len(log.segments) - 1 > step:
        # A crash between two steps leaves a log that ends earlier than before.
        log.dir.promise_less(log.topic, log.partition, log.segments.first_base)
        _drop_last(log, 0, offset)
    log.dir.promise_less(log.topic, log.partition, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.truncations += 1
    log.forget_times()
    log.segments.restart(offset)
    log.names_changed += 1
    log.start_offset = log.end_offset = log.high_watermark = offset
    policy_flush.truncated(log, 0)
    log.leader_epochs.clear()
    flushing.write_epochs(log)
    _drop_snapshots(log, list(log.producer_snapshots))
    if log.known_producers is not None:
        log.producers.clear()
