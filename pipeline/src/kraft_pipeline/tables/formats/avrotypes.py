"""Avro's schemas as Arrow's types: what a column is, and what its values are before logical types are looked at.

Records are structs, arrays lists, maps maps of texts, enums texts, `fixed` bytes; a union of null and one other type is
that type; of numbers, the widest. Dates, timestamps (in microseconds) and decimals of up to 38 digits are what they
say; times of day, durations and UUIDs stay what they are underneath. Other unions, and records that contain
themselves, have no column: `NoColumnError`.
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
"""Type underneath and logical type -> as the numbers are, and as the column is."""
CONNECT: Final = {
    ("int", "io.debezium.time.Date"): (pa.date32(), pa.date32()),
    ("int", "org.apache.kafka.connect.data.Date"): (pa.date32(), pa.date32()),
    ("long", "org.apache.kafka.connect.data.Timestamp"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "io.debezium.time.Timestamp"): (pa.timestamp("ms"), pa.timestamp("us")),
    ("long", "io.debezium.time.MicroTimestamp"): (pa.timestamp("us"), pa.timestamp("us")),
    ("long", "io.debezium.time.NanoTimestamp"): (pa.timestamp("ns"), pa.timestamp("us")),
    ("string", "io.debezium.time.ZonedTimestamp"): (pa.string(), pa.timestamp("us", "UTC")),
}
"""Type underneath and `connect.name`, as Debezium documents them: times without a zone are local ones."""
NUMBERS: Final = (pa.int32(), pa.int64(), pa.float32(), pa.float64())
DECIMAL_DIGITS_MAX: Final = 38


class NoColumnError(Exception):
    """Values of this schema cannot be columns; the message says which field and why."""


class Written(NamedTuple):
    """A schema that values were written with, or are to be read as."""

    parsed: Any
    """As fastavro reads with it: without the logical types, but decimals."""
    plain: pa.StructType
    """Of the values as they are read."""
    columns: pa.Schema
    flat: tuple[Flat, ...] | None
    """How to read all values at once, where that can be."""


def written(found: Registered, *, connect: bool = False) -> Written:
    """What values of this schema become; with `connect`, by the types of Kafka Connect. Raises NoColumnError."""
    names: dict[str, Any] = {}
    reading: dict[str, Any] = {}
    try:
        for text in found.references:
            fastavro.parse_schema(json.loads(text), named_schemas=names)
            fastavro.parse_schema(_stripped(json.loads(text)), named_schemas=reading)
        whole = fastavro.parse_schema(json.loads(found.schema), named_schemas=names)
        parsed = fastavro.parse_schema(_stripped(json.loads(found.schema)), named_schemas=reading)
    except (ValueError, KeyError, TypeError, SchemaParseException, UnknownType) as e:
        raise NoColumnError(f"the schema is none of Avro: {e!r}") from None
    if not isinstance(whole, Mapping) or whole.get("type") != "record":
        raise NoColumnError("the schema is of no record")
    types = _Types(names, connect=connect)
    plain, column = types.of(whole, "", ())
    return Written(parsed, plain, pa.schema(list(column)), flat(parsed, plain))


def _stripped(schema: Any) -> Any:
    """Without the logical types that Arrow knows by itself."""
    if isinstance(schema, list):
        return [_stripped(one) for one in schema]
    if not isinstance(schema, dict):
        return schema
    found = {name: _stripped(value) if name in {"type", "items", "values"} else value for name, value in schema.items()}
    if "fields" in schema:
        found["fields"] = [_stripped(one) for one in schema["fields"]]
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
        """As values are read, and as they are in columns."""
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
            if pa.types.is_null(column):  # and as many as one likes are in a few bytes
                raise NoColumnError(f"{path}: {kind} of null has no type of a column")
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
        raise NoColumnError(f"{path}: a union of {' and '.join(str(kind) for kind in kinds)} has no type of a column")
