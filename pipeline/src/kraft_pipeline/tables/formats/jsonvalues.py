"""Converts JSON objects to columns: thousands at a time by Arrow's reader; objects that it refuses, singly.

Arrow's reader reads lines and stops at the first bad line. So each value is wrapped in an object with its number,
`{"i":7,"v":…}`. The wrapper also proves that a value is a single whole object. Two objects in a value, or an object in
two values, would break the wrapper. If the reader stops, the values are halved. Small remainders are left to
`jsonsingle`, which reports the fault of each value.

The reader converts a number without a better type to a double. If a number has too many digits for a double, it is read
again as a decimal. If the two differ, the value is left to `jsonsingle`, too.
"""

from __future__ import annotations

import io
import re
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.json
from numpy.typing import NDArray

from kraft_pipeline.tables.errors import Bad, RecordError
from kraft_pipeline.tables.formats.jsonsingle import Single, grown, loaded
from kraft_pipeline.tables.formats.valuespec import ValueSpec
from kraft_pipeline.tables.schemas import DEPTH_MAX, aligned, check_names

_TEXT: Final = re.compile(rb'"[^"\\]*(?:\\.[^"\\]*)*"', re.DOTALL)
_PAIRS: Final = bytes.maketrans(b"{}", b"[]")
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
BLOCK_BYTES: Final = 16 * 1024 * 1024
FEW: Final = 1024
"""Maximum values that are read one by one instead of halved again."""
BOM: Final = b"\xef\xbb\xbf"
DOUBTFUL: Final = r"[0-9][0-9.]{15}|[eE][+-]?[0-9]{3}"
"""Numbers that a double may not represent exactly. It represents all numbers of 15 digits."""
HUGE: Final = r"[0-9]{19}"
"""Integers that may exceed a long: Arrow's reader would make their column a double."""
_DECIMAL: Final = pa.decimal256(76, 38)

Places = NDArray[np.int64]


class Parsed(NamedTuple):
    """Columns of the `good` values, their indexes, and why the others failed."""

    table: pa.Table
    good: Places
    bad: dict[int, Bad]
    marks: pa.Table | None = None
    """Columns from the envelope of each good value; None without envelopes."""


class WiderError(Exception):
    """A later value widened a field that earlier values had added, so all values must be read again."""

    def __init__(self, fields: pa.Schema) -> None:
        super().__init__()
        self.fields = fields


