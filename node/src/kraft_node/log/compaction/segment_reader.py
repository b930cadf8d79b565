"""A segment file, read slice by slice; each slice begins with a batch."""

from __future__ import annotations

from struct import Struct
from typing import TYPE_CHECKING, Final

from kraft_node.log.segments.scan import BadBatch
from kraft_protocol.records.batch import HEADER, HEADER_SIZE, MAGIC, BatchHeader

if TYPE_CHECKING:
    from kraft_node.base.env import File

TO_NOTE: Final = Struct(">qi4xbIhi30xi")
"""Base offset, length, magic, CRC, attributes, last offset delta and count of a header."""
TO_COPY: Final = Struct(">qi4xb4xhi8xqq6xi")
"""Base offset, length, magic, attributes, last offset delta, max timestamp, producer id and count of a header."""


class SegmentReader:
    """The batches of one file in ascending order: `read` a slice, then take its batches one by one."""

    __slots__ = ("_file", "_size", "_slice_bytes", "at", "data", "lowest", "start")

    def __init__(self, file: File, size: int, slice_bytes: int) -> None:
        self._file = file
        self._size = size
        self._slice_bytes = slice_bytes
        self.start = 0
        """The position of the slice in the file."""
        self.data = b""
        self.at = 0
        """The position of the next batch in the slice."""
        self.lowest = -1
        """The offset of the last record before it: batches must ascend."""

    def read(self) -> bool:
        """Read the slice after the batches that were taken. Returns False at the end of the file. Raises BadBatch."""
        self.start += self.at
        self.at = 0
        left = self._size - self.start
        if left <= 0:
            return False
        self.data = self._file.pread(self.start, min(self._slice_bytes, left))
        if len(self.data) < HEADER_SIZE:
            raise BadBatch(self.start, f"{len(self.data)} bytes are not a batch header")
        length = self._header().length
        if length > len(self.data):
            self.data = self._file.pread(self.start, length)
            if len(self.data) < length:
                raise BadBatch(self.start, f"batch of {length} bytes, {len(self.data)} can be read")
        return True

    def header(self) -> BatchHeader | None:
        """The header of the next batch, with its position in the file; None if the slice does not hold all of the
        batch.

        Raises BadBatch.
        """
        if self.at + HEADER_SIZE > len(self.data):
            return None
        header = self._header()
        return header if self.at + header.length <= len(self.data) else None

    def batch(self, header: BatchHeader) -> memoryview:
        """The bytes of the next batch, which has that header."""
        return memoryview(self.data)[self.at : self.at + header.length]

    def take(self, header: BatchHeader) -> None:
        """Move behind the next batch, which has that header."""
        self.at += header.length
        self.lowest = header.last_offset

    def _header(self) -> BatchHeader:
        position = self.start + self.at
        header = BatchHeader(HEADER.unpack_from(self.data, self.at), position)
        if header.magic != MAGIC or header.length < HEADER_SIZE:
            raise BadBatch(position, f"no batch (format {header.magic}, {header.length} bytes)")
        if position + header.length > self._size:
            raise BadBatch(position, f"batch of {header.length} bytes, {self._size - position} are left")
        if header.base_offset <= self.lowest or header.last_offset_delta < 0:
            raise BadBatch(position, f"offset {header.base_offset} does not follow {self.lowest}")
        return header
