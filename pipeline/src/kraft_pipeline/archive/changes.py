"""Decodes batches of the metadata log to rows: a row for each record, partitions in columns, other records as JSON.

Nearly all records of a large cluster are about partitions. They are decoded by shape. For each type, version and
length, `generic` decodes a value and reports where its fields are. The bytes between the fields (counts, tags, lengths)
are the shape. Values with equal bytes in these places have the same layout, so NumPy reads all of them as an array.
Values of rare shapes go through `generic` one by one.
"""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft_pipeline.archive.generic import (
    Decoded,
    DecodeError,
    FieldSpan,
    decode,
    decode_control,
    decode_spans,
    uuid_text,
)
from kraft_pipeline.archive.schema import PARTITION, PARTITION_CHANGE, records
from kraft_pipeline.codec.arrays import fixed, lists, validity
from kraft_pipeline.codec.batches import Batch, scan
from kraft_pipeline.codec.errors import CodecError, UnsupportedBatch
from kraft_pipeline.codec.fields import Where, read_fields
from kraft_pipeline.codec.starts import Sections, record_starts
from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import CONTROL_BIT, HEADER_SIZE

NAMES: Final = pa.dictionary(pa.int32(), pa.string())
BROKERS: Final = pa.list_(pa.int32())
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64()),
        pa.field("epoch", pa.int32()),
        pa.field("timestamp", pa.timestamp("us", tz="UTC")),
        pa.field("type", NAMES),
        pa.field("version", pa.int16()),
        pa.field("snapshot", pa.bool_()),
        pa.field("topic_id", NAMES),
        pa.field("partition", pa.int32()),
        pa.field("leader", pa.int32()),
        pa.field("leader_recovery", pa.int8()),
        pa.field("leader_epoch", pa.int32()),
        pa.field("partition_epoch", pa.int32()),
        pa.field("replicas", BROKERS),
        pa.field("isr", BROKERS),
        pa.field("removing_replicas", BROKERS),
        pa.field("adding_replicas", BROKERS),
        pa.field("eligible_leader_replicas", BROKERS),
        pa.field("last_known_elr", BROKERS),
        pa.field("directories", pa.list_(pa.string())),
        pa.field("fields", pa.string()),
    ]
)
"""A row for each record. `epoch` is the controller's. If `snapshot` is true, the row comes from a snapshot, and
`offset` is the last offset that the snapshot covers. Partition records fill the columns, with null for absent fields;
`fields` has the fields of all other records as JSON."""

NUMBERS: Final = {
    "partitionId": "partition",
    "leader": "leader",
    "leaderRecoveryState": "leader_recovery",
    "leaderEpoch": "leader_epoch",
    "partitionEpoch": "partition_epoch",
}
LISTS: Final = {
    "replicas": "replicas",
    "isr": "isr",
    "removingReplicas": "removing_replicas",
    "addingReplicas": "adding_replicas",
    "eligibleLeaderReplicas": "eligible_leader_replicas",
    "lastKnownElr": "last_known_elr",
    "directories": "directories",
}
"""Columns by the names of the protocol's fields."""

LEADER_RECOVERY: Final = "leader_recovery"
UNCHANGED: Final = {
    f.name: f.default for f in records()[PARTITION_CHANGE].fields if f.tag >= 0 and f.default is not None
}
"""Values of fields in a PARTITION_CHANGE_RECORD that mean "unchanged"."""

GROUP_BYTES: Final = 8 * 1024 * 1024
"""Bytes of records in a RecordBatch: enough to amortize NumPy's fixed cost, few enough for caches."""
SHAPES_MAX: Final = 64
"""Maximum shapes of a type, version and length. ISRs and replicas of all sizes have fewer shapes."""
RARE: Final = 8
"""Fewer values than this are decoded one by one."""

_PARTITION_NAMES: Final = tuple(records()[number].name for number in (PARTITION, PARTITION_CHANGE))
_BIG: Final = {"i8": ">i1", "i32": ">i4", "uuid": "V16"}
_EPOCH_AT: Final = 12 - HEADER_SIZE
"""Position of the leader epoch in the header of a batch."""


class Layout(NamedTuple):
    """A shape: its fixed places with their bytes, and how to read values of this shape."""

    where: NDArray[np.intp]
    holds: Bytes
    kind: np.dtype[Any]
    spans: tuple[FieldSpan, ...]


