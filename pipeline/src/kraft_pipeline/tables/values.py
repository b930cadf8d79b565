"""What one Fetch brought as rows of a table, and as dead letters.

Columns of a raw table: key, value, topic, partition, offset, timestamp, headers, as `codec.decode` has them. Of a JSON
table: the fields of the object, then the same with an underscore in front and without the value; the partition is
`_partition_id` there, since Iceberg's readers have a `_partition` of their own. Change events add what their envelope
says (`debezium.COLUMNS`) between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.client import ClientError
from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.tables import partitions
from kraft_pipeline.tables.committer import DELETED
from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad
from kraft_pipeline.tables.fieldtypes import type_of
from kraft_pipeline.tables.formats import debezium, jsonvalues
from kraft_pipeline.tables.formats.debeziumvalues import Events
from kraft_pipeline.tables.partitions import FORMATS, OF_COLUMN
from kraft_pipeline.tables.schemas import FLAT, aligned, check_names
from kraft_pipeline.tables.spec import SpecError, TableSpec

RAW: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
META: Final = {
    name: f"_{name}_id" if name == "partition" else f"_{name}"
    for name in ("key", "topic", "partition", "offset", "timestamp", "headers")
}
"""What is not of the value -> its column in a table that has fields of values."""
RESERVED: Final = frozenset((*META.values(), *(f"_{name}" for name in FORMATS)))
"""Names that no field of a value may have in a table: our columns', and those that rows may be filed under."""
ICEBERG: Final = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names that Iceberg's readers give to columns of theirs: a table that has one of these cannot be read by Spark."""
PACKAGES: Final = {"avro": "fastavro", "protobuf": "google.protobuf", "jsonschema": "jsonschema"}
"""What a format needs, by the name of the extra that brings it."""
DEAD_SCHEMA: Final = pa.schema(
    [
        *((name, TYPES[name]) for name in RAW),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("batch", pa.int64()),
        ("code", pa.string()),
    ]
)
"""A dead letter: the record as it came, where it failed (`decode`, `partition`, `key`), why, in which batch, and the
code of the reason, which does not change between releases."""
_LOG: Final = logging.getLogger(__name__)


class Parse(Protocol):
    """Values that are no null to columns."""

    def __call__(
        self, values: pa.Array, schema: pa.Schema, /, *, additive: bool, reserved: frozenset[str]
    ) -> jsonvalues.Parsed:
        """The table has the fields that it was given, and with `additive` those that values taught."""


class Rows(NamedTuple):
    """`fields` are those of the values, grown where values taught new ones."""

    rows: pa.Table
    dead: pa.Table
    fields: pa.Schema


def reserved(spec: TableSpec, there: pa.Schema | None = None) -> frozenset[str]:
    """Names that no field of a value may have, in small letters; `there`: the fields of a table that exists.

    Once it does, neither what its rows are filed under, nor what `partitionBy` would then be taken to mean.
    """
    found = RESERVED | ICEBERG if spec.format == "iceberg" else RESERVED
    found |= frozenset(_said(spec).names)
    if there is None:  # fields of such names become the columns that are meant
        return found | {name.lower() + FLAT for name in (*spec.partition_by, *spec.keys)}
    by = {entry for entry in spec.partition_by if entry in FORMATS}
    for name in _made(spec):
        by |= {name.lower(), name.lower().removeprefix("_")}
    return found | (by - {name.lower() for name in there.names})


def _made(spec: TableSpec) -> set[str]:
    """Columns that transforms of columns make."""
    found = (OF_COLUMN.fullmatch(entry) for entry in spec.partition_by)
    return {f"_{parts[2].strip('_')}_{parts[1]}" for parts in found if parts}


