"""Scans the batches of a segment file and reads as little as possible."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from struct import Struct
from typing import Final

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.base.env import File
from kraft_protocol.records.batch import (
    ATTRIBUTES_POSITION,
    HEADER,
    HEADER_SIZE,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
)

HEADERS_CHUNK: Final = 16 * 1024
"""Bytes per read if only headers are needed: four index intervals."""
FIND_CHUNK: Final = 8 * 1024
"""Bytes per read if one header is searched from an index entry on: two index intervals."""
DATA_CHUNK: Final = 1024 * 1024
"""Bytes per read if every byte is checked; fits into the processor's cache."""
_FIND: Final = Struct(">qi4xb6xi")


class BadBatch(ValueError):  # noqa: N818
    """No valid batch is at `position` of the file, although `end` bytes exist."""

    def __init__(self, position: int, reason: str) -> None:
        super().__init__(f"{reason} at byte {position}")
        self.position = position
        self.reason = reason


def batches(
    file: File, position: int, end: int, *, check: bool = False, tick: Callable[[], None] | None = None
) -> Iterator[BatchHeader]:
    """The headers of the batches in bytes `position` to `end`; with `check`, CRCs are checked, too.

    `tick` is called before each read and may raise. Raises BadBatch at the first byte that does not continue the log.
    Offsets must ascend.
    """
    chunk = b""
    start = position  # of chunk in the file
    size = DATA_CHUNK if check else HEADERS_CHUNK
    unpack = HEADER.unpack_from
    lowest = -1
    while position < end:
        at = position - start
        if at + HEADER_SIZE > len(chunk):
            if tick is not None:
                tick()
            chunk, start, at = file.pread(position, min(size, end - position)), position, 0
            if len(chunk) < HEADER_SIZE:
                raise BadBatch(position, f"{len(chunk)} bytes are not a batch header")
        header = BatchHeader(unpack(chunk, at), position)
        length = header.length
        if header.magic != MAGIC or length < HEADER_SIZE:
            raise BadBatch(position, f"no batch (format {header.magic}, {length} bytes)")
        if position + length > end:
            raise BadBatch(position, f"batch of {length} bytes, {end - position} are left")
        if header.base_offset <= lowest or header.last_offset_delta < 0:
            raise BadBatch(position, f"offset {header.base_offset} does not follow {lowest}")
        if check:
            if at + length > len(chunk):
                chunk, start, at = file.pread(position, max(length, min(size, end - position))), position, 0
                if len(chunk) < length:
                    raise BadBatch(position, f"batch of {length} bytes, {len(chunk)} can be read")
            if crc32c(memoryview(chunk)[at + ATTRIBUTES_POSITION : at + length]) != header.crc:
                raise BadBatch(position, "the CRC does not fit")
        lowest = header.base_offset + header.last_offset_delta
        yield header
        position += length


def find_offset(file: File, position: int, end: int, offset: int) -> tuple[int, int, int, int]:
    """Position, length, base and last offset of the first batch from `position` on that ends at or after `offset`.

    (end, 0, -1, -1) without a batch. Raises BadBatch.
    """
    chunk = b""
    start = position
    unpack = _FIND.unpack_from
    need = _FIND.size
    while position < end:
        at = position - start
        if at + need > len(chunk):
            chunk, start, at = file.pread(position, min(FIND_CHUNK, end - position)), position, 0
            if len(chunk) < need:
                raise BadBatch(position, f"{len(chunk)} bytes are not a batch header")
        base, length, magic, delta = unpack(chunk, at)
        length += LOG_OVERHEAD
        if magic != MAGIC or length < HEADER_SIZE or position + length > end:
            raise BadBatch(position, f"no batch (format {magic}, {length} bytes)")
        if base + delta >= offset:
            return position, length, base, base + delta
        position += length
    return end, 0, -1, -1
