"""Decodes single JSON values: numbers stay exact, and an error names the field and the reason.

It uses Python's parser, which is ten times slower than Arrow's reader. `jsonvalues` uses this module for values that
the reader refuses or would round, and for types that the reader does not know (maps).
"""

from __future__ import annotations

import datetime
import json
import math
import re
from collections.abc import Mapping
from decimal import Context, Decimal, DecimalException, Inexact, InvalidOperation
from typing import Any, Final, NoReturn

import pyarrow as pa

from kraft_pipeline.tables.errors import RecordError

_KINDS: Final = {
    dict: "an object",
    list: "an array",
    str: "a text",
    bool: "true or false",
    int: "a number",
    float: "a number",
    Decimal: "a number",
    type(None): "null",
}
_DATE: Final = re.compile(r"\d{4}-\d{2}-\d{2}", re.ASCII)
_TIME: Final = re.compile(r"\d{4}-\d{2}-\d{2}([T ].*)?", re.ASCII)
_NUMBER: Final = re.compile(r"[+-]?(\d+\.?\d*|\.\d+)([eE][+-]?\d+)?", re.ASCII)
_DECIMALS: Final = Context(prec=76, traps=[Inexact, InvalidOperation])
SHOWN: Final = 60
"""Characters of a value in a reason."""


def loaded(value: bytes) -> dict[str, Any]:
    """Parse a JSON object; fractions become `Decimal`. Raises RecordError."""
    try:
        found = json.loads(
            value.decode("utf-8-sig"), strict=False, parse_float=_decimal, object_pairs_hook=_without_twins
        )
    except UnicodeDecodeError as e:
        raise RecordError("json.text", f"the value is not UTF-8: byte {e.start}") from None
    except RecordError:
        raise
    except (ValueError, RecursionError) as e:
        raise RecordError("json.syntax", f"JSON parse error: {e}") from None
    if not isinstance(found, dict):
        raise RecordError("json.object", f"the value is {_KINDS[type(found)]}, not an object")
    return found


def _decimal(text: str) -> Decimal:
    try:
        return Decimal(text)
    except DecimalException:
        raise RecordError("json.number", f"the number {_shown(text)} is beyond every type") from None


