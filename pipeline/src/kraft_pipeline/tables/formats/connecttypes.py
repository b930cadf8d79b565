"""Converts schemas of Kafka Connect's JSON converter to columns, and its JSON values to values that Arrow accepts.

Types follow Connect's documentation; named types are Connect's and Debezium's. Times without a zone are local times.
Times of day, intervals, geometries and decimals of variable scale have their underlying type.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Callable, Mapping
from decimal import Decimal
from typing import Any, Final

import pyarrow as pa

from kraft_pipeline.tables.formats.column import Column
from kraft_pipeline.tables.schemas import DEPTH_MAX
from kraft_pipeline.tables.specs.instants import instant

PRIMITIVES: Final = {
    "int8": pa.int32(),
    "int16": pa.int32(),
    "int32": pa.int32(),
    "int64": pa.int64(),
    "float": pa.float32(),
    "float32": pa.float32(),
    "double": pa.float64(),
    "float64": pa.float64(),
    "boolean": pa.bool_(),
    "string": pa.string(),
    "bytes": pa.binary(),
}
DIGITS_MAX: Final = 38
DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_INTEGERS: Final = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}


class NoConnectError(Exception):
    """The schema is not one of Connect's, or has no columns; the message names the field and the reason."""


def column(schema: Any, path: str = "", depth: int = 0) -> Column:
    """Convert a schema. Raises NoConnectError."""
    if not isinstance(schema, Mapping) or depth > DEPTH_MAX:
        raise NoConnectError(f"{path or '/'}: this is not a schema of Kafka Connect")
    kind, name = schema.get("type"), schema.get("name")
    known = _named(kind, name, schema)
    if known is not None:
        return known
    if kind == "struct":
        return _struct(schema, path, depth)
    if kind == "array":
        items = column(schema.get("items"), f"{path}[]", depth + 1)
        return Column(pa.list_(items.kind), lambda value: [_null(items.read, item) for item in _of(value, list)])
    if kind == "map":
        return _map(schema, path, depth)
    if kind == "bytes":
        return Column(pa.binary(), _bytes)
    if isinstance(kind, str) and kind in _INTEGERS:
        return Column(PRIMITIVES[kind], _integer(_INTEGERS[kind]))
    if not isinstance(kind, str) or kind not in PRIMITIVES:
        raise NoConnectError(f"{path or '/'}: {str(kind)[:40]!r} is not a type of Kafka Connect")
    wanted = {"string": str, "boolean": bool}.get(kind)
    return Column(PRIMITIVES[kind], _float if wanted is None else lambda value: _of(value, wanted))


def fields(schema: Any, path: str = "") -> dict[str, Column]:
    """The columns of a struct. Raises NoConnectError."""
    found: dict[str, Column] = {}
    parts = schema.get("fields") if isinstance(schema, Mapping) else None
    if not isinstance(parts, list) or not parts:
        raise NoConnectError(f"{path or '/'}: the schema is not a struct with fields")
    for part in parts:
        name = part.get("field") if isinstance(part, Mapping) else None
        if not isinstance(name, str) or name in found:
            raise NoConnectError(f"{path or '/'}: a field has no name, or the name of another field")
        found[name] = column(part, f"{path}/{name}", path.count("/") + 1)
    return found


def row(value: Mapping[str, Any], columns: Mapping[str, Column]) -> dict[str, Any]:
    """Convert a struct to a value that Arrow accepts. Raises TypeError and ValueError, which name the field."""
    found = {}
    for name, item in value.items():
        known = columns.get(name)
        if known is None:
            raise ValueError(f"the field {name[:60]!r} is not in the schema")
        try:
            found[name] = _null(known.read, item)
        except (TypeError, ValueError, ArithmeticError) as e:
            raise ValueError(f"the field {name}: {e}") from None
    return found


def _null(read: Callable[[Any], Any], value: Any) -> Any:
    return None if value is None else read(value)


