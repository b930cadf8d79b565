"""Timestamps and offsets of the records of a batch, read piece by piece, with a limit on the time of a look-up.

A batch may have been stored unread, so it may hold far more records than bytes. Records beyond `RECORDS_MAX` are not
read: they count as one record at the first of their offsets, with the batch's largest timestamp.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import HEADER_SIZE, LOG_APPEND_TIME_BIT, read_header
from kraft_protocol.records.compression import decompress_pieces
from kraft_protocol.records.errors import DecompressionLimit
from kraft_protocol.records.shapes import Columns, check_filled, read_columns

RECORDS_MAX: Final = 100_000
"""Some 50 milliseconds. A megabyte holds this many records of ten bytes; clients send hundreds or thousands per
batch."""
PLAIN_MAX: Final = 64 << 20
"""Maximum of decompressed bytes that are read."""
PIECE_BYTES: Final = 16 * 1024


class Place(NamedTuple):
    """A record's timestamp (ms) and offset."""

    timestamp: int
    offset: int


def places(batch: Buffer) -> Iterator[Place]:
    """The records of the batch in `batch`, in order, read lazily. Raises BatchError if the batch is damaged."""
    header = read_header(batch)
    section = memoryview(batch)[header.position + HEADER_SIZE : header.position + header.length]
    appended = header.max_timestamp if header.attributes & LOG_APPEND_TIME_BIT else None
    missing = header.count
    columns = Columns()
    cut = bytearray()  # the beginning of a record that the next pieces complete
    offset = header.base_offset
    try:
        for piece in decompress_pieces(header.compression, section, PLAIN_MAX, PIECE_BYTES):
            for start in range(0, len(piece), PIECE_BYTES):
                cut += piece[start : start + PIECE_BYTES]
                position = read_columns(cut, 0, missing, columns, is_last=False)
                missing -= len(columns)
                for timestamp_delta, offset_delta in zip(columns.timestamps, columns.offsets, strict=True):
                    offset = header.base_offset + offset_delta
                    timestamp = header.base_timestamp + timestamp_delta if appended is None else appended
                    yield Place(timestamp, offset)
                columns.clear()
                del cut[:position]
                if header.count - missing >= RECORDS_MAX:
                    raise DecompressionLimit(f"{header.count} records")
    except DecompressionLimit:
        if missing:
            yield Place(header.max_timestamp, offset + 1)
        return
    if missing:
        read_columns(cut, 0, missing, columns, is_last=True)  # raises the fitting error
    check_filled(len(cut), header.count, missing)
