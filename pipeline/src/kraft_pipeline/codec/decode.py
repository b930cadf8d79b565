"""Decodes records of a partition to Arrow columns, with the names and types of Spark's `kafka` source.

Schema (only the wanted columns, in this order): key binary, value binary, topic string, partition int32, offset int64,
timestamp timestamp[us, UTC]. Then timestampType int32 (0 create time, 1 log append time), and headers list<struct<key:
string, value: binary>> (null for a record without headers). A time out of the column's range is null.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.codec.arrays import fixed, lists, repeated
from kraft_pipeline.codec.batches import Batch, scan, visible
from kraft_pipeline.codec.errors import CodecError, CorruptBatch, UnsupportedBatch
from kraft_pipeline.codec.fields import Fields, Where, read_fields
from kraft_pipeline.codec.starts import Sections, record_starts
from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import AbortedTransaction
from kraft_protocol.records.compression import DEFAULT_LIMIT, Compression, decompress_pieces
from kraft_protocol.records.errors import BatchError

HEADER_TYPE: Final = pa.list_(pa.struct([pa.field("key", pa.string()), pa.field("value", pa.binary())]))
TYPES: Final[dict[str, pa.DataType]] = {
    "key": pa.binary(),
    "value": pa.binary(),
    "topic": pa.string(),
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "timestampType": pa.int32(),
    "headers": HEADER_TYPE,
}
COLUMNS: Final = tuple(TYPES)
MILLIS_MAX: Final = (1 << 63) // 1000
"""Bounds of a time in milliseconds, for a column of microseconds."""
GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of records in a RecordBatch: enough to amortize NumPy's fixed cost, few enough for memory."""


