"""Decodes flat Avro records to columns without a loop over records: field by field, all records at once.

A record is flat if its fields are primitives, enums and `fixed`, or unions of null and one of these types. An array has
the position of each record's next field, and advances with each field. A record that leaves its bounds, or does not
match its schema, is left to fastavro.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft_pipeline.codec import varints
from kraft_pipeline.codec.arrays import fixed
from kraft_pipeline.codec.decode import copied
from kraft_pipeline.codec.errors import CodecError
from kraft_pipeline.codec.varints import Bytes, Ints

FLOATS: Final[dict[str, np.dtype[Any]]] = {"float": np.dtype("<f4"), "double": np.dtype("<f8")}
INT_MAX: Final = (1 << 31) - 1
ALWAYS: Final = -1

Flags = NDArray[np.bool_]


class Flat(NamedTuple):
    """A field: its underlying kind, the null branch of its union (ALWAYS: not a union), and its size."""

    name: str
    kind: str
    null: int
    symbols: tuple[str, ...] = ()
    size: int = 0


def flat(parsed: Any, plain: pa.StructType) -> tuple[Flat, ...] | None:
    """Return the fields to read; None if records of the schema are not flat."""
    found = [_flat(field["name"], field["type"]) for field in parsed["fields"]]
    if any(one is None or pa.types.is_decimal(plain.field(one.name).type) for one in found):
        return None
    return tuple(one for one in found if one is not None)


def _flat(name: str, kind: Any) -> Flat | None:
    null = ALWAYS
    if isinstance(kind, list):
        if len(kind) != 2 or kind.count("null") != 1:
            return None
        null = kind.index("null")
        kind = kind[1 - null]
    if isinstance(kind, Mapping):
        symbols, size, kind = tuple(kind.get("symbols", ())), kind.get("size", 0), kind["type"]
        return Flat(name, kind, null, symbols, size) if kind in _KINDS else None
    return Flat(name, kind, null) if kind in _KINDS and kind not in {"enum", "fixed"} else None


def read(
    data: Bytes, begins: Ints, ends: Ints, fields: Sequence[Flat], plain: pa.StructType
) -> tuple[pa.Table, Flags] | None:
    """Columns of the records that could be read, with their indexes; None if it is better to read all one by one."""
    if not len(data):
        return None
    walk = _Walk(data, begins.copy(), ends)
    try:
        arrays = [walk.column(field, plain.field(field.name).type) for field in fields]
    except CodecError:  # a number without an end
        return None
    good = ~walk.bad & (walk.at == ends)
    kept = pa.array(good)
    try:
        columns = [
            array.filter(kept).cast(kind.type) for array, kind in zip(arrays, plain, strict=True)
        ]  # texts must be UTF-8
    except pa.ArrowInvalid:
        return None
    return pa.Table.from_arrays(columns, schema=pa.schema(list(plain))), good


class _Walk:
    """The read position of each record. Positions of `bad` records stay in bounds; their values are meaningless."""

    def __init__(self, data: Bytes, at: Ints, ends: Ints) -> None:
        self._data, self.at, self._ends = data, at, ends
        self.bad: Flags = np.zeros(len(at), bool)

    def column(self, field: Flat, kind: pa.DataType) -> pa.Array:
        absent: Flags = np.zeros(len(self.at), bool)
        if field.null != ALWAYS:
            branch = self._number()
            self.bad |= (branch != 0) & (branch != 1)
            absent = branch == field.null
        begun = self.at.copy()
        array = self._values(field, kind, absent)
        np.copyto(self.at, begun, where=absent)
        return array

    def _values(self, field: Flat, kind: pa.DataType, absent: Flags) -> pa.Array:
        nulls = absent if absent.any() else None
        if field.kind in {"int", "long", "enum"}:
            values = self._number(absent)
            if field.kind == "long":
                return fixed(kind, values, nulls)
            most = len(field.symbols) - 1 if field.kind == "enum" else INT_MAX
            least = 0 if field.kind == "enum" else -INT_MAX - 1
            self.bad |= ~absent & ((values < least) | (values > most))
            values = np.clip(values, least, most).astype(np.int32)
            if field.kind == "int":
                return fixed(kind, values, nulls)
            return pa.array(field.symbols, pa.string()).take(fixed(pa.int32(), values, nulls))
        if field.kind in FLOATS:
            number = FLOATS[field.kind]
            return fixed(kind, self._raw(number.itemsize, absent).view(number)[:, 0], nulls)
        if field.kind == "boolean":
            byte = self._raw(1, absent)[:, 0]
            self.bad |= ~absent & (byte > 1)
            return pa.array(byte == 1, pa.bool_(), mask=nulls)
        if field.kind == "null":
            return pa.nulls(len(self.at))
        is_fixed = field.kind == "fixed"
        length = np.full(len(self.at), field.size, np.int64) if is_fixed else self._number(absent)
        begun = self.at.copy()
        self._step(length, absent)
        return copied(self._data, begun, np.where(absent, begun - 1, self.at))

    def _number(self, absent: Flags | None = None) -> Ints:
        values, after = varints.read(self._data, self.at)
        self._step(after - self.at, absent)
        return values

    def _raw(self, size: int, absent: Flags) -> NDArray[np.uint8]:
        places = self.at[:, None] + np.arange(size)
        self._step(np.full(len(self.at), size, np.int64), absent)
        return np.ascontiguousarray(self._data.take(places, mode="clip"))

    def _step(self, length: Ints, absent: Flags | None) -> None:
        """Advance. An absent record may move within its bounds, and is reset afterwards."""
        out = (length < 0) | (length > self._ends - self.at)
        self.bad |= out if absent is None else out & ~absent
        self.at = np.where(out, self._ends, self.at + np.where(out, 0, length))


_KINDS: Final = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string", "enum", "fixed"})
