"""JSON objects to columns, thousands at a time; what is none of the schema is told apart without a loop over the rest.

Arrow's reader takes lines and gives up on the first bad one. So each value is put into an object of its own that also
has its number, `{"i":7,"v":…}`, which also makes certain that a value is one whole object: two in one value, or one in
two, would break the frame around them. Where the reader gives up, values that are no objects are looked for one by one,
and what is left is halved until the bad ones are alone.
"""

from __future__ import annotations

import io
import json
import re
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from kraft_pipeline.tables.schemas import DEPTH_MAX, aligned, check_names

_JSON: Final = {
    int: "a number",
    float: "a number",
    str: "a text",
    bool: "true or false",
    list: "an array",
    type(None): "null",
}
_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PAIRS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
BLOCK_BYTES: Final = 16 * 1024 * 1024
REASON_CHARACTERS: Final = 200
TYPES: Final = {
    "string": pa.string(),
    "long": pa.int64(),
    "bigint": pa.int64(),
    "int": pa.int32(),
    "integer": pa.int32(),
    "short": pa.int16(),
    "double": pa.float64(),
    "float": pa.float32(),
    "boolean": pa.bool_(),
    "timestamp": pa.timestamp("us", tz="UTC"),
    "date": pa.date32(),
}


class Parsed(NamedTuple):
    """Columns of the rows that are `good`, and why the others are not."""

    table: pa.Table
    good: NDArray[np.int64]
    bad: dict[int, str]


def type_of(ddl: str) -> pa.DataType:
    """The type of a field as Spark's DDL names it; also array<…>. Raises ValueError."""
    text = ddl.strip().lower()
    if text in TYPES:
        return TYPES[text]
    if text.startswith("array<") and text.endswith(">"):
        return pa.list_(type_of(text[6:-1]))
    raise ValueError(f"{ddl!r} is none of {', '.join(TYPES)} or array<…> of these")


def parse(values: pa.Array, schema: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()) -> Parsed:
    """The values that are no null, by `schema`; with `additive` also fields that it lacks, unless their names (in any
    case) are `reserved` or taken."""
    bad = dict.fromkeys(_too_deep(values), f"the value is nested more than {DEPTH_MAX} deep")
    places = np.setdiff1d(np.flatnonzero(np.asarray(values.is_valid())), list(bad))
    tables: list[pa.Table] = []
    good: list[NDArray[np.int64]] = []
    pending = [(places, False)] if len(places) else []
    while pending:
        some, looked_at = pending.pop()
        try:
            found = _read(values.take(pa.array(some)), schema, additive=additive)
            check_names(found.schema, reserved, schema)
        except pa.ArrowInvalid as e:
            if len(some) == 1:
                bad[int(some[0])] = _reason(e)
            elif not looked_at:
                reasons = [_no_object(value) for value in values.take(pa.array(some)).to_pylist()]
                bad |= {place: reason for place, reason in zip(some.tolist(), reasons, strict=True) if reason}
                objects = some[[not reason for reason in reasons]]
                pending += [(objects, True)] if len(objects) else []
            else:
                half = len(some) // 2
                # The first half comes first: rows stay in their order.
                pending += [(some[half:], True), (some[:half], True)]
        else:
            tables.append(found)
            good.append(some)
            schema = found.schema  # what one part has taught holds for the others
    if not tables:
        return Parsed(schema.empty_table(), np.empty(0, np.int64), bad)
    return Parsed(pa.concat_tables([aligned(t, schema) for t in tables]), np.concatenate(good), bad)


def _too_deep(values: pa.Array) -> list[int]:
    """The places of values that are nested more than DEPTH_MAX deep, which Arrow's reader may die of."""
    opened = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
    some = np.flatnonzero(pc.greater(opened, DEPTH_MAX).fill_null(False))
    return [
        place
        for place, value in zip(some.tolist(), values.take(pa.array(some)).to_pylist(), strict=True)
        if _depth(value) > DEPTH_MAX and _depth(_TEXT.sub(b"", value)) > DEPTH_MAX
    ]


def _depth(value: bytes) -> int:
    """How deep brackets are nested, at most, whether or not they are in texts."""
    left, rounds = value.translate(_PAIRS, _NO_BRACKETS), 0
    while b"[]" in left and rounds <= DEPTH_MAX:
        left, rounds = left.replace(b"[]", b""), rounds + 1
    return rounds + left.count(b"[")