class ChangeDecoder:
    """Decodes batches of a metadata log or a snapshot. Keeps the shapes that it has seen. Not thread-safe."""

    def __init__(self) -> None:
        self._shapes: dict[int, list[Layout]] = {}

    def decode(
        self, data: Buffer, start: int = 0, end: int = 1 << 62, snapshot_offset: int = -1
    ) -> Iterator[pa.RecordBatch]:
        """Decode the records with offsets in [start, end) to rows in SCHEMA. An incomplete last batch is ignored.

        `snapshot_offset`: for batches of a snapshot, the last offset that it covers. Raises CodecError
        with the offset of the batch.
        """
        group: list[Batch] = []
        size = 0
        for batch in scan(data):
            if batch.last_offset < start or not batch.records:
                continue
            if batch.base_offset >= end:
                break
            if batch.compression:
                raise UnsupportedBatch("batches of metadata are not compressed", batch.base_offset)
            if group and (size >= GROUP_BYTES or (batch.attributes ^ group[-1].attributes) & CONTROL_BIT):
                yield from self._rows(data, group, start, end, snapshot_offset)
                group, size = [], 0
            group.append(batch)
            size += batch.end - batch.start
        if group:
            yield from self._rows(data, group, start, end, snapshot_offset)

    def _rows(
        self, data: Buffer, batches: list[Batch], start: int, end: int, snapshot_offset: int
    ) -> Iterator[pa.RecordBatch]:
        flat = np.frombuffer(data, np.uint8)
        where = Where(batches)
        try:
            starts = record_starts(flat, Sections(where.begins, where.ends, where.counts))
            fields = read_fields(flat, starts, where, ("key", "value", "timestamp"))
        except CodecError as e:
            raise type(e)(e.reason, batches[0].base_offset) from None
        epochs = np.repeat(_epochs(flat, where.begins), where.counts)
        keep = (fields.offsets >= start) & (fields.offsets < end)
        if not keep.all():
            fields, epochs = fields.only(keep), epochs[keep]
        if not len(epochs):
            return
        rows = _Rows(flat, *fields.values)
        if batches[0].attributes & CONTROL_BIT:
            rows.add_controls(fields.keys, fields.offsets)
        else:
            rows.add(self._shapes, fields.offsets)
        yield rows.batch(fields.offsets, epochs, fields.timestamps, snapshot_offset)


def _epochs(data: Bytes, begins: Ints) -> NDArray[np.int32]:
    places = np.ndarray((len(data) - 3,), "V4", data, strides=(1,))
    found: NDArray[np.int32] = places[begins + _EPOCH_AT].view(">i4").astype(np.int32)
    return found


