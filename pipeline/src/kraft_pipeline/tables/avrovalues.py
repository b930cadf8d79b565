"""Avro values to columns: by the schema of the spec, or by those that a registry has for the ids in front of values.

All values of one id are decoded together: flat records by `avrocolumns` without a loop over them, the others, and
those that are not as their schema says, one by one by fastavro, which also resolves a writer's schema to the spec's.
"""

from __future__ import annotations

import io
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from numpy.typing import NDArray

from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_pipeline.tables import avrocolumns
from kraft_pipeline.tables.avrotypes import NoColumnError, Written, written
from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad, RecordError
from kraft_pipeline.tables.jsonvalues import Parsed
from kraft_pipeline.tables.registry import Registered, Registry, UnknownSchemaError
from kraft_pipeline.tables.schemas import aligned, check_names, misfit, promoted, widened
from kraft_pipeline.tables.spec import SpecError, ValueSpec

MAGIC: Final = 0
PREFIX_BYTES: Final = 5
"""A zero byte and the schema's id: Confluent's wire format."""
NO_ID: Final = -1
SIGN: Final = 128
"""The first byte of an id that is negative, which no registry gives."""


class _Way(NamedTuple):
    """How values of one schema are read: as they were written, or as `reader`."""

    writer: Written
    reader: Written | None

    @property
    def target(self) -> Written:
        return self.reader or self.writer


