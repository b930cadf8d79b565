"""A log gets shorter: retention, deleted records, truncation.

Files that go are renamed to .deleted at once and removed `file.delete.delay.ms` later in the background, so that
readers that still hold them finish.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraft_node.base.env import Disk
from kraft_node.log import flushing, names, opening, txn_index
from kraft_node.log.segment import Segment

if TYPE_CHECKING:
    from kraft_node.log.log import Log


def remove_segment_files(log: Log, base: int, *, keep: Sequence[str] = ()) -> None:
    """Set the files of a segment aside, to be removed later, but for the suffixes in `keep`. Raises OSError."""
    disk = log.dir.env.disk
    prefix = f"{log.path}/{base:020d}"
    aside = []
    for suffix in names.SEGMENT_SUFFIXES:
        path = prefix + suffix
        if suffix not in keep and disk.exists(path):
            disk.rename(path, path + names.DELETED)
            aside.append(path + names.DELETED)
    if base in log.txn_bases and names.TXN_INDEX not in keep:
        log.txn_bases.remove(base)
    _remove_later(log, aside)


def _remove_later(log: Log, paths: Sequence[str]) -> None:
    if not paths:
        return
    env, lane = log.dir.env, log.dir.lane

    def remove() -> None:
        env.background.submit(lane, lambda: remove_files(env.disk, paths), lambda _: None)

    env.scheduler.call_later(log.config.file_delete_delay_ms, remove)


def remove_files(disk: Disk, paths: Sequence[str]) -> None:
    """Remove what is there of `paths`. Raises OSError."""
    for path in paths:
        try:
            disk.remove(path)
        except FileNotFoundError:
            continue


def _drop_first(log: Log, count: int) -> int:
    """Drop the first `count` closed segments; bytes freed."""
    bases, sizes = log.segment_bases, log.segment_sizes()
    for base in bases[:count]:
        remove_segment_files(log, base)
    _drop_snapshots(log, [at for at in log.producers.snapshots if at in bases[:count]])
    log.replace_closed(bases[count:], sizes[count:], log.active)
    if log.start_offset < bases[count]:
        log.start_offset = bases[count]
        log.leader_epochs.truncate_from_start(log.start_offset)
    return sum(sizes[:count])


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
    bases, sizes = log.segment_bases, log.segment_sizes()
    segment = log.segment(number)
    position, length, first, _ = segment.find(offset)
    end = min(first, offset) if length else offset
    left = segment.end_before(position, end)
    # First the promise, then the data: a crash between must not find less than the recovery point states.
    log.dir.promise_less(log.topic, log.partition, left)
    log.recovery_point = min(log.recovery_point, left)
    log.max_timestamp_cache = None
    for base in reversed(bases[number + 1 :]):  # a crash between leaves no hole
        remove_segment_files(log, base)
    segment.truncate_to_position(position, end)
    txn_index.truncate(log.dir.env.disk, segment.path(names.TXN_INDEX), end)
    _keep_as_active(log, bases[: number + 1], sizes[:number], segment)
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


def _keep_as_active(log: Log, bases: list[int], sizes: list[int], segment: Segment) -> None:
    log.release()
    log.set_segments(bases, [*sizes, segment.size])
    log.active = segment
    segment.load_first_timestamp()


def reset_to(log: Log, offset: int) -> None:
    """See `Log.reset_to`. Raises OSError."""
    log.truncations += 1
    log.dir.promise_less(log.topic, log.partition, offset)
    log.recovery_point = min(log.recovery_point, offset)
    log.max_timestamp_cache = None
    log.release()
    for base in log.segment_bases:
        remove_segment_files(log, base)
    log.set_segments([offset], [0])
    log.active.file()  # what says where the log goes on
    log.names_changed += 1
    log.start_offset = log.end_offset = log.high_watermark = offset
    log.leader_epochs.clear()
    flushing.write_epochs(log)
    _drop_snapshots(log, list(log.producers.snapshots))
    log.producers.clear()
