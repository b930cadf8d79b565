"""The positions of the latest record of each key in the dirty part of a log, in limited memory.

A position is one number: the base offset of the record's batch, relative to the first dirty offset, and the record's
start in the batch. So the second scan of the dirty part finds the remaining records without reading the others and
without look-ups. Records in the clean part are older: they are removed if their key is in the map.

The interpreter grows and frees a dictionary in one step, during which no other thread runs: 30 ms with 700,000 keys. So
keys are noted in a limited dictionary. When it has RECENT_MAX keys, they move into shards, some at a time.
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import chain, islice
from typing import TYPE_CHECKING, Final

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.log.compaction.segment_reader import TO_NOTE
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
from kraft_protocol.records.keys import TOMBSTONE, note_few, note_keys, note_one
from kraft_protocol.records.runs import RUN_MIN

if TYPE_CHECKING:
    from kraft_node.log.compaction.segment_reader import SegmentReader
    from kraft_protocol.records.batch import BatchHeader

unpack = TO_NOTE.unpack_from

BATCH_BITS: Final = 31
"""Bits of a position below its batch: the record's start and TOMBSTONE."""
BUCKET_BITS: Final = BATCH_BITS + 12
"""Positions are sorted in buckets of 4,096 offsets, each in less than a millisecond."""
SORTED_AT_ONCE: Final = 4_000
RECENT_MAX: Final = 340_000
"""A dictionary grows for 8 ms at 175,000 keys, and would for 16 ms at 350,000. Moving a key costs as much as noting
it, so most passes move no keys."""
LARGE: Final = 40_000
"""So many keys are freed in a millisecond or two."""
SHARDS: Final = 64
"""A power of two. Shards of 750,000 keys, which Kafka's default memory allows, grow and are freed in a millisecond."""
END: Final = 1 << 127
"""Above all positions."""
SHARD_MASK: Final = SHARDS - 1
NOT_PLAIN: Final = COMPRESSION_MASK | TRANSACTIONAL_BIT | CONTROL_BIT
BEFORE_ATTRIBUTES: Final = ATTRIBUTES_POSITION - LOG_OVERHEAD
RECORDS_AT: Final = HEADER_SIZE - ATTRIBUTES_POSITION
"""Bytes of a batch between its CRC and its records."""
KEY_BYTES: Final = 160
"""Memory per key, with its position in the map and in a bucket."""


class KeyMap:
    """Created for one pass: `note` the dirty batches, `sort`, then query `alive` in ascending order."""

    __slots__ = ("_buckets", "_first_dirty", "_keys_max", "_moved", "_number", "_shards", "_sorted", "end", "recent")

    def __init__(self, first_dirty: int, keys_max: int) -> None:
        self._first_dirty = first_dirty
        self._keys_max = keys_max
        self.recent: dict[bytes, int] = {}
        """The positions of the keys that were noted last."""
        self._shards: list[dict[bytes, int]] = []
        """The positions of the others, by the hash of the key."""
        self._moved = 0
        """The number of keys in shards."""
        self.end = first_dirty
        """All keys below this offset were noted."""
        self._buckets: dict[int, list[int]] = {}
        self._number: int | None = None
        """Of the sorted bucket; negative for a batch that begins before the first dirty offset."""
        self._sorted: list[int] = [END]

    def __len__(self) -> int:
        """The number of keys. With shards it is an upper bound: a recent key that a shard already has counts twice."""
        return len(self.recent) + self._moved

    @property
    def is_full(self) -> bool:
        """Whether the limit of keys is reached, so that the pass covers no further batches; with shards maybe early."""
        return len(self) >= self._keys_max

    @property
    def is_crowded(self) -> bool:
        """Whether `move` must come before the next batch is noted."""
        return len(self.recent) >= RECENT_MAX or (self._moved > 0 and len(self.recent) > 0 and self.is_full)

    @property
    def utilization(self) -> float:
        """The used share of the allowed memory, 0 to 1."""
        return min(len(self) / self._keys_max, 1.0)

    def note(self, header: BatchHeader, data: bytes) -> None:
        """Note the keys of a batch with the decompressed records `data`. Raises CorruptBatch."""
        note_keys(data, header.count, self.recent, header.base_offset - self._first_dirty << BATCH_BITS)

    def note_plain(self, reader: SegmentReader) -> None:
        """Note and take the next batches, up to the first that is compressed, special, unsound or not whole.

        Raises CorruptBatch.
        """
        places, places_max = self.recent, min(self._keys_max - self._moved, RECENT_MAX)
        first, end = self._first_dirty, self.end
        data, at = reader.data, reader.at
        last = len(data) - HEADER_SIZE
        try:
            while at <= last:
                base, length, magic, crc, attributes, delta, count = unpack(data, at)
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
                if count == 1:
                    filled = note_one(body, RECORDS_AT, places, place)
                elif count < RUN_MIN:
                    filled = note_few(body, RECORDS_AT, count, places, place)
                else:
                    filled = len(body)
                    note_keys(body, count, places, place, RECORDS_AT)
                if filled != len(body):
                    raise CorruptBatch(f"{count} records do not fill their batch")
                end = base + delta + 1
                at += LOG_OVERHEAD + length
        except IndexError:
            raise CorruptBatch("record is cut off") from None
        if at != reader.at:
            reader.at, reader.lowest, self.end = at, end - 1, end

    def move(self) -> Iterator[None]:
        """Move the recent keys into the shards, in pieces of a millisecond or two."""
        shards = self._shards
        if not shards:
            shards += ({} for _ in range(SHARDS))
        recent = iter(self.recent.items())
        for _ in range(len(self.recent) // SORTED_AT_ONCE + 1):
            for key, place in islice(recent, SORTED_AT_ONCE):
                shards[hash(key) & SHARD_MASK][key] = place
            yield
        self.recent = {}
        self._moved = sum(map(len, shards))

    def knows_any(self, keys: list[bytes | None]) -> bool:
        """Whether one of the keys was noted."""
        if not self.recent.keys().isdisjoint(keys):
            return True
        shards = self._shards
        return bool(shards) and any(key in shards[hash(key) & SHARD_MASK] for key in keys)

    def __contains__(self, key: bytes) -> bool:
        return key in self.recent or (bool(self._shards) and key in self._shards[hash(key) & SHARD_MASK])

    def release(self) -> None:
        """Free the memory of a large map, in many short steps: for a lane, after the pass."""
        recent, self.recent = self.recent, {}
        while recent:
            recent.popitem()
        shards, self._shards = self._shards, []
        while shards:
            shards.pop().clear()
        buckets = self._buckets
        while buckets:
            buckets.popitem()

    @property
    def is_large(self) -> bool:
        """Whether `release` is worth its job."""
        return len(self) > LARGE

    def sort(self) -> Iterator[None]:
        """Prepare `alive`, in pieces of a millisecond or two."""
        if self._shards:
            yield from self.move()
        places = chain(self.recent.values(), *(shard.values() for shard in self._shards))
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
        """The starts of the records of a dirty batch that are the latest of their keys, and whether a tombstone is
        among them.
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
