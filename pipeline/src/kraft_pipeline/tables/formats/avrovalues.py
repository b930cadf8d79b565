"""Decodes Avro values to columns, by the schema of the spec or by a registry's schemas for the ids before values.

All values with the same id are decoded together. `avrocolumns` decodes flat records without a loop over them. fastavro
decodes other records, and records that violate their schema, one by one. It also resolves a writer's schema to the
spec's.
"""

from __future__ import annotations

import io
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from fastavro import schemaless_reader
from numpy.typing import NDArray

from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_pipeline.tables.errors import Bad, RecordError
from kraft_pipeline.tables.formats import avrocolumns
from kraft_pipeline.tables.formats.avrotypes import AvroSchema, NoColumnError, written
from kraft_pipeline.tables.formats.byschema import NO_ID, PREFIX_BYTES, BySchema, Reading, Way, ids_of
from kraft_pipeline.tables.formats.jsonvalues import Parsed
from kraft_pipeline.tables.formats.registry import Registered, Registry, UnknownSchemaError
from kraft_pipeline.tables.formats.singles import as_record
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.specs.table_spec import SpecError, ValueSpec


class AvroWay(NamedTuple):
    """Reads values of a schema: as they were written, or resolved to `reader`."""

    writer: AvroSchema
    reader: AvroSchema | None

    @property
    def target(self) -> AvroSchema:
        """The schema to which values are resolved."""
        return self.reader or self.writer

    @property
    def columns(self) -> pa.Schema:
        """The columns of the target schema."""
        return self.target.columns

    def read(self, data: Bytes, begins: Ints, ends: Ints, fields: pa.Schema) -> Reading:
        """Read the values between the bounds to columns of `fields`."""
        return Reading(*_decoded(data, begins, ends, self, fields))


class AvroParser(BySchema):
    """Parses the values of a table. Not thread-safe."""

    def __init__(
        self,
        spec: ValueSpec,
        *,
        retry_s: float,
        promotes: bool = False,
        connect: bool = False,
        singles: bool = False,
    ) -> None:
        """`promotes`: whether columns of the table widen; `connect`: whether to apply Kafka Connect's types.

        `singles`: whether to read schemas that are not records as records with one field. Raises SpecError if the
        spec's schema cannot be a table's.
        """
        super().__init__("avro.schema", promotes=promotes)
        self._registry = Registry.of(spec, retry_s=retry_s) if spec.registry else None
        self._connect, self._singles = connect, singles
        self._given = given(spec, connect=connect)

    def __call__(
        self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str] = frozenset()
    ) -> Parsed:
        """Parse the non-null values, as `jsonvalues.parse`. Raises ClientError if the registry is unreachable."""
        ids = ids_of(values) if self._registry else np.full(len(values), NO_ID, np.int64)
        skip = PREFIX_BYTES if self._registry else 0
        return self.parsed(values, ids, skip, fields, additive=additive, reserved=reserved)

    def what(self, number: int) -> str:
        """Name of the schema in reasons."""
        return f"schema {number}" if self._registry else "the schema"

    def found(self, number: int) -> Way | str:
        """How to read values of this schema id, or why that is impossible."""
        if self._registry is None:
            assert self._given is not None, "the spec has a schema or a registry"
            return self.made(AvroWay(self._given, None))
        if number == NO_ID:
            return "the value does not begin with a schema id"
        try:
            schema = self._registry.schema(number)
            if self._singles:
                schema = schema._replace(schema=as_record(schema.schema))
            return self.made(AvroWay(written(schema, connect=self._connect), self._given))
        except (UnknownSchemaError, NoColumnError, ValueError) as e:  # ValueError: not JSON
            return f"{e}" if isinstance(e, UnknownSchemaError) else f"schema {number}: {e}"

    def made(self, way: AvroWay) -> Way:
        """The way that reads the values; subclasses may replace it. Raises NoColumnError."""
        return way


def given(spec: ValueSpec, *, connect: bool = False) -> AvroSchema | None:
    """The schema in the spec, or None. Raises SpecError."""
    if not spec.avro:
        return None
    try:
        return written(Registered(spec.avro, ()), connect=connect)
    except NoColumnError as e:
        raise SpecError(f"spec.value.schema: {e}") from None


def _decoded(
    data: Bytes, begins: Ints, ends: Ints, way: AvroWay, fields: pa.Schema
) -> tuple[pa.Table, NDArray[np.int64], dict[int, Bad]]:
    """Columns of the values that match their schema, the places of these values, and why the others failed."""
    everything = np.arange(len(begins))
    if way.reader is not None or way.writer.flat is None:
        return _one_by_one(data, begins, ends, way, fields, everything)
    found = avrocolumns.read(data, begins, ends, way.writer.flat, way.writer.plain)
    try:
        table = None if found is None else aligned(aligned(found[0], way.target.columns), fields)
    except pa.ArrowInvalid:
        table = None  # some values are out of the columns' range
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
    data: Bytes, begins: Ints, ends: Ints, way: AvroWay, fields: pa.Schema, places: NDArray[np.int64]
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
    rows: list[Any], good: list[int], bad: dict[int, Bad], way: AvroWay, fields: pa.Schema
) -> tuple[pa.Table, NDArray[np.int64], dict[int, Bad]]:
    """Convert values one by one, because a column cannot hold some of them."""
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
    """Decode one record. Raises RecordError for any exception of fastavro."""
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
    """Notes whether a read went beyond the end."""

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


def _columns(rows: list[Any], target: AvroSchema, fields: pa.Schema) -> pa.Table:
    found = pa.array(rows, target.plain)
    table = pa.Table.from_arrays(found.flatten(), schema=pa.schema(list(target.plain)))
    return aligned(aligned(table, target.columns), fields)
