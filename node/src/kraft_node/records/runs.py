"""Runs of alike encoded records: neighbours whose lengths are the same, so that columns of bytes tell all about them.

Producers write much the same record again and again: keys and values of one length, deltas of as many bytes. A loop in
Python over such records costs half a microsecond each. Slices with a step compare a byte of all of them at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from kraft_node.base.env import Buffer

RUN_MIN: Final = 8
"""Fewer alike records are not worth the look at their columns, some two microseconds."""
_NULL: Final = 1
_ENDS: Final = bytes(byte >> 7 for byte in range(256))
"""Of a varint's byte, whether another one follows."""
_NULLS: Final = bytes(byte == _NULL for byte in range(256))


class Run(NamedTuple):
    """`records` alike records of `size` bytes each, the first at `start`.

    A key has `key_size` bytes, -1 without a key, and lies `key_at` bytes behind the start of its record. `is_tombstone`
    says that all have a key and no value, or none.
    """

    start: int
    records: int
    size: int
    key_at: int
    key_size: int
    is_tombstone: bool

    @property
    def starts(self) -> range:
        """Where the records begin."""
        return range(self.start, self.start + self.records * self.size, self.size)

    def keys(self, data: Buffer) -> Iterator[bytes]:
        """Their keys; only for records that have keys."""
        unpacked = _key_of(self.key_at, self.key_size, self.size - self.key_at - self.key_size)
        of_run = memoryview(data)[self.start : self.start + self.records * self.size]
        return chain.from_iterable(unpacked.iter_unpack(of_run))


@lru_cache(256)
def _key_of(before: int, size: int, after: int) -> Struct:
    return Struct(f"{before}x{size}s{after}x")


def run_at(data: bytes, start: int, count: int) -> Run | None:
    """The run that begins with the record at `start`, at most `count` records long; None for less than RUN_MIN.

    Lengths of records and keys of more than two bytes make no run. Raises IndexError if the first record is cut off.
    """
    byte, at = data[start], start + 1
    length = byte
    if byte >= 0x80:
        length, at = (byte & 0x7F) | data[at] << 7, at + 1
    if length & 1 or length >= 1 << 14:
        return None
    size = at - start + (length >> 1)
    count = min(count, (len(data) - start) // size)
    for position in range(start, at):
        count = _alike(data[position : start + count * size : size])
        if count < RUN_MIN:
            return None
    at += 1  # attributes say nothing
    for _ in range(2):  # deltas of timestamp and offset, which may differ, but in as many bytes
        is_end = False
        while not is_end:
            if at >= start + size:
                return None  # no record, and the loop says so
            column = data[at : start + count * size : size]
            is_end = column[0] < 0x80
            if not (is_end and column.isascii()):
                count = _alike(column.translate(_ENDS))
            at += 1
    return _with_key(data, start, count, size, at)


def _with_key(data: bytes, start: int, count: int, size: int, at: int) -> Run | None:
    """The run of which it is known where the lengths of keys are."""
    if at + 1 >= start + size:
        return None
    first = length = data[at]
    count = _alike(data[at : start + count * size : size])
    at += 1
    if first >= 0x80:
        length = (first & 0x7F) | data[at] << 7
        count = _alike(data[at : start + count * size : size])
        at += 1
    if length == _NULL:
        return Run(start, count, size, 0, -1, is_tombstone=False) if count >= RUN_MIN else None
    key_at, key_size = at - start, length >> 1
    if length & 1 or length >= 1 << 14 or key_at + key_size >= size:
        return None
    column = data[at + key_size : start + count * size : size]
    if _NULL in column:
        count = _alike(column.translate(_NULLS))
    return Run(start, count, size, key_at, key_size, column[0] == _NULL) if count >= RUN_MIN else None


def _alike(column: bytes) -> int:
    """How many bytes at the start of a column are the same."""
    return len(column) - len(column.lstrip(column[:1]))
