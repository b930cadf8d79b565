"""Runs of alike encoded records: neighbours with the same lengths, which can be read by columns of bytes.

Producers write much the same record again and again: keys and values of one length, deltas of as many bytes. A loop in
Python over these records costs half a microsecond each. A slice with a step has the same byte of each record, and a
single call looks at the whole slice. Compaction reads the keys of a run (`keys`), validation reads the rest of it
(`alike`).
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from itertools import chain
from struct import Struct
from typing import Final, NamedTuple

from kraft_protocol.buffers import Buffer

RUN_MIN: Final = 8
"""Fewer alike records are not worth the look at their columns, some two microseconds."""
NULL: Final = 1
"""The varint -1: the length of a null key or value."""
LENGTHS_END: Final = 1 << 14
"""Varints of one and two bytes are below this."""
_ENDS: Final = bytes(byte >> 7 for byte in range(256))
"""By the byte of a varint: whether another byte follows."""
_NULLS: Final = bytes(byte == NULL for byte in range(256))


class Run(NamedTuple):
    """`records` alike records of `size` bytes each, the first at `start`.

    Timestamp deltas, offset deltas and keys begin `time_at`, `offset_at` and `key_at` bytes behind the start of their
    record. A key has `key_size` bytes, -1 without a key. `is_tombstone`: all records have a key and no value;
    otherwise, no record is a tombstone.
    """

    start: int
    records: int
    size: int
    time_at: int
    offset_at: int
    offset_end: int
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

    Lengths of records and keys of more than two bytes make no run. Values and headers are not looked at, except for
    whether a value is null. Raises IndexError if the first record is cut off.
    """
    byte, at = data[start], start + 1
    length = byte
    if byte >= 0x80:
        length, at = (byte & 0x7F) | data[at] << 7, at + 1
    if length & 1 or length >= LENGTHS_END:
        return None
    size = at - start + (length >> 1)
    count = min(count, (len(data) - start) // size)
    for position in range(start, at):
        count = same_bytes(data[position : start + count * size : size])
        if count < RUN_MIN:
            return None
    time_at = at = at + 1  # attributes have no information
    offset_at = 0
    while True:  # deltas of timestamp and offset, which may differ, but in as many bytes
        if at >= start + size:
            return None  # not a record; the loop reports it
        column = data[at : start + count * size : size]
        is_end = column[0] < 0x80
        if not (is_end and column.isascii()):
            count = same_bytes(column.translate(_ENDS))
        at += 1
        if is_end:
            if offset_at:
                break
            offset_at = at
    return _with_key(data, start, count, size, (time_at - start, offset_at - start, at - start))


def _with_key(data: bytes, start: int, count: int, size: int, deltas: tuple[int, int, int]) -> Run | None:
    """The run with the lengths of its keys at the end of `deltas`."""
    at = start + deltas[2]
    if at + 1 >= start + size:
        return None
    first = length = data[at]
    count = same_bytes(data[at : start + count * size : size])
    at += 1
    if first >= 0x80:
        length = (first & 0x7F) | data[at] << 7
        count = same_bytes(data[at : start + count * size : size])
        at += 1
    if length == NULL:
        return Run(start, count, size, *deltas, at - start, -1, is_tombstone=False) if count >= RUN_MIN else None
    key_at, key_size = at - start, length >> 1
    if length & 1 or length >= LENGTHS_END or key_at + key_size >= size:
        return None
    column = data[at + key_size : start + count * size : size]
    if NULL in column:
        count = same_bytes(column.translate(_NULLS))
    return Run(start, count, size, *deltas, key_at, key_size, column[0] == NULL) if count >= RUN_MIN else None


def same_bytes(column: bytes) -> int:
    """How many bytes at the start of a column are the same."""
    return len(column) - len(column.lstrip(column[:1]))
