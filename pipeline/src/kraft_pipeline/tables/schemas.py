"""Schemas that grow: what a table keeps of its own, and what it takes from values that know more."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pyarrow as pa

Clash = Callable[[pa.DataType, pa.DataType], pa.DataType]


def widened(there: pa.Schema, wanted: pa.Schema) -> pa.Schema:
    """A table's schema with the columns, and the fields within its columns, that it lacks; no type changes."""
    return pa.schema(_fields(list(there), list(wanted), lambda old, _: old))


def merged(fields: pa.Schema, learnt: Sequence[pa.Schema]) -> pa.Schema:
    """All fields; where two tasks saw two types, the wider one, or the first where neither is."""
    for more in learnt:
        fields = pa.schema(_fields(list(fields), list(more), _wider))
    return fields


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
