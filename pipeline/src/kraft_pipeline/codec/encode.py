"""Encodes Arrow columns to record batches of an idempotent producer.

The bytes of all records are built at once. The fields before a record's key (length, attributes, deltas, key length)
and between key and value (value length) are short runs of varints. They are written into matrices of fixed width with a
mask of used bytes, and Arrow joins the five pieces of each record. Batches are slices of the result. Only their
headers, CRCs and compression take a step of Python per batch.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.codec.arrays import lists
from kraft_pipeline.codec.varints import Ints, sizes, write
from kraft_protocol.client.idempotence import ProducerSequence
from kraft_protocol.records.batch import NO_LEADER_EPOCH, TRANSACTIONAL_BIT, seal
from kraft_protocol.records.compression import compress

BATCH_BYTES: Final = 256 * 1024
"""Bytes of records in a batch before compression: the setting of tuned producers, well below the broker's 1 MiB."""
RECORD_OVERHEAD_MAX: Final = 40
"""Maximum bytes of a record besides key, value and headers."""


class Encoded(NamedTuple):
    """An encoded batch and its number of records."""

    data: bytes
    records: int
    first: int
    """Index of its first record among the given records."""


def encode(
    keys: pa.Array,
    values: pa.Array,
    timestamps_ms: Ints,
    headers: pa.Array | None = None,
    *,
    codec: int = 0,
    batch_bytes: int = BATCH_BYTES,
    identity: ProducerSequence = ProducerSequence(),  # noqa: B008
    transactional: bool = False,
) -> Iterator[Encoded]:
    """Encode the records of a partition to batches of at most `batch_bytes` before compression, from `identity` on.

    `keys` and `values` are binary; `headers` has the type of `decode`. A record larger than `batch_bytes` becomes its
    own batch; the broker decides whether to accept it.
    """
    count = len(values)
    if not count:
        return
    extra, header_sizes = _header_bytes(headers, count)
    key_sizes, value_sizes = _lengths(keys), _lengths(values)
    payload = np.maximum(key_sizes, 0) + np.maximum(value_sizes, 0) + header_sizes
    firsts = _cut(np.cumsum(payload + RECORD_OVERHEAD_MAX), batch_bytes)
    in_batch = np.diff(np.append(firsts, count))
    offset_deltas = np.arange(count) - np.repeat(firsts, in_batch)
    timestamp_deltas = timestamps_ms - np.repeat(timestamps_ms[firsts], in_batch)
    unused = np.zeros(count, np.int64)  # the attributes of records
    head = [Varints.of(column) for column in (unused, timestamp_deltas, offset_deltas, key_sizes)]
    before_value = Varints.of(value_sizes)
    body = Varints.of(sum((part.widths for part in head), before_value.widths + payload))
    if keys.null_count == count:
        pieces = [_joined([body, *head, before_value])]
    else:
        pieces = [_joined([body, *head]), keys, _joined([before_value])]
    joined = pc.binary_join_element_wise(*pieces, values, extra, b"", null_handling="replace", null_replacement=b"")
    bounds = np.concatenate([[0], np.cumsum(body.widths + body.values)])
    raw = memoryview(joined.buffers()[2])
    latest = np.maximum.reduceat(timestamps_ms, firsts)
    for first, records, newest in zip(firsts.tolist(), in_batch.tolist(), latest.tolist(), strict=True):
        section = raw[bounds[first] : bounds[first + records]]
        attributes = codec | (TRANSACTIONAL_BIT if transactional else 0)
        fields = (attributes, records - 1, int(timestamps_ms[first]), newest, *identity.after(first), records)
        yield Encoded(seal(0, NO_LEADER_EPOCH, fields, compress(codec, section) if codec else section), records, first)


def _cut(ends: Ints, batch_bytes: int) -> Ints:
    """The first record of each batch. A batch gets as many records as fit, at least one."""
    firsts = [0]
    while True:
        begun = int(ends[firsts[-1] - 1]) if firsts[-1] else 0
        after = max(int(np.searchsorted(ends, begun + batch_bytes, "right")), firsts[-1] + 1)
        if after >= len(ends):
            return np.array(firsts, np.int64)
        firsts.append(after)


def _lengths(array: pa.Array) -> Ints:
    """Lengths of the values; -1 for null."""
    found: Ints = pc.binary_length(array).fill_null(-1).to_numpy(zero_copy_only=False).astype(np.int64)
    return found


class Varints(NamedTuple):
    """A column of numbers, and the encoded size of each."""

    values: Ints
    widths: Ints

    @classmethod
    def of(cls, values: Ints) -> Varints:
        """The numbers with their encoded sizes."""
        return cls(values, sizes(values))


def _joined(columns: list[Varints]) -> pa.Array:
    """An array of byte strings: the concatenated varints of each record."""
    count = len(columns[0].values)
    matrix = np.empty((count, sum(int(column.widths.max()) for column in columns)), np.uint8)
    used = np.ones(matrix.shape, np.bool_)
    at = 0
    for values, widths in columns:
        wide = int(widths.max())
        write(values, widths, matrix[:, at : at + wide])
        for place in range(int(widths.min()), wide):
            used[:, at + place] = widths > place
        at += wide
    flat = matrix.ravel() if used.all() else matrix[used]
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(sum(column.widths for column in columns), out=bounds[1:])
    return pa.Array.from_buffers(pa.binary(), count, [None, pa.py_buffer(bounds), pa.py_buffer(flat)])


def _header_bytes(headers: pa.Array | None, count: int) -> tuple[pa.Array, Ints]:
    """The end of each record (the number of headers and the headers), and its size in bytes."""
    none = Varints.of(np.zeros(count, np.int64))
    if headers is None or headers.null_count == count:
        return _joined([none]), none.widths
    numbers: Ints = pc.list_value_length(headers).fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = headers.flatten()
    if not len(pairs):
        return _joined([none]), none.widths
    keys, values = pc.struct_field(pairs, 0).cast(pa.binary()), pc.struct_field(pairs, 1)
    if keys.null_count or pairs.null_count:
        raise ValueError("a header without a key")
    each = pc.binary_join_element_wise(
        _joined([Varints.of(_lengths(keys))]),
        keys,
        _joined([Varints.of(_lengths(values))]),
        values,
        b"",
        null_handling="replace",
        null_replacement=b"",
    )
    bounds = np.concatenate([[0], np.cumsum(numbers)]).astype(np.int32)
    joined = pc.binary_join(lists(pa.list_(pa.binary()), bounds, each, None), b"")
    whole = pc.binary_join_element_wise(_joined([Varints.of(numbers)]), joined, b"")
    return whole, _lengths(whole)