class JsonParser:
    """Parses the values of one table."""

    def __init__(self, spec: ValueSpec = ValueSpec("json"), settled: pa.Schema | None = None) -> None:  # noqa: B008
        """`settled`: the columns of the table; their types stay. Types of newer fields may widen."""
        self._exact, self._declared, self._settled = spec.numbers == "exact", frozenset(spec.schema), settled

    def __call__(
        self, values: pa.Array, schema: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """Parse the non-null values by `schema`; with `additive`, add new fields unless their names (ignoring case) are
        `reserved` or taken."""
        settled = schema if self._settled is None else self._settled
        values, additive = _without_marks(values), additive or not len(schema)
        while True:
            reading = _Reading(self._exact, self._declared, settled, reserved, additive=additive)
            try:
                return reading.of(values, schema)
            except WiderError as e:
                schema = e.fields


parse: Final = JsonParser()
"""The parser of a table without declared fields."""


class _Reading:
    """A pass over values."""

    def __init__(
        self, exact: bool, declared: frozenset[str], settled: pa.Schema, reserved: frozenset[str], *, additive: bool
    ) -> None:
        self._exact, self._declared, self._settled = exact, declared, settled
        self._reserved, self._additive = reserved, additive
        self._single = Single(additive=additive, exact=exact, declared=declared)
        self._tables: list[pa.Table] = []
        self._good: list[Places] = []
        self._bad: dict[int, Bad] = {}

    def of(self, values: pa.Array, schema: pa.Schema) -> Parsed:
        deep = _too_deep(values)
        self._bad = dict.fromkeys(deep, Bad("json.depth", f"the value is nested more than {DEPTH_MAX} deep"))
        places = np.setdiff1d(np.flatnonzero(np.asarray(values.is_valid())), deep).astype(np.int64)
        schema, rest = self._many(values, places, schema)
        schema = self._each(values, rest, schema)
        if not self._tables:
            return Parsed(schema.empty_table(), np.empty(0, np.int64), self._bad)
        whole = pa.concat_tables([aligned(table, schema) for table in self._tables])
        good = np.concatenate(self._good)
        order = np.argsort(good)
        return Parsed(whole.take(pa.array(order)) if len(self._tables) > 1 else whole, good[order], self._bad)

    def _many(self, values: pa.Array, places: Places, schema: pa.Schema) -> tuple[pa.Schema, Places]:
        """Read what Arrow's reader can. Returns the grown fields, and the places of the remaining values."""
        rest: list[Places] = []
        pending = [places] if len(places) else []
        if _has_map(schema):  # which the reader does not know
            pending, rest = [], [places]
        while pending:
            chunk = pending.pop()
            try:
                found, left = self._read(values.take(pa.array(chunk)), schema)
            except MemoryError:
                raise
            except Exception:  # the reader raises many kinds of errors, for any value
                if len(chunk) <= FEW:
                    rest.append(chunk)
                else:
                    half = len(chunk) // 2
                    pending += [chunk[half:], chunk[:half]]
                continue
            if left.any():
                rest.append(chunk[left])
            if found is not None:
                self._tables.append(found)
                self._good.append(chunk[~left])
                schema = found.schema  # fields from a part apply to the other parts
        return schema, np.concatenate(rest) if rest else np.empty(0, np.int64)

    def _read(self, values: pa.Array, schema: pa.Schema) -> tuple[pa.Table | None, NDArray[np.bool_]]:
        """Read values to columns. Returns them, and a mask of values left out because a number would be rounded."""
        left = np.zeros(len(values), bool)
        found = _read(values, schema, additive=self._additive)
        check_names(found.schema, self._reserved, schema)
        if not self._exact or not self._doubles(found.schema):
            return found, left
        if self._doubles(found.schema) - self._doubles(schema):
            left = _matching(values, HUGE)
            if left.all():
                return None, left
            if left.any():
                found = _read(values.filter(pa.array(~left)), schema, additive=self._additive)
        kept = np.flatnonzero(~left)
        doubtful = np.flatnonzero(_matching(values.take(pa.array(kept)), DOUBTFUL))
        wrong = doubtful[self._damaged(values.take(pa.array(kept[doubtful])), found.take(pa.array(doubtful)))]
        left[kept[wrong]] = True
        if not len(wrong):
            return found, left
        return (None if left.all() else found.take(pa.array(np.setdiff1d(np.arange(len(kept)), wrong)))), left

    def _doubles(self, schema: pa.Schema) -> set[str]:
        """The columns with doubles, at any depth, that must not be rounded."""
        return {f.name for f in schema if f.name not in self._declared and _with_decimals(f.type) != f.type}

    def _damaged(self, values: pa.Array, rows: pa.Table) -> NDArray[np.bool_]:
        """A mask of the values with a number that `rows` has rounded, or may have rounded."""
        if not len(values):
            return np.zeros(0, bool)
        names = self._doubles(rows.schema)
        exact = pa.schema([f.with_type(_with_decimals(f.type)) if f.name in names else f for f in rows.schema])
        try:
            again = _read(values, exact, additive=True)
            wrong = np.zeros(len(values), bool)
            for name in names:
                wrong |= _differs(*(table.column(name).combine_chunks() for table in (rows, again)))
        except MemoryError:
            raise
        except Exception:  # a number that does not fit a decimal either
            half = len(values) // 2
            if len(values) <= FEW:
                return np.ones(len(values), bool)
            parts = ((values[:half], rows.slice(0, half)), (values[half:], rows.slice(half)))
            return np.concatenate([self._damaged(*part) for part in parts])
        return wrong

    def _each(self, values: pa.Array, places: Places, schema: pa.Schema) -> pa.Schema:
        """Read the values one by one."""
        objects: dict[int, dict[str, Any]] = {}
        begun = schema
        for place, value in zip(places.tolist(), values.take(pa.array(places)).to_pylist(), strict=True):
            try:
                found = loaded(value)
                more = grown(schema, self._single.taught(found, schema), self._settled) if self._additive else schema
                if not more.equals(schema):
                    check_names(more, self._reserved, schema)
                self._single.row(found, more)
                objects[place], schema = found, more
            except RecordError as e:
                self._bad[place] = e.bad
        if self._tables and any(_widens(field.type, schema.field(field.name).type) for field in begun):
            raise WiderError(schema)
        self._keep(objects, schema)
        return schema

    def _keep(self, objects: dict[int, dict[str, Any]], schema: pa.Schema) -> None:
        rows, good = [], []
        for place, value in objects.items():
            try:
                rows.append(self._single.row(value, schema))  # of the types from all values together
                good.append(place)
            except RecordError as e:
                self._bad[place] = e.bad
        if rows:
            columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in schema]
            found = pa.Table.from_arrays(columns, schema=schema) if columns else _empty_rows(len(rows))
            self._tables.append(found)
            self._good.append(np.array(good, np.int64))


