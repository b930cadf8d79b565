"""The keys of a batch and where its records lie, for compaction: a fraction of what decoding the records costs."""

from __future__ import annotations

from typing import Final, NamedTuple

from kraft_node.records.batch import BatchHeader
from kraft_node.records.errors import CorruptBatch

NULL: Final = 1
"""The varint -1: a length that says that there is nothing."""


class Place(NamedTuple):
    """One record within the decompressed records of a batch."""

    start: int
    end: int
    key: bytes | None
    offset_delta: int
    timestamp_delta: int
    is_tombstone: bool


def note_keys(data: bytes, header: BatchHeader, offsets: dict[bytes, int]) -> tuple[bool, list[bytes]]:
    """Note the latest offset of each key of the decompressed records; whether there is a tombstone, and long keys.

    The keys longer than `LONG_KEY` are in `offsets` as they are; the caller shortens them. Raises CorruptBatch.
    """
    base, position, tombstone = header.base_offset, 0, False
    long_keys: list[bytes] = []
    try:
        for _ in range(header.count):
            byte = data[position]
            position += 1
            if byte < 0x80:
                size = byte >> 1
            else:
                size, position = _varint(data, position - 1)
            end = position + size
            position += 1
            while data[position] >= 0x80:
                position += 1
            byte = data[position + 1]
            position += 2
            if byte < 0x80:
                delta = byte >> 1
            else:
                delta, position = _varint(data, position - 1)
            byte = data[position]
            position += 1
            if byte != NULL:
                if byte < 0x80:
                    length = byte >> 1
                else:
                    length, position = _varint(data, position - 1)
                key = data[position : position + length]
                offsets[key] = base + delta
                if length > LONG_KEY:
                    long_keys.append(key)
                if data[position + length] == NULL:
                    tombstone = True
            position = end
    except IndexError:
        raise CorruptBatch("record is cut off", header.position) from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes are left of {header.count} records", header.position)
    return tombstone, long_keys


LONG_KEY: Final = 32
"""Keys longer than this are kept as a digest of 16 bytes."""


def places(data: bytes, header: BatchHeader) -> list[Place]:
    """Where each record is. Raises CorruptBatch."""
    found: list[Place] = []
    position = 0
    try:
        for _ in range(header.count):
            start = position
            size, position = _varint(data, position)
            end = position + size
            timestamp, position = _varint(data, position + 1)
            delta, position = _varint(data, position)
            length, position = _varint(data, position)
            key = None
            if length >= 0:
                key = data[position : position + length]
                position += length
            found.append(Place(start, end, key, delta, timestamp, data[position] == NULL))
            position = end
    except IndexError:
        raise CorruptBatch("record is cut off", header.position) from None
    if position != len(data):
        raise CorruptBatch(f"{len(data) - position} bytes are left of {header.count} records", header.position)
    return found


def _varint(data: bytes, position: int) -> tuple[int, int]:
    """A zigzag varint and where it ends. IndexError when it is cut off."""
    byte = data[position]
    value, shift = byte & 0x7F, 7
    while byte >= 0x80:
        position += 1
        byte = data[position]
        value |= (byte & 0x7F) << shift
        shift += 7
        if shift > 70:
            raise CorruptBatch(f"varint ending at byte {position} is too long")
    return (value >> 1) ^ -(value & 1), position + 1
