"""The positions of the latest record of each key in the dirty part of a log, in limited memory.

A position is one number: the base offset of the record's batch, relative to the first dirty offset, and the record's
start in the batch. So the second scan of the dirty part finds the remaining records without reading the others and
without look-ups. Records in the clean part are older: they are removed if their key is in the map.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.log.compaction.segment_reader import PLAIN
from kraft_protocol.records.batch import (
    ATTRIBUTES_POSITION,
    COMPRESSION_MASK,
    CONTROL_BIT,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)
from kraft_protocol.records.errors import CorruptBatch
from kraft_protocol.records.keys import TOMBSTONE, note_few, note_keys
from kraft_protocol.records.runs import RUN_MIN

if TYPE_CHECKING:
    from kraft_node.log.compaction.segment_reader import SegmentReader
    from kraft_protocol.records.batch import BatchHeader

unpack = PLAIN.unpack_from

BATCH_BITS: Final = 31
"""Bits of a position below its batch: the record's start and TOMBSTONE."""
BUCKET_BITS: Final = BATCH_BITS + 12
"""Positions are sorted in buckets of 4,096 offsets, each in less than a millisecond."""
SORTED_AT_ONCE: Final = 4_000
END: Final = 1 << 127
"""Above all positions."""
NOT_PLAIN: Final = COMPRESSION_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
BEFORE_ATTRIBUTES: Final = ATTRIBUTES_POSITION - LOG_OVERHEAD
RECORDS_AT: Final = HEADER_SIZE - ATTRIBUTES_POSITION
"""Bytes of a batch between its CRC and its records."""
KEY_BYTES: Final = 160
"""Memory per key, with its position in the map and in a bucket."""


class KeyMap:
    """Created for one pass: `note` the dirty batches, `sort`, then query `alive` in ascending order."""

    __slots__ = ("_buckets", "_first_dirty", "_keys_max", "_number", "_sorted", "end", "places")

    def __init__(self, first_dirty: int, keys_max: int) -> None:
        self._first_dirty = first_dirty
        self._keys_max = keys_max
        self.places: dict[bytes, int] = {}
        self.end = first_dirty
        """All keys below this offset were noted."""
        self._buckets: dict[int, list[int]] = {}
        self._number: int | None = None
        """Of the sorted bucket; negative for a batch that begins before the first dirty offset."""
        self._sorted: list[int] = [END]

    def __len__(self) -> int:
        return len(self.places)

    @property
    def is_full(self) -> bool:
        return len(self.places) >= self._keys_max

    @property
    def utilization(self) -> float:
        """The used share of the allowed memory, 0 to 1."""
        return min(len(self.places) / self._keys_max, 1.0)

    def note(self, header: BatchHeader, data: bytes) -> None:
        """Note the keys of a batch with the decompressed records `data`. Raises CorruptBatch."""
        note_keys(data, header.count, self.places, header.base_offset - self._first_dirty << BATCH_BITS)

    def note_plain(self, reader: SegmentReader) -> None:
        """Note and take the next batches, up to the first that is compressed, special, unsound or not whole.

        Raises CorruptBatch.
        """
        places, places_max, first, end = self.places, self._keys_max, self._first_dirty, self.end
        data, at = reader.data, reader.at
        last = len(data) - HEADER_SIZE
        try:
            while at <= last:
                base, length, magic, crc, attributes, delta, _, _, count = unpack(data, at)
                body = data[at + ATTRIBUTES_POSITION : at + LOG_OVERHEAD + length]
                if (
                    base < end
                    or len(body) != length - BEFORE_ATTRIBUTES
                    or length < HEADER_SIZE - LOG_OVERHEAD
                    or attributes & NOT_PLAIN
                    or magic != MAGIC
                    or delta < 0
                    or len(places) >= places_max
                    or crc32c(body) != crc
                ):
                    break
                place = (base - first << BATCH_BITS) - RECORDS_AT
                if count >= RUN_MIN:
                    note_keys(body, count, places, place, RECORDS_AT)
                elif note_few(body, RECORDS_AT, count, places, place) != len(body):
                    raise CorruptBatch(f"{count} records do not fill their batch")
                end = base + delta + 1
                at += LOG_OVERHEAD + length
        except IndexError:
            raise CorruptBatch("record is cut off") from None
        if at != reader.at:
            reader.at, reader.lowest, self.end = at, end - 1, end

    def sort(self) -> Iterator[None]:
        """Prepare `alive`, in pieces of a millisecond or two."""
        places = iter(self.places.values())
        buckets = self._buckets
        while some := list(islice(places, SORTED_AT_ONCE)):
            for place in some:
                bucket = buckets.get(place >> BUCKET_BITS)
                if bucket is None:
                    buckets[place >> BUCKET_BITS] = [place]
                else:
                    bucket.append(place)
            yield

    def bucket(self, number: int) -> list[int]:
        """The sorted positions of a bucket, and END. Numbers ascend."""
        if number != self._number:
            self._number, self._sorted = number, sorted(self._buckets.pop(number, ()))
            self._sorted.append(END)
        return self._sorted

    def alive(self, header: BatchHeader) -> tuple[list[int], bool]:
        """The starts of the records of a dirty batch that are the latest of their keys, and whether there is a
        tombstone.
        """
        base = header.base_offset - self._first_dirty << BATCH_BITS
        places = self.bucket(base >> BUCKET_BITS)
        low = bisect_left(places, base)
        high = bisect_left(places, base + (1 << BATCH_BITS), low)
        if low == high:
            return [], False
        if places[high - 1] < base + TOMBSTONE:
            return [place - base for place in places[low:high]], False
        starts = [(place - base) & (TOMBSTONE - 1) for place in places[low:high]]
        starts.sort()  # tombstones came after the others
        return starts, True
