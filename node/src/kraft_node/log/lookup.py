"""Look-ups in a log: bytes from an offset on, offsets by timestamp, aborted transactions."""

from __future__ import annotations

from bisect import bisect_left
from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.log import names
from kraft_node.log.results import FetchSlice
from kraft_node.log.segments import txn_index
from kraft_node.log.segments.content import records_of
from kraft_node.log.segments.scan import BadBatch, batches
from kraft_node.log.timestamps import TimedLog, TimesUnread, partial_of
from kraft_protocol.buffers import FileSlice
from kraft_protocol.records.batch import LOG_OVERHEAD, NO_TIMESTAMP

if TYPE_CHECKING:
    from kraft_node.log.segments.segment import Segment

MAX_TIMESTAMP: Final = -3
UNREAD_BYTES_MAX: Final = 1 << 20
"""Bytes of a segment with batch headers that are read on the loop."""


class ReadableLog(TimedLog, Protocol):
    """What a look-up needs of a log."""

    max_timestamp_cache: tuple[tuple[int, int], tuple[int, int] | None] | None


def read(log: ReadableLog, offset: int, max_bytes: int, limit: int, *, min_one: bool, waits: bool) -> FetchSlice:
    """The result of `Log.read` for an offset below `limit`. Raises OSError, LogDirDamaged, ColdRead."""
    active = log.segments.active
    position = active.ends.get(offset)
    if position is not None and limit >= log.end_offset and 0 < (length := active.size - position) <= max_bytes:
        return FetchSlice(offset, FileSlice(active.file(), position, length), active, limit)
    if waits:
        return _search(log, offset, max_bytes, limit, min_one=min_one)
    with log.dir.env.disk.no_wait:
        return _search(log, offset, max_bytes, limit, min_one=min_one)


def _search(log: ReadableLog, offset: int, max_bytes: int, limit: int, *, min_one: bool) -> FetchSlice:
    number = log.segment_number(offset)
    while True:
        found = _read_segment(log, number, offset, max_bytes, limit, min_one=min_one)
        if found is not None:
            return found
        number += 1  # compaction can remove the last offsets of a segment
        if number >= len(log.segments) or log.segments.at(number).base >= limit:
            return FetchSlice(offset, b"", None, limit)


def _read_segment(
    log: ReadableLog, number: int, offset: int, max_bytes: int, limit: int, *, min_one: bool
) -> FetchSlice | None:
    """The result of `read` in one segment; None if the segment ends before `offset`."""
    segments = log.segments
    segment = segments.at(number)
    length = 0
    position = segment.ends.get(offset, -1)
    if position < 0:
        position, length, _, _ = segment.find(offset)
    end = segments.end_of(number)
    stop = segment.size if limit >= (log.end_offset if end is None else end) else segment.position_of(limit)
    available = stop - position
    if available <= 0:
        return None
    file = segment.file()
    if max_bytes < available:
        if not length:
            length = int.from_bytes(file.pread(position + 8, 4), "big") + LOG_OVERHEAD
        if max_bytes >= length:
            available = max_bytes
        elif min_one:
            available = length
        else:
            return FetchSlice(offset, b"", None, limit, first_batch_incomplete=True)
    # The upper bound for aborted transactions: transactions in later segments do not belong to these records.
    return FetchSlice(offset, FileSlice(file, position, available), segment, limit if end is None else min(limit, end))


def offset_for_timestamp(log: ReadableLog, timestamp: int, unread_max: int | None = None) -> tuple[int, int] | None:
    """See `Log.offset_for_timestamp`. Raises TimesUnread, OSError, LogDirDamaged, BatchError."""
    first = log.segment_number(log.start_offset)
    if unread_max is not None:
        _check_read(log, first, timestamp, unread_max)
    if timestamp == MAX_TIMESTAMP:
        known = log.max_timestamp_cache
        ends = (log.start_offset, log.end_offset)
        if known is None or known[0] != ends:
            known = log.max_timestamp_cache = (ends, _largest(log))
        return known[1]
    number, end = log.segments.first_reaching(first, timestamp), len(log.segments)
    while number < end:
        if log.segments.max_timestamp(number) >= timestamp:
            found = _first_at_least(log.segments.at(number), timestamp, log.start_offset)
            if found is not None:
                return found
        number += 1  # the newest records were deleted, or removed by compaction
    return None


