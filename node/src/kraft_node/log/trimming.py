"""A log gets shorter: retention, deleted records, truncation.

Which segments go is decided here; `log.segments` drops them.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraft_node.log import flushing, names, opening, txn_index
from kraft_node.log.segments import remove_files

if TYPE_CHECKING:
    from kraft_node.log.log import Log


def _drop_first(log: Log, count: int) -> int:
    """Drop the first `count` closed segments; bytes freed."""
    dropped = set(log.segment_bases[:count])
    freed = log.segments.drop_first(count)
    log.max_timestamp_cache = None
    _drop_snapshots(log, [at for at in log.producers.snapshots if at in dropped])
    first = log.segments.first_base
    if log.start_offset < first:
        log.start_offset = first
        log.leader_epochs.truncate_from_start(first)
    return freed


def _drop_snapshots(log: Log, offsets: Sequence[int]) -> None:
    disk = log.dir.env.disk
    for offset in offsets:
        log.producers.snapshots.remove(offset)
        remove_files(disk, [f"{log.path}/{offset:020d}{names.PRODUCER_SNAPSHOT}"])


def drop_old_snapshots(log: Log, recovery_point: int) -> None:
    """Drop the snapshots within segments that a recovery from `recovery_point` or later does not need."""
    known = [at for at in log.producers.snapshots if at <= recovery_point][:-1]
    if known:
        bases = set(log.segment_bases)
        _drop_snapshots(log, [at for at in known if at not in bases])


def drop_before_start(log: Log) -> int:
    """Drop the segments that end at or before the log's start; bytes freed. Raises OSError."""
    count = 0
    while count < len(log.segment_bases) - 1 and log.segment_end(count) <= log.start_offset:
        count += 1
    return _drop_first(log, count) if count else 0


def retain(log: Log, now_ms: int) -> int:
    """Drop what retention by time and size, and the log's start, no longer need; bytes freed. Raises OSError."""
    freed = 0
    if log.config.delete:
        count = max(_expired(log, now_ms), _too_many(log))
        if count == len(log.segment_bases) and log.active.size:
            log.roll(log.end_offset)
        count = min(count, len(log.segment_bases) - 1)
        if count:
            freed = _drop_first(log, count)
    return freed + drop_before_start(log)


def _expired(log: Log, now_ms: int) -> int:
    """How many segments, from the first, are older than retention.ms and replicated."""
    keep_ms = log.config.retention_ms
    count = 0
    if keep_ms >= 0:
        while count < len(log.segment_bases) and log.segment_end(count) <= log.high_watermark:
            segment = log.segment(count)
            is_unused = segment is log.active and segment.size == 0
            if is_unused or now_ms - segment.largest_timestamp() <= keep_ms:
                break
            count += 1
    return count


def _too_many(log: Log) -> int:
    """How many segments, from the first, can go before the log is no larger than retention.bytes."""
    keep_bytes = log.config.retention_bytes
    if keep_bytes < 0:
        return 0
    excess = log.size_bytes - keep_bytes
    count = 0
    for size in log.segment_sizes():
        if excess < size or log.segment_end(count) > log.high_watermark:
            break
        excess -= size
        count += 1
    return count


def truncate_to(log: Log, offset: int) -> bool:
    """See `Log.truncate_to`. Raises OSError, LogDirDamaged."""
    if offset >= log.end_offset:
        # An epoch without records, begun here as leader, must go even so: the leader does not know it.
        log.leader_epochs.truncate_from_end(offset)
        if log.leader_epochs.dirty:
            flushing.write_epochs(log)
        return False
    if offset < log.segment_bases[0]:
        reset_to(log, offset)
        return True
    log.truncations += 1
    number = log.segment_number(offset)
    segment = log.segment(number)
    position, length, first, _ = segment.find(offset)
    end = min(first, offset) if length else offset
    left = segment.end_before(position, end)
    # First the promise, then the data: a crash between must not find less than the recovery point states.
    log.dir.promise_less(log.topic, log.partition, left)
    log.recovery_point = min(log.recovery_point, left)
    log.max_timestamp_cache = None
    segment = log.segments.keep_first(number + 1)
    segment.truncate_to_position(position, end)
    txn_index.truncate(log.dir.env.disk, segment.path(names.TXN_INDEX), end)
    segment.load_first_timestamp()
    if segment.size == 0:
        log.roll(end)  # where it goes on, should nothing come before the next start
    log.end_offset = end
    log.start_offset = min(log.start_offset, end)
    log.high_watermark = min(log.high_watermark, end)
    log.leader_epochs.truncate_from_end(end)
    flushing.write_epochs(log)
    _drop_snapshots(log, [at for at in log.producers.snapshots if at > end])
    opening.load_producers(log, replay_from=None)
    if segment.size and left < end:
        log.roll(end)  # compaction has removed what was there
    return True


def reset_to(log: Log, offset: int) -> None:
    """See `Log.reset_to`. Raises OSError."""
    log.truncations += 1
    log.dir.promise_less(log.topic, log.partition, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.max_timestamp_cache = None
    log.segments.restart(offset)
    log.names_changed += 1
    log.start_offset = log.end_offset = log.high_watermark = offset
    log.leader_epochs.clear()
    flushing.write_epochs(log)
    _drop_snapshots(log, list(log.producers.snapshots))
    log.producers.clear()
