"""The clean stop of a log directory: all logs complete and durable, then the checkpoints, and last the clean mark.

The data to write is gathered on the event loop. Creating files and fsyncs are one job for the directory's thread,
because there may be 10,000 logs, and a controller in the same process must continue.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.env import Buffer
from kraft_node.base.errors import KafkaError
from kraft_node.log import flushing
from kraft_node.log.errors import LogDirError
from kraft_node.log.files import Originals, Put, write_file

if TYPE_CHECKING:
    from kraft_node.log.directory import Directory
    from kraft_node.log.log import Log
    from kraft_node.log.manager import LogManager

Work: TypeAlias = Callable[[], None]
"""For any thread; may raise OSError."""

SYNC_WHOLE_MIN: Final = 64
"""From this number of logs on, the whole file system is synced instead of four files per log. For fewer logs, it is not
worth waiting for the writes of other users of the file system."""


def close_directory(manager: LogManager, directory: Directory, broker_epoch: int, done: Callable[[], None]) -> None:
    """Close the logs of one directory, and the directory itself; then call `done()`.

    A failure takes the directory offline.
    """
    try:
        if manager.housekeeping.knows_topics:
            for topic, partition in manager.recovery.short(directory):
                manager.housekeeping.visit(directory, topic, partition)
        manager.futures.open_unproven(directory)
        logs = [log for log in (*manager.open_logs(), *manager.futures.logs()) if log.dir is directory]
        originals = Originals(manager.env.disk)
        work = [job for log in logs if (job := _close_log(log, originals)) is not None]
    except (OSError, LogDirError, KafkaError) as e:
        if directory.failed is None:
            directory.fail(e)
        done()
        return
    if directory.failed is not None:
        done()
        return
    manager.note_all()
    write_offsets = directory.write_offsets()
    is_clean = not directory.unrecovered

    def close() -> None:  # writing the mark fsyncs the directory
        for writes, _ in work:
            for write in writes:
                write()
        if len(work) < SYNC_WHOLE_MIN or not directory.sync_file_system():
            for _, sync in work:
                sync()
        write_offsets()
        if is_clean:
            directory.write_mark(broker_epoch)

    manager.submit(directory, close, done)


def _close_log(log: Log, originals: Originals) -> tuple[list[Work], Work] | None:
    """Complete a log's files: the remaining writes and fsyncs; None if nothing has changed.

    Both run in the directory's thread: creating a file can take a millisecond, and there may be 10,000 logs. Raises
    OSError.
    """
    log.closed = True
    writes: list[Work] = []

    def later(path: str, position: int, data: Buffer) -> None:
        writes.append(partial(write_file, log.dir.env.disk, path, position, data))

    is_new = keep_producers(log, later)
    if log.is_durable and not is_new and not log.active.index_written:
        log.close()
        return None
    log.active.finish(later)
    if log.leader_epochs.dirty:
        writes.append(flushing.epochs_writer(log, originals))
    flush = flushing.Flush(log, log.end_offset, closing=True)
    log.recovery_point = log.end_offset
    log.close()
    return writes, flush.work


def keep_producers(log: Log, put: Put | None = None) -> bool:
    """Before a log is closed, write a snapshot of its producers, because clean logs are opened from snapshots only.

    Returns whether the snapshot is new. Raises OSError.
    """
    producers = log.producers
    if log.end_offset in producers.snapshots or not (producers.snapshots or len(producers)):
        return False
    log.take_snapshot(log.end_offset, put)
    return True