class _Rows:
    """Columns under construction, from the values between `begins` and `ends`."""

    def __init__(self, data: Bytes, begins: Ints, ends: Ints) -> None:
        self._data, self._begins, self._ends = data, begins, ends
        count = len(begins)
        self._count = count
        self._types = np.zeros(count, np.int32)
        """Indexes into `_names`."""
        self._names: dict[str, int] = {}
        self._versions = np.zeros(count, np.int16)
        self._topic_ids = np.zeros(count, "V16")
        self._has_topic = np.zeros(count, np.bool_)
        self._numbers: dict[str, tuple[NDArray[Any], NDArray[np.bool_]]] = {}
        self._lists: dict[str, list[tuple[NDArray[np.intp], NDArray[Any]]]] = {}
        self._fields: dict[int, str] = {}

    def add_controls(self, keys: tuple[Ints, Ints], offsets: Ints) -> None:
        """Add values of control records."""
        for row, (begin, end) in enumerate(zip(keys[0].tolist(), keys[1].tolist(), strict=True)):
            key = self._data[begin : max(begin, end)].tobytes()
            try:
                self._add_one(row, decode_control(key, self._value(row)))
            except DecodeError as e:
                raise DecodeError(e.reason, int(offsets[row])) from None

    def add(self, shapes: dict[int, list[Layout]], offsets: Ints) -> None:
        """Add values of metadata records."""
        at, lengths = self._begins, self._ends - self._begins
        types = self._data.take(at + 1, mode="clip")
        versions = self._data.take(at + 2, mode="clip")
        keys = (types.astype(np.int64) << 40) | (versions.astype(np.int64) << 32) | lengths
        is_partition = (types == PARTITION) | (types == PARTITION_CHANGE)
        is_partition &= (self._data.take(at, mode="clip") == 1) & (lengths > 3)
        left = [np.flatnonzero(~is_partition)]
        rows = np.flatnonzero(is_partition)
        while rows.size:
            key = int(keys[rows[0]])
            same = keys[rows] == key
            left.append(self._add_shapes(shapes, key, rows[same], offsets))
            rows = rows[~same]
        for row in np.concatenate(left).tolist():
            try:
                self._add_one(row, decode(self._value(row)))
            except DecodeError as e:
                raise DecodeError(e.reason, int(offsets[row])) from None

    def _add_shapes(
        self, shapes: dict[int, list[Layout]], key: int, rows: NDArray[np.intp], offsets: Ints
    ) -> NDArray[np.intp]:
        """Decode values of the same type, version and length. Returns the rows that are left for the slow decoder."""
        length = key & 0xFFFFFFFF
        places = np.ndarray((len(self._data) - length + 1,), f"V{length}", self._data, strides=(1,))
        values = places[self._begins[rows]]
        known = shapes.setdefault(key, [])
        number = 0
        while rows.size:
            if number == len(known):
                if number == SHAPES_MAX or rows.size < RARE:
                    break
                try:
                    layout = _layout(values[0].tobytes())
                except DecodeError as e:
                    raise DecodeError(e.reason, int(offsets[rows[0]])) from None
                if layout is None:
                    break
                known.append(layout)
            layout = known[number]
            number += 1
            bytes_ = values.view(np.uint8).reshape(len(values), length)
            same = (bytes_[:, layout.where] == layout.holds).all(axis=1)
            if same.all():
                self._add_columns(layout, key, rows, values)
                return rows[:0]
            if same.any():
                self._add_columns(layout, key, rows[same], values[same])
                rows, values = rows[~same], values[~same]
        return rows

    def _add_columns(self, layout: Layout, key: int, rows: NDArray[np.intp], values: NDArray[np.void]) -> None:
        self._types[rows] = self._name(records()[key >> 40].name)
        self._versions[rows] = (key >> 32) & 0xFF
        read = values.view(layout.kind)
        names = {span.name for span in layout.spans}
        for span in layout.spans:
            column = read[span.name]
            if span.name == "topicId":
                self._topic_ids[rows] = column
                self._has_topic[rows] = True
            elif span.size < 0:
                self._number(NUMBERS[span.name], rows, column)
            else:
                column = column.reshape(len(rows), span.size)
                self._lists.setdefault(LISTS[span.name], []).append((rows, column))
        if key >> 40 == PARTITION and "leaderRecoveryState" not in names:
            self._number(LEADER_RECOVERY, rows, np.zeros(len(rows), np.int8))
        elif key >> 40 == PARTITION_CHANGE:
            for name, unchanged in UNCHANGED.items():
                if name in names:
                    self._numbers[NUMBERS[name]][1][rows] = read[name] == unchanged

    def _number(self, column: str, rows: Any, values: Any) -> None:
        if column not in self._numbers:
            kind = SCHEMA.field(column).type.to_pandas_dtype()
            self._numbers[column] = (np.zeros(self._count, kind), np.ones(self._count, np.bool_))
        numbers, nulls = self._numbers[column]
        numbers[rows] = values
        nulls[rows] = False

    def _add_one(self, row: int, found: Decoded) -> None:
        self._types[row] = self._name(found.name)
        self._versions[row] = found.version
        fields = found.fields
        where = np.array([row])
        if not found.is_known or found.name not in _PARTITION_NAMES:
            self._fields[row] = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
            if isinstance(fields.get("topicId"), str):
                self._topic_id(row, fields["topicId"])
            return
        self._topic_id(row, fields["topicId"])
        if found.name == _PARTITION_NAMES[0]:
            fields = {"leaderRecoveryState": 0, **fields}
        for name, value in fields.items():
            if name in NUMBERS:
                self._number(NUMBERS[name], row, value)
            elif name in LISTS:
                raw = np.array(value, np.int32) if name != "directories" else np.array(list(map(_raw, value)), "V16")
                self._lists.setdefault(LISTS[name], []).append((where, raw.reshape(1, len(value))))

    def _topic_id(self, row: int, text: str) -> None:
        self._topic_ids[row] = np.void(_raw(text))
        self._has_topic[row] = True

    def _name(self, name: str) -> int:
        return self._names.setdefault(name, len(self._names))

    def _value(self, row: int) -> bytes:
        return self._data[int(self._begins[row]) : max(int(self._begins[row]), int(self._ends[row]))].tobytes()

    def batch(self, offsets: Ints, epochs: NDArray[np.int32], timestamps: Ints, snapshot: int) -> pa.RecordBatch:
        """The rows as Arrow columns."""
        count = self._count
        columns: dict[str, pa.Array] = {
            "offset": fixed(pa.int64(), offsets if snapshot < 0 else np.full(count, snapshot)),
            "epoch": fixed(pa.int32(), epochs),
            "timestamp": fixed(SCHEMA.field("timestamp").type, timestamps * 1000),
            "type": pa.DictionaryArray.from_arrays(fixed(pa.int32(), self._types), _strings(list(self._names))),
            "version": fixed(pa.int16(), self._versions),
            "snapshot": _flags(count, snapshot >= 0),
            "topic_id": _ids(self._topic_ids, ~self._has_topic),
            "fields": self._json(),
        }
        for name, (numbers, nulls) in self._numbers.items():
            columns[name] = fixed(SCHEMA.field(name).type, numbers, nulls if nulls.any() else None)
        for name, parts in self._lists.items():
            columns[name] = _list(SCHEMA.field(name).type, count, parts)
        arrays = [columns.get(field.name) for field in SCHEMA]
        filled = [pa.nulls(count, f.type) if a is None else a for f, a in zip(SCHEMA, arrays, strict=True)]
        return pa.RecordBatch.from_arrays(filled, schema=SCHEMA)

    def _json(self) -> pa.Array | None:
        if not self._fields:
            return None
        texts = {row: text.encode() for row, text in self._fields.items()}
        sizes = np.zeros(self._count + 1, np.int32)
        nulls = np.ones(self._count, np.bool_)
        for row, raw in texts.items():
            sizes[row + 1] = len(raw)
            nulls[row] = False
        data = b"".join(texts[row] for row in sorted(texts))
        buffers = [validity(nulls), pa.py_buffer(np.cumsum(sizes, dtype=np.int32)), pa.py_buffer(data)]
        return pa.Array.from_buffers(pa.string(), self._count, buffers)