def first_fields(spec: TableSpec) -> pa.Schema:
    """The fields that the spec names.

    Raises SpecError for a type that is none, a name that is taken, and a package that is not installed.
    """
    _installed(spec)
    try:
        if spec.value.avro:
            from kraft_pipeline.tables.formats.avrovalues import given  # noqa: PLC0415 - an extra that the others do without

            known = given(spec.value)
            found = pa.schema([]) if known is None else known.columns
        else:
            found = pa.schema([(name, type_of(ddl)) for name, ddl in spec.value.schema.items()])
        check_names(found, reserved(spec))
    except SpecError:
        raise
    except ValueError as e:  # Arrow's are some, too
        raise SpecError(f"spec.value.schema: {e}") from None
    return found


def _installed(spec: TableSpec) -> None:
    kind = "jsonschema" if spec.value.format == "json" and spec.value.registry else spec.value.format
    package = PACKAGES.get(kind)
    if package is not None and not _is_there(package):
        raise SpecError(f"spec.value.format: {package} is not installed; pip install 'kraftcluster[{kind}]'")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # of the package around it
        return False


def schema_of(spec: TableSpec, fields: pa.Schema) -> pa.Schema:
    """The table's columns, those of partitions left out."""
    if spec.value.format == "raw":
        return pa.schema([(name, TYPES[name]) for name in RAW])
    return pa.schema([*fields, *_said(spec), *(pa.field(column, TYPES[name]) for name, column in META.items())])


def fields_of(spec: TableSpec, schema: pa.Schema) -> pa.Schema:
    """The fields of values in the schema of a table that exists."""
    if spec.value.format == "raw":
        return pa.schema([])
    return pa.schema(f for f in schema if f.name not in RESERVED | _made(spec) | set(_said(spec).names))


def _said(spec: TableSpec) -> pa.Schema:
    """The columns of what envelopes say."""
    return debezium.COLUMNS if spec.value.envelope == "debezium" else pa.schema([])


def parser(spec: TableSpec, settled: pa.Schema, *, retry_s: float) -> Parse:
    """What makes columns of values. `settled`: the table's; `retry_s`: how long to retry an unreachable registry."""
    promotes = spec.format == "iceberg"
    if spec.value.envelope == "debezium":
        return Events(spec.value, settled, retry_s=retry_s, promotes=promotes)
    if spec.value.format == "protobuf":
        from kraft_pipeline.tables.formats.protovalues import ProtoParser  # noqa: PLC0415 - the same

        return ProtoParser(spec.value, retry_s=retry_s, promotes=promotes)
    if spec.value.format == "json" and spec.value.registry:
        from kraft_pipeline.tables.formats.jsonschemas import JsonSchemaParser  # noqa: PLC0415 - the same

        return JsonSchemaParser(spec.value, settled, retry_s=retry_s, promotes=promotes)
    if spec.value.format != "avro":
        return jsonvalues.JsonParser(spec.value, settled)
    from kraft_pipeline.tables.formats.avrovalues import AvroParser  # noqa: PLC0415 - the same

    return AvroParser(spec.value, retry_s=retry_s, promotes=promotes)


def decode(
    records: pa.RecordBatch,
    spec: TableSpec,
    fields: pa.Schema,
    batch: int,
    *,
    additive: bool,
    taken: frozenset[str] = RESERVED,
    parse: Parse,
    damaged: Collection[int] = (),
) -> Rows:
    """The rows that records become; those that become none as dead letters. Rows by key have `DELETED`, too.

    `damaged`: offsets of records with a header that is no text. Raises ClientError and OSError: the batch waits.
    """
    spoiled = _spoiled(records, damaged)
    if spoiled:
        sound = np.ones(records.num_rows, bool)
        sound[list(spoiled)] = False
        letters, records = _letters(pa.table(records), spoiled, batch), records.filter(pa.array(sound))
    try:
        found = _decoded(records, spec, fields, batch, additive=additive, taken=taken, parse=parse)
    except (ClientError, OSError, MemoryError):
        raise
    except Exception as e:
        if records.num_rows > 1:
            found = _halved(records, spec, fields, batch, additive=additive, taken=taken, parse=parse)
        else:  # a defect of ours, and no reason to stop the table
            _LOG.warning("offset %s: the record cannot be decoded", records.column("offset")[0], exc_info=True)
            bad = {0: Bad("defect", f"{type(e).__name__}: {e}"[:REASON_CHARACTERS])}
            dead = _letters(pa.table(records), bad, batch)
            found = _decoded(records.slice(0, 0), spec, fields, batch, additive=additive, taken=taken, parse=parse)
            found = found._replace(dead=dead)
    return found._replace(dead=pa.concat_tables([letters, found.dead])) if spoiled else found


