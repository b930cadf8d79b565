"""Base classes of parsers by schema: all values with the same schema are read together.

A number identifies a schema: its id in a registry, or its index among the schemas that a parser has seen.
`Way` is how values of one schema are read. Confluent's frame is a zero byte and four bytes of the schema's id.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any, Final, Generic, NamedTuple, Protocol, TypeVar

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad, RecordError
from kraft_pipeline.tables.formats.jsonvalues import Parsed
from kraft_pipeline.tables.schemas import aligned, check_names, misfit, promoted, widened

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
"""A zero byte and the schema's id."""
NO_ID: Final = -1
SIGN: Final = 128
"""With this first byte or a greater byte, an id would be negative; registries do not use negative ids."""

KEPT: Final = "; only columns of Iceberg tables become wider: rewrite the table with a wider column, then replay"
FEW: Final = 256
"""Maximum rows that are tried one by one if some of them do not fit."""


class Reading(NamedTuple):
    """Columns of the `good` values, their places, and why the others failed."""

    table: pa.Table
    good: NDArray[np.int64]
    bad: dict[int, Bad]
    marks: pa.Table | None = None
    """Columns from the envelope of each good value; None without envelopes."""


class Typed(Protocol):
    """A schema of values."""

    @property
    def columns(self) -> pa.Schema:
        """The columns of the schema."""


T = TypeVar("T", bound=Typed)


class Way(Typed, Protocol):
    """How values of one schema are read."""

    def read(self, data: Bytes, begins: Ints, ends: Ints, fields: pa.Schema) -> Reading:
        """The values between the bounds as columns of `fields`. Raises ClientError and OSError only."""


class OneByOne(ABC):
    """A way that converts each value to a mapping, and all mappings to columns."""

    def __init__(self, columns: pa.Schema, code: str) -> None:
        """`code`: code of dead letters for values that do not match the schema."""
        self.columns, self._code = columns, code

    @abstractmethod
    def row(self, payload: bytes) -> dict[str, Any]:
        """Convert a value to a row that Arrow accepts. Raises ValueError with the reason."""

    def read(self, data: Bytes, begins: Ints, ends: Ints, fields: pa.Schema) -> Reading:
        """The values between the bounds as columns of `fields`."""
        view, rows, good, bad = data.data, [], [], dict[int, Bad]()
        for place, (begin, end) in enumerate(zip(begins.tolist(), ends.tolist(), strict=True)):
            try:
                rows.append(self.row(bytes(view[begin:end])))
                good.append(place)
            except (ValueError, RecursionError) as e:
                bad[place] = RecordError(self._code, str(e) or type(e).__name__).bad
        tables, kept = [fields.empty_table()], list[int]()
        self._put(rows, good, fields, tables, kept, bad)
        return Reading(pa.concat_tables(tables), np.array(kept, np.int64), bad)

    def _put(
        self,
        rows: list[dict[str, Any]],
        places: list[int],
        fields: pa.Schema,
        tables: list[pa.Table],
        kept: list[int],
        bad: dict[int, Bad],
    ) -> None:
        """Convert all rows at once. If some do not fit, convert smaller parts, and finally each row alone."""
        if not rows:
            return
        try:
            columns = [pa.array([row.get(f.name) for row in rows], f.type) for f in self.columns]
            tables.append(aligned(pa.Table.from_arrays(columns, schema=self.columns), fields))
            kept += places
        except MemoryError:
            raise
        except Exception as e:
            if len(rows) == 1:
                bad[places[0]] = RecordError(self._code, str(e) or type(e).__name__).bad
                return
            step = 1 if len(rows) <= FEW else (len(rows) + 1) // 2
            for at in range(0, len(rows), step):
                self._put(rows[at : at + step], places[at : at + step], fields, tables, kept, bad)


