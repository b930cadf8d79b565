"""One segment of a log: a .log file with batches, and its two sparse indexes.

Index entries of the active segment gather in memory and are written in pages. Entries that a crash loses are rebuilt
from the log: its unflushed part is scanned anyway. A missing, truncated or wrong index is rebuilt on first use.
"""

from __future__ import annotations

import logging
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any, Final

from kraft_node.base import rare
from kraft_node.base.env import ColdRead
from kraft_node.log import names
from kraft_node.log.errors import LogDirDamaged
from kraft_node.log.resting.segment_files import Owner, SegmentFiles
from kraft_node.log.segments import index
from kraft_node.log.segments.files import NO_ENDS, Put, write_file
from kraft_node.log.segments.index import ENTRY, ENTRY_SIZE, TIME_ENTRY, TIME_ENTRY_SIZE
from kraft_node.log.segments.scan import BadBatch, batches, find_offset
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import HEADER, HEADER_SIZE, BatchHeader

log = logging.getLogger("kraft_node.log")

ENDS_MAX: Final = 16
"""Ends of the latest batches, for readers near the end; more would cost memory in every log."""
PENDING_LOG_BYTES_MAX: Final = 4 << 20
"""Bytes of log without written entries: so much is read again below the recovery point after a crash."""
RELATIVE_OFFSET_MAX: Final = 2**31 - 1


