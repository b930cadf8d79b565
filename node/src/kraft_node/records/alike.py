"""Neighbouring records of the same lengths, read a column of bytes at a time instead of a record at a time.

Producers write much the same record again and again: keys and values of one length, and deltas of as many bytes. A
slice with a step is one byte of each of them, and one call looks at all of it. A loop in Python over the records costs
ten times as much. What is not alike, or not sound, is left to `shapes`, which says what is wrong.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import Final, NamedTuple

RUN_MIN: Final = 8
"""Fewer alike records are not worth a look at their columns."""
HEADERS_MAX: Final = 16
"""Records with more headers are read one by one."""
OFFSETS_MAX: Final = 1 << 16
"""Offset deltas from this on are not known to be in order."""

_ENDS: Final = bytes(byte >> 7 for byte in range(256))
"""Of a varint's byte, whether another one follows."""
_SIGNS: Final = bytes(byte & 1 for byte in range(256))
_ITEMS: Final = {1: ("B", 1), 2: ("H", 2), 3: ("I", 4), 4: ("I", 4)}
"""The type of array that holds varints of so many bytes, and its size."""
_LITTLE: Final = sys.byteorder == "little"


class Alike(NamedTuple):
    """Some records that are sound."""

    records: int
    end: int
    """Where the next record begins."""
    smallest: int
    largest: int
    """Of the timestamp deltas."""
    has_keys: bool
    """Whether all of them have a key; otherwise none has."""
    in_order: bool
    """Whether the offset deltas are known to go up by one from the one that was expected."""


def read_alike(data: bytes, start: int, count: int, offset: int) -> Alike | None:
    """The alike records at `start`, at most `count`; None for less than RUN_MIN, and for what has to be looked at.

    `offset`: the offset delta that is expected of the first.
    """
    try:
        return _Run(data, start, count).read(offset)
    except _NotAlike:
        return None


class _NotAlike(Exception):  # noqa: N818 - an answer, not a fault
    pass


class _Run:
    """The alike records at `start`: their fields are read from the first to the last, and may leave fewer of them."""

    __slots__ = ("_at", "_count", "_data", "_limit", "_size", "_start")

    def __init__(self, data: bytes, start: int, count: int) -> None:
        self._data = data
        self._start = self._at = start
        self._count = count
        self._limit = len(data)
        """Where the first record ends, once that is known."""
        self._size = 1
        length = self._alike_length()
        self._limit = self._at + length
        self._size = self._limit - start
        self._shrink(min(count, (len(data) - start) // self._size))
        for position in range(start, self._at):
            self._same(position)

    def read(self, offset: int) -> Alike:
        self._at += 1  # attributes say nothing
        timestamps = self._varints()
        offsets = self._varints()
        key = self._skip_bytes()
        self._skip_bytes()
        self._skip_headers()
        if self._at != self._limit:
            raise _NotAlike
        count = self._count
        smallest, largest = _extremes([column[:count] for column in timestamps], count)
        in_order = all(
            column[:count] == wanted[offset : offset + count]
            for column, wanted in zip(offsets, _offset_columns(), strict=False)
        )
        return Alike(count, self._start + count * self._size, smallest, largest, key, in_order)

    def _shrink(self, count: int) -> None:
        if count < RUN_MIN:
            raise _NotAlike
        self._count = count

    def _column(self, position: int) -> bytes:
        """The bytes at `position` of the first record and at the same place of the others."""
        return self._data[position : self._start + self._count * self._size : self._size]

    def _same(self, position: int) -> None:
        """Go on with those that have the same byte there as the first."""
        column = self._column(position)
        self._shrink(len(column) - len(column.lstrip(column[:1])))

    def _varints(self) -> list[bytes]:
        """The columns of a varint that may differ, but has as many bytes in each record."""
        columns: list[bytes] = []
        goes_on = True
        while goes_on:
            if self._at >= self._limit or len(columns) == len(_ITEMS):
                raise _NotAlike
            column = self._column(self._at)
            goes_on = column[0] >= 0x80
            if goes_on or not column.isascii():
                ends = column.translate(_ENDS)
                self._shrink(len(ends) - len(ends.lstrip(ends[:1])))
            columns.append(column)
            self._at += 1
        return columns

    def _alike_length(self) -> int:
        """A length of one or two bytes, of the first record; the others are looked at by the caller."""
        if self._at + 1 >= self._limit:
            raise _NotAlike
        byte = self._data[self._at]
        self._at += 1
        if byte >= 0x80:
            byte = (byte & 0x7F) | self._data[self._at] << 7
            self._at += 1
        if byte & 1 or byte >= 1 << 14:
            raise _NotAlike
        return byte >> 1

    def _skip_bytes(self) -> bool:
        """Pass over a key or value of the same length in all records; False for null."""
        begin = self._at
        if begin < self._limit and self._data[begin] == 1:
            self._at += 1
            self._same(begin)
            return False
        length = self._alike_length()
        for position in range(begin, self._at):
            self._same(position)
        self._at += length
        return True

    def _skip_headers(self) -> None:
        """Pass over headers whose lengths are the same in all records."""
        if self._at >= self._limit:
            raise _NotAlike
        count = self._data[self._at]
        if count & 1 or count > 2 * HEADERS_MAX:
            raise _NotAlike
        self._same(self._at)
        self._at += 1
        for _ in range(count >> 1):
            if not self._skip_bytes():
                raise _NotAlike  # a header without a key
            self._skip_bytes()


def _extremes(columns: list[bytes], count: int) -> tuple[int, int]:
    """The smallest and the largest of varints, the columns of whose bytes are given, the lowest first."""
    if 1 in columns[0].translate(_SIGNS):
        values = [_number(groups) for groups in set(zip(*columns, strict=True))]
        return min(values), max(values)
    if len(columns) == 1:
        return min(columns[0]) >> 1, max(columns[0]) >> 1
    code, size = _ITEMS[len(columns)]
    raw = bytearray(count * size)
    for number, column in enumerate(columns):  # groups of 7 bits, each in a byte, sort as their number does
        raw[number if _LITTLE else size - 1 - number :: size] = column
    items = array(code, raw)
    return _grouped(min(items), size), _grouped(max(items), size)


def _grouped(item: int, size: int) -> int:
    return _number(tuple(item.to_bytes(size, "little")))


def _number(groups: tuple[int, ...]) -> int:
    """The number that a varint of these bytes is."""
    value = 0
    for number, byte in enumerate(groups):
        value |= (byte & 0x7F) << 7 * number
    return (value >> 1) ^ -(value & 1)


@lru_cache(1)
def _offset_columns() -> tuple[bytes, bytes, bytes]:
    """The first, second and third bytes of the varints of 0 to OFFSETS_MAX - 1; 0 where there is none."""
    low = bytes(range(0, 128, 2))
    first = low + bytes(byte | 0x80 for byte in low) * (OFFSETS_MAX // 64 - 1)
    second = b"".join(bytes([group & 0x7F | (group > 0x7F) << 7]) * 64 for group in range(OFFSETS_MAX // 64))
    third = b"".join(bytes([group]) * 8192 for group in range(OFFSETS_MAX // 8192))
    return first, second, third
