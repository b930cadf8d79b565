"""Converts Protocol Buffers to columns, by the schemas of a registry.

Messages become structs, repeated fields lists, maps maps, and enums the texts of their names (the digits of a number
without a name). A field with presence is null if it is not set; other fields have protobuf's default. Timestamps become
timestamps, wrappers their wrapped type, google.protobuf.Struct and its parts JSON texts, messages without fields true.
Unsigned numbers become long; a number above 2^63 - 1 makes the record a dead letter. Recursive messages have no column.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import pyarrow as pa
from google.protobuf import json_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError

from kraft_pipeline.codec.varints import Ints
from kraft_pipeline.tables.formats.byschema import NO_ID, PREFIX_BYTES, BySchema, OneByOne, Way, ids_of
from kraft_pipeline.tables.formats.column import Column
from kraft_pipeline.tables.formats.jsonvalues import Parsed
from kraft_pipeline.tables.formats.protofiles import Files, NoMessageError
from kraft_pipeline.tables.formats.registry import Registry, UnknownSchemaError
from kraft_pipeline.tables.formats.valuespec import ValueSpec
from kraft_pipeline.tables.schemas import DEPTH_MAX

LONG_MAX: Final = (1 << 63) - 1
INDEXES_MAX: Final = 100
"""Maximum depth of nested messages."""
KINDS: Final = {
    FieldDescriptor.CPPTYPE_INT32: pa.int32(),
    FieldDescriptor.CPPTYPE_INT64: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT32: pa.int64(),
    FieldDescriptor.CPPTYPE_UINT64: pa.int64(),
    FieldDescriptor.CPPTYPE_FLOAT: pa.float32(),
    FieldDescriptor.CPPTYPE_DOUBLE: pa.float64(),
    FieldDescriptor.CPPTYPE_BOOL: pa.bool_(),
    FieldDescriptor.CPPTYPE_ENUM: pa.string(),
}
JSON: Final = frozenset({"google.protobuf.Struct", "google.protobuf.Value", "google.protobuf.ListValue"})
WRAPPERS: Final = frozenset(
    f"google.protobuf.{name}Value"
    for name in ("Double", "Float", "Int64", "UInt64", "Int32", "UInt32", "Bool", "String", "Bytes")
)

Path = tuple[int, ...]


class ProtoParser(BySchema):
    """Parses the values of a table. Not thread-safe."""

    def __init__(self, spec: ValueSpec, *, retry_s: float, promotes: bool = False) -> None:
        """`promotes`: whether columns of the table widen."""
        super().__init__("protobuf.schema", promotes=promotes)
        self._registry = Registry.of(spec, retry_s=retry_s)
        self._numbers: dict[tuple[int, Path | None], int] = {}
        self._types: list[tuple[int, Path | None]] = []
        self._files: dict[int, Files] = {}

    def __call__(
        self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """Parse the non-null values like `jsonvalues.parse`. Raises ClientError if the registry is unreachable."""
        ids = ids_of(values)
        skip: Ints = np.zeros(len(values), np.int64)
        types: Ints = np.full(len(values), NO_ID, np.int64)
        for place, (number, value) in enumerate(zip(ids.tolist(), values.to_pylist(), strict=True)):
            if value is not None:
                path, skip[place] = (None, 0) if number == NO_ID else _path(value)
                key = number, path
                types[place] = self._numbers.setdefault(key, len(self._types))
                if types[place] == len(self._types):
                    self._types.append(key)
        return self.parsed(values, types, skip, fields, additive=additive, reserved=reserved)

    def what(self, number: int) -> str:
        """Name of the schema in reasons."""
        return f"schema {self._types[number][0]}"

    def found(self, number: int) -> Way | str:
        """How to read values of this message, or why that is impossible."""
        schema, path = self._types[number]
        if schema == NO_ID:
            return "the value does not begin with a schema id"
        if path is None:
            return "no message path follows the schema id"
        try:
            if schema not in self._files:
                self._files[schema] = Files(self._registry.schema(schema, "PROTOBUF"))
            return ProtoWay(self._files[schema].message(path))
        except UnknownSchemaError as e:
            return str(e)
        except NoMessageError as e:
            return f"schema {schema}: {e}"


class ProtoWay(OneByOne):
    """Reads messages of a type."""

    def __init__(self, kind: Any) -> None:
        """`kind`: the class of the message. Raises NoMessageError if it has no columns."""
        self._kind, self._columns = kind, _fields(kind.DESCRIPTOR, "", ())
        if not self._columns:
            raise NoMessageError(f"{kind.DESCRIPTOR.full_name} has no fields")
        super().__init__(pa.schema([pa.field(name, one.kind) for name, one in self._columns.items()]), "protobuf.value")

    def row(self, payload: bytes) -> dict[str, Any]:
        """Convert a message to a value that Arrow accepts. Raises ValueError."""
        try:
            found = self._kind.FromString(payload)
        except DecodeError as e:
            raise ValueError(f"protobuf: {e}") from None
        return {name: column.read(found) for name, column in self._columns.items()}


def _path(value: bytes) -> tuple[Path | None, int]:
    """The path of a value's message in the file, and the number of bytes before the message; None if they are
    malformed.

    Confluent's format: zigzag numbers, first their count, then the path. A single zero means the first message.
    """
    count, at = _number(value, PREFIX_BYTES)
    if count is None or not 0 <= count <= INDEXES_MAX:
        return None, 0
    path = []
    for _ in range(count):
        index, at = _number(value, at)
        if index is None or index < 0:
            return None, 0
        path.append(index)
    return tuple(path) or (0,), at


def _number(value: bytes, at: int) -> tuple[int | None, int]:
    found = shift = 0
    while at < len(value) and shift < 35:
        byte = value[at]
        found, at, shift = found | (byte & 127) << shift, at + 1, shift + 7
        if byte < 128:
            return (found >> 1) ^ -(found & 1), at
    return None, at


def _fields(message: Any, path: str, within: tuple[str, ...]) -> dict[str, Column]:
    """The columns of a message, with functions that get the message."""
    if message.full_name in within:
        raise NoMessageError(f"{path}: {message.full_name} contains itself")
    if len(within) >= DEPTH_MAX:
        raise NoMessageError(f"{path}: the message is nested more than {DEPTH_MAX} deep")
    return {f.name: _field(f, f"{path}/{f.name}", (*within, message.full_name)) for f in message.fields}


def _field(field: Any, path: str, within: tuple[str, ...]) -> Column:
    name, is_message = field.name, field.message_type is not None
    if is_message and field.message_type.GetOptions().map_entry:
        key = _value(field.message_type.fields_by_name["key"], path, within)
        item = _value(field.message_type.fields_by_name["value"], f"{path}{{}}", within)

        def pairs(message: Any) -> list[Any]:
            found = getattr(message, name)
            return [(key.read(k), item.read(found[k])) for k in sorted(found)]

        return Column(pa.map_(key.kind, item.kind), pairs)
    column = _value(field, path, within)
    if field.is_repeated:
        return Column(pa.list_(column.kind), lambda message: [column.read(one) for one in getattr(message, name)])
    if field.has_presence:
        return Column(
            column.kind, lambda message: column.read(getattr(message, name)) if message.HasField(name) else None
        )
    return Column(column.kind, lambda message: column.read(getattr(message, name)))


def _value(field: Any, path: str, within: tuple[str, ...]) -> Column:
    """The reader of a single value of a field."""
    if field.message_type is not None:
        return _message(field.message_type, path, within)
    if field.enum_type is not None:
        names = {one.number: one.name for one in field.enum_type.values}
        return Column(pa.string(), lambda number: names.get(number, str(number)))
    if field.cpp_type == FieldDescriptor.CPPTYPE_STRING:
        return Column(pa.binary() if field.type == FieldDescriptor.TYPE_BYTES else pa.string(), _same)
    if field.cpp_type == FieldDescriptor.CPPTYPE_UINT64:
        return Column(pa.int64(), lambda number: _long(number, path))
    return Column(KINDS[field.cpp_type], _same)


def _message(message: Any, path: str, within: tuple[str, ...]) -> Column:
    name = message.full_name
    if name == "google.protobuf.Timestamp":
        return Column(pa.timestamp("us", "UTC"), lambda time: time.seconds * 10**6 + time.nanos // 1000)
    if name in JSON:
        return Column(pa.string(), lambda found: json_format.MessageToJson(found, indent=None))
    if name in WRAPPERS:
        inner = _value(message.fields_by_name["value"], path, within)
        return Column(inner.kind, lambda wrapper: inner.read(wrapper.value))
    columns = _fields(message, path, within)
    if not columns:
        return Column(pa.bool_(), lambda _: True)
    kind = pa.struct([pa.field(part, column.kind) for part, column in columns.items()])
    return Column(kind, lambda found: {part: column.read(found) for part, column in columns.items()})


def _same(value: Any) -> Any:
    return value


def _long(number: int, path: str) -> int:
    if number > LONG_MAX:
        raise ValueError(f"protobuf: the field {path} is {number}, which a column of type long does not hold")
    return number
