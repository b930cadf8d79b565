"""Makes a log durable: the files that an fsync up to an offset needs, and when the recovery point may move.

The leader epochs and aborted transactions below the recovery point are as durable as the batches, because recovery
relies on them. Of the indexes, only the indexes of closed segments are fsynced.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import Disk
from kraft_node.log import names
from kraft_node.log.errors import is_shortage
from kraft_node.log.segments.files import SHORTAGE_PAUSE_MS, Originals, write_file

if TYPE_CHECKING:
    from kraft_node.log.seams import FlushedLog


SNAPSHOT_BYTES: Final = 16 << 20
"""After this many bytes of a segment, a flush also writes a snapshot of the producers, from which recovery starts.

Without a snapshot, recovery would read the segment's batches from the first, far below the recovery point.
"""


def write_epochs(log: FlushedLog) -> None:
    """Write the leader epochs; durable only after the next flush. Raises OSError."""
    try:
        epochs_writer(log)()
    except OSError:  # without a descriptor the log goes on: its next flush writes them
        log.leader_epochs.dirty = True
        raise


def epochs_writer(log: FlushedLog, originals: Originals | None = None) -> Callable[[], None]:
    """Work for any thread that writes the current leader epochs; it raises OSError.

    `originals` belongs to the thread: the first epoch is the same for most logs.
    """
    entries = log.leader_epochs.entries()
    lines = ["0", str(len(entries)), *[f"{epoch} {start}" for epoch, start in entries]]
    data = ("\n".join(lines) + "\n").encode()
    path = f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}"
    disk = log.dir.env.disk
    log.leader_epochs.dirty = False
    log.names_changed += 1

    def work() -> None:
        if disk.exists(path):
            write_file(disk, path + ".tmp", 0, data)
            disk.rename(path + ".tmp", path)
        elif originals is not None:
            originals.put(path, data)
        else:
            write_file(disk, path, 0, data)

    return work


class Flush:
    """One fsync of a log up to an offset: created on the loop, `work` in any thread, then `done` on the loop."""

    __slots__ = ("_directories", "_disk", "_log", "_names", "_path", "_paths", "_truncations", "_whole", "up_to")

    def __init__(self, log: FlushedLog, up_to: int, *, closing: bool = False, indexes: bool = False) -> None:
        """Prepare to make everything below `up_to` durable; with `indexes` also the indexes of the active segment.

        `closing`: at a clean stop, which needs the indexes and makes the log directory's names durable itself. Raises
        OSError.
        """
        indexes |= closing
        if indexes:
            log.segments.active.index_written = False
        if log.leader_epochs.dirty:
            write_epochs(log)
        position = log.segments.active.size
        if up_to == log.end_offset and position - log.snapshot_position >= SNAPSHOT_BYTES:
            log.snapshot_position = position
            log.take_snapshot(up_to)
        self._log = log
        self._path = log.path
        self._disk = log.dir.env.disk
        self._truncations = log.truncations
        self._whole = up_to == log.end_offset
        self._names = log.names_changed
        self.up_to = up_to
        with_names = log.names_changed != log.names_synced
        self._directories: list[str] = []
        if with_names:
            # The partition's own directory may be new.
            self._directories = [log.path] if closing else [log.path, log.dir.path]
        self._paths = _paths(log, up_to, with_names=with_names, indexes=indexes)

    def work(self) -> None:
        """Fsync. Raises OSError."""
        for path in self._paths:
            fsync_path(self._disk, path)
        for directory in self._directories:
            try:
                self._disk.fsync_dir(directory)
            except FileNotFoundError:
                if self._disk.exists(directory):
                    raise

    def done(self) -> bool:
        """Note that the data is durable, unless the log has been truncated since.

        False if the log has been renamed: then `work` may not have found the files under their old names.
        """
        log = self._log
        if log.path != self._path and not log.closed:
            return False
        log.names_synced = max(log.names_synced, self._names)
        if log.truncations == self._truncations:
            log.recovery_point = max(log.recovery_point, self.up_to)
            if self._whole:
                log.cuts_synced = self._truncations
        log.last_flush_ms = log.dir.env.clock.wall_ms()
        return True


def _paths(log: FlushedLog, up_to: int, *, with_names: bool, indexes: bool) -> list[str]:
    paths: list[str] = []
    first = log.segment_number(log.recovery_point - 1)  # which may have been active when it was flushed
    last = log.segment_number(up_to if up_to == log.end_offset else up_to - 1)
    for place in range(first, last + 1):
        segment = log.segments.at(place)
        paths.append(segment.path(names.LOG))  # also for an empty segment: its truncation must be durable
        # The active segment's indexes can wait: recovery continues from the valid entries that it finds.
        if indexes or segment is not log.segments.active:
            paths.append(segment.path(names.INDEX))
            paths.append(segment.path(names.TIME_INDEX))
        if segment.base in log.txn_bases:
            paths.append(segment.path(names.TXN_INDEX))
    if with_names:
        low = log.recovery_point
        paths += [f"{log.path}/{at:020d}{names.PRODUCER_SNAPSHOT}" for at in log.producer_snapshots if at >= low]
        if log.leader_epochs.latest_epoch >= 0:
            paths.append(f"{log.path}/{names.LEADER_EPOCH_CHECKPOINT}")
        if log.topic_id is not None:
            paths.append(f"{log.path}/{names.PARTITION_METADATA}")
    return paths


def fsync_path(disk: Disk, path: str) -> None:
    """Fsync a file by name; a file that was deleted meanwhile needs no fsync. Raises OSError."""
    try:
        file = disk.open(path)
    except FileNotFoundError:
        return
    try:
        file.fsync()
    finally:
        file.close()


def flush_now(log: FlushedLog) -> None:
    """Fsync everything on this thread. Raises OSError."""
    if not log.is_durable:
        flush = Flush(log, log.end_offset)
        flush.work()
        flush.done()


def _again(log: FlushedLog, done: Callable[[], None] | None, indexes: bool) -> None:
    if not log.closed and log.dir.failed is None:
        schedule(log, done, indexes=indexes)


def schedule(log: FlushedLog, done: Callable[[], None] | None = None, *, indexes: bool = False) -> None:
    """Fsync the data written so far in the directory's thread; then move the recovery point and call `done`.

    Without `done`, only the part before the active segment, after a roll; at most one job without `done` at a time.
    """
    if log.flush_scheduled and done is None:
        return
    try:
        flush = Flush(log, log.end_offset if done is not None else log.segments.active.base, indexes=indexes)
    except OSError as e:
        log.dir.fail(e)
        if is_shortage(e):
            log.dir.env.scheduler.call_later(SHORTAGE_PAUSE_MS, _again, log, done, indexes)
        return
    log.flush_scheduled = True

    def finished(result: BaseException | None) -> None:
        if isinstance(result, BaseException) and is_shortage(result) and log.dir.failed is None:
            log.dir.files.shed()
            log.dir.env.scheduler.call_later(SHORTAGE_PAUSE_MS, submit)
            return
        log.flush_scheduled = False
        if isinstance(result, BaseException):
            if not log.closed:
                log.dir.fail(result)
            return
        if not flush.done():
            _again(log, done, indexes)
        elif done is not None:
            done()
        elif log.recovery_point < log.segments.active.base and not log.closed and log.dir.failed is None:
            schedule(log)  # for segments that were rolled meanwhile

    def submit() -> None:
        log.dir.env.background.submit(log.dir.lane, flush.work, finished)

    submit()