def _struct(schema: Mapping[str, Any], path: str, depth: int) -> Column:
    if depth >= DEPTH_MAX:
        raise NoConnectError(f"{path}: the schema is nested more than {DEPTH_MAX} deep")
    inner = fields(schema, path)
    kind = pa.struct([pa.field(name, one.kind) for name, one in inner.items()])
    return Column(kind, lambda value: row(_of(value, dict), inner))


def _map(schema: Mapping[str, Any], path: str, depth: int) -> Column:
    keys = column(schema.get("keys"), f"{path}.keys", depth + 1)
    values = column(schema.get("values"), f"{path}{{}}", depth + 1)
    if pa.types.is_nested(keys.kind):
        raise NoConnectError(f"{path}: keys of a map are {keys.kind}")

    def read(value: Any) -> list[Any]:
        pairs = value.items() if isinstance(value, dict) else _of(value, list)  # keys that are not texts: a list
        return [(keys.read(key), _null(values.read, item)) for key, item in pairs]

    return Column(pa.map_(keys.kind, values.kind), read)


def _named(kind: Any, name: Any, schema: Mapping[str, Any]) -> Column | None:
    """Types by name; None if the name changes nothing."""
    if name == DECIMAL and kind == "bytes":
        return _decimal(schema)
    if kind == "int32" and name in {"io.debezium.time.Date", "org.apache.kafka.connect.data.Date"}:
        return Column(pa.date32(), _integer(32))
    if kind == "int64" and name in {"io.debezium.time.Timestamp", "org.apache.kafka.connect.data.Timestamp"}:
        return Column(pa.timestamp("us"), lambda value: _within(_integer(64)(value) * 1000))
    if kind == "int64" and name == "io.debezium.time.MicroTimestamp":
        return Column(pa.timestamp("us"), _integer(64))
    if kind == "int64" and name == "io.debezium.time.NanoTimestamp":
        return Column(pa.timestamp("us"), lambda value: _integer(64)(value) // 1000)
    if kind == "string" and name == "io.debezium.time.ZonedTimestamp":
        return Column(pa.timestamp("us", "UTC"), lambda value: instant(_of(value, str)))
    return None


def _decimal(schema: Mapping[str, Any]) -> Column | None:
    parameters = schema.get("parameters") or {}
    try:
        scale, digits = int(parameters["scale"]), int(parameters.get("connect.decimal.precision", DIGITS_MAX))
        kind = pa.decimal128(digits, scale)
    except (KeyError, TypeError, ValueError, AttributeError):
        return None  # no Arrow type has so many digits: keep the bytes
    if digits > DIGITS_MAX or not 0 <= scale <= digits:
        return None

    def read(value: Any) -> Decimal:
        if isinstance(value, str):  # the unscaled number; with decimal.format=NUMERIC it is a number of JSON
            unscaled = int.from_bytes(_bytes(value), signed=True)
            return Decimal((int(unscaled < 0), tuple(map(int, str(abs(unscaled)))), -scale))
        return Decimal(value) if isinstance(value, int | Decimal) and not isinstance(value, bool) else _of(value, str)

    return Column(kind, read)


def _of(value: Any, kind: type) -> Any:
    if not isinstance(value, kind):
        raise TypeError(f"{str(value)[:60]!r} is not a {kind.__name__}")
    return value


def _integer(bits: int) -> Callable[[Any], int]:
    def read(value: Any) -> int:
        if isinstance(value, bool) or not isinstance(value, int):
            raise TypeError(f"{str(value)[:60]!r} is not an integer")
        return _within(value, bits)

    return read


def _within(value: int, bits: int = 64) -> int:
    if not -(1 << (bits - 1)) <= value < 1 << (bits - 1):
        raise ValueError(f"a number of {value.bit_length()} bits is more than {bits} hold")
    return value


def _float(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        raise TypeError(f"{str(value)[:60]!r} is not a number")
    return float(value)


def _bytes(value: Any) -> bytes:
    try:
        return base64.b64decode(_of(value, str), validate=True)
    except binascii.Error as e:
        raise ValueError(f"bytes that are not Base64: {e}") from None