def _halved(records: pa.RecordBatch, spec: TableSpec, fields: pa.Schema, batch: int, **options: Any) -> Rows:
    """The same, of either half: the records that cannot be decoded end alone."""
    half = records.num_rows // 2
    first = decode(records.slice(0, half), spec, fields, batch, **options)
    second = decode(records.slice(half), spec, first.fields, batch, **options)
    if not second.fields.equals(first.fields):  # a column may have widened
        first = decode(records.slice(0, half), spec, second.fields, batch, **options)
    rows = pa.concat_tables([first.rows, second.rows], promote_options="permissive")
    return Rows(rows, pa.concat_tables([first.dead, second.dead]), second.fields)


def _spoiled(records: pa.RecordBatch, damaged: Collection[int]) -> dict[int, Bad]:
    """The records that no table of this format can hold, whatever their value is."""
    found: dict[int, Bad] = {}
    if damaged:
        places = np.flatnonzero(np.isin(records.column("offset").to_numpy(), list(damaged)))
        found = dict.fromkeys(places.tolist(), Bad("headers.key", "a header's key is not UTF-8"))
    if records.column("timestamp").null_count:
        places = np.flatnonzero(np.asarray(records.column("timestamp").is_null()))
        found |= dict.fromkeys(
            places.tolist(), Bad("timestamp", "the record's time is beyond a timestamp in microseconds")
        )
    return found


def _decoded(
    records: pa.RecordBatch,
    spec: TableSpec,
    fields: pa.Schema,
    batch: int,
    *,
    additive: bool,
    taken: frozenset[str],
    parse: Parse,
) -> Rows:
    whole = pa.table(records)
    if spec.value.format == "raw":
        return _checked(Rows(whole, DEAD_SCHEMA.empty_table(), fields), whole, spec, batch)
    parsed = parse(records.column("value"), fields, additive=additive, reserved=taken)
    fields = parsed.table.schema if len(parsed.good) else fields
    gone = np.asarray(records.column("value").is_null())  # tombstones: rows without fields
    if isinstance(parse, Events) and spec.mode == "append":
        gone = np.zeros(len(gone), bool)  # the event before it has said all
    nulls = np.flatnonzero(gone)
    places = np.concatenate([parsed.good, nulls])
    values, said = aligned(parsed.table, fields), _said(spec)
    marks = parsed.marks if parsed.marks is not None else said.empty_table()
    if len(nulls):
        values = pa.concat_tables([values, _nothing(fields, len(nulls))]) if len(fields) else values
        marks = pa.concat_tables([marks, _nothing(said, len(nulls))]) if len(said) else marks
    order = np.argsort(places, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        values = values.take(pa.array(order)) if len(fields) else values
        marks = marks.take(pa.array(order)) if len(said) else marks
        places = places[order]
    metas = whole.take(pa.array(places))
    columns: list[Any] = [*values.columns, *marks.columns, *(metas.column(name) for name in META)]
    found = Rows(pa.Table.from_arrays(columns, schema=schema_of(spec, fields)), pa.table({}), fields)
    bad = parsed.bad
    if isinstance(parse, Events) and spec.mode == "upsert":
        found, metas, more = _by_their_keys(found, metas, spec, parse)
        bad = bad | {int(places[place]): one for place, one in more.items()}
    return _checked(found._replace(dead=_letters(whole, bad, batch)), metas, spec, batch)


def _nothing(schema: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, f.type) for f in schema], schema=schema)