class Segment(SegmentFiles):
    """A segment. `size` is tracked in memory; the active segment's `next_offset` is the log's."""

    __slots__ = (
        "_since_index",
        "_written_to",
        "first_timestamp",
        "index_count",
        "index_written",
        "max_timestamp",
        "max_timestamp_offset",
        "pending",
        "pending_time",
        "time_count",
        "time_last",
    )

    def __init__(self, owner: Owner, base: int, size: int = 0) -> None:
        super().__init__(owner, base, size)
        self.index_count = -1 if size else 0
        """Entries in the .index file; -1 if unknown."""
        self.index_written = False
        """Whether this process has changed an index file, so that a clean stop must fsync both."""
        self.time_count = -1 if size else 0
        self.time_last = -1
        """Timestamp of the last time index entry."""
        self.pending = b""
        self.pending_time = b""
        self.max_timestamp = -1
        self.max_timestamp_offset = -1
        self.first_timestamp = -1
        """Largest timestamp of the first batch, from which the segment's age counts; -1 if unknown."""
        self._since_index = 0
        self._written_to = 0
        """The end of the log when index entries were last written because of the distance."""

    def __repr__(self) -> str:
        return f"Segment({self.path(names.LOG)}, {self.size} bytes)"

    # --- writing ---

    def append(self, buffers: Sequence[Buffer], length: int, last_offset: int, max_timestamp: int) -> None:
        """Write one batch at the end. After an OSError, the file's rest is unknown."""
        handle = self.handle
        if handle is None or handle.file is None:
            file = self.open_log(create=True)
        else:
            file = handle.file
            handle.used = True
        position = self.size
        file.pwrite(position, buffers)
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        if self._since_index > self.owner.index_interval_bytes:
            self._gather_entry(last_offset, position)
            self._write_if_full(position)
            if self._written_to == position:
                self.owner.indexed(position)
        elif position == 0:
            self.first_timestamp = max_timestamp
        self._since_index += length
        self.size = position + length
        self._note_end(last_offset + 1)

    def append_run(self, records: Buffer, headers: Sequence[BatchHeader]) -> None:
        """Write successive batches at the end, in one write. After an OSError, the file's rest is unknown."""
        written_to = self._written_to
        self.file().pwrite(self.size, (records,))
        entry = -1
        for header in headers:
            position = self.size
            if self._gather(position, header.length, header.last_offset, header.max_timestamp):
                entry = position
        if entry >= 0:  # once: each write opens two files
            self._write_if_full(entry)
        if self._written_to != written_to:
            self.owner.indexed(self._written_to)
        self._note_end(headers[-1].next_offset)

    def _note_end(self, next_offset: int) -> None:
        """Readers near the end find it without the index."""
        handle = self.handle
        if handle is not None:
            ends = handle.ends
            if ends is NO_ENDS or len(ends) >= ENDS_MAX:
                handle.ends = ends = {}
            ends[next_offset] = self.size

    def note(self, header: BatchHeader) -> None:
        """Note a batch that is in the file already, at the end of the known part: recovery."""
        self.note_batch(header.position, header.length, header.last_offset, header.max_timestamp)

    def note_batch(self, position: int, length: int, last_offset: int, max_timestamp: int) -> None:
        """As `note`."""
        if self._gather(position, length, last_offset, max_timestamp):
            self._write_if_full(position)

    def _gather(self, position: int, length: int, last_offset: int, max_timestamp: int) -> bool:
        """Note a batch. Returns whether it got an index entry, which waits to be written."""
        if max_timestamp > self.max_timestamp:
            self.max_timestamp = max_timestamp
            self.max_timestamp_offset = last_offset
        has_entry = self._since_index > self.owner.index_interval_bytes
        if has_entry:
            self._gather_entry(last_offset, position)
        elif position == 0:
            self.first_timestamp = max_timestamp
        self._since_index += length
        self.size = position + length
        return has_entry

    def _gather_entry(self, last_offset: int, position: int) -> None:
        self.pending += ENTRY.pack(last_offset - self.base, position)
        self._add_time_entry()
        self._since_index = 0

    def _write_if_full(self, position: int) -> None:
        """Write the gathered entries, the last of which is for `position`, if they are many or span much of the log."""
        gathered_max = self.owner.dir.pending_index_bytes
        if len(self.pending) >= gathered_max or position - self._written_to >= PENDING_LOG_BYTES_MAX:
            self._written_to = position
            self.write_indexes()

    def _add_time_entry(self) -> None:
        if self.max_timestamp > self.time_last:
            self.time_last = self.max_timestamp
            self.pending_time += TIME_ENTRY.pack(self.max_timestamp, self.max_timestamp_offset - self.base)

    def index_room(self, bytes_max: int) -> int:
        """The entries that indexes of at most `bytes_max` can take; the last entry of the time index is reserved for
        `finish`."""
        offsets = max(self.index_count, 0) + len(self.pending) // ENTRY_SIZE
        times = max(self.time_count, 0) + len(self.pending_time) // TIME_ENTRY_SIZE
        return min(bytes_max // ENTRY_SIZE - offsets, bytes_max // TIME_ENTRY_SIZE - 1 - times)

    def write_indexes(self, put: Put | None = None) -> None:
        """Write the gathered entries (or let `put` write them); the files exist afterwards. Raises OSError."""
        self.load_index()
        put = put or partial(write_file, self.owner.dir.env.disk)
        # The times come first: recovery after a kill in between drops entries beyond the offset index, and no entry is
        # missing.
        put(self.path(names.TIME_INDEX), self.time_count * TIME_ENTRY_SIZE, self.pending_time)
        put(self.path(names.INDEX), self.index_count * ENTRY_SIZE, self.pending)
        self.index_written = True
        self.index_count += len(self.pending) // ENTRY_SIZE
        self.time_count += len(self.pending_time) // TIME_ENTRY_SIZE
        self.pending = b""
        self.pending_time = b""

    def finish(self, put: Put | None = None) -> None:
        """After the last append (or when the node stops): complete the indexes on disk. Raises OSError."""
        if self.size:
            self.load_index()
            self._add_time_entry()
            self.write_indexes(put)

    def truncate_to_position(self, position: int, next_offset: int) -> None:
        """Truncate the file and the index entries that point beyond. Raises OSError."""
        if position == 0:  # a step of a long truncation comes here for many segments with unread indexes
            self.forget_ends()
            self.file().truncate(0)
            self.size = 0
            self.reset_index()
            return
        self.load_index()
        self.write_indexes()
        self.file().truncate(position)
        self.truncate_index(position, next_offset)

    def truncate_index(self, position: int, next_offset: int) -> None:
        """Keep only the index entries for batches before `position` and `next_offset`, and count from there on.

        Entries that do not ascend, or the unused rest of a preallocated file, end an index. Raises OSError.
        """
        relative = next_offset - self.base
        self.forget_ends()
        data, times = self._read(names.INDEX), self._read(names.TIME_INDEX)
        if self.index_count < 0:
            count, time_count = index.used_entries(data), index.used_time_entries(times)
        else:  # this process has checked or written them
            count, time_count = len(data) // ENTRY_SIZE, len(times) // TIME_ENTRY_SIZE
        self.index_count = _first(ENTRY, data, lambda entry: entry[0] >= relative or entry[1] >= position, count)
        self._cut(names.INDEX, self.index_count * ENTRY_SIZE)
        self.time_count = _first(TIME_ENTRY, times, lambda entry: entry[1] >= relative, time_count)
        self._cut(names.TIME_INDEX, self.time_count * TIME_ENTRY_SIZE)
        self.pending = b""
        self.pending_time = b""
        self.time_last = self.max_timestamp = self.max_timestamp_offset = -1
        self.size = position
        self._load_tail()

    def index_bytes(self) -> bytes:
        """The valid part of the offset index file. Raises OSError."""
        data = self._read(names.INDEX)
        return data[: index.used_entries(data) * ENTRY_SIZE]

    def _cut(self, suffix: str, size: int) -> None:
        self.index_written = True
        file = self.owner.dir.env.disk.open(self.path(suffix), create=True)
        try:
            file.truncate(size)
        finally:
            file.close()
        if suffix == names.INDEX:
            self.drop_index()

    def _read(self, suffix: str) -> bytes:
        try:
            file = self.owner.dir.env.disk.open(self.path(suffix), read_only=True)
        except FileNotFoundError:
            return b""
        try:
            return file.pread(0, file.size())
        finally:
            file.close()

    # --- reading ---

    def load_index(self) -> None:
        """Read the index files once; rebuild them if they are missing or wrong. Raises OSError."""
        if self.index_count >= 0:
            return
        if rare.takes("index gone"):
            self.rebuild_index("an index is missing")
            return
        disk = self.owner.dir.env.disk
        try:
            offset_size = disk.size(self.path(names.INDEX))
            time_size = disk.size(self.path(names.TIME_INDEX))
        except FileNotFoundError:
            self.rebuild_index("an index is missing")
            return
        self.index_count, self.time_count = offset_size // ENTRY_SIZE, time_size // TIME_ENTRY_SIZE
        try:
            self._load_ends(offset_size, time_size)
        except ColdRead:
            self.index_count = self.time_count = -1
            raise

    def _load_ends(self, offset_size: int, time_size: int) -> None:
        last = self._last_entry(names.INDEX, self.index_count, ENTRY_SIZE)
        last_time = self._last_entry(names.TIME_INDEX, self.time_count, TIME_ENTRY_SIZE)
        wrong = bool(offset_size % ENTRY_SIZE or time_size % TIME_ENTRY_SIZE)
        if last:
            relative, position = ENTRY.unpack(last)
            wrong |= position >= self.size or relative == 0 or relative > RELATIVE_OFFSET_MAX
        if last_time:
            timestamp, relative = TIME_ENTRY.unpack(last_time)
            wrong |= relative > RELATIVE_OFFSET_MAX or timestamp == 0 or timestamp < -1
        if wrong:
            self.rebuild_index("an index does not fit the log")
            return
        self._load_tail()

    def _last_entry(self, suffix: str, count: int, size: int) -> bytes:
        if not count:
            return b""
        file = self.owner.dir.env.disk.open(self.path(suffix), read_only=True)
        try:
            return file.pread((count - 1) * size, size)
        finally:
            file.close()

    def _load_tail(self) -> None:
        """Find the largest timestamp, and the distance to the last index entry, from the batches after that entry."""
        last = self._last_entry(names.TIME_INDEX, self.time_count, TIME_ENTRY_SIZE)
        if last:
            self.time_last, relative = TIME_ENTRY.unpack(last)
            self.max_timestamp, self.max_timestamp_offset = self.time_last, self.base + relative
        last = self._last_entry(names.INDEX, self.index_count, ENTRY_SIZE)
        position = ENTRY.unpack(last)[1] if last else 0
        self._since_index = 0
        try:
            for header in batches(self.file(), position, self.size):
                if header.max_timestamp > self.max_timestamp:
                    self.max_timestamp, self.max_timestamp_offset = header.max_timestamp, header.last_offset
                self._since_index += header.length
        except BadBatch as e:
            self.rebuild_index(str(e))

    def lacks_times(self) -> bool:
        """Whether the time index is shorter than the offset index, and lacks an entry for a batch.

        A loss of power can shorten each by itself. Raises OSError, LogDirDamaged.
        """
        last = self._last_entry(names.INDEX, self.index_count, ENTRY_SIZE)
        last_time = self._last_entry(names.TIME_INDEX, self.time_count, TIME_ENTRY_SIZE)
        relative, position = ENTRY.unpack(last) if last else (-1, 0)
        known, offset = TIME_ENTRY.unpack(last_time) if last_time else (-1, -1)
        if offset >= relative:
            return False
        try:
            rest = batches(self.file(), self.lookup(self.base + max(offset, 0)), position)
            return any(header.max_timestamp > known for header in rest)
        except BadBatch as e:
            raise self.damaged(e, self.size) from None

    def load_first_timestamp(self) -> None:
        """From the first batch, once."""
        if self.first_timestamp < 0 and self.size >= HEADER_SIZE:
            first = HEADER.unpack(self.file().pread(0, HEADER_SIZE))[8]
            # One object for equal numbers: most of a node's logs hold a single batch.
            self.first_timestamp = self.max_timestamp if first == self.max_timestamp else first

    def rebuild_index(self, reason: str) -> None:
        """Rebuild the indexes from the log. Raises LogDirDamaged if the log itself is damaged."""
        log.warning("indexes are rebuilt file=%s reason=%s", self.path(names.LOG), reason)
        with self.owner.dir.env.disk.may_wait():
            self._rebuild()

    def _rebuild(self) -> None:
        size = self.size
        self.reset_index()
        try:
            for header in batches(self.file(), 0, size):
                self.note(header)
        except BadBatch as e:
            at, self.size = self.size, size
            raise self.damaged(e, at) from None
        except OSError:
            self.size, self.index_count = size, -1
            raise
        self.size = size
        self._add_time_entry()
        self.write_indexes()

    def reset_index(self) -> None:
        """Drop all index entries, also on disk."""
        self._cut(names.INDEX, 0)
        self._cut(names.TIME_INDEX, 0)
        self.pending = b""
        self.pending_time = b""
        self.index_count = self.time_count = self._since_index = 0
        self.time_last = self.max_timestamp = self.max_timestamp_offset = -1

    def damaged(self, error: BadBatch, position: int) -> LogDirDamaged:
        """The error for an unreadable batch that was durable."""
        offset = self.base
        try:
            for header in batches(self.file(), 0, min(position, error.position)):
                offset = header.next_offset
        except BadBatch:
            pass
        return LogDirDamaged(self.owner.dir.path, self.path(names.LOG), offset, str(error))

    def lookup(self, offset: int) -> int:
        """A position at or before the batch that holds `offset`, from the index. Raises OSError, LogDirDamaged."""
        relative = offset - self.base
        if self.pending and ENTRY.unpack_from(self.pending)[0] <= relative:
            found = index.floor_entry(self.pending, relative)
        else:
            if self.index_count < 0:
                self.load_index()
            if self.index_count == 0:
                return 0
            found = index.search_file(self.index_file(), self.index_count, relative)
        return found[1] if found is not None else 0

    def find(self, offset: int) -> tuple[int, int, int, int]:
        """Position, length, base and last offset of the first batch that ends at or after `offset`; length 0 without a
        batch.

        Raises OSError, LogDirDamaged.
        """
        start = self.lookup(offset)
        try:
            found = find_offset(self.file(), start, self.size, offset)
        except BadBatch as e:
            if start == 0:
                raise self.damaged(e, self.size) from None
        else:
            # An entry holds the last offset of its batch. So a batch right at the entry's position ends at `offset`. If
            # it ends later, the entry points too far.
            position, last = found[0], found[3]
            if start == 0 or (start < self.size and (position > start or last == offset)):
                return found
        self.rebuild_index(f"offset {offset} is not at the position in the index")
        try:
            return find_offset(self.file(), self.lookup(offset), self.size, offset)
        except BadBatch as e:
            raise self.damaged(e, self.size) from None

    def end_before(self, position: int, offset: int) -> int:
        """The end offset of the last batch before `position`, where `offset` begins. Raises OSError, LogDirDamaged."""
        end = self.base
        try:
            for header in batches(self.file(), self.lookup(offset - 1), position):
                end = header.next_offset
        except BadBatch as e:
            raise self.damaged(e, position) from None
        return end

    def position_of(self, offset: int) -> int:
        """The start of the batch that holds `offset` or follows it; the file size at the end."""
        position = self.ends.get(offset)
        return self.find(offset)[0] if position is None else position

    def upper_bound(self, position: int, next_base: int) -> int:
        """An offset above all batches that begin before `position`, as low as the index provides cheaply."""
        if position >= self.size:
            return next_base
        for data in (self._indexed(), self.pending):
            low, high = 0, len(data) // ENTRY_SIZE
            while low < high:
                middle = (low + high) // 2
                if ENTRY.unpack_from(data, middle * ENTRY_SIZE)[1] < position:
                    low = middle + 1
                else:
                    high = middle
            if low < len(data) // ENTRY_SIZE:
                relative: int = ENTRY.unpack_from(data, low * ENTRY_SIZE)[0]
                return self.base + relative
        return next_base

    def _indexed(self) -> bytes:
        self.load_index()
        return self._read(names.INDEX)[: self.index_count * ENTRY_SIZE]

    def floor_time(self, timestamp: int) -> tuple[int, int] | None:
        """The last (timestamp, relative offset) at or below `timestamp` in the time index; None if all are above."""
        self.load_index()
        found = index.floor_time_entry(self.pending_time, timestamp)
        if found is not None or not self.time_count:
            return found
        file = self.owner.dir.env.disk.open(self.path(names.TIME_INDEX), read_only=True)
        try:
            return index.search_time_file(file, self.time_count, timestamp)
        finally:
            file.close()

    def largest_timestamp(self) -> int:
        """The largest timestamp in the segment; without timestamps, the file's modification time."""
        if self.max_timestamp < 0 and self.index_count < 0:
            self.load_index()
        if self.max_timestamp >= 0:
            return self.max_timestamp
        return self.owner.dir.env.disk.mtime_ms(self.path(names.LOG)) if self.size else -1


def _first(entry: Struct, data: bytes, beyond: Callable[[tuple[Any, ...]], bool], count: int) -> int:
    """The number of the first of `count` ascending entries that is `beyond`, else `count`."""
    return bisect_left(range(count), True, key=lambda number: beyond(entry.unpack_from(data, number * entry.size)))
