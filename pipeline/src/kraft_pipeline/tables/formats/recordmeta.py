"""Decodes keys and headers of records: `spec.key` and `spec.headers` of a KafkaTable."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad
from kraft_pipeline.tables.formats import jsonvalues, singles
from kraft_pipeline.tables.formats.valuespec import HeaderSpec, KeySpec
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.specs.fieldtypes import type_of
from kraft_pipeline.tables.specs.table_spec import SpecError

NUMBERS: Final = {"int": (pa.int32(), ">i4"), "long": (pa.int64(), ">i8")}
"""Format -> column and bytes of Kafka's serializers, which write big-endian."""
Decoded: TypeAlias = tuple[pa.Array, dict[int, Bad]]
"""A column, and by index the values that it cannot hold."""


def key_type(spec: KeySpec) -> pa.DataType:
    """The type of the key's column. Raises SpecError for an unknown type in its schema."""
    if spec.format in NUMBERS:
        return NUMBERS[spec.format][0]
    if spec.format in {"raw", "string"}:
        return pa.binary() if spec.format == "raw" else pa.string()
    try:
        fields = _fields(spec)
    except ValueError as e:  # SpecError, too; its message names the section of values
        name = "type" if spec.single and spec.format != "avro" else "schema"
        raise SpecError(f"spec.key.{name}: {str(e).removeprefix('spec.value.schema: ')}") from None
    return fields.field(singles.FIELD).type if spec.single else pa.struct(list(fields))


def headers_type(spec: HeaderSpec) -> pa.DataType:
    """The type of the headers' column."""
    return TYPES["headers"] if spec.format == "list" else pa.map_(pa.string(), _value_type(spec))


def _value_type(spec: HeaderSpec) -> pa.DataType:
    return pa.string() if spec.values == "string" else pa.binary()


def _fields(spec: KeySpec) -> pa.Schema:
    if spec.format != "avro":
        return pa.schema([(name, type_of(ddl)) for name, ddl in spec.fields.schema.items()])
    from kraft_pipeline.tables.formats.avrovalues import given  # noqa: PLC0415 - an extra that others do without

    known = given(spec.fields)
    assert known is not None, "the section has a schema"
    return known.columns


def _parser(key: KeySpec, retry_s: float) -> Callable[..., jsonvalues.Parsed] | None:
    """The parser of keys with fields; None for other keys. Raises SpecError."""
    if key.format == "json":
        return jsonvalues.JsonParser(key.fields, _fields(key))
    if key.format == "avro":
        from kraft_pipeline.tables.formats.avrovalues import AvroParser  # noqa: PLC0415 - only if needed

        return AvroParser(key.fields, retry_s=retry_s, singles=True)
    if key.format == "protobuf":
        from kraft_pipeline.tables.formats.protovalues import ProtoParser  # noqa: PLC0415 - only if needed

        return ProtoParser(key.fields, retry_s=retry_s)
    if key.format == "jsonschema":
        from kraft_pipeline.tables.formats.jsonschemas import JsonSchemaParser  # noqa: PLC0415 - only if needed

        return JsonSchemaParser(key.fields, _fields(key), retry_s=retry_s, single=key.single)
    return None