def _layout(value: bytes) -> Layout | None:
    """Return the shape of this value; None if its type or version is unknown."""
    found, spans = decode_spans(value)
    if not found.is_known:
        return None
    is_structure = np.ones(len(value), np.bool_)
    for span in spans:
        is_structure[span.at : span.at + abs(span.size) * np.dtype(_BIG[span.type]).itemsize] = False
    where = np.flatnonzero(is_structure)
    kind = np.dtype(
        {
            "names": [s.name for s in spans],
            "formats": [_BIG[s.type] if s.size < 0 else (_BIG[s.type], (s.size,)) for s in spans],
            "offsets": [s.at for s in spans],
            "itemsize": len(value),
        }
    )
    return Layout(where, np.frombuffer(value, np.uint8)[where], kind, tuple(spans))


def _list(kind: pa.DataType, count: int, parts: Sequence[tuple[NDArray[np.intp], NDArray[Any]]]) -> pa.Array:
    """Lists of `kind` in the rows of `parts`, which hold matrices of lists of equal length; null in other rows."""
    sizes = np.full(count, -1, np.int32)
    for rows, matrix in parts:
        sizes[rows] = matrix.shape[1]
    bounds = np.zeros(count + 1, np.int32)
    np.cumsum(np.maximum(sizes, 0), out=bounds[1:])
    is_number = kind.value_type == pa.int32()
    items: NDArray[Any] = np.empty(int(bounds[-1]), np.int32 if is_number else "V16")
    for rows, matrix in parts:
        if len(rows) == count:
            items = np.ascontiguousarray(matrix.reshape(-1), items.dtype)
        else:
            items[bounds[rows][:, None] + np.arange(matrix.shape[1])] = matrix
    nulls = sizes < 0
    values = fixed(pa.int32(), items) if is_number else _ids(items, None).dictionary_decode()
    return lists(kind, bounds, values, nulls if nulls.any() else None)


def _ids(raw: NDArray[np.void], nulls: NDArray[np.bool_] | None) -> pa.DictionaryArray:
    """UUIDs as text; each distinct UUID is converted once."""
    if nulls is not None and not nulls.any():
        nulls = None
    buffers = [validity(nulls), pa.py_buffer(np.ascontiguousarray(raw))]
    found = pa.Array.from_buffers(pa.binary(16), len(raw), buffers).dictionary_encode()
    distinct = [uuid_text(value) for value in found.dictionary.to_pylist()]
    return pa.DictionaryArray.from_arrays(found.indices, _strings(distinct))


def _raw(text: str) -> bytes:
    """The bytes of a UUID."""
    return base64.urlsafe_b64decode(text + "==")


def _strings(texts: Sequence[str]) -> pa.Array:
    raw = [text.encode() for text in texts]
    bounds = np.zeros(len(raw) + 1, np.int32)
    np.cumsum([len(one) for one in raw], out=bounds[1:])
    return pa.Array.from_buffers(pa.string(), len(raw), [None, pa.py_buffer(bounds), pa.py_buffer(b"".join(raw))])


def _flags(count: int, flag: bool) -> pa.Array:
    bits = np.full((count + 7) // 8, 0xFF if flag else 0, np.uint8)
    return pa.Array.from_buffers(pa.bool_(), count, [None, pa.py_buffer(bits)])
