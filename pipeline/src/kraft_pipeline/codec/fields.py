"""The fields of all records of some batches, decoded at once.

A record: length varint, attributes i8, timestamp delta varlong, offset delta varint, key length varint and key, value
length varint and value, number of headers varint. Then for each header: key length, key, value length, value. Null has
length -1.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
from numpy.typing import NDArray

from kraft_pipeline.codec.batches import Batch
from kraft_pipeline.codec.errors import CorruptBatch
from kraft_pipeline.codec.varints import Bytes, Ints, read

_EMPTY: Final = np.empty(0, np.int64)


class Where:
    """The batches as columns: the places of their records in the buffer, and the bases of offsets and timestamps."""

    __slots__ = ("base_offsets", "base_timestamps", "begins", "counts", "ends", "is_append_time", "max_timestamps")

    def __init__(self, batches: Sequence[Batch]) -> None:
        rows = [(b.start, b.end, b.records, b.base_offset, b.base_timestamp, b.max_timestamp) for b in batches]
        columns = np.array(rows, np.int64).T.copy()
        self.begins, self.ends, self.counts, self.base_offsets, self.base_timestamps, self.max_timestamps = columns
        self.is_append_time = np.array([b.is_log_append_time for b in batches])


def _none() -> tuple[Ints, Ints]:
    return _EMPTY, _EMPTY


@dataclass(slots=True)
class Fields:
    """Columns of the records. Byte strings are pairs of begin and end in the buffer; null if the end is less."""

    offsets: Ints
    timestamps: Ints
    """Milliseconds."""
    timestamp_types: NDArray[np.int32]
    keys: tuple[Ints, Ints] = field(default_factory=_none)
    values: tuple[Ints, Ints] = field(default_factory=_none)
    header_counts: Ints = field(default_factory=lambda: _EMPTY)
    header_keys: tuple[Ints, Ints] = field(default_factory=_none)
    """Columns of all headers, in the order of their records."""
    header_values: tuple[Ints, Ints] = field(default_factory=_none)

    def only(self, wanted: NDArray[np.bool_]) -> Fields:
        """The columns of the `wanted` records."""
        if wanted.all():
            return self
        new = replace(
            self,
            offsets=self.offsets[wanted],
            timestamps=self.timestamps[wanted] if len(self.timestamps) else _EMPTY,
            timestamp_types=self.timestamp_types[wanted] if len(self.timestamp_types) else self.timestamp_types,
        )
        if len(self.keys[0]):
            new.keys = (self.keys[0][wanted], self.keys[1][wanted])
        if len(self.values[0]):
            new.values = (self.values[0][wanted], self.values[1][wanted])
        if len(self.header_counts):
            of_wanted = np.repeat(wanted, self.header_counts)
            new.header_counts = self.header_counts[wanted]
            new.header_keys = (self.header_keys[0][of_wanted], self.header_keys[1][of_wanted])
            new.header_values = (self.header_values[0][of_wanted], self.header_values[1][of_wanted])
        return new


def read_fields(data: Bytes, starts: Ints, where: Where, columns: Collection[str]) -> Fields:
    """Decode the fields of the records at `starts` that `columns` need.

    Raises CorruptBatch if a field leaves its record.
    """
    counts = where.counts
    ends = np.empty_like(starts)
    ends[:-1] = starts[1:]
    if len(ends):
        lasts = np.cumsum(counts) - 1
        ends[lasts[counts > 0]] = where.ends[counts > 0]
    length, at = read(data, starts)
    if np.any(at + length != ends):
        raise CorruptBatch("a record's length is negative or leaves its batch")
    timestamp_delta, at = read(data, at + 1)
    offset_delta, at = read(data, at)
    bases = np.repeat(where.base_offsets, counts)
    fields = Fields(bases + offset_delta, _EMPTY, np.empty(0, np.int32))
    if np.any(offset_delta < 0) or np.any(np.diff(fields.offsets) <= 0):
        raise CorruptBatch("offsets of records do not grow")
    if "timestamp" in columns:
        fields.timestamps = np.repeat(where.base_timestamps, counts) + timestamp_delta
        if where.is_append_time.any():
            append_time = np.repeat(where.is_append_time, counts)
            fields.timestamps[append_time] = np.repeat(where.max_timestamps, counts)[append_time]
    if "timestampType" in columns:
        fields.timestamp_types = np.repeat(where.is_append_time.astype(np.int32), counts)
    with_headers = "headers" in columns
    if with_headers or "value" in columns or "key" in columns:
        fields.keys, at = _slices(data, at, ends)
    if with_headers or "value" in columns:
        fields.values, at = _slices(data, at, ends)
    if with_headers:
        _read_headers(data, at, ends, fields)
    return fields


def _slices(data: Bytes, at: Ints, ends: Ints) -> tuple[tuple[Ints, Ints], Ints]:
    """Begin and end of the byte strings with lengths at `at`, and the positions after them."""
    length, begin = read(data, at)
    after = begin + np.maximum(length, 0)
    if np.any(length < -1) or np.any(after > ends):
        raise CorruptBatch("a key, a value or a header leaves its record")
    return (begin, begin + length), after


def _read_headers(data: Bytes, at: Ints, ends: Ints, fields: Fields) -> None:
    """The n-th headers of all records at once, as many times as the record with most has headers."""
    counts, at = read(data, at)
    # A header takes at least two bytes, which bounds the number of headers.
    if np.any(counts < 0) or np.any(at + 2 * counts > ends):
        raise CorruptBatch("more headers than their record has room for")
    fields.header_counts = counts
    firsts = np.cumsum(counts) - counts
    total = int(counts.sum())
    found = [np.empty(total, np.int64) for _ in range(4)]
    left = np.flatnonzero(counts)
    for number in range(int(counts.max(initial=0))):
        left = left[counts[left] > number]
        key, after = _slices(data, at[left], ends[left])
        value, after = _slices(data, after, ends[left])
        if np.any(key[1] < key[0]):
            raise CorruptBatch("a header without a key")
        for whole, part in zip(found, (*key, *value), strict=True):
            whole[firsts[left] + number] = part
        at[left] = after
    if np.any(at != ends):
        raise CorruptBatch("bytes follow the last header of a record")
    fields.header_keys, fields.header_values = (found[0], found[1]), (found[2], found[3])