def _without_marks(values: pa.Array) -> pa.Array:
    """The values without leading UTF-8 byte order marks."""
    marked = pc.starts_with(values, BOM).fill_null(False)
    if not pc.any(marked).as_py():
        return values
    # Arrow's own binary_slice is wrong for values that are shorter than the mark.
    bare = pa.array([value[len(BOM) :] for value in values.filter(marked).to_pylist()], values.type)
    return pc.replace_with_mask(values, marked, bare)


def _too_deep(values: pa.Array) -> list[int]:
    """The places of values nested more than DEPTH_MAX deep, which may crash Arrow's reader."""
    opened = pc.add(pc.count_substring(values, "{"), pc.count_substring(values, "["))
    suspects = np.flatnonzero(pc.greater(opened, DEPTH_MAX).fill_null(False))
    return [
        place
        for place, value in zip(suspects.tolist(), values.take(pa.array(suspects)).to_pylist(), strict=True)
        if _depth(value) > DEPTH_MAX and _depth(_TEXT.sub(b"", value)) > DEPTH_MAX
    ]


def _depth(value: bytes) -> int:
    """Upper bound of the nesting of brackets, including brackets in texts."""
    left, rounds = value.translate(_PAIRS, _NO_BRACKETS), 0
    while b"[]" in left and rounds <= DEPTH_MAX:
        left, rounds = left.replace(b"[]", b""), rounds + 1
    return rounds + left.count(b"[")


def _matching(values: pa.Array, pattern: str) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = np.asarray(pc.match_substring_regex(values, pattern), bool)
    return found


def _has_map(fields: Any) -> bool:
    return any(pa.types.is_map(f.type) or (pa.types.is_nested(f.type) and _has_map(_inner(f.type))) for f in fields)


def _inner(kind: pa.DataType) -> list[pa.Field]:
    return [kind.field(place) for place in range(kind.num_fields)]


def _with_decimals(kind: pa.DataType) -> pa.DataType:
    """The type with doubles replaced by decimals."""
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_with_decimals(field.type)) for field in kind])
    if pa.types.is_list(kind):
        return pa.list_(_with_decimals(kind.value_type))
    return _DECIMAL if pa.types.is_float64(kind) else kind


def _differs(rows: Any, exact: Any) -> NDArray[np.bool_]:
    """A mask of rows with a double that has a shortest text other than the decimal."""
    wrong = np.zeros(len(rows), bool)
    if pa.types.is_struct(rows.type):
        for part, other in zip(rows.flatten(), exact.flatten(), strict=True):
            wrong |= _differs(part, other)
    elif pa.types.is_list(rows.type):
        inner = _differs(rows.flatten(), exact.flatten())
        wrong[np.asarray(pc.list_parent_indices(rows))[inner]] = True
    elif pa.types.is_float64(rows.type):
        wrong |= np.asarray(pc.not_equal(rows.cast(pa.string()).cast(_DECIMAL), exact).fill_null(False))
    return wrong


def _widens(there: pa.DataType, wanted: pa.DataType) -> bool:
    """Whether a number inside a type has changed to another type of number."""
    if pa.types.is_struct(there) and pa.types.is_struct(wanted):
        return any(_widens(field.type, wanted.field(field.name).type) for field in there)
    if pa.types.is_list(there) and pa.types.is_list(wanted):
        return _widens(there.value_type, wanted.value_type)
    return not there.equals(wanted)


def _read(values: pa.Array, wanted: pa.Schema, *, additive: bool) -> pa.Table:
    schema = pa.schema(pa.field(f.name, _written(f.type)) for f in wanted)
    count = len(values)
    numbers = pa.array(np.arange(count)).cast(pa.string()).cast(pa.binary())
    lines = pc.binary_join_element_wise(b'{"i":', numbers, b',"v":', values.cast(pa.binary()), b"}\n", b"")
    whole = _objects(lines, schema, additive=additive)
    settled = pa.schema(
        f if schema.get_field_index(f.name) >= 0 else pa.field(f.name, _plain(f.type))
        for f in whole.type
        if schema.get_field_index(f.name) >= 0 or _plain(f.type) is not None
    )
    if any(not settled.field(f.name).type.equals(f.type) for f in whole.type if f.name in settled.names):
        whole = _objects(lines, settled, additive=True)  # texts that look like times stay texts
    columns = [whole.field(whole.type.get_field_index(f.name)) for f in settled]
    found = pa.Table.from_arrays(columns, schema=settled) if columns else _empty_rows(count)
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
    table.validate(full=True)  # lists of nulls may have wrong bounds; texts may not be UTF-8
    if table.column_names != ["i", "v"]:
        raise pa.ArrowInvalid(f"the value continues behind the object: {table.column_names[2:]}")
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
    if pa.types.is_struct(kind):
        return pa.struct([field.with_type(_written(field.type)) for field in kind])
    return pa.string() if pa.types.is_date(kind) else kind
