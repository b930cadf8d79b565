"""What compaction keeps of one batch: all of it, some of its records, only its header, or nothing.

The rules are Apache Kafka's (LogCleaner, KIP-98, KIP-534):

- Records of aborted transactions are removed at once.
- The latest record of a key stays; a tombstone only until its batch's delete horizon, which the first pass sets.
- A marker stays until all records of its transaction are removed. The next pass sets the delete horizon of its batch.
- The header of a batch stays without records in two cases: an active producer needs its sequence numbers, or it marks
  the end of the compacted part.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Mapping
from struct import Struct
from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.log.compaction.key_map import BATCH_BITS, BUCKET_BITS, END
from kraft_node.log.compaction.segment_reader import TO_COPY
from kraft_protocol.records.batch import (
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    MAX_TIMESTAMP_POSITION,
    TRANSACTIONAL_BIT,
    BatchHeader,
    check_crc,
    empty_batch,
    has_right_crc,
    records_section,
    thin_batch,
    thin_plain,
)
from kraft_protocol.records.keys import TOMBSTONE, cut, cut_and_shift, is_tombstone, read_keys

if TYPE_CHECKING:
    from kraft_node.log.compaction.key_map import KeyMap
    from kraft_node.log.compaction.new_segment import NewSegment
    from kraft_node.log.compaction.segment_reader import SegmentReader
    from kraft_node.log.compaction.transactions import ScannedTransactions
    from kraft_node.log.config import LogConfig
    from kraft_protocol.buffers import Buffer

SPECIAL_BITS: Final = TRANSACTIONAL_BIT | CONTROL_BIT
NO_OFFSET: Final = -1
NO_BUCKET: Final = -1
ONE_BATCH: Final = 1 << BATCH_BITS
MAX_TIMESTAMP: Final = Struct(">q")

unpack = TO_COPY.unpack_from


class LastRecord(NamedTuple):
    """The last record of an active producer; `offset` is NO_OFFSET if its epoch has only a marker."""

    offset: int
    epoch: int


class BatchFilter:
    """The filter of one pass. Batches come in ascending order."""

    __slots__ = ("_end", "_first_dirty", "_horizon", "_keys", "_now_ms", "_txns", "last_records")

    def __init__(
        self, keys: KeyMap, txns: ScannedTransactions, config: LogConfig, *, first_dirty: int, end: int, now_ms: int
    ) -> None:
        """`end`: the end of the part of the log that the pass compacts."""
        self._keys = keys
        self._txns = txns
        self._first_dirty = first_dirty
        self._end = end
        self._now_ms = now_ms
        self._horizon = now_ms + config.delete_retention_ms
        self.last_records: Mapping[int, LastRecord] = {}
        """Of the active producers, by id."""

    def keep(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """The remaining part of `batch`; None if nothing remains.

        `header` then describes the result. Raises CorruptBatch.
        """
        header.position = 0
        if header.attributes & SPECIAL_BITS:
            if header.attributes & CONTROL_BIT:
                return self._keep_marker(header, batch)
            if self._txns.met_batch(header):
                return self._without_records(header, batch)
        if header.last_offset >= self._first_dirty:
            return self._keep_dirty(header, batch)
        return self._keep_clean(header, batch)

    def keep_plain(self, reader: SegmentReader, new: NewSegment) -> None:
        """Take the next batches, up to the first that needs a closer look, and add their remaining records to `new`.

        These are dirty batches without tombstones. All of their records remain, or no record, or some uncompressed
        records. Raises CorruptBatch.
        """
        data, at, lowest = reader.data, reader.at, reader.lowest
        last, first, end, end_max = len(data) - HEADER_SIZE, self._first_dirty, self._keys.end, self._end - 1
        whole_from, number, places, low = at, NO_BUCKET, [END], 0
        while at <= last:
            base, length, magic, attributes, delta, max_timestamp, producer_id, count = unpack(data, at)
            length += LOG_OVERHEAD
            after, offset = at + length, base + delta
            is_sound = magic == MAGIC and length >= HEADER_SIZE and after <= len(data) and base > lowest and delta >= 0
            if not is_sound or base < first or offset >= end or attributes & SPECIAL_BITS:
                break
            place = base - first << BATCH_BITS
            if place >> BUCKET_BITS != number:
                number = place >> BUCKET_BITS
                places = self._keys.bucket(number)
                low = bisect_left(places, place)
            limit = place + ONE_BATCH
            if places[low] >= limit:
                if offset == end_max or (producer_id >= 0 and self._is_last(producer_id, offset)):
                    break
                thin: Buffer = b""
            else:
                high = bisect_left(places, limit, low + 1)
                if places[high - 1] >= place + TOMBSTONE or places[low] < place:
                    break
                if high - low == count:
                    new.note_batch(new.size, length, offset, max_timestamp)
                    lowest, at, low = offset, after, high
                    continue
                if attributes & COMPRESSION_MASK or not has_right_crc(data[at:after]):
                    break
                records, latest = cut(data[at + HEADER_SIZE : after], [start - place for start in places[low:high]])
                thin, max_timestamp = thin_plain(data[at:after], records, high - low, latest)
                new.note_batch(new.size, len(thin), offset, max_timestamp)
                low = high
            if whole_from < at:
                new.kept.append(data[whole_from:at])
            if thin:
                new.kept.append(thin)
            lowest = offset
            whole_from = at = after
        if whole_from < at:
            new.kept.append(data[whole_from:at])
        reader.at, reader.lowest = at, lowest

    def _is_last(self, producer_id: int, offset: int) -> bool:
        """Whether this is the offset of the last record of an active producer."""
        last = self.last_records.get(producer_id)
        return last is not None and last.offset == offset

    def _keep_dirty(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Filter a dirty batch: the map knows which records are the latest."""
        if header.last_offset >= self._keys.end:
            return batch  # its keys have not been read
        starts, has_tombstone = self._keys.alive(header)
        if not starts:
            return self._without_records(header, batch)
        if len(starts) == header.count and not has_tombstone:
            return batch
        check_crc(batch, header)
        data = bytes(records_section(batch, header))
        return self._keep_records(header, batch, data, starts, has_tombstone=has_tombstone)

    def _keep_clean(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Filter a clean batch: records are superseded if the map has their key."""
        if not header.count:
            return self._without_records(header, batch)
        check_crc(batch, header)
        data = bytes(records_section(batch, header))
        keys, starts, has_tombstone = read_keys(data, header.count)
        known = self._keys
        if known.knows_any(keys) or None in keys:
            starts = [at for at, key in zip(starts, keys, strict=True) if key is not None and key not in known]
            if not starts:
                return self._without_records(header, batch)
        elif not has_tombstone:
            return batch
        return self._keep_records(header, batch, data, starts, has_tombstone=has_tombstone)

    def _keep_records(
        self, header: BatchHeader, batch: Buffer, data: bytes, starts: list[int], *, has_tombstone: bool
    ) -> Buffer | None:
        """Keep the records at `starts`; keep tombstones only with a delete horizon that is in the future or is set
        now."""
        horizon = header.delete_horizon_ms
        needs_horizon = False
        if has_tombstone:
            if horizon is not None and self._now_ms >= horizon:
                starts = [start for start in starts if not is_tombstone(data, start)]
                if not starts:
                    return self._without_records(header, batch)
            elif horizon is None:
                needs_horizon = any(is_tombstone(data, start) for start in starts)
        if needs_horizon:
            return self._thin(header, data, starts, self._horizon)
        return batch if len(starts) == header.count else self._thin(header, data, starts, None)

    def _keep_marker(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        check_crc(batch, header)
        is_needless = self._txns.met_marker(header, batch)
        horizon = header.delete_horizon_ms
        if not header.count or (is_needless and horizon is not None and horizon <= self._now_ms):
            return self._without_records(header, batch)
        if not is_needless or horizon is not None:
            return batch
        data = bytes(records_section(batch, header))
        return self._thin(header, data, read_keys(data, header.count)[1], self._horizon)

    def _thin(self, header: BatchHeader, data: bytes, starts: list[int], new_horizon: int | None) -> bytes:
        if new_horizon is None:
            base, (records, latest) = header.base_timestamp, cut(data, starts)
        else:
            base, (records, latest) = new_horizon, cut_and_shift(data, starts, header.base_timestamp - new_horizon)
        # As in Apache Kafka's cleaner, at the default level of the batch's codec. `compression.*.level` has no effect
        # here.
        return _changed(header, thin_batch(header, records, len(starts), base + latest, delete_horizon_ms=new_horizon))

    def _without_records(self, header: BatchHeader, batch: Buffer) -> Buffer | None:
        """Only the header if it must stay, else None."""
        if header.next_offset != self._end and not self._is_last_of_producer(header):
            return None
        return _changed(header, empty_batch(header)) if header.count else batch

    def _is_last_of_producer(self, header: BatchHeader) -> bool:
        last = self.last_records.get(header.producer_id) if header.producer_id >= 0 else None
        if last is None:
            return False
        if last.offset != NO_OFFSET:
            return last.offset == header.last_offset
        return header.is_control and header.producer_epoch == last.epoch


def _changed(header: BatchHeader, batch: bytes) -> bytes:
    """Update `header` to describe `batch`."""
    header.length = len(batch)
    (header.max_timestamp,) = MAX_TIMESTAMP.unpack_from(batch, MAX_TIMESTAMP_POSITION)
    return batch