class MetaReader:
    """Decodes the keys and headers of one table's records. Not thread-safe."""

    def __init__(self, key: KeySpec, headers: HeaderSpec, *, retry_s: float = 120.0) -> None:
        """`retry_s`: how long to retry an unreachable registry. Raises SpecError."""
        self._key, self._headers, self._parse = key, headers, _parser(key, retry_s)

    def __call__(self, records: pa.RecordBatch) -> tuple[dict[str, pa.Array], dict[int, Bad]]:
        """The decoded columns `key` and `headers`, without columns that stay as they are, and the bad records.

        Raises ClientError if the registry is unreachable.
        """
        columns, bad = dict[str, pa.Array](), dict[int, Bad]()
        if self._headers.format == "map":
            columns["headers"], bad = _map(records.column("headers"), _value_type(self._headers))
        if self._key.format != "raw":
            columns["key"], wrong = self._keys(records.column("key"))
            bad |= {place: Bad("key.value", f"key: {one.reason}"[:REASON_CHARACTERS]) for place, one in wrong.items()}
        return columns, bad

    def _keys(self, keys: pa.Array) -> Decoded:
        if self._key.format == "string":
            return _texts(keys)
        if self._key.format in NUMBERS:
            return _numbers(keys, *NUMBERS[self._key.format])
        assert self._parse is not None
        schema, single = _fields(self._key), self._key.single
        given = singles.as_objects(keys) if single and self._key.format == "json" else keys
        found = self._parse(given, schema, additive=False, reserved=frozenset())
        rows = aligned(found.table, schema)
        inner = [rows.column(name).combine_chunks() for name in schema.names]
        whole = inner[0] if single else pa.StructArray.from_arrays(inner, fields=list(schema))
        put = np.full(len(keys), -1, np.int64)
        put[found.good] = np.arange(len(found.good))
        return whole.take(pa.array(put, mask=put < 0)), dict(found.bad)


def _texts(values: pa.Array) -> Decoded:
    """Binary values as texts; values that are not UTF-8 are null and bad."""
    try:
        return values.cast(pa.string()), {}
    except pa.ArrowInvalid:
        bad = {n: Bad("", "it is not UTF-8") for n, value in enumerate(values.to_pylist()) if not _is_text(value)}
    good = np.ones(len(values), bool)
    good[list(bad)] = False
    return pc.if_else(pa.array(good), values, None).cast(pa.string()), bad


def _is_text(value: bytes | None) -> bool:
    try:
        return value is None or value.decode() is not None
    except UnicodeDecodeError:
        return False


def _numbers(keys: pa.Array, kind: pa.DataType, order: str) -> Decoded:
    """Big-endian integers; keys of another length are null and bad."""
    size = kind.bit_width // 8
    lengths = pc.binary_length(keys).fill_null(size).to_numpy(zero_copy_only=False)
    bad = {
        int(n): Bad("", f"it has {lengths[n]} bytes, and a number has {size}") for n in np.flatnonzero(lengths != size)
    }
    there = np.asarray(keys.is_valid()) & (lengths == size)
    sound = keys.filter(pa.array(there))
    numbers = np.zeros(len(keys), order)
    numbers[there] = np.frombuffer(b"".join(sound.to_pylist()), order)
    return pa.array(numbers.astype(order[1:]), kind, mask=~there), bad


def _map(headers: pa.Array, kind: pa.DataType) -> Decoded:
    """Headers by key; of a repeated key the last value counts. With texts, other bytes make a record bad."""
    lengths = headers.value_lengths().fill_null(0).to_numpy(zero_copy_only=False).astype(np.int64)
    entries = headers.flatten()
    keys, values = (entries.field(n) for n in range(2))
    owner = np.repeat(np.arange(len(headers)), lengths)
    bad: dict[int, Bad] = {}
    if kind == pa.string():
        values, wrong = _texts(values)
        bad = {int(owner[n]): Bad("headers.value", "a header's value is not UTF-8") for n in wrong}
    codes = keys.dictionary_encode().indices.to_numpy(zero_copy_only=False).astype(np.int64)
    pairs = (owner * (int(codes.max(initial=0)) + 1) + codes)[::-1]
    _, firsts = np.unique(pairs, return_index=True)
    kept = np.sort(len(pairs) - 1 - firsts)
    offsets = np.zeros(len(headers) + 1, np.int32)
    np.cumsum(np.bincount(owner[kept], minlength=len(headers)), out=offsets[1:])
    chosen = pa.array(kept)
    nulls: Any = headers.is_null() if headers.null_count else None
    made = pa.MapArray.from_arrays(pa.array(offsets), keys.take(chosen), values.take(chosen), mask=nulls)
    return made, bad