def _check_read(log: ReadableLog, first: int, timestamp: int, unread_max: int) -> None:
    """Raise TimesUnread if an answer must read more than `unread_max` segments, or much of one segment."""
    unread = len(log.segments.unread(first))
    if unread > unread_max:
        raise TimesUnread(log, unread)
    if timestamp == MAX_TIMESTAMP and log.segments.base_at(first) < log.start_offset:
        known = log.partial_times
        if known is None or known.base != log.segments.base_at(first) or known.start_offset != log.start_offset:
            segment = log.segments.at(first)
            begin = segment.lookup(log.start_offset)
        else:
            begin = known.position
        if log.segments.size_at(first) - begin > UNREAD_BYTES_MAX:
            raise TimesUnread(log, 1)


def _largest(log: ReadableLog) -> tuple[int, int] | None:
    best: int | None = None
    largest = -1
    for number in range(log.segment_number(log.start_offset), len(log.segments)):
        found = log.segments.max_timestamp(number)
        if found > largest and log.segments.base_at(number) < log.start_offset:
            part = partial_of(log.segments.at(number), log.start_offset, log.partial_times)
            log.partial_times = part
            found = part.largest
        if found > largest:
            best, largest = number, found
    if best is None:
        return _first_without_time(log)
    return _first_at_least(log.segments.at(best), largest, log.start_offset)


def _first_without_time(log: ReadableLog) -> tuple[int, int] | None:
    """The first record without a time in the first batch, if that batch has no times. Later batches are not read."""
    segment = log.segments.at(log.segment_number(log.start_offset))
    try:
        for header in batches(segment.file(), segment.lookup(log.start_offset), segment.size):
            if header.last_offset >= log.start_offset:
                found = [] if header.max_timestamp != NO_TIMESTAMP else records_of(segment, header)
                offsets = [r.offset for r in found if r.timestamp == NO_TIMESTAMP and r.offset >= log.start_offset]
                return (NO_TIMESTAMP, offsets[0]) if offsets else None
    except BadBatch as e:
        raise segment.damaged(e, segment.size) from None
    return None


def _first_at_least(segment: Segment, timestamp: int, start_offset: int) -> tuple[int, int] | None:
    entry = segment.floor_time(timestamp)
    offset = segment.base + entry[1] if entry is not None else segment.base
    position = segment.lookup(max(offset, start_offset))
    try:
        for header in batches(segment.file(), position, segment.size):
            if header.max_timestamp >= timestamp and header.last_offset >= start_offset:
                for record in records_of(segment, header):
                    if record.timestamp >= timestamp and record.offset >= start_offset:
                        return record.timestamp, record.offset
    except BadBatch as e:
        raise segment.damaged(e, segment.size) from None
    return None


def aborted_within(log: ReadableLog, found: FetchSlice, *, waits: bool = True) -> list[tuple[int, int]]:
    """See `Log.aborted_within`. Raises OSError, ColdRead."""
    if not log.txn_bases:
        return []  # without a look into the offset index
    if waits:
        return aborted_transactions(log, found.offset, found.next_offset)
    with log.dir.env.disk.no_wait:
        return aborted_transactions(log, found.offset, found.next_offset)


def aborted_transactions(log: ReadableLog, start: int, end: int) -> list[tuple[int, int]]:
    """See `Log.aborted_transactions`. Raises OSError."""
    bases = log.txn_bases
    if not bases or start >= end:
        return []
    found: list[tuple[int, int]] = []
    first = log.segments.base_at(log.segment_number(start))
    for number in range(bisect_left(bases, first), len(bases)):
        path = f"{log.path}/{bases[number]:020d}{names.TXN_INDEX}"
        some, is_all = txn_index.between(log.dir.env.disk, path, start, end)
        found += [(txn.producer_id, txn.first_offset) for txn in some]
        if is_all:
            break
    return found
