"""Look-ups by time without waiting for the disk: a lane reads the timestamps that are not in memory.

`SegmentList` stores the largest timestamp of each closed segment. After a start these are in the index files, three per
segment, of possibly thousands of segments. A look-up that needs more than `UNREAD_MAX` of them raises `TimesUnread`;
`read_times` then reads them in a lane and has the caller retry.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Final, NamedTuple, NoReturn, Protocol

from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.log_dir import LogDir
from kraft_node.log.seams import StoredLog
from kraft_node.log.segments.content import records_of
from kraft_node.log.segments.files import FileCache
from kraft_node.log.segments.scan import BadBatch, batches
from kraft_node.log.segments.segment import Segment
from kraft_protocol.errors import ErrorCode, KafkaError

UNREAD_MAX: Final = 8
"""Segments with times that are read on the loop: under a millisecond if their indexes are in memory."""
FILES_MAX: Final = 4


class TimedLog(StoredLog, Protocol):
    """What a look-up by time needs of a log."""

    closed: bool
    truncations: int
    partial_times: Partial | None

    def unreadable(self, error: OSError | LogDirDamaged) -> KafkaError:
        """A lane could not read a segment: take the directory offline, or end this replica if it is damaged."""
        ...


class TimesUnread(KafkaError):  # noqa: N818 - a state, not a fault
    """The timestamps of many segments must be read first: see `read_times`."""

    def __init__(self, log: TimedLog, count: int) -> None:
        super().__init__(
            ErrorCode.LEADER_NOT_AVAILABLE, f"{log.name}: the timestamps of {count} segments are being read; try again"
        )
        self.log = log


class _Unreadable(Exception):  # noqa: N818
    """The indexes of a segment must be rebuilt, which only the loop does; until then its batches are read."""


class _Apart:
    """The log for a lane's segments: separate open files, no state of the loop."""

    index_interval_bytes = 4096

    def __init__(self, log: TimedLog) -> None:
        self.path = log.path
        self.dir = LogDir(log.dir.env, log.dir.path, FileCache(log.dir.env.disk, FILES_MAX))

    def indexed(self, position: int) -> None:
        """Nothing is written here."""


class _Reading(Segment):
    """A closed segment with unchanged files."""

    __slots__ = ()

    def rebuild_index(self, reason: str) -> NoReturn:
        raise _Unreadable(reason)


class Partial(NamedTuple):
    """The largest timestamp from `start_offset` on, up to `position`, in the segment at `base`."""

    base: int
    start_offset: int
    position: int
    largest: int


def partial_of(segment: Segment, start_offset: int, known: Partial | None) -> Partial:
    """The largest timestamp of the records from `start_offset` on; earlier records were deleted.

    Continues from `known` if it fits. Raises OSError, LogDirDamaged.
    """
    largest, position = -1, None
    if known is not None and known[:2] == (segment.base, start_offset) and known.position <= segment.size:
        largest, position = known.largest, known.position
    if position is None:
        position = segment.lookup(start_offset)
    try:
        for header in batches(segment.file(), position, segment.size):
            if header.base_offset < start_offset <= header.last_offset:
                times = [record.timestamp for record in records_of(segment, header) if record.offset >= start_offset]
                largest = max(times, default=largest)
            elif header.base_offset >= start_offset:
                largest = max(largest, header.max_timestamp)
    except BadBatch as e:
        raise segment.damaged(e, segment.size) from None
    return Partial(segment.base, start_offset, segment.size, largest)


@dataclass
class _Found:
    """What a lane has read."""

    times: dict[int, int]
    """The largest timestamps, by the base of their segments."""
    errors: dict[int, OSError | LogDirDamaged]
    """Failures, by base."""
    part: Partial | None = None


def _largest_in(segment: Segment) -> int:
    """The largest timestamp of a segment, from its indexes or else from its batches. Raises OSError, LogDirDamaged."""
    try:
        segment.load_index()
    except _Unreadable:
        return _partial_without_index(segment, segment.base).largest
    return segment.max_timestamp


def _partial_without_index(segment: Segment, start_offset: int) -> Partial:
    """Like `partial_of`, from the first batch of the segment on."""
    return partial_of(segment, start_offset, Partial(segment.base, start_offset, 0, -1))


def read_times(log: TimedLog, done: Callable[[], None]) -> None:
    """Read the timestamps that look-ups in `log` need in a lane, then call `done` on the loop.

    Without usable indexes the batches are read. Damage ends the replica. Results about files that compaction or a
    truncation has replaced meanwhile are dropped: the next look-up has them read again. Errors of a log that was
    deleted or has moved are dropped, too.
    """
    first = log.segment_number(log.start_offset)
    unread = log.segments.unread(first)
    apart = _Apart(log)
    base, size, start = log.segments.base_at(first), log.segments.size_at(first), log.start_offset
    known = log.partial_times

    def work() -> _Found:
        found = _Found({}, {})
        for at, length in unread:
            segment = _Reading(apart, at, length)
            try:
                found.times[at] = _largest_in(segment)
            except (OSError, LogDirDamaged) as e:
                found.errors[at] = e
            finally:
                segment.release()
        if base < start:
            segment = _Reading(apart, base, size)
            try:
                found.part = partial_of(segment, start, known)
            except _Unreadable:
                found.part = _partial_without_index(segment, start)
            except (OSError, LogDirDamaged) as e:
                found.errors[base] = e
            finally:
                segment.release()
        return found

    def finished(found: _Found | BaseException) -> None:
        is_same = not log.closed and log.segments.files_mark is mark and log.truncations == truncations
        if is_same and not isinstance(found, BaseException):
            log.segments.learn_times(found.times)
            if found.part is not None and log.start_offset == start:
                log.partial_times = found.part
            listed = log.segments.bases
            for at, error in found.errors.items():
                if at in listed:  # retention has not removed it
                    log.unreadable(error)
        done()

    truncations, mark = log.truncations, log.segments.files_mark
    log.dir.env.background.submit(f"lookup:{log.dir.path}", work, finished)
