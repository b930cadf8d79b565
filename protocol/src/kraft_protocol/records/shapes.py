"""The outlines of encoded records: where each begins and ends, without decoding keys, values or headers.

A leader uses them before it stores a batch: it must know that the records are readable and the latest timestamp, but
not their content. Reading costs about half a microsecond per record. For few records the outlines are tuples
(`read_shapes`), for many they are columns of numbers (`read_columns`). Columns are read, checked and reused for the
next records, so that the outlines of a batch are never in memory as a whole.
"""

from __future__ import annotations

from array import array
from typing import Final, TypeAlias

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.errors import CorruptBatch, VarintTooLong
from kraft_protocol.records.varint import read_varint

RECORD_SIZE_MIN: Final = 7
"""One byte each for length, attributes, two deltas, key, value and header count."""

Shape: TypeAlias = tuple[int, int, int, int, int]
"""The outline of a record: its end, offset delta, timestamp delta, sizes of key and value (-1 for null)."""

HEADERS_MAX: Final = 10_000
"""Maximum of headers of a record, some 3 ms; a record with more is refused. Clients send a few."""


class Columns:
    """Outlines of several records, by number: offset delta, timestamp delta, sizes of key and value (-1 for null)."""

    __slots__ = ("keys", "offsets", "timestamps", "values")

    def __init__(self) -> None:
        self.offsets = array("q")
        self.timestamps = array("q")
        self.keys = array("q")
        self.values = array("q")

    def __len__(self) -> int:
        return len(self.offsets)

    def clear(self) -> None:
        """Empty the columns for the next records."""
        for column in (self.offsets, self.timestamps, self.keys, self.values):
            del column[:]

    def are_in_order(self, first: int = 0) -> bool:
        """Whether the offsets increase by one, starting at `first`."""
        return self.offsets == array("q", range(first, first + len(self.offsets)))


def read_shapes(section: Buffer, count: int) -> list[Shape]:
    """The outlines of the `count` records in `section` (uncompressed); for few records.

    Every Produce request with one record uses this function: creating `Columns` would cost more than reading. Raises
    CorruptBatch unless the records fill the section exactly.
    """
    shapes: list[Shape] = []
    position, end = 0, len(section)
    if count * RECORD_SIZE_MIN > end:
        raise CorruptBatch(f"{end} bytes are too few for {count} records")
    try:
        for _ in range(count):
            byte = section[position]
            if byte < 0x80:
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            else:
                size, position = read_varint(section, position)
            shape = _read_body(section, position + 1)
            if shape[0] != position + size:
                raise CorruptBatch(f"record of {size} bytes does not end at its stated length")
            position = shape[0]
            shapes.append(shape)
    except IndexError:
        raise CorruptBatch("record is cut off") from None
    if position != end:
        raise CorruptBatch(f"{count} records end at byte {position} of {end}")
    return shapes


def check_filled(left: int, count: int, missing: int) -> None:
    """Raise CorruptBatch unless all `count` records were read and no bytes are left."""
    if missing:
        raise CorruptBatch("record is cut off")
    if left:
        raise CorruptBatch(f"{left} bytes follow the last of {count} records")