class Decoder:
    """Decodes the records of a partition in Fetch responses."""

    __slots__ = ("_columns", "_partition", "_topic", "damaged", "schema")

    def __init__(self, topic: str, partition: int, columns: Sequence[str] = COLUMNS[:-1]) -> None:
        unknown = [name for name in columns if name not in TYPES]
        if unknown:
            raise ValueError(f"no column {unknown[0]!r}: there are {', '.join(COLUMNS)}")
        self._topic, self._partition = topic, partition
        self.damaged: set[int] = set()
        """Offsets of records with a header key that is not UTF-8. Its bad bytes are replaced, as in Java."""
        self._columns = [name for name in COLUMNS if name in columns]
        self.schema = pa.schema([pa.field(name, TYPES[name]) for name in self._columns])

    def decode(
        self,
        data: Buffer,
        start: int = 0,
        end: int = 1 << 62,
        aborted: Iterable[AbortedTransaction] | None = None,
        *,
        check_crc: bool = True,
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records with offsets in [start, end) from the batches in `data`.

        `aborted` are the aborted transactions in the response; None reads uncommitted. The columns are copies:
        `data` may be freed afterwards. Raises CodecError with topic, partition and, if known, offset.
        """
        try:
            group: list[Batch] = []
            size = 0
            for batch in visible(data, scan(data, check_crc=check_crc), aborted):
                if batch.last_offset < start or (batch.start == batch.end and not batch.records):
                    continue
                if batch.base_offset >= end:
                    break
                group.append(batch)
                size += batch.end - batch.start
                if size >= GROUP_BYTES:
                    yield from self._group(data, group, start, end)
                    group, size = [], 0
            if group:
                yield from self._group(data, group, start, end)
        except CodecError as e:
            raise type(e)(f"{self._topic}-{self._partition}: {e.reason}", e.offset) from None

    def _group(self, data: Buffer, batches: list[Batch], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """Plain batches are decoded in place; compressed batches are decompressed into a buffer."""
        if any(batch.compression for batch in batches):
            for part, own in _unpacked(data, batches):
                yield from self._columns_of(part, own, start, end)
        else:
            yield from self._columns_of(data, batches, start, end)

    def _columns_of(self, data: Buffer, batches: list[Batch], start: int, end: int) -> Iterator[pa.RecordBatch]:
        where = Where(batches)
        flat = np.frombuffer(data, np.uint8)
        try:
            starts = record_starts(flat, Sections(where.begins, where.ends, where.counts))
            fields = read_fields(flat, starts, where, self._columns)
        except CorruptBatch as e:
            raise CorruptBatch(e.reason, batches[0].base_offset) from None
        if batches[0].base_offset < start or batches[-1].last_offset >= end:
            fields = fields.only((fields.offsets >= start) & (fields.offsets < end))
        if len(fields.offsets):
            arrays = [self._column(name, flat, fields) for name in self._columns]
            yield pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def _column(self, name: str, data: Bytes, fields: Fields) -> pa.Array:
        count = len(fields.offsets)
        if name in {"key", "value"}:
            return copied(data, *(fields.keys if name == "key" else fields.values))
        if name == "topic":
            return repeated(self._topic, count)
        if name == "partition":
            return fixed(TYPES[name], np.full(count, self._partition, np.int32))
        if name == "offset":
            return fixed(TYPES[name], fields.offsets)
        if name == "timestamp":
            beyond = (fields.timestamps > MILLIS_MAX) | (fields.timestamps < -MILLIS_MAX)
            return fixed(TYPES[name], fields.timestamps * 1000, beyond if beyond.any() else None)
        if name == "timestampType":
            return fixed(TYPES[name], fields.timestamp_types)
        return self._headers(data, fields)

    def _headers(self, data: Bytes, fields: Fields) -> pa.Array:
        """The column of headers, from the concatenated headers of all records and their number in each record."""
        count = len(fields.offsets)
        if not len(fields.header_keys[0]):
            return pa.nulls(count, HEADER_TYPE)
        raw, values = copied(data, *fields.header_keys), copied(data, *fields.header_values)
        try:
            keys = raw.cast(pa.string())
        except pa.ArrowInvalid:
            texts = [key.decode(errors="replace") for key in raw.to_pylist()]
            keys = pa.array(texts, pa.string())
            owners = np.repeat(fields.offsets, fields.header_counts)
            self.damaged |= set(owners[np.asarray(pc.not_equal(keys.cast(pa.binary()), raw))].tolist())
        bounds = np.zeros(count + 1, np.int32)
        np.cumsum(fields.header_counts, out=bounds[1:])
        pairs = pa.StructArray.from_arrays([keys, values], fields=list(HEADER_TYPE.value_type))
        return lists(HEADER_TYPE, bounds, pairs, fields.header_counts == 0)


def _unpacked(data: Buffer, batches: list[Batch]) -> Iterator[tuple[Buffer, list[Batch]]]:
    """Decompress batches into buffers of bounded size. Yields each buffer with the batches at their places in it."""
    view = memoryview(data)
    parts: list[Buffer] = []
    moved: list[Batch] = []
    size = 0
    for batch in batches:
        sections = _plain(batch, view[batch.start : batch.end])
        start, size = size, size + sum(map(len, sections))
        parts += sections
        moved.append(batch._replace(start=start, end=size))
        if size >= GROUP_BYTES:
            yield b"".join(parts), moved
            parts, moved, size = [], [], 0
    if moved:
        yield parts[0] if len(parts) == 1 else b"".join(parts), moved


def _plain(batch: Batch, section: memoryview) -> list[Buffer]:
    """The bytes of a batch's records, in pieces; at most DEFAULT_LIMIT bytes. Raises CodecError."""
    if not batch.compression:
        return [section]
    if batch.compression > max(Compression):
        raise UnsupportedBatch(f"unknown compression codec {batch.compression}", batch.base_offset)
    try:
        pieces = decompress_pieces(batch.compression, section, DEFAULT_LIMIT, DEFAULT_LIMIT + 1)
        return [piece for piece in pieces if len(piece)]
    except BatchError as e:
        raise CorruptBatch(e.reason, batch.base_offset) from None


def copied(data: Bytes, begins: Ints, ends: Ints, kind: Any = None) -> pa.Array:
    """The byte strings data[begins:ends], copied by Arrow and not by Python; null where an end is before its begin.

    An array over the whole buffer has these strings at odd indexes, and the bytes between them at even indexes.
    """
    kind = kind or pa.binary()
    count = len(begins)
    nulls = ends < begins
    any_null = bool(nulls.any())
    if any_null and nulls.all():
        return pa.nulls(count, kind)
    bounds = np.empty(2 * count, np.int32)
    bounds[::2] = begins
    bounds[1::2] = np.maximum(ends, begins) if any_null else ends
    base = int(bounds[0])
    if base:
        bounds -= base
    whole = pa.Array.from_buffers(
        kind, 2 * count - 1, [None, pa.py_buffer(bounds), pa.py_buffer(data[base : base + int(bounds[-1])])]
    )
    places = fixed(pa.int64(), np.arange(0, 2 * count, 2), nulls if any_null else None)
    return whole.take(places)
