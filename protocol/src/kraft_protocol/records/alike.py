"""Runs of records (`runs`) with values and headers that are alike, too: read by columns of bytes, for validation.

A loop in Python over the records costs ten times as much. Records that are not alike, or not sound, are left to
`shapes`, which reports the fault.
"""

from __future__ import annotations

import sys
from array import array
from functools import lru_cache
from typing import Final, NamedTuple

from kraft_protocol.records.runs import LENGTHS_END, NULL, RUN_MIN, Run, run_at, same_bytes

HEADERS_MAX: Final = 16
"""Records with more headers are read one by one."""
OFFSETS_MAX: Final = 1 << 16
"""Whether records are in order is not known from this offset delta on."""

_SIGNS: Final = bytes(byte & 1 for byte in range(256))
_ITEMS: Final = {1: ("B", 1), 2: ("H", 2), 3: ("I", 4), 4: ("I", 4)}
"""The type of array that holds varints of so many bytes, and its size."""
DELTA_BYTES_MAX: Final = len(_ITEMS)
"""Records with longer deltas are read one by one."""
_LITTLE: Final = sys.byteorder == "little"


class Alike(NamedTuple):
    """Some records that are sound."""

    records: int
    end: int
    """Where the next record begins."""
    smallest: int
    largest: int
    """The largest timestamp delta."""
    has_keys: bool
    """Whether all of them have a key; otherwise no record has a key."""
    in_order: bool
    """Whether the offset deltas are known to grow by 1 from the expected delta."""


def read_alike(data: bytes, start: int, count: int, offset: int) -> Alike | None:
    """The alike records at `start`, at most `count`; None for less than RUN_MIN, and for records that need a closer
    look.

    `offset`: the expected offset delta of the first record.
    """
    try:
        run = run_at(data, start, count)
    except IndexError:
        return None
    if run is None or run.offset_end - run.offset_at > DELTA_BYTES_MAX or run.offset_at - run.time_at > DELTA_BYTES_MAX:
        return None
    count = _of_one_shape(data, run)
    if count < RUN_MIN:
        return None
    end, size = start + count * run.size, run.size
    times = [data[at:end:size] for at in range(start + run.time_at, start + run.offset_at)]
    smallest, largest = _extremes(times, count)
    in_order = all(
        data[start + run.offset_at + number : end : size] == wanted[offset : offset + count]
        for number, wanted in zip(range(run.offset_end - run.offset_at), _offset_columns(), strict=False)
    )
    return Alike(count, end, smallest, largest, run.key_size >= 0, in_order)


def _of_one_shape(data: bytes, run: Run) -> int:
    """How many records of a run have values and headers of the same lengths, which end where the records end.

    0 if the lengths do not prove it.
    """
    start, size, end = run.start, run.size, run.start + run.size
    at, count = _skip(data, start + run.key_at + max(run.key_size, 0), run, run.records)
    if at >= end:
        return 0
    headers = data[at]
    if headers & 1 or headers > 2 * HEADERS_MAX:
        return 0
    count = same_bytes(data[at : start + count * size : size])
    at += 1
    for _ in range(headers >> 1):
        if at >= end or data[at] == NULL:
            return 0  # a header without a key
        at, count = _skip(data, at, run, count)
        at, count = _skip(data, at, run, count)
    return count if at == end else 0


def _skip(data: bytes, at: int, run: Run, count: int) -> tuple[int, int]:
    """Where a key or value of the first record ends, and how many of the `count` first records have that length.

    Returns a place behind the record if the record ends before, or the length is not of one or two bytes.
    """
    start, size = run.start, run.size
    beyond = start + size + 1
    if at >= start + size:
        return beyond, 0
    first = length = data[at]
    count = same_bytes(data[at : start + count * size : size])
    at += 1
    if first == NULL:
        return at, count
    if first >= 0x80:
        length = (first & 0x7F) | data[at] << 7
        count = same_bytes(data[at : start + count * size : size])
        at += 1
    if length & 1 or length >= LENGTHS_END:
        return beyond, 0
    return at + (length >> 1), count


def _extremes(columns: list[bytes], count: int) -> tuple[int, int]:
    """The smallest and the largest of varints. `columns`: columns of their bytes, the lowest byte first."""
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
    """The first, second and third bytes of the varints of 0 to OFFSETS_MAX - 1; 0 for a missing byte."""
    low = bytes(range(0, 128, 2))
    first = low + bytes(byte | 0x80 for byte in low) * (OFFSETS_MAX // 64 - 1)
    second = b"".join(bytes([group & 0x7F | (group > 0x7F) << 7]) * 64 for group in range(OFFSETS_MAX // 64))
    third = b"".join(bytes([group]) * 8192 for group in range(OFFSETS_MAX // 8192))
    return first, second, third