def _by_their_keys(
    found: Rows, records: pa.Table, spec: TableSpec, parse: Events
) -> tuple[Rows, pa.Table, dict[int, Bad]]:
    """Deletions without a key, tombstones among them, with that of the record; those that cannot be read.

    A tombstone whose key lacks columns of the table's key is left out: the event before it has deleted the row.
    """
    rows, keys = found.rows, [name for name in spec.keys if name in found.fields.names]
    lacking = np.zeros(rows.num_rows, bool)
    for name in keys:
        lacking |= np.asarray(rows.column(name).is_null())
    some = np.flatnonzero(lacking & _deleted(rows, records))
    if not len(some):
        return found, records, {}
    wanted = pa.schema([found.fields.field(name) for name in keys])
    told, whole, wrong = parse.keys(records.column("key").take(pa.array(some)).combine_chunks(), wanted)
    put = np.full(rows.num_rows, -1, np.int64)
    put[some[whole]] = np.flatnonzero(whole)
    chosen, there = pa.array(put, mask=put < 0), pa.array(put >= 0)
    for name in keys:
        column = pc.if_else(there, told.column(name).take(chosen), rows.column(name))
        rows = rows.set_column(rows.column_names.index(name), found.fields.field(name), column)
    tombstones = (
        np.asarray(records.column("value").is_null())[some] & np.asarray(records.column("key").is_valid())[some]
    )
    good = np.ones(rows.num_rows, bool)
    good[some[~whole & tombstones]] = False
    bad = {int(some[place]): reason for place, reason in wrong.items() if tombstones[place]}
    kept = pa.array(good)
    return found._replace(rows=rows.filter(kept)), records.filter(kept), bad


def _deleted(rows: pa.Table, records: pa.Table) -> np.ndarray:
    """Which rows go: those of tombstones, and of events that say so."""
    gone = np.asarray(records.column("value").is_null())
    if debezium.OP in rows.column_names:
        gone = gone | np.asarray(pc.equal(rows.column(debezium.OP), debezium.DELETION).fill_null(False))
    return gone


def _checked(found: Rows, records: pa.Table, spec: TableSpec, batch: int) -> Rows:
    """What can be filed, and has its key; the rest as dead letters. `records` are those of the rows."""
    bad = partitions.unfiled(found.rows, spec.partition_by)
    dead = [found.dead, _letters(records, bad, batch, "partition")]
    if spec.mode == "upsert" and found.rows.num_rows:
        gone = pa.array(_deleted(found.rows, records))
        found = found._replace(rows=found.rows.append_column(DELETED, gone))
        keyless = {place: reason for place, reason in _keyless(found.rows, spec).items() if place not in bad}
        dead.append(_letters(records, keyless, batch, "key"))
        bad |= keyless
    if not bad:
        return found._replace(dead=pa.concat_tables(dead))
    good = np.ones(found.rows.num_rows, bool)
    good[list(bad)] = False
    return Rows(found.rows.filter(pa.array(good)), pa.concat_tables(dead), found.fields)


def _keyless(rows: pa.Table, spec: TableSpec) -> dict[int, Bad]:
    """The rows by key that have none, and why."""
    nulls = np.zeros(rows.num_rows, bool)
    for key in spec.keys:
        if key in rows.column_names:  # the table, which is made after this, is held to it
            nulls |= np.asarray(rows.column(key).is_null())
    gone = rows.column(DELETED)
    return {
        place: Bad("key", f"{'a tombstone' if gone[place].as_py() else 'the record'} has no {' and '.join(spec.keys)}")
        for place in np.flatnonzero(nulls).tolist()
    }


def _letters(whole: pa.Table, bad: dict[int, Bad], batch: int, stage: str = "decode") -> pa.Table:
    if not bad:
        return DEAD_SCHEMA.empty_table()
    places = sorted(bad)
    there = whole.take(pa.array(places))
    columns: list[Any] = [there.column(name) for name in RAW]
    columns += [
        pa.array([stage] * len(places)),
        pa.array([bad[place].reason for place in places]),
        pa.array([batch] * len(places), pa.int64()),
        pa.array([bad[place].code for place in places]),
    ]
    return pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)