class Schemas(ABC, Generic[T]):
    """The schemas that a parser has seen, and the fields that they add. Not thread-safe."""

    def __init__(self, code: str, *, promotes: bool) -> None:
        """`code`: code of dead letters with an unfit schema; `promotes`: whether columns of the table widen."""
        self._code, self._promotes = code, promotes
        self._grown = promoted if promotes else widened
        self._ways: dict[int, T | str] = {}

    @abstractmethod
    def found(self, number: int) -> T | str:
        """How to read values of a schema, or why that is impossible. Called once for each schema."""

    def what(self, number: int) -> str:
        """Name of the schema in reasons."""
        return f"schema {number}"

    def way(self, number: int) -> T | str:
        """As `found`, cached."""
        way = self._ways.get(number)
        if way is None:
            way = self._ways[number] = self.found(number)
        return way

    def fields(
        self, number: int, fields: pa.Schema, *, additive: bool, reserved: frozenset[str]
    ) -> tuple[str, pa.Schema]:
        """Why values of this schema cannot be rows ("" if they can), and the table's fields with new fields added."""
        way = self.way(number)
        if isinstance(way, str):
            return way, fields
        wider, what = self._grown(fields, way.columns), self.what(number)
        if not additive and not wider.equals(fields):
            new = sorted(set(wider.names) - set(fields.names))
            return f"{what} has fields that the table lacks: {', '.join(new) or 'nested or wider fields'}", fields
        wrong = misfit(way.columns, wider)
        if wrong:
            widens = not self._promotes and not misfit(way.columns, promoted(fields, way.columns))
            return f"{what}: {wrong}{KEPT if widens else ''}", fields
        try:
            check_names(wider, reserved, fields)
        except RecordError as e:
            return f"{what}: {e}", fields
        return "", wider


class BySchema(Schemas[Way]):
    """A parser that reads the values of each schema together."""

    def parsed(
        self,
        values: pa.Array,
        ids: Ints,
        skip: int | Ints,
        fields: pa.Schema,
        *,
        additive: bool,
        reserved: frozenset[str],
    ) -> Parsed:
        """Parse the non-null values, each by its schema in `ids`. `skip`: bytes before all values, or before each."""
        data, begins, ends = places_of(values)
        valid = np.asarray(values.is_valid())
        tables: list[pa.Table] = []
        marks: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        bad: dict[int, Bad] = {}
        for number in np.unique(ids[valid]).tolist():
            chosen = np.flatnonzero(valid & (ids == number))
            reason, fields = self.fields(number, fields, additive=additive, reserved=reserved)
            if reason:
                bad |= dict.fromkeys(chosen.tolist(), Bad(self._code, reason[:REASON_CHARACTERS]))
                continue
            way = self.way(number)
            assert not isinstance(way, str), "its fields have been reported"
            ahead = skip if isinstance(skip, int) else skip[chosen]
            found = way.read(data, begins[chosen] + ahead, ends[chosen], fields)
            bad |= {int(chosen[place]): text for place, text in found.bad.items()}
            tables.append(found.table)
            places.append(chosen[found.good])
            if found.marks is not None:
                marks.append(found.marks)
        return joined(fields, tables, places, bad, marks)


def joined(
    fields: pa.Schema,
    tables: list[pa.Table],
    places: list[NDArray[np.int64]],
    bad: dict[int, Bad],
    marks: list[pa.Table],
) -> Parsed:
    """Join parts that were read separately, in the order of the values."""
    if not tables:
        return Parsed(fields.empty_table(), np.empty(0, np.int64), bad)
    whole = pa.concat_tables([aligned(table, fields) for table in tables])
    good = np.concatenate(places)
    all_marks = pa.concat_tables(marks) if marks else None
    if len(tables) > 1:
        order = np.argsort(good, kind="stable")
        taken = pa.array(order)
        whole, good, all_marks = whole.take(taken), good[order], None if all_marks is None else all_marks.take(taken)
    return Parsed(whole, good, bad, all_marks)


def places_of(values: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """The bytes of all values, and the start and end of each."""
    _, bounds, data = values.buffers()
    offsets = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets[:-1], offsets[1:]


def ids_of(values: pa.Array) -> Ints:
    """The schema id before each value; NO_ID for a value without an id."""
    data, begins, ends = places_of(values)
    ids: Ints = np.full(len(begins), NO_ID, np.int64)
    framed = np.flatnonzero(np.asarray(values.is_valid()) & (ends - begins >= PREFIX_BYTES))
    framed = framed[(data[begins[framed]] == MAGIC) & (data[begins[framed] + 1] < SIGN)]
    at = begins[framed]
    four: Any = sum(data[at + 1 + i].astype(np.int64) << (24 - 8 * i) for i in range(4))
    ids[framed] = four
    return ids
