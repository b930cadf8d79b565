"""The sparse indexes of a segment, as bytes: offset -> position, and timestamp -> offset.

Offset index entry: offset relative to the segment's base (u32), position in the .log file (u32). Time index entry:
timestamp (i64, ms), relative offset (u32). Entries ascend. A scan starts at the largest entry that is not above the
target. Position 0 with offset 0 marks the file's unused rest (Kafka preallocates the index of the active segment).
"""

from __future__ import annotations

from struct import Struct
from typing import Final

from kraft_node.base.env import File
from kraft_protocol.buffers import Buffer

ENTRY: Final = Struct(">II")
TIME_ENTRY: Final = Struct(">qI")
ENTRY_SIZE: Final = ENTRY.size
TIME_ENTRY_SIZE: Final = TIME_ENTRY.size
_BLOCK_ENTRIES: Final = 2048
"""Entries that are read at once at the end of a search: four pages cost less than two more reads."""


def floor_entry(data: Buffer, relative_offset: int) -> tuple[int, int] | None:
    """The last packed (relative offset, position) entry at or below `relative_offset`; None without an entry there."""
    low, high = 0, len(data) // ENTRY_SIZE
    unpack = ENTRY.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack(data, middle * ENTRY_SIZE)[0] <= relative_offset:
            low = middle + 1
        else:
            high = middle
    return unpack(data, (low - 1) * ENTRY_SIZE) if low else None


def floor_time_entry(data: Buffer, timestamp: int) -> tuple[int, int] | None:
    """The last (timestamp, relative offset) at or below `timestamp`; None if all are above."""
    low, high = 0, len(data) // TIME_ENTRY_SIZE
    unpack = TIME_ENTRY.unpack_from
    while low < high:
        middle = (low + high) // 2
        if unpack(data, middle * TIME_ENTRY_SIZE)[0] <= timestamp:
            low = middle + 1
        else:
            high = middle
    return unpack(data, (low - 1) * TIME_ENTRY_SIZE) if low else None


def search_file(file: File, count: int, relative_offset: int) -> tuple[int, int] | None:
    """`floor_entry` of an index file with `count` entries: a few small reads, then one page."""
    low, high = 0, count
    while high - low > _BLOCK_ENTRIES:
        middle = (low + high) // 2
        data = file.pread(middle * ENTRY_SIZE, ENTRY_SIZE)
        if len(data) == ENTRY_SIZE and ENTRY.unpack(data)[0] <= relative_offset:
            low = middle
        else:
            high = middle
    return floor_entry(file.pread(low * ENTRY_SIZE, (high - low) * ENTRY_SIZE), relative_offset)


def search_time_file(file: File, count: int, timestamp: int) -> tuple[int, int] | None:
    """`floor_time_entry` of a time index file with `count` entries: a few small reads, then one page."""
    low, high = 0, count
    while high - low > _BLOCK_ENTRIES:
        middle = (low + high) // 2
        data = file.pread(middle * TIME_ENTRY_SIZE, TIME_ENTRY_SIZE)
        if len(data) == TIME_ENTRY_SIZE and TIME_ENTRY.unpack(data)[0] <= timestamp:
            low = middle
        else:
            high = middle
    return floor_time_entry(file.pread(low * TIME_ENTRY_SIZE, (high - low) * TIME_ENTRY_SIZE), timestamp)


def used_entries(data: Buffer) -> int:
    """The number of valid entries of an offset index: entries before the unused rest, as long as they ascend."""
    previous = -1
    previous_position = -1
    for number in range(len(data) // ENTRY_SIZE):
        relative, position = ENTRY.unpack_from(data, number * ENTRY_SIZE)
        if relative <= previous or position <= previous_position:
            return number
        previous, previous_position = relative, position
    return len(data) // ENTRY_SIZE


def used_time_entries(data: Buffer) -> int:
    """The same for a time index."""
    previous = previous_timestamp = -1
    for number in range(len(data) // TIME_ENTRY_SIZE):
        timestamp, relative = TIME_ENTRY.unpack_from(data, number * TIME_ENTRY_SIZE)
        if timestamp <= previous_timestamp or relative < previous or timestamp == 0:
            return number
        previous, previous_timestamp = relative, timestamp
    return len(data) // TIME_ENTRY_SIZE
