"""All records of a buffer of batches."""

from __future__ import annotations

from collections.abc import Iterator

from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import DEFAULT_LIMIT, Record, iter_headers, iter_records


def iter_all_records(buffer: Buffer, *, limit: int = DEFAULT_LIMIT) -> Iterator[Record]:
    """The records of all batches in `buffer`, without control records."""
    for header in iter_headers(buffer):
        if not header.is_control:
            yield from iter_records(buffer, header, limit=limit)