def read_columns(
    data: Buffer, position: int, count: int, columns: Columns, *, is_last: bool, until: int | None = None
) -> int:
    """Read up to `count` records at `position`, which begin before `until`, into `columns`. Returns the position of
    the next record.

    A record that is incomplete in `data` is left for later, or counts as damaged if `is_last`. Raises CorruptBatch.
    """
    end = len(data)
    until = end if until is None else min(until, end)
    note_offset, note_timestamp = columns.offsets.append, columns.timestamps.append
    note_key, note_value = columns.keys.append, columns.values.append
    for _ in range(count):
        if position >= until:
            break
        start = position
        try:
            byte = data[position]
            if byte < 0x80:  # one or two bytes, here and below, are nearly all: no call, no tuple
                size = (byte >> 1) ^ -(byte & 1)
                position += 1
            elif (second := data[position + 1]) < 0x80:
                size = (byte & 0x7E | second << 7) >> 1 ^ -(byte & 1)
                position += 2
            else:
                size, position = read_varint(data, position)
        except IndexError:
            if is_last:
                raise CorruptBatch("record is cut off") from None
            return start
        stop = position + size
        if size < 0 or stop > end:
            if size >= 0 and not is_last:
                return start
            raise CorruptBatch(f"record of {size} bytes, {end - position} are left")
        try:
            position, offset_delta, timestamp_delta, key_size, value_size = _read_body(data, position + 1)
            note_offset(offset_delta)
            note_timestamp(timestamp_delta)
            note_key(key_size)
            note_value(value_size)
        except VarintTooLong as e:
            raise CorruptBatch(e.reason) from None
        except IndexError:
            raise CorruptBatch("record is cut off") from None
        except OverflowError:
            raise CorruptBatch("record with a number of more than 64 bits") from None
        if position != stop:
            raise CorruptBatch(f"record of {size} bytes does not end at its stated length")
    return position


def _read_body(data: Buffer, position: int) -> Shape:
    """Read the rest of a record after its attributes, which are unused."""
    byte = data[position]
    if byte < 0x80:
        timestamp_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    elif (second := data[position + 1]) < 0x80:
        timestamp_delta = (byte & 0x7E | second << 7) >> 1 ^ -(byte & 1)
        position += 2
    else:
        timestamp_delta, position = read_varint(data, position)
    byte = data[position]
    if byte < 0x80:
        offset_delta = (byte >> 1) ^ -(byte & 1)
        position += 1
    elif (second := data[position + 1]) < 0x80:
        offset_delta = (byte & 0x7E | second << 7) >> 1 ^ -(byte & 1)
        position += 2
    else:
        offset_delta, position = read_varint(data, position)
    byte = data[position]
    if byte < 0x80:
        key_size = (byte >> 1) ^ -(byte & 1)
        position += 1
    elif (second := data[position + 1]) < 0x80:
        key_size = (byte & 0x7E | second << 7) >> 1 ^ -(byte & 1)
        position += 2
    else:
        key_size, position = read_varint(data, position)
    if key_size > 0:
        position += key_size
    byte = data[position]
    if byte < 0x80:
        value_size = (byte >> 1) ^ -(byte & 1)
        position += 1
    elif (second := data[position + 1]) < 0x80:
        value_size = (byte & 0x7E | second << 7) >> 1 ^ -(byte & 1)
        position += 2
    else:
        value_size, position = read_varint(data, position)
    if value_size > 0:
        position += value_size
    if key_size < -1 or value_size < -1:
        raise CorruptBatch("key or value of negative size")
    if data[position] == 0:
        position += 1
    else:
        headers, position = read_varint(data, position)
        position = _skip_headers(data, position, headers)
    return position, offset_delta, timestamp_delta, key_size, value_size


def _skip_headers(data: Buffer, position: int, count: int) -> int:
    if not 0 <= count <= HEADERS_MAX:
        raise CorruptBatch(f"record with {count} headers; the limit is {HEADERS_MAX}")
    for _ in range(count):
        size, position = read_varint(data, position)
        if size < 0:
            raise CorruptBatch("record header without a key")
        size, position = read_varint(data, position + size)
        if size > 0:
            position += size
    return position


def bounds_hold(section: Buffer, count: int, steps: int) -> bool:
    """Whether the lengths of the first `steps` records stay within `section`, and fill it if it has no more records.

    This cheap check of possibly many records detects data that is not records at all.
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
                size, position = read_varint(section, position)
                if size < 0:
                    return False
                position += size
    except (IndexError, CorruptBatch):
        return False
    return position == end if left == count else position + (count - left) * RECORD_SIZE_MIN <= end