class AvroParser:
    """Values of one table. One thread only."""

    def __init__(self, spec: ValueSpec, *, retry_s: float, promotes: bool = False) -> None:
        """`promotes`: whether columns of the table widen. Raises SpecError for a schema that cannot be a table's."""
        self._grown = promoted if promotes else widened
        self._registry = Registry(spec.registry, spec.registry_auth, retry_s=retry_s) if spec.registry else None
        self._given = given(spec)
        self._ways: dict[int, _Way | str] = {}

    def __call__(
        self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """The values that are no null; as `jsonvalues.parse`. Raises ClientError where the registry is away."""
        data, begins, ends = _places(values)
        valid = np.asarray(values.is_valid())
        ids = self._ids(data, begins, ends, valid)
        tables: list[pa.Table] = []
        places: list[NDArray[np.int64]] = []
        bad: dict[int, Bad] = {}
        for number in np.unique(ids[valid]).tolist():
            chosen = np.flatnonzero(valid & (ids == number))
            reason, fields = self._fields(number, fields, additive=additive, reserved=reserved)
            if reason:
                bad |= dict.fromkeys(chosen.tolist(), Bad("avro.schema", reason[:REASON_CHARACTERS]))
                continue
            skip = PREFIX_BYTES if self._registry else 0
            way = self._way(number)
            assert isinstance(way, _Way), "its fields have been told"
            rows, good, wrong = _decoded(data, begins[chosen] + skip, ends[chosen], way, fields)
            bad |= {int(chosen[place]): text for place, text in wrong.items()}
            tables.append(rows)
            places.append(chosen[good])
        if not tables:
            return Parsed(fields.empty_table(), np.empty(0, np.int64), bad)
        whole = pa.concat_tables([aligned(table, fields) for table in tables])
        good = np.concatenate(places)
        order = np.argsort(good, kind="stable")
        return Parsed(whole.take(pa.array(order)) if len(tables) > 1 else whole, good[order], bad)

    def _ids(self, data: Bytes, begins: Ints, ends: Ints, valid: NDArray[np.bool_]) -> Ints:
        """The schema's id of each value; NO_ID where there is none in front."""
        ids = np.full(len(begins), NO_ID, np.int64)
        if self._registry is None:
            return ids
        framed = np.flatnonzero(valid & (ends - begins >= PREFIX_BYTES))
        framed = framed[(data[begins[framed]] == MAGIC) & (data[begins[framed] + 1] < SIGN)]
        at = begins[framed]
        ids[framed] = sum(data[at + 1 + i].astype(np.int64) << (24 - 8 * i) for i in range(4))
        return ids

    def _way(self, number: int) -> _Way | str:
        """How values of this id are read, or why they are not."""
        found = self._ways.get(number)
        if found is None:
            found = self._ways[number] = self._found(number)
        return found

    def _found(self, number: int) -> _Way | str:
        if self._registry is None:
            assert self._given is not None, "the spec has a schema or a registry"
            return _Way(self._given, None)
        if number == NO_ID:
            return "no id of a schema is in front of the value"
        try:
            return _Way(written(self._registry.schema(number)), self._given)
        except (UnknownSchemaError, NoColumnError) as e:
            return f"{e}" if isinstance(e, UnknownSchemaError) else f"schema {number}: {e}"

    def _fields(
        self, number: int, fields: pa.Schema, *, additive: bool, reserved: frozenset[str]
    ) -> tuple[str, pa.Schema]:
        """Why values of this id are no rows, "" if they are; and the table's fields, perhaps with new ones."""
        way = self._way(number)
        if isinstance(way, str):
            return way, fields
        columns = way.target.columns
        wider = self._grown(fields, columns)
        what = f"schema {number}" if self._registry else "the schema"
        if not additive and not wider.equals(fields):
            new = sorted(set(wider.names) - set(fields.names))
            return f"{what} has fields that the table lacks: {', '.join(new) or 'within others, or wider ones'}", fields
        wrong = misfit(columns, wider)
        if wrong:
            return f"{what}: {wrong}", fields
        try:
            check_names(wider, reserved, fields)
        except RecordError as e:
            return f"{what}: {e}", fields
        return "", wider


def given(spec: ValueSpec) -> Written | None:
    """The schema that the spec names. Raises SpecError."""
    if not spec.avro:
        return None
    try:
        return written(Registered(spec.avro, ()))
    except NoColumnError as e:
        raise SpecError(f"spec.value.schema: {e}") from None


def _places(values: pa.Array) -> tuple[Bytes, Ints, Ints]:
    """The bytes of all values, and where each begins and ends."""
    _, bounds, data = values.buffers()
    offsets = np.frombuffer(bounds, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return np.frombuffer(data, np.uint8) if data is not None else np.empty(0, np.uint8), offsets[:-1], offsets[1:]


def _decoded(
    data: Bytes, begins: Ints, ends: Ints, way: _Way, fields: pa.Schema
) -> tuple[pa.Table, NDArray[np.int64], dict[int, Bad]]:
    """Columns of the values that are as their schema says, which these are, and why the others are not."""
    everything = np.arange(len(begins))
    if way.reader is not None or way.writer.flat is None:
        return _one_by_one(data, begins, ends, way, fields, everything)
    found = avrocolumns.read(data, begins, ends, way.writer.flat, way.writer.plain)
    try:
        table = None if found is None else aligned(aligned(found[0], way.target.columns), fields)
    except pa.ArrowInvalid:
        table = None  # some are beyond what the columns can hold
    if found is None or table is None:
        return _one_by_one(data, begins, ends, way, fields, everything)
    good = np.flatnonzero(found[1])
    if len(good) == len(begins):
        return table, good, {}
    rest, others, bad = _one_by_one(data, begins, ends, way, fields, np.flatnonzero(~found[1]))
    places = np.concatenate([good, others])
    order = np.argsort(places)
    return pa.concat_tables([table, rest]).take(pa.array(order)), places[order], bad


def _one_by_one(
    data: Bytes, begins: Ints, ends: Ints, way: _Way, fields: pa.Schema, places: NDArray[np.int64]
) -> tuple[pa.Table, NDArray[np.int64], dict[int, Bad]]:
    reader = None if way.reader is None else way.reader.parsed
    rows, good, bad = [], [], {}
    view = data.data
    for place in places.tolist():
        try:
            rows.append(_value(view[begins[place] : ends[place]], way.writer.parsed, reader))
            good.append(place)
        except RecordError as e:
            bad[place] = e.bad
    try:
        return _columns(rows, way.target, fields), np.array(good, np.int64), bad
    except MemoryError:
        raise
    except Exception:
        return _alone(rows, good, bad, way, fields)


def _alone(
    rows: list[Any], good: list[int], bad: dict[int, Bad], way: _Way, fields: pa.Schema
) -> tuple[pa.Table, NDArray[np.int64], dict[int, Bad]]:
    """Some of the values are beyond what a column can hold: each by itself."""
    kept, tables = [], [fields.empty_table()]
    for place, row in zip(good, rows, strict=True):
        try:
            tables.append(_columns([row], way.target, fields))
            kept.append(place)
        except MemoryError:
            raise
        except Exception as e:
            bad[place] = RecordError("avro.type", f"Avro: {str(e) or type(e).__name__}").bad
    return pa.concat_tables(tables), np.array(kept, np.int64), bad


def _value(payload: memoryview, writer: Any, reader: Any) -> Any:
    """A record as its schema says. Raises RecordError: fastavro raises whatever comes up."""
    stream = io.BytesIO(payload)
    try:
        found = schemaless_reader(stream, writer, reader)
    except Exception as e:
        if _ends_early(payload, writer, reader):
            raise RecordError("avro.length", "Avro: the value ends before the record does") from None
        raise RecordError("avro.value", f"Avro: {str(e) or type(e).__name__}") from None
    left = len(payload) - stream.tell()
    if left:
        raise RecordError("avro.length", f"Avro: {left} bytes follow the record")
    return found


class _Watched(io.BytesIO):
    """Knows whether more was asked for than there is."""

    short = False

    def read(self, size: int | None = -1) -> bytes:
        found = super().read(size)
        self.short = self.short or len(found) < (size or 0)
        return found


def _ends_early(payload: memoryview, writer: Any, reader: Any) -> bool:
    stream = _Watched(payload)
    try:
        schemaless_reader(stream, writer, reader)
    except Exception:
        return stream.short
    return False


def _columns(rows: list[Any], target: Written, fields: pa.Schema) -> pa.Table:
    found = pa.array(rows, target.plain)
    table = pa.Table.from_arrays(found.flatten(), schema=pa.schema(list(target.plain)))
    return aligned(aligned(table, target.columns), fields)
