"""Converts Avro schemas to Arrow types: the type of a column, and of its values before logical types are applied.

Records become structs, arrays lists, maps maps of texts, enums texts, and `fixed` bytes. A union of null and another
type becomes that type; a union of numbers, the widest number. Dates, timestamps (in microseconds) and decimals of up to
38 digits keep their logical type. Times of day, durations and UUIDs have their underlying type. Other unions, and
recursive records, have no column: `NoColumnError`.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import fastavro
import pyarrow as pa
from fastavro.schema import SchemaParseException, UnknownType

from kraft_pipeline.tables.formats.avrocolumns import Flat, flat
from kraft_pipeline.tables.formats.registry import Registered

PRIMITIVES: Final = {
    "null": pa.null(),
    "boolean": pa.bool_(),
    "int": pa.int32(),
    "long": pa.int64(),
    "float": pa.float32(),
    "double": pa.float64(),
    "bytes": pa.binary(),
    "string": pa.string(),
    "enum": pa.string(),
    "fixed": pa.binary(),
}
LOGICAL: Final = {
    ("int", "date"): (pa.date32(), pa.date32()),
    ("long", "timestamp-millis"): (pa.timestamp("ms", "UTC"), pa.timestamp("us", "UTC")),
    ("long", "timestamp-micros"): (pa.timestamp("us", "UTC"), pa.timestamp("us", "UTC")),
    ("long", "local-timestamp-millis"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "local-timestamp-micros"): (pa.timestamp("us"), pa.timestamp("us")),
}
"""Underlying type and logical type -> type of the values, and type of the column."""
CONNECT: Final = {
    ("int", "io.debezium.time.Date"): (pa.date32(), pa.date32()),
    ("int", "org.apache.kafka.connect.data.Date"): (pa.date32(), pa.date32()),
    ("long", "org.apache.kafka.connect.data.Timestamp"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "io.debezium.time.Timestamp"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "io.debezium.time.MicroTimestamp"): (pa.timestamp("us"), pa.timestamp("us")),
    ("long", "io.debezium.time.NanoTimestamp"): (pa.timestamp("ns"), pa.timestamp("us")),
    ("string", "io.debezium.time.ZonedTimestamp"): (pa.string(), pa.timestamp("us", "UTC")),
}
"""Underlying type and `connect.name`, as Debezium documents them. Times without a zone are local times."""
NUMBERS: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
DECIMAL_DIGITS_MAX: Final = 38


class NoColumnError(Exception):
    """Values of this schema cannot become columns; the message names the field and the reason."""


class AvroSchema(NamedTuple):
    """A schema with which values were written, or to which they are resolved."""

    parsed: Any
    """The schema for fastavro: without logical types except decimals."""
    plain: pa.StructType
    """Type of the values as they are read."""
    columns: pa.Schema
    flat: tuple[Flat, ...] | None
    """How to read all values at once; None if this is impossible."""


def written(found: Registered, *, connect: bool = False) -> AvroSchema:
    """Convert a schema; with `connect`, by the types of Kafka Connect. Raises NoColumnError."""
    names: dict[str, Any] = {}
    reading: dict[str, Any] = {}
    try:
        for text in found.references:
            fastavro.parse_schema(json.loads(text), named_schemas=names)
            fastavro.parse_schema(_strip(json.loads(text)), named_schemas=reading)
        whole = fastavro.parse_schema(json.loads(found.schema), named_schemas=names)
        parsed = fastavro.parse_schema(_strip(json.loads(found.schema)), named_schemas=reading)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as e:
        raise NoColumnError(f"the schema is not an Avro schema: {e!r}") from None
    if not isinstance(whole, Mapping) or whole.get("type") != "record":
        raise NoColumnError("the schema is not a record")
    types = _Types(names, connect=connect)
    plain, column = types.of(whole, "", ())
    return AvroSchema(parsed, plain, pa.schema(list(column)), flat(parsed, plain))


def _strip(schema: Any) -> Any:
    """Remove the logical types that Arrow applies by itself."""
    if isinstance(schema, list):
        return [_strip(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _strip(value) if name in {"type", "items", "values"} else value for name, value in schema.items()}
    if "fields" in schema:
        found["fields"] = [_strip(one) for one in schema["fields"]]
    if not _is_decimal(schema):
        found.pop("logicalType", None)
    return found


def _is_decimal(schema: Mapping[str, Any]) -> bool:
    digits = schema.get("precision", 0)
    return schema.get("logicalType") == "decimal" and isinstance(digits, int) and 1 <= digits <= DECIMAL_DIGITS_MAX


class _Types:
    def __init__(self, names: Mapping[str, Any], *, connect: bool) -> None:
        self._names, self._connect = names, connect

    def of(self, schema: Any, path: str, within: tuple[str, ...]) -> tuple[pa.DataType, pa.DataType]:
        """Type of the values as they are read, and type of the column."""
        if isinstance(schema, list):
            return self._union(schema, path, within)
        if isinstance(schema, str):
            if schema in PRIMITIVES:
                return PRIMITIVES[schema], PRIMITIVES[schema]
            return self.of(self._names[schema], path, within)
        kind = schema["type"]
        if kind == "record":
            return self._record(schema, path, within)
        if kind in {"array", "map"}:
            plain, column = self.of(schema["items" if kind == "array" else "values"], path, within)
            if pa.types.is_null(column):  # a few bytes can hold any number of nulls
                raise NoColumnError(f"{path}: {kind} of null has no column type")
            if kind == "array":
                return pa.list_(plain), pa.list_(column)
            return pa.map_(pa.string(), plain), pa.map_(pa.string(), column)
        if kind in {"bytes", "fixed"} and _is_decimal(schema):
            found = pa.decimal128(schema["precision"], schema.get("scale", 0))
            return found, found
        if self._connect and isinstance(kind, str) and (kind, schema.get("connect.name")) in CONNECT:
            return CONNECT[kind, schema["connect.name"]]
        if isinstance(kind, str) and (kind, schema.get("logicalType")) in LOGICAL:
            return LOGICAL[kind, schema["logicalType"]]
        return self.of(kind, path, within)

    def _record(self, schema: Mapping[str, Any], path: str, within: tuple[str, ...]) -> tuple[Any, Any]:
        if schema["name"] in within:
            raise NoColumnError(f"{path or '/'}: {schema['name']} contains itself")
        plain, columns = [], []
        for field in schema["fields"]:
            where = f"{path}/{field['name']}"
            one, other = self.of(field["type"], where, (*within, schema["name"]))
            plain.append(pa.field(field["name"], one))
            if not pa.types.is_null(other):
                columns.append(pa.field(field["name"], other))
        if not columns:
            raise NoColumnError(f"{path or '/'}: {schema['name']} has no fields")
        return pa.struct(plain), pa.struct(columns)

    def _union(self, schemas: Sequence[Any], path: str, within: tuple[str, ...]) -> tuple[Any, Any]:
        found = [self.of(one, path, within) for one in schemas if one != "null"]
        if len(found) == 1:
            return found[0]
        if not found:
            return pa.null(), pa.null()
        kinds = [column for _, column in found]
        if all(kind in NUMBERS for kind in kinds):
            floats = [kind for kind in kinds if pa.types.is_floating(kind)]
            widest = pa.float64() if floats and (len(floats) < len(kinds) or pa.float64() in kinds) else None
            widest = widest or (floats[0] if floats else pa.int64())
            return widest, widest
        raise NoColumnError(f"{path}: a union of {' and '.join(str(kind) for kind in kinds)} has no column type")
