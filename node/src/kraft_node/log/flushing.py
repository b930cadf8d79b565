"""Makes a log durable: which files an fsync up to an offset needs, and when the recovery point may move.

The leader epochs and the aborted transactions below the recovery point are as durable as the batches: recovery relies
on them. Of the indexes only those of closed segments are fsynced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_node.base.env import Disk
from kraft_node.log import names

if TYPE_CHECKING:
    from kraft_node.log.log import Log


def write_epochs(log: Log) -> None:
    """Write the leader epochs; durable only after the next flush. Raises OSError."""
    entries = log.leader_epochs.entries()
    lines = ["0", str(len(entries)), *[f"{epoch} {start}" for epoch, start in entries]]
    path = f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}"
    disk = log.dir.env.disk
    file = disk.open(path + ".tmp", create=True)
    try:
        file.truncate(0)
        file.pwrite(0, [("\n".join(lines) + "\n").encode()])
    finally:
        file.close()
    disk.rename(path + ".tmp", path)
    log.leader_epochs.dirty = False
    log.unsynced_names = True


def begin(log: Log, up_to: int) -> Callable[[], None]:
    """Prepare what makes everything below `up_to` durable; the result is the work itself, for any thread.

    Raises OSError.
    """
    if log.leader_epochs.dirty:
        write_epochs(log)
    disk = log.dir.env.disk
    paths: list[str] = []
    number = log.segment_number(log.recovery_point)
    last = log.segment_number(up_to - 1) if up_to > log.start_offset else number
    for place in range(number, last + 1):
        segment = log.segment(place)
        if segment.size:
            paths.append(segment.path(names.LOG))
        # The active segment's indexes can wait: recovery goes on from whatever entries it finds sound.
        if segment is not log.active:
            paths.append(segment.path(names.INDEX))
            paths.append(segment.path(names.TIME_INDEX))
        if segment.base in log.txn_bases:
            paths.append(segment.path(names.TXN_INDEX))
    with_names, log.unsynced_names = log.unsynced_names, False
    if with_names:
        low = log.recovery_point
        paths += [f"{log.path}/{at:020d}{names.PRODUCER_SNAPSHOT}" for at in log.producers.snapshots if at >= low]
        if log.leader_epochs.latest_epoch >= 0:
            paths.append(f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}")
        if log.topic_id is not None:
            paths.append(f"{log.path}/{names.PARTITION_METADATA}")
    directory = log.path

    def work() -> None:
        for path in paths:
            fsync_path(disk, path)
        if not with_names:
            return
        try:
            disk.fsync_dir(directory)
        except FileNotFoundError:
            if disk.exists(directory):
                raise

    return work


def fsync_path(disk: Disk, path: str) -> None:
    """Fsync a file by name; one that has been deleted meanwhile needs none. Raises OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.fsync()
    finally:
        file.close()


def flush_now(log: Log) -> None:
    """Fsync everything on this thread. Raises OSError."""
    up_to = log.end_offset
    if up_to > log.recovery_point or log.leader_epochs.dirty:
        begin(log, up_to)()
        log.recovery_point = up_to
    log.last_flush_ms = log.dir.env.clock.wall_ms()


def schedule(log: Log, done: Callable[[], None] | None = None) -> None:
    """Fsync what is written now in the directory's thread; then move the recovery point and call `done`.

    A second request while one is waiting is one more job only when somebody wants to hear of its end.
    """
    if log.flush_scheduled and done is None:
        return
    try:
        # Everything but the active segment when nobody waits: that is what a roll asks for, and what Kafka flushes.
        up_to = log.end_offset if done is not None else log.active.base
        work = begin(log, up_to)
    except OSError as e:
        log.dir.fail(e)
        return
    log.flush_scheduled = True
    truncations = log.truncations

    def finished(result: BaseException | None) -> None:
        log.flush_scheduled = False
        if isinstance(result, BaseException):
            if not log.closed:
                log.dir.fail(result)
            return
        if log.truncations == truncations:
            log.recovery_point = max(log.recovery_point, up_to)
        log.last_flush_ms = log.dir.env.clock.wall_ms()
        if done is not None:
            done()

    log.dir.env.background.submit(log.dir.lane, work, finished)
