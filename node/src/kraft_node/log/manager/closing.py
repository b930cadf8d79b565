"""The clean stop of a log directory: all logs complete and durable, then the checkpoints, and last the clean mark.

The data to write is gathered on the event loop, in steps. Creating files and fsyncs are jobs of the directory's thread,
because there may be 100,000 logs, and a controller in the same process must continue.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from kraft_node.base.turns import OneByOne
from kraft_node.log import flushing
from kraft_node.log.manager.seams import LogTable
from kraft_node.log.producers.replay import keep_producers
from kraft_node.log.segments.files import Originals, write_file
from kraft_protocol.buffers import Buffer

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.log.manager.directory import Directory
    from kraft_node.log.manager.futures import Futures
    from kraft_node.log.manager.housekeeping import Housekeeping
    from kraft_node.log.recovery.background import Recovery

Work: TypeAlias = Callable[[], None]
"""For any thread; may raise OSError."""

SYNC_WHOLE_MIN: Final = 64
"""From this number of logs on, the whole file system is synced instead of four files per log. For fewer logs, it is not
worth waiting for the writes of other users of the file system."""


CLOSE_STEP: Final = 32
"""Logs that are closed in one go: about a millisecond."""
NOTE_STEP: Final = 256
"""Closed logs with offsets that go into the checkpoints in one step."""


class ClosedLogs(LogTable, Protocol):
    """The logs of a broker, with what has worked on them."""

    futures: Futures
    housekeeping: Housekeeping
    recovery: Recovery


def close_directory(manager: ClosedLogs, directory: Directory, broker_epoch: int, done: Callable[[], None]) -> None:
    """Close the logs of one directory, and the directory itself; then call `done()`.

    A failure takes the directory offline.

    The checkpoints are written after the logs are durable, so a power loss leaves all records that they promise.
    """
    closed: list[Log] = []
    work: list[tuple[list[Work], Work]] = []
    steps = OneByOne(directory.turns)

    def in_lane(work: Work, go_on: Work) -> None:
        directory.run(work, go_on, go_on)

    def then(go_on: Callable[[], None]) -> Callable[[object], None]:
        def ended(outcome: object) -> None:
            if isinstance(outcome, Exception) and directory.failed is None:
                directory.fail(outcome)
            if directory.failed is not None:
                done()
            else:
                go_on()

        return ended

    def sync_logs() -> None:
        in_lane(lambda: _sync(directory, work), lambda: then(note_logs)(None))

    def note_logs() -> None:
        steps.add(_note_logs(directory, closed), then(mark))

    def mark() -> None:
        write_offsets = directory.write_offsets()
        is_clean = directory.unrecovered.keys() <= directory.suspects.keys()  # these are listed
        unproven = manager.futures.unproven(directory)

        def finish() -> None:  # writing the mark fsyncs the directory
            write_offsets()
            if is_clean:
                directory.write_mark(broker_epoch, unproven)

        in_lane(finish, done)

    steps.add(_close_logs(manager, directory, closed, work), then(sync_logs))


def _close_logs(
    manager: ClosedLogs, directory: Directory, closed: list[Log], work: list[tuple[list[Work], Work]]
) -> Generator[None, None, None]:
    """Close the logs of a directory in steps, until all are closed. Raises OSError, LogDirError, KafkaError."""
    if manager.housekeeping.knows_topics:
        for topic, partition in manager.recovery.short(directory):
            manager.housekeeping.visit(directory, topic, partition)
            yield
    originals = Originals(manager.env.disk)
    known = -1
    while known != len(closed):  # the next round closes logs that were opened meanwhile
        known = len(closed)
        for number, log in enumerate(chain(manager.open_logs(), manager.futures.logs())):
            if log.dir is directory and not log.closed:
                job = _close_log(log, originals)
                closed.append(log)
                if job is not None:
                    work.append(job)
            if number % CLOSE_STEP == CLOSE_STEP - 1:
                yield


def _note_logs(directory: Directory, closed: list[Log]) -> Generator[None, None, None]:
    """Take the offsets of closed logs into the checkpoints, in steps."""
    for number, log in enumerate(closed):
        directory.note(log)
        if number % NOTE_STEP == NOTE_STEP - 1:
            yield


def _sync(directory: Directory, work: list[tuple[list[Work], Work]]) -> None:
    """Make logs durable, in the directory's thread. Raises OSError."""
    for writes, _ in work:
        for write in writes:
            write()
    if len(work) < SYNC_WHOLE_MIN or not directory.sync_file_system():
        for _, sync in work:
            sync()


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
