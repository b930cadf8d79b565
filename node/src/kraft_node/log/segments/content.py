"""The records of a batch in a segment, after a check of the batch's CRC."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.log.segments.scan import BadBatch
from kraft_protocol.records.batch import ATTRIBUTES_POSITION, BatchHeader, Record, iter_records
from kraft_protocol.records.places import Place, places

if TYPE_CHECKING:
    from kraft_node.log.segments.segment import Segment


def records_of(segment: Segment, header: BatchHeader) -> Iterator[Place]:
    """Timestamps and offsets of the batch that `header` describes; limited for an oversized batch.

    Raises OSError, BadBatch for a damaged batch, BatchError for a batch that was stored invalid.
    """
    return places(_batch(segment, header))


def control_records_of(segment: Segment, header: BatchHeader) -> Iterator[Record]:
    """The records of a control batch, which only nodes write. Raises like `records_of`."""
    return iter_records(_batch(segment, header))


def _batch(segment: Segment, header: BatchHeader) -> bytes:
    data = segment.file().pread(header.position, header.length)
    if crc32c(memoryview(data)[ATTRIBUTES_POSITION:]) != header.crc:
        raise BadBatch(header.position, "the CRC does not fit")
    return data
