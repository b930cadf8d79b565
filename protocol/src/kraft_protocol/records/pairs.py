"""Batches of keys and values without headers, as coordinators keep them: written and read faster than other batches.

A coordinator writes a batch for each step of a transaction, and a load reads all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeAlias

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import (
    COMPRESSION_MASK,
    HEADER_SIZE,
    NO_LEADER_EPOCH,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    BatchHeader,
    iter_records,
    seal,
)
from kraft_protocol.records.varint import write_varint

Pair: TypeAlias = "tuple[int, bytes | None, bytes | None]"
"""Offset, key and value of a record."""
_ONE_BYTE: Final = 0x80
"""A varint of one byte is below it; zig-zag encoded, even numbers are not negative."""
_TWO_BYTES: Final = 1 << 14
"""A varint of two bytes is below it."""
_SHORT: Final = 64
"""Smaller numbers are varints of one byte."""
_NULL: Final = 1
"""The length -1."""


def pair_batch(pairs: Iterable[tuple[bytes, bytes | None]], timestamp: int) -> bytes:
    """One uncompressed batch of at least one key and value, without a producer: as `build_batch` makes it."""
    body = bytearray()
    count = 0
    for key, value in pairs:
        record = bytearray(2)  # the record's attributes, and its timestamp delta
        for number in (count, len(key)):
            if number < _SHORT:  # without a call, nearly always
                record.append(number << 1)
            else:
                write_varint(record, number)
        record += key
        if value is None:
            record.append(_NULL)
        else:
            write_varint(record, len(value))
            record += value
        record.append(0)  # no headers
        write_varint(body, len(record))
        body += record
        count += 1
    fields = (0, count - 1, timestamp, timestamp, NO_PRODUCER_ID, NO_PRODUCER_EPOCH, NO_SEQUENCE, count)
    return seal(0, NO_LEADER_EPOCH, fields, body)


def pairs_in(buffer: bytes, header: BatchHeader) -> Iterable[Pair]:
    """The records of the batch at `header`, with all checks of `iter_records`. Raises like it."""
    if header.attributes & COMPRESSION_MASK:
        return _slowly(buffer, header)
    end = header.position + header.length
    position = header.position + HEADER_SIZE
    base = header.base_offset
    found: list[Pair] = []
    try:
        for _ in range(header.count):
            delta, key, value, position = _short_pair(buffer, position)
            found.append((base + delta, key, value))
    except (_Other, IndexError, ValueError):
        return _slowly(buffer, header)
    return found if position == end else _slowly(buffer, header)


class _Other(Exception):  # noqa: N818 - not a fault
    """The record has another form: a long key, headers, large deltas, or damage."""


def _slowly(buffer: Buffer, header: BatchHeader) -> Iterator[Pair]:
    for record in iter_records(buffer, header):
        yield record.offset, record.key, record.value


def _short_pair(data: bytes, at: int) -> tuple[int, bytes, bytes | None, int]:
    """Offset delta, key, value and end of the record at `at`.

    Raises _Other, IndexError or ValueError for any other form.
    """
    size = data[at]
    at += 1
    if size >= _ONE_BYTE:
        size += (data[at] << 7) - _ONE_BYTE
        at += 1
    end = at + (size >> 1)
    _, timestamp_delta, offset_delta, key_size = data[at : at + 4]
    key_end = at + 4 + (key_size >> 1)
    value_size = data[key_end]
    value_at = key_end + 1
    value = None
    value_end = value_at
    if value_size != _NULL:
        if value_size >= _ONE_BYTE:
            value_size += (data[value_at] << 7) - _ONE_BYTE
            value_at += 1
        value_end = value_at + (value_size >> 1)
        value = data[value_at:value_end]
        size |= value_size
    if (
        (size | offset_delta | key_size) & 1
        or (timestamp_delta | offset_delta | key_size) >= _ONE_BYTE
        or size >= _TWO_BYTES
        or data[value_end]
        or value_end + 1 != end
    ):
        raise _Other
    return offset_delta >> 1, data[at + 4 : key_end], value, end