def _without_twins(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        twin = next(name for name in found if names.count(name) > 1)
        raise RecordError("json.twin", f"the field {_shown(twin)} occurs twice")
    return found


class Single:
    """Converts values by a schema; with `additive`, values may add fields."""

    def __init__(self, *, additive: bool, exact: bool, declared: frozenset[str]) -> None:
        """`exact`: numbers are rounded only in `declared` fields."""
        self._additive, self._exact, self._declared = additive, exact, declared

    def row(self, value: Mapping[str, Any], fields: pa.Schema) -> dict[str, Any]:
        """Convert a value to a row that Arrow accepts for these columns. Raises RecordError."""
        return self._struct(value, {field.name: field.type for field in fields}, "", exact=self._exact)

    def taught(self, value: Mapping[str, Any], fields: pa.Schema) -> pa.Schema:
        """The fields of a value with inferred types. Raises RecordError for a number that no inferred type holds."""
        found = self._kinds(value, {field.name: field.type for field in fields}, "")
        return pa.schema(found)

    def _kinds(self, value: Mapping[str, Any], known: Mapping[str, pa.DataType], path: str) -> list[pa.Field]:
        found = []
        for name, item in value.items():
            where = f"{path}.{name}" if path else name
            kind = self._kind(item, known.get(name), where)
            if kind is not None:
                found.append(pa.field(_text(name, where), kind))
        return found

    def _kind(self, value: Any, known: pa.DataType | None, path: str) -> pa.DataType | None:
        """The type of a value, or the type of its column if the column cannot widen."""
        if value is None:
            return None
        if isinstance(value, dict):
            if known is not None and not pa.types.is_struct(known):
                return known
            fields = self._kinds(value, {} if known is None else {f.name: f.type for f in known}, path)
            return pa.struct(fields) if fields else None
        if isinstance(value, list):
            return self._list(value, known, path)
        if known is not None and not known.equals(pa.int64()):
            return known
        if isinstance(value, bool):
            return pa.bool_()
        if isinstance(value, str):
            return pa.string()
        if isinstance(value, int) and -(1 << 63) <= value < 1 << 63:
            return pa.int64()
        if isinstance(value, int) and self._exact:
            _rounded(value, path, "long")
        return pa.float64()

    def _list(self, values: list[Any], known: pa.DataType | None, path: str) -> pa.DataType | None:
        if known is not None and not pa.types.is_list(known):
            return known
        inner = None if known is None else known.value_type
        found = pa.schema([])
        for item in values:
            kind = self._kind(item, inner, f"{path}[]")
            if kind is not None:
                found = grown(found, pa.schema([("item", kind)]), pa.schema([]))
        return pa.list_(found.field(0).type) if len(found) else None

    def _struct(self, value: Any, fields: Mapping[str, pa.DataType], path: str, *, exact: bool) -> dict[str, Any]:
        if not isinstance(value, dict):
            _misfit(value, "an object", path)
        found = {}
        for name, item in value.items():
            where = f"{path}.{name}" if path else name
            if name in fields:
                inner = exact and (bool(path) or name not in self._declared)
                found[name] = self._value(item, fields[name], where, exact=inner)
            elif not self._additive:
                raise RecordError("json.field", f"the table has no column for the field {_shown(where)}")
        return found

    def _value(self, value: Any, kind: pa.DataType, path: str, *, exact: bool) -> Any:
        if value is None:
            return None
        if pa.types.is_struct(kind):
            return self._struct(value, {field.name: field.type for field in kind}, path, exact=exact)
        if pa.types.is_list(kind):
            if not isinstance(value, list):
                _misfit(value, "an array", path)
            return [self._value(item, kind.value_type, f"{path}[]", exact=exact) for item in value]
        if pa.types.is_map(kind):
            if not isinstance(value, dict):
                _misfit(value, "an object", path)
            items = value.items()
            return [(_text(k, path), self._value(v, kind.item_type, f"{path}{{}}", exact=exact)) for k, v in items]
        return _leaf(value, kind, path, exact=exact)


def _leaf(value: Any, kind: pa.DataType, path: str, *, exact: bool) -> Any:
    if pa.types.is_string(kind) or pa.types.is_binary(kind):
        return _text(value, path) if isinstance(value, str) else _misfit(value, "a text", path)
    if pa.types.is_boolean(kind):
        return value if isinstance(value, bool) else _misfit(value, "true or false", path)
    if pa.types.is_date(kind) or pa.types.is_timestamp(kind):
        return _time(value, kind, path)
    if pa.types.is_decimal(kind):
        return _fixed(value, kind, path)
    if isinstance(value, bool) or not isinstance(value, int | float | Decimal):
        _misfit(value, "a number", path)
    if pa.types.is_integer(kind):
        return _integer(value, kind, path)
    return _float(value, path, exact=exact)


def _integer(value: Any, kind: pa.DataType, path: str) -> int:
    limit = 1 << (kind.bit_width - 1)
    if isinstance(value, float) or not -limit <= value < limit:  # a float is NaN or infinite here
        _rounded(value, path, str(kind))
    found = int(value)
    if found != value:
        raise RecordError("json.type", f"the field {path} is {_shown(value)}, its column {kind}")
    return found


def _float(value: Any, path: str, *, exact: bool) -> float:
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if isinstance(value, float):
        return found
    if math.isinf(found) or (exact and Decimal(repr(found)) != value):
        _rounded(value, path, "double")
    return found


def _fixed(value: Any, kind: Any, path: str) -> Decimal:
    if isinstance(value, bool | list | dict):
        _misfit(value, "a number", path)
    if isinstance(value, str) and not _NUMBER.fullmatch(value):
        _rounded(value, path, str(kind))
    try:
        found = Decimal(value)
        if not found.is_finite() or (found and found.adjusted() >= kind.precision - kind.scale):
            _rounded(value, path, str(kind))
        return found.quantize(Decimal(1).scaleb(-kind.scale), context=_DECIMALS)
    except DecimalException:
        _rounded(value, path, str(kind))


def _time(value: Any, kind: pa.DataType, path: str) -> Any:
    """Parse a date or a time: UTC without a zone, truncated to microseconds."""
    if not isinstance(value, str):
        _misfit(value, "a text", path)
    try:
        if pa.types.is_date(kind):
            return datetime.date.fromisoformat(value) if _DATE.fullmatch(value) else _misfit(value, "a date", path)
        found = datetime.datetime.fromisoformat(value) if _TIME.fullmatch(value) else _misfit(value, "a time", path)
        return (found if found.tzinfo else found.replace(tzinfo=datetime.UTC)).astimezone(datetime.UTC)
    except (ValueError, OverflowError):
        _misfit(value, "a date" if pa.types.is_date(kind) else "a time of ISO 8601", path)


def _text(value: str, path: str) -> str:
    try:
        value.encode()
    except UnicodeEncodeError:
        raise RecordError("json.text", f"the field {_shown(path)} has half of a surrogate pair") from None
    return value


def _misfit(value: Any, wanted: str, path: str) -> NoReturn:
    found = f"{_shown(value)!r} and not" if isinstance(value, str) else f"{_KINDS[type(value)]} and not"
    raise RecordError("json.type", f"the field {_shown(path)} is {found} {wanted}")


def _rounded(value: Any, path: str, column: str) -> NoReturn:
    raise RecordError(
        "json.number", f"the field {_shown(path)} is {_shown(value)}, which a column of type {column} does not hold"
    )


def _shown(value: Any) -> str:
    """A value in a reason: short, and of characters that every table holds."""
    text = value if isinstance(value, str) else str(value) if not isinstance(value, int) else _digits(value)
    text = text.encode("utf-8", "replace").decode()
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"


def _digits(value: int) -> str:
    """The digits of a number, or its size: Python refuses to print more than 4,300 digits."""
    return str(value) if value.bit_length() < 10_000 else f"a number of {value.bit_length()} bits"


def grown(fields: pa.Schema, more: pa.Schema, settled: pa.Schema) -> pa.Schema:
    """The fields with what `more` adds. A field that is not `settled` yet widens to double. Raises RecordError."""
    known = {field.name: field for field in fields}
    fixed = {field.name: field.type for field in settled}
    for field in more:
        there = known.get(field.name)
        kind = field.type if there is None else _grown(there.type, field.type, fixed.get(field.name), field.name)
        known[field.name] = field.with_type(kind) if there is None else there.with_type(kind)
    return pa.schema(list(known.values()))


def _grown(there: pa.DataType, more: pa.DataType, settled: pa.DataType | None, path: str) -> pa.DataType:
    if there.equals(more):
        return there
    if pa.types.is_struct(there) and pa.types.is_struct(more):
        inner = pa.schema(list(settled)) if settled is not None else pa.schema([])
        return pa.struct(list(grown(pa.schema(list(there)), pa.schema(list(more)), inner)))
    if pa.types.is_list(there) and pa.types.is_list(more):
        item = settled.value_type if settled is not None else None
        return pa.list_(there.value_field.with_type(_grown(there.value_type, more.value_type, item, path)))
    if settled is None and {there, more} == {pa.int64(), pa.float64()}:
        return pa.float64()
    return there  # a value of another type fails when it becomes a row