def _no_object(value: bytes) -> str:
    """Why a value is no JSON object, "" where it may be one: what all of a topic may be, is told in a moment."""
    try:
        found = json.loads(value, strict=False)
    except ValueError as e:
        return f"JSON parse error: {e}"[:REASON_CHARACTERS]
    except RecursionError:
        return ""
    return "" if isinstance(found, dict) else f"the value is {_JSON[type(found)]} and no object"


def _read(values: pa.Array, wanted: pa.Schema, *, additive: bool) -> pa.Table:
    schema = pa.schema(pa.field(f.name, _written(f.type)) for f in wanted)
    count = len(values)
    numbers = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
    lines = pc.binary_join_element_wise(b'{"i":', numbers, b',"v":', values.cast(pa.binary()), b"}\n", b"")
    whole = _objects(lines, schema, additive=additive or not len(schema))
    settled = pa.schema(
        f if schema.get_field_index(f.name) >= 0 else pa.field(f.name, _plain(f.type))
        for f in whole.type
        if schema.get_field_index(f.name) >= 0 or _plain(f.type) is not None
    )
    if any(not settled.field(f.name).type.equals(f.type) for f in whole.type if f.name in settled.names):
        whole = _objects(lines, settled, additive=True)  # texts that look like times, as they are written
    columns = [whole.field(whole.type.get_field_index(f.name)) for f in settled]
    found = pa.Table.from_arrays(columns, schema=settled) if columns else _empty_rows(count)
    found.validate(full=True)  # texts that are no UTF-8, which the reader takes as they are
    if schema.equals(wanted):
        return found
    return found.cast(pa.schema(wanted.field(f.name) if f.name in wanted.names else f for f in settled))


def _objects(lines: pa.Array, schema: pa.Schema, *, additive: bool) -> Any:
    """The objects of all lines, as structs. Raises ArrowInvalid unless each line is exactly one."""
    count = len(lines)
    bounds = np.frombuffer(lines.buffers()[1], np.int32)[lines.offset : lines.offset + count + 1]
    inner = pa.struct([pa.field(f.name, f.type) for f in schema])
    table = pyarrow.json.read_json(
        io.BytesIO(memoryview(lines.buffers()[2])[int(bounds[0]) : int(bounds[-1])]),
        read_options=pyarrow.json.ReadOptions(
            block_size=max(BLOCK_BYTES, int(np.diff(bounds).max()) + 1), use_threads=False
        ),
        parse_options=pyarrow.json.ParseOptions(
            explicit_schema=pa.schema([pa.field("i", pa.int64()), pa.field("v", inner)]),
            newlines_in_values=True,
            unexpected_field_behavior="infer" if additive else "error",
        ),
    )
    if table.column_names != ["i", "v"]:
        raise pa.ArrowInvalid(f"what follows the object is no part of it: {table.column_names[2:]}")
    if table.num_rows != count or not np.array_equal(table.column("i").to_numpy(), np.arange(count)):
        raise pa.ArrowInvalid("the value is not one whole object")
    whole = table.column("v").combine_chunks()
    if isinstance(whole, pa.ChunkedArray):
        whole = pa.concat_arrays(whole.chunks)
    if whole.null_count:
        raise pa.ArrowInvalid("the value is null and no object")
    return whole


def _empty_rows(count: int) -> pa.Table:
    return pa.table({"_": pa.nulls(count)}).select([])


def _plain(kind: pa.DataType) -> pa.DataType | None:
    """The type for an inferred one: texts stay texts even if they look like times; None for nothing but nulls."""
    if pa.types.is_null(kind):
        return None
    if pa.types.is_timestamp(kind) or pa.types.is_date(kind):
        return pa.string()
    if pa.types.is_list(kind):
        inner = _plain(kind.value_type)
        return None if inner is None else pa.list_(inner)
    if pa.types.is_struct(kind):
        fields = [(f.name, _plain(f.type)) for f in kind]
        known = [pa.field(name, inner) for name, inner in fields if inner is not None]
        return pa.struct(known) if known else None
    return kind


def _written(kind: pa.DataType) -> pa.DataType:
    """Dates are texts in JSON, and days since 1970 to Arrow's reader."""
    if pa.types.is_list(kind):
        return pa.list_(_written(kind.value_type))
    return pa.string() if pa.types.is_date(kind) else kind


def _reason(error: Exception) -> str:
    text = str(error).replace("Column(/v/", "Column(/").replace("Column(/v)", "value").split(" in row ")[0]
    return text[:REASON_CHARACTERS]
