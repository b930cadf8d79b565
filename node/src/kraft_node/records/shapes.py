"""The outlines of encoded records: where each begins and ends, without making keys, values or headers of them.

For those who must know that records can be read, or how late the latest is, but not what they say: a leader before it
stores a batch. Costs about half a microsecond a record, so it is for few records, or for a batch that is suspicious.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from kraft_node.base.env import Buffer
from kraft_node.records.errors import CorruptBatch

RECORD_SIZE_MIN: Final = 7
"""Length, attributes, two deltas, key, value and header count, a byte each."""


Shape: TypeAlias = tuple[int, int, int, int]
"""Of one record: offset delta, timestamp delta, sizes of key and value (-1 for null)."""


class VarintTooLong(CorruptBatch):
    """A record's length is a varint that no number needs (Kafka takes it for a fault of its own)."""


def _varint(data: Buffer, position: int) -> tuple[int, int]:
    byte = data[position]
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), position + 1
    value, shift = byte & 0x7F, 7
    while True:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (value >> 1) ^ -(value & 1), position + 1
        shift += 7
        if shift > 63:
            raise VarintTooLong(f"varint ending at byte {position} is too long")


def read_shapes(section: Buffer, count: int) -> list[Shape]:
    """The outlines of the `count` records that `section` (uncompressed) holds.

    Raises CorruptBatch unless they fill it exactly.
    """
    shapes: list[Shape] = []
    position, end = 0, len(section)
    if count * RECORD_SIZE_MIN > end:
        raise CorruptBatch(f"{end} bytes are too few for {count} records")
    try:
        for _ in range(count):
            position = _read(section, position, end, shapes)
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    if position != end:
        raise CorruptBatch(f"{end - position} bytes follow the last of {count} records")
    return shapes


def _read(data: Buffer, position: int, end: int, shapes: list[Shape]) -> int:
    byte = data[position]
    if byte < 0x80:  # nearly all are, here and below: no call, no tuple
        size = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        size, position = _varint(data, position)
    stop = position + size
    if size < 0 or stop > end:
        raise CorruptBatch(f"record of {size} bytes, {end - position} are left")
    try:
        position = _read_body(data, position + 1, shapes)  # the attributes say nothing
    except VarintTooLong as e:
        raise CorruptBatch(e.reason) from None
    if position != stop:
        raise CorruptBatch(f"record of {size} bytes does not end where it says")
    return position


def _read_body(data: Buffer, position: int, shapes: list[Shape]) -> int:
    byte = data[position]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        timestamp_delta, position = _varint(data, position)
    byte = data[position]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        offset_delta, position = _varint(data, position)
    byte = data[position]
    if byte < 0x80:
        key_size = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        key_size, position = _varint(data, position)
    if key_size > 0:
        position += key_size
    byte = data[position]
    if byte < 0x80:
        value_size = (byte >> 1) ^ -(byte & 1)
        position += 1
    else:
        value_size, position = _varint(data, position)
    if value_size > 0:
        position += value_size
    if key_size < -1 or value_size < -1:
        raise CorruptBatch("key or value of negative size")
    shapes.append((offset_delta, timestamp_delta, key_size, value_size))
    byte = data[position]
    if byte == 0:
        return position + 1
    headers, position = _varint(data, position)
    return _skip_headers(data, position, headers)


def _skip_headers(data: Buffer, position: int, count: int) -> int:
    if count < 0:
        raise CorruptBatch(f"record with {count} headers")
    for _ in range(count):
        size, position = _varint(data, position)
        if size < 0:
            raise CorruptBatch("record header without a key")
        size, position = _varint(data, position + size)
        if size > 0:
            position += size
    return position


def bounds_hold(section: Buffer, count: int, steps: int) -> bool:
    """Whether the lengths of the first `steps` records stay within `section`, and fill it if there are no more.

    A cheap look at what may be many records: it finds what is no records at all.
    """
    position, end = 0, len(section)
    left = min(steps, count)
    try:
        for _ in range(left):
            byte = section[position]
            if byte < 0x80:
                if byte & 1:
                    return False
                position += (byte >> 1) + 1
            else:
                size, position = _varint(section, position)
                if size < 0:
                    return False
                position += size
    except (IndexError, CorruptBatch):
        return False
    return position == end if left == count else position + (count - left) * RECORD_SIZE_MIN <= end
