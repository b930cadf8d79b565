"""One pass over one log: read the keys of the dirty part, then write new segments and swap them in."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterator
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.env import File
from kraft_node.log import names
from kraft_node.log.compaction.batch_filter import BatchFilter, LastRecord
from kraft_node.log.compaction.choice import first_uncleanable
from kraft_node.log.compaction.key_map import KeyMap
from kraft_node.log.compaction.new_segment import NewSegment
from kraft_node.log.compaction.segment_reader import SegmentReader
from kraft_node.log.compaction.transactions import ScannedTransactions
from kraft_node.log.segments import txn_index
from kraft_node.log.segments.scan import BadBatch
from kraft_node.log.segments.segment import RELATIVE_OFFSET_MAX, Segment
from kraft_node.log.segments.segment_list import remove_files
from kraft_protocol.records.batch import (
    CONTROL_BIT,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    records_section,
)
from kraft_protocol.records.errors import BatchError

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.log.segments.txn_index import AbortedTxn
    from kraft_protocol.buffers import Buffer

KEYS_MAX: Final = 200_000
"""Default maximum of keys in the map of one pass; later passes take the rest."""
SLICE_BYTES: Final = 64 * 1024
"""Bytes of log per piece of work in the lane: a millisecond or less, for which the event loop may have to wait."""
STOPPED: Final = -1
"""The result of a pass that retention, truncation, deletion or a move has ended."""

Work: TypeAlias = Callable[[], None]
Steps: TypeAlias = Generator[Work, None, int]
Slices: TypeAlias = Generator[Work, None, bool]
Walk: TypeAlias = Generator[None, None, None]


class Cleaning:
    """One pass over one log."""

    __slots__ = (
        "_aborted",
        "_changed",
        "_end",
        "_filter",
        "_first_dirty",
        "_log",
        "_now_ms",
        "_truncations",
        "_txns",
        "bytes_after",
        "bytes_before",
        "bytes_handled",
        "bytes_read",
        "bytes_written",
        "keys",
    )

    def __init__(self, log: Log, first_dirty: int, now_ms: int, keys_max: int = 0) -> None:
        self._log = log
        self._now_ms = now_ms
        self._first_dirty = max(first_dirty, log.start_offset)
        self.keys = KeyMap(self._first_dirty, keys_max or KEYS_MAX)
        self._end = 0
        """The end of the compactable part of the log."""
        self._aborted: list[AbortedTxn] = []
        self._txns = ScannedTransactions(())
        self._filter = BatchFilter(self.keys, self._txns, log.config, first_dirty=0, end=0, now_ms=now_ms)
        self._changed = False
        """Whether the current group has changed."""
        self._truncations = log.truncations
        self.bytes_before = 0
        """Bytes of the rewritten segments."""
        self.bytes_after = 0
        self.bytes_read = 0
        """Bytes of the copied segments, changed or not."""
        self.bytes_written = 0
        self.bytes_handled = 0
        """Bytes read and written, including the bytes for keys: limited by `log.cleaner.io.max.bytes.per.second`."""

    def steps(self) -> Steps:
        """Run the pass. The result is the offset up to which the log is then clean; STOPPED if the log was changed
        meanwhile.

        Raises OSError, LogDirDamaged, BatchError.
        """
        log = self._log
        self._end = first_uncleanable(log, self._first_dirty, self._now_ms)
        if self._end <= self._first_dirty:
            return self._end
        bases = [base for base in log.segment_bases[:-1] if base < self._end]
        if not (yield from self._read_aborted(list(log.txn_bases))):
            return STOPPED
        if not (yield from self._read_keys([base for base in bases if self._segment_end(base) > self._first_dirty])):
            return STOPPED
        self._txns = ScannedTransactions(self._aborted)
        self._filter = BatchFilter(
            self.keys, self._txns, log.config, first_dirty=self._first_dirty, end=self._end, now_ms=self._now_ms
        )
        for group in self._groups(self.keys.end):
            if not self._is_as_it_was(group) or not (yield from self._rewrite(group)):
                return STOPPED
        return self.keys.end if self._is_as_it_was([]) else STOPPED

    def _is_as_it_was(self, group: list[int]) -> bool:
        """Whether retention, truncation, deletion and copying have left the segments unchanged."""
        log = self._log
        bases = log.segment_bases[:-1]
        is_left = not log.closed and log.twin is None and log.truncations == self._truncations
        return is_left and all(base in bases for base in group)

    def _segment(self, base: int) -> Segment:
        return self._log.segments.at(self._log.segment_number(base))

    def _segment_end(self, base: int) -> int:
        return self._log.segment_end(self._log.segment_number(base))

    # --- work for a lane ---

    def _in_slices(self, walk: Iterator[None], group: list[int], segment: Segment | None = None) -> Slices:
        """Let a lane scan, slice by slice. Returns False if the log was changed meanwhile. Raises LogDirDamaged."""
        ended: list[BadBatch | None] = []

        def work() -> None:
            try:
                next(walk)
            except StopIteration:
                ended.append(None)
            except BadBatch as e:
                ended.append(e)

        while not ended:
            yield work
            if not self._is_as_it_was(group):
                return False
        if ended[0] is not None:
            assert segment is not None, "law: damage lies in a segment"
            raise segment.damaged(ended[0], segment.size) from None
        return True

    # --- aborted transactions ---

    def _read_aborted(self, bases: list[int]) -> Slices:
        """Read the indexes of aborted transactions, also of segments after the end, because markers may be there."""
        disk, path = self._log.dir.env.disk, self._log.path

        def walk() -> Walk:
            for base in bases:
                found = txn_index.read(disk, f"{path}/{base:020d}{names.TXN_INDEX}")
                self._aborted += [txn for txn in found if txn.first_offset < self._end]
                yield

        return (yield from self._in_slices(walk(), []))

    # --- keys ---

    def _read_keys(self, bases: list[int]) -> Slices:
        """Read the keys of the dirty part until the map is full. Returns False if the log was changed meanwhile."""
        log = self._log
        txns = ScannedTransactions(txn for txn in self._aborted if txn.last_offset >= self._first_dirty)
        for base in bases:
            if self.keys.is_full:
                break
            segment, next_base = self._segment(base), self._segment_end(base)
            file = log.dir.env.disk.open(segment.path(names.LOG), read_only=True)
            try:
                walk = self._note_keys(SegmentReader(file, segment.size, SLICE_BYTES), txns, next_base)
                if not (yield from self._in_slices(walk, bases, segment)):
                    return False
            finally:
                file.close()
        return (yield from self._in_slices(self.keys.sort(), bases))

    def _note_keys(self, reader: SegmentReader, txns: ScannedTransactions, next_base: int) -> Walk:
        keys = self.keys
        while reader.read():
            while True:
                keys.note_plain(reader)
                if keys.is_crowded:
                    yield from keys.move()
                header = reader.header()
                if header is None:
                    break
                if header.last_offset >= self._first_dirty:
                    if keys.is_full:
                        self.bytes_handled += reader.at
                        return
                    self._note_batch(header, reader.batch(header), txns)
                    keys.end = header.next_offset
                reader.take(header)
            self.bytes_handled += reader.at
            yield
        keys.end = next_base  # also if the last offsets of the segment are missing

    def _note_batch(self, header: BatchHeader, batch: Buffer, txns: ScannedTransactions) -> None:
        position, header.position = header.position, 0
        _check(batch, header, position)
        if header.attributes & CONTROL_BIT:
            txns.met_marker(header, batch)
        elif not (header.attributes & TRANSACTIONAL_BIT and txns.met_batch(header)):
            self.keys.note(header, bytes(records_section(batch, header)))

    # --- segments ---

    def _groups(self, up_to: int) -> list[list[int]]:
        """Base offsets of neighbouring segments that fit into one segment."""
        log = self._log
        groups: list[list[int]] = []
        size = 0
        sizes = log.segments.sizes
        for number, base in enumerate(log.segment_bases[:-1]):
            if base >= up_to:
                break
            span = log.segment_end(number) - groups[-1][0] if groups else 0
            if groups and size + sizes[number] <= log.config.segment_size and span <= RELATIVE_OFFSET_MAX:
                groups[-1].append(base)
                size += sizes[number]
            else:
                groups.append([base])
                size = sizes[number]
        return groups

    def _rewrite(self, group: list[int]) -> Slices:
        """Write the segments as a single segment, without superfluous records. Returns False if they were changed
        meanwhile."""
        log = self._log
        disk = log.dir.env.disk
        new = NewSegment(log, group[0])
        self._filter.last_records = {
            producer.producer_id: LastRecord(producer.last_offset, producer.producer_epoch)
            for producer in log.producers.active()
        }
        before, self._changed = sum(self._segment(base).size for base in group), len(group) > 1
        has_index = any(base in log.txn_bases for base in group)
        cleaned = disk.open(new.cleaned, create=True)
        try:
            cleaned.truncate(0)
            is_left = yield from self._copy_all(group, cleaned, new)
            self.bytes_read += before
            self.bytes_written += new.size
            aborted, self._txns.needed = self._txns.needed, []
            if is_left and self._changed:
                yield cleaned.fsync
                if has_index:
                    yield lambda: new.write_aborted(disk, aborted)
                is_left = self._is_as_it_was(group)
        finally:
            cleaned.close()
        if not is_left or not self._changed:
            remove_files(disk, [new.cleaned, new.cleaned_index])
            return is_left
        self.bytes_before += before
        self.bytes_after += new.size
        self._swap(group, new, has_index=has_index)
        yield new.sync
        return True

    def _copy_all(self, group: list[int], cleaned: File, new: NewSegment) -> Slices:
        disk = self._log.dir.env.disk
        for base in group:
            segment = self._segment(base)
            file = disk.open(segment.path(names.LOG), read_only=True)
            try:
                walk = self._copy(SegmentReader(file, segment.size, SLICE_BYTES), cleaned, new)
                if not (yield from self._in_slices(walk, group, segment)):
                    return False
            finally:
                file.close()
        return True

    def _copy(self, reader: SegmentReader, cleaned: File, new: NewSegment) -> Walk:
        """Append the remaining part of a segment to `cleaned`."""
        while reader.read():
            before = new.size
            while True:
                self._filter.keep_plain(reader, new)
                header = reader.header()
                if header is None:
                    break
                self._copy_batch(header, reader, new)
            if new.kept:
                cleaned.pwrite(before, [b"".join(new.kept)])
                new.kept.clear()
            if new.size - before != reader.at:
                self._changed = True
            self.bytes_handled += reader.at + new.size - before
            yield

    def _copy_batch(self, header: BatchHeader, reader: SegmentReader, new: NewSegment) -> None:
        batch, position = reader.batch(header), header.position
        reader.take(header)
        try:
            left = self._filter.keep(header, batch)
        except BatchError:
            _check(batch, header, position)
            raise
        if left is not batch:
            self._changed = True
        if left is not None:
            new.kept.append(left)
            new.note_batch(new.size, header.length, header.last_offset, header.max_timestamp)

    def _swap(self, group: list[int], new: NewSegment, *, has_index: bool) -> None:
        """Put the new segment in the place of the group. After a crash, recovery completes a half-finished swap."""
        log = self._log
        log.segments.replace(group, new.size, new.cleaned, new.cleaned_index if has_index else None)
        log.forget_times()
        new.in_place = True
        new.finish()


def _check(batch: Buffer, header: BatchHeader, position: int) -> None:
    """Raise BadBatch, with the batch's position in its file, if its checksum is wrong."""
    try:
        check_crc(batch, header)
    except BatchError as e:
        raise BadBatch(position, e.reason) from None
