"""Growth of schemas: combine a table's columns with the fields of new values, and convert rows to them."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from typing import Any, Final, TypeAlias

import numpy as np
import pyarrow as pa

from kraft_pipeline.tables.errors import RecordError
from kraft_pipeline.tables.specs.instants import instants

Clash: TypeAlias = Callable[[pa.DataType, pa.DataType], pa.DataType]
WIDER: Final = {
    pa.int16(): (pa.int32(), pa.int64(), pa.float64()),
    pa.int32(): (pa.int64(), pa.float64()),
    pa.int64(): (pa.float64(),),
    pa.float32(): (pa.float64(),),
}
"""Type -> wider column types that accept its values; a number that does not fit fails when it is converted."""
FLAT: Final = "[]"
"""Suffix of a reserved name that only nested fields must not have."""
DEPTH_MAX: Final = 32
"""Maximum nesting of values. Delta's libraries do not read much deeper schemas; Arrow's reader crashes at thousands."""


def widened(there: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """A table's schema plus the columns and nested fields of `wanted` that it lacks. No type changes."""
    return pa.schema(_fields(list(there), list(wanted), lambda old, _: old))


def promoted(there: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """As `widened`, and with the types that Iceberg widens in place: int to long, float to double, longer decimals."""
    return pa.schema(_fields(list(there), list(wanted), _promoted))


def _promoted(there: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    if (there, wanted) in {(pa.int32(), pa.int64()), (pa.float32(), pa.float64())}:
        return wanted
    if pa.types.is_decimal(there) and pa.types.is_decimal(wanted) and there.scale == wanted.scale:
        return max(there, wanted, key=lambda kind: kind.precision)
    return there


def merged(fields: pa.Schema, learnt: Sequence[pa.Schema]) -> pa.Schema:
    """Combine the fields that tasks learnt. Of two types the wider type counts, or the first if neither is wider.

    Schemas with names that clash with the schemas before are skipped; their tasks learn again from the result.
    """
    for more in learnt:
        found = pa.schema(_fields(list(fields), list(more), _wider))
        try:
            check_names(found, known=fields)
        except RecordError:
            continue
        fields = found
    return fields


def as_in(table: pa.Schema, file: pa.Schema) -> pa.Schema:
    """The columns of a file with the types that the table has for them.

    Another writer may store a type in another way: Spark writes timestamps for Delta as INT96. This type must not
    become the type of a file that this program writes. Columns with names that the table lacks stay as they are.
    """
    return pa.schema(_fields(list(file), [field for field in table if field.name in file.names], _stored))


def _stored(file: pa.DataType, table: pa.DataType) -> pa.DataType:
    """The table's type, unless the file's values might not fit it."""
    if pa.types.is_timestamp(file) and pa.types.is_timestamp(table):
        return table
    wider = table in WIDER.get(file, ()) and not pa.types.is_floating(table)
    return table if wider else _promoted(file, table)


def check_names(
    schema: pa.Schema,
    reserved: Collection[str] = (),
    known: pa.Schema = pa.schema([]),  # noqa: B008 - cannot change
) -> None:
    """Raise RecordError if a field that is not `known` has the name of another or a `reserved` name, ignoring case.

    Names of nested fields are their paths, as in Iceberg. Also raises RecordError for fields nested more than
    DEPTH_MAX deep. A reserved name with the suffix `[]` (`FLAT`) forbids only nested columns.
    """
    old = set(_paths(known))
    seen = {*reserved, *(".".join(path).lower() for path in old)}
    for path in _paths(schema):
        name = ".".join(path)
        if path not in old:
            if len(path) > DEPTH_MAX:
                raise RecordError("field.depth", f"the field {name!r} is nested more than {DEPTH_MAX} deep")
            if not path[-1]:
                raise RecordError("field.name", f"the name of a field is empty: {name!r}")
            if name.lower() in seen:
                raise RecordError("field.name", f"the field {name!r} has the name of another column")
            if "\0" in path[-1]:  # C libraries end the name there
                raise RecordError("field.name", f"the field {name!r} has a name with a zero byte")
            if len(path) == 1 and name.lower() + FLAT in seen and pa.types.is_nested(schema.field(name).type):
                raise RecordError(
                    "field.type", f"the field {name!r} is nested, but rows are partitioned or identified by it"
                )
            seen.add(name.lower())


def _paths(fields: Iterable[pa.Field], before: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """Yield the paths of all fields and nested fields, outer fields first."""
    for field in fields:
        path = (*before, field.name)
        yield path
        if pa.types.is_nested(field.type):
            yield from _paths((field.type.field(place) for place in range(field.type.num_fields)), path)


def _fields(there: list[pa.Field], wanted: list[pa.Field], clash: Clash) -> list[pa.Field]:
    more = {field.name: field for field in wanted}
    names = {field.name for field in there}
    kept = [f.with_type(_type(f.type, more[f.name].type, clash)) if f.name in more else f for f in there]
    return [*kept, *(field for field in wanted if field.name not in names)]


def _type(there: pa.DataType, wanted: pa.DataType, clash: Clash) -> pa.DataType:
    if there.equals(wanted):
        return there
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        return pa.struct(_fields(list(there), list(wanted), clash))
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        inner = _type(there.value_type, wanted.value_type, clash)
        return pa.list_(there.value_field.with_type(inner))
    if pa.types.is_map(there) and pa.types.is_map(wanted):
        return pa.map_(there.key_type, _type(there.item_type, wanted.item_type, clash))
    return clash(there, wanted)


def _wider(there: pa.DataType, wanted: pa.DataType) -> pa.DataType:
    try:
        both = [pa.schema([("x", there)]), pa.schema([("x", wanted)])]
        return pa.unify_schemas(both, promote_options="permissive").field(0).type
    except (pa.ArrowInvalid, pa.ArrowTypeError):
        return there


def alike(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a column takes the values of a type without a conversion; a struct may lack fields of the other."""
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        both = {field.name for field in there} & {field.name for field in wanted}
        return all(alike(there.field(name).type, wanted.field(name).type) for name in both)
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        return alike(there.value_type, wanted.value_type)
    if pa.types.is_map(there) and pa.types.is_map(wanted):
        return alike(there.key_type, wanted.key_type) and alike(there.item_type, wanted.item_type)
    return bool(there.equals(wanted))


def misfit(given: pa.Schema, columns: pa.Schema) -> str:
    """Describe the first field with a type that does not fit into its column; "" if all fit. Only numbers widen."""
    found = (_misfit(field.name, field.type, columns.field(field.name).type) for field in given)
    return next((text for text in found if text), "")


def aligned(table: pa.Table, schema: pa.Schema) -> pa.Table:
    """Convert a table to the columns and nested fields of `schema`; missing fields are null, others are dropped.

    Raises ArrowInvalid for numbers that the column's type cannot hold exactly.
    """
    names = table.column_names
    columns = [
        _conformed(table.column(f.name).combine_chunks(), f.type)
        if f.name in names
        else pa.nulls(table.num_rows, f.type)
        for f in schema
    ]
    return pa.Table.from_arrays(columns, schema=schema) if columns else table.select([])


def _misfit(path: str, given: pa.DataType, column: pa.DataType) -> str:
    if given.equals(column):
        return ""
    if pa.types.is_struct(given) and pa.types.is_struct(column):
        inner = (_misfit(f"{path}.{f.name}", f.type, column.field(f.name).type) for f in given)
        return next((text for text in inner if text), "")
    if pa.types.is_list(given) and pa.types.is_list(column):
        return _misfit(f"{path}[]", given.value_type, column.value_type)
    if pa.types.is_map(given) and pa.types.is_map(column):
        return _misfit(f"{path}{{}}", given.item_type, column.item_type)
    if column in WIDER.get(given, ()):
        return ""
    return f"the field {path} is {given}, its column {column}"


def _conformed(array: Any, kind: pa.DataType) -> Any:
    """Convert an array to `kind`: structs match by field name, numbers widen."""
    if isinstance(array, pa.ChunkedArray):
        array = pa.concat_arrays(array.chunks) if array.num_chunks else pa.array([], array.type)
    if array.type.equals(kind):
        return array
    nulls = array.is_null() if array.null_count else None
    if pa.types.is_struct(kind) and pa.types.is_struct(array.type):
        parts = dict(zip([f.name for f in array.type], array.flatten(), strict=True))
        inner = [_conformed(parts[f.name], f.type) if f.name in parts else pa.nulls(len(array), f.type) for f in kind]
        return pa.StructArray.from_arrays(inner, fields=list(kind), mask=nulls)
    if pa.types.is_list(kind) and pa.types.is_list(array.type):
        lengths = array.value_lengths().fill_null(0)
        values = _conformed(array.flatten(), kind.value_type)
        return pa.ListArray.from_arrays(_bounds(lengths), values, type=kind, mask=nulls)
    if pa.types.is_map(kind) and pa.types.is_map(array.type):
        entries = array.cast(pa.list_(pa.struct([("key", array.type.key_type), ("value", array.type.item_type)])))
        bounds = _bounds(entries.value_lengths().fill_null(0))
        keys, items = entries.flatten().flatten()
        return pa.MapArray.from_arrays(bounds, keys, _conformed(items, kind.item_type), kind, mask=nulls)
    if pa.types.is_timestamp(kind) and pa.types.is_string(array.type):
        return instants(array)
    if pa.types.is_timestamp(kind) and pa.types.is_timestamp(array.type) and array.type.unit == "ns":
        return array.cast(kind, safe=False)  # truncates to microseconds
    return array.cast(kind)


def _bounds(lengths: Any) -> Any:
    bounds = np.zeros(len(lengths) + 1, np.int32)
    np.cumsum(np.asarray(lengths), out=bounds[1:])
    return pa.array(bounds)
