"""Converts fetched records to rows of a table and to dead letters.

Columns of a raw table: key, value, topic, partition, offset, timestamp, headers, as in `codec.decode`. Columns of other
tables: the fields of the value, then the same metadata with a leading underscore and without the value. The partition
is `_partition_id` there, because Iceberg's readers have their own `_partition`. Change events add the columns of their
envelope (`debezium.COLUMNS`) between the two.
"""

from __future__ import annotations

import logging
from collections.abc import Collection
from importlib.util import find_spec
from typing import Any, Final, NamedTuple, Protocol

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.codec.decode import TYPES
from kraft_pipeline.tables.bykey.ordering import GENERATION
from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad
from kraft_pipeline.tables.formats import debezium, jsonvalues, recordmeta
from kraft_pipeline.tables.formats.debeziumvalues import Events, ranked
from kraft_pipeline.tables.formats.recordmeta import MetaReader
from kraft_pipeline.tables.schemas import FLAT, aligned, alike, check_names, promoted
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.fieldtypes import type_of
from kraft_pipeline.tables.specs.partitions import FORMATS
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores.committer import DELETED
from kraft_protocol.client.errors import ClientError

RAW: Final = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
META: Final = {
    name: f"_{name}_id" if name == "partition" else f"_{name}"
    for name in ("key", "topic", "partition", "offset", "timestamp", "headers")
}
"""Metadata of a record -> its column in a table with fields of values."""
RESERVED: Final = frozenset((*META.values(), GENERATION, *(f"_{name}" for name in FORMATS)))
"""Names that fields of values must not have: metadata columns and partition columns."""
ICEBERG: Final = frozenset(
    {
        *("_file", "_pos", "_deleted", "_spec_id", "_partition", "_row_id", "_last_updated_sequence_number"),
        *("_change_type", "_change_ordinal", "_commit_snapshot_id"),
    }
)
"""Names of metadata columns of Iceberg's readers: Spark cannot read a table with a column of these names."""
GONE: Final = "_deleted"
"""Column of the records that a transform by key reads: whether the record deletes its row. Tables do not have it."""
PACKAGES: Final = {"avro": "fastavro", "protobuf": "google.protobuf", "jsonschema": "jsonschema"}
"""Name of an extra -> the package that its format needs."""
DEAD_SCHEMA: Final = pa.schema(
    [
        *((name, TYPES[name]) for name in RAW),
        ("stage", pa.string()),
        ("reason", pa.string()),
        ("batch", pa.int64()),
        ("code", pa.string()),
        ("topic_id", pa.string()),
    ]
)
"""A dead letter: the raw record, the stage that failed (`decode`, `partition`, `key`), the reason, the batch, the code
of the reason, and the id of its topic. The code is stable across releases. The id is in hexadecimal digits, as in
positions; letters of earlier releases lack it."""
_LOG: Final = logging.getLogger(__name__)


class Parse(Protocol):
    """Converts non-null values to columns."""

    def __call__(
        self, values: pa.Array, schema: pa.Schema, /, *, additive: bool, reserved: frozenset[str]
    ) -> jsonvalues.Parsed:
        """Parse values by `schema`; with `additive`, add new fields unless their names are `reserved` (lower case)."""


class Rows(NamedTuple):
    """Decoded rows, dead letters (`DEAD_SCHEMA`), and the fields of values, including new fields."""

    rows: pa.Table
    dead: pa.Table
    fields: pa.Schema


def records_of(spec: TableSpec, fields: pa.Schema) -> pa.Schema:
    """The columns of the records that a transform reads."""
    found = schema_of(spec, fields)
    return found.append(pa.field(GONE, pa.bool_())) if spec.mode == "upsert" else found


def reserved(spec: TableSpec, there: pa.Schema | None = None) -> frozenset[str]:
    """Names that new fields of values must not have, in lower case; `there`: the fields of an existing table.

    Once the table exists, names of partition columns are reserved, too, and names that would change the meaning of
    `partitionBy`.
    """
    found = RESERVED | ICEBERG if spec.format == "iceberg" else RESERVED
    found |= frozenset(_envelope(spec).names)
    if spec.transform and spec.mode == "upsert":
        found |= {GONE}
    if there is None:  # a field with the name of a partition or key column becomes that column
        return found | {name.lower() + FLAT for name in (*spec.partition_by, *spec.keys)}
    by = {entry for entry in spec.partition_by if entry in FORMATS}
    for name in _made(spec):
        by |= {name.lower(), name.lower().removeprefix("_")}
    return found | (by - {name.lower() for name in there.names})


def _made(spec: TableSpec) -> set[str]:
    """Names of the columns that partition transforms compute."""
    found = (partitions.computed(entry) for entry in spec.partition_by)
    return {f"_{parts.name}" for parts in found if parts}


def first_fields(spec: TableSpec) -> pa.Schema:
    """The fields of values that the spec declares.

    Raises SpecError for an unknown type, a reserved or duplicate name, and a package that is not installed.
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
        meta_type(spec, "key")
    except SpecError:
        raise
    except ValueError as e:  # includes ArrowInvalid
        raise SpecError(f"spec.value.schema: {e}") from None
    return found


def _installed(spec: TableSpec) -> None:
    kind = "jsonschema" if spec.value.format == "json" and spec.value.registry else spec.value.format
    for section, form in (("value", kind), ("key", spec.key.format)):
        package = PACKAGES.get(form)
        if package is not None and not _is_there(package):
            raise SpecError(f"spec.{section}.format: {package} is not installed; pip install 'kraftcluster[{form}]'")


def _is_there(package: str) -> bool:
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:  # the parent package is missing
        return False


def schema_of(spec: TableSpec, fields: pa.Schema) -> pa.Schema:
    """The table's columns without the columns that partition transforms compute."""
    if spec.value.format == "raw":
        return pa.schema([(name, meta_type(spec, name)) for name in RAW])
    return pa.schema([*fields, *_envelope(spec), *((column, meta_type(spec, name)) for name, column in META.items())])


def meta_type(spec: TableSpec, name: str) -> pa.DataType:
    """The type of a column with metadata of records. Raises SpecError."""
    if name == "key":
        return recordmeta.key_type(spec.key)
    return recordmeta.headers_type(spec.headers) if name == "headers" else TYPES[name]


def check_meta(spec: TableSpec, there: pa.Schema) -> None:
    """Raise SpecError if an existing table has keys or headers of another type."""
    for name in ("key", "headers"):
        column, wanted = name if spec.value.format == "raw" else META[name], meta_type(spec, name)
        if column in there.names and not alike(there.field(column).type, wanted):
            raise SpecError(
                f"spec.{name if name == 'headers' else 'key'}.format: the table's column {column} is "
                f"{there.field(column).type}, not {wanted}; give another path or the former format"
            )


def log_kept_types(spec: TableSpec, there: pa.Schema) -> None:
    """Log a warning for each column of an existing table that keeps a type other than the declared type."""
    if spec.value.format == "raw" or spec.transform:
        return
    declared, fields = first_fields(spec), fields_of(spec, there)
    if spec.format == "iceberg":
        fields = promoted(fields, declared)
    for field in declared:
        if field.name in fields.names and not alike(kept := fields.field(field.name).type, field.type):
            text = "a column keeps its type, which value.schema cannot change: column=%s type=%s declared=%s table=%s"
            _LOG.warning(text, field.name, kept, field.type, spec.path)


def lacking(spec: TableSpec, schema: pa.Schema) -> list[str]:
    """Names that `key`, `orderBy` and `partitionBy` have for fields of values that the schema lacks.

    A table lacks them if its first batches had no fields (dead letters, tombstones, gaps). Empty for raw records,
    because their columns are known, and for a schema with fields, because their types count.
    """
    if spec.value.format == "raw" or len(fields_of(spec, schema)):
        return []
    wanted = [*spec.keys, *([spec.order_by] if spec.order_by else [])]
    wanted += [entry for entry in spec.partition_by if partitions.column_of(entry, schema) not in schema.names]
    return [name for name in wanted if name not in schema.names]


def fields_of(spec: TableSpec, schema: pa.Schema) -> pa.Schema:
    """The fields of values in the schema of an existing table."""
    if spec.value.format == "raw":
        return pa.schema([])
    return pa.schema(f for f in schema if f.name not in RESERVED | _made(spec) | set(_envelope(spec).names))


def _envelope(spec: TableSpec) -> pa.Schema:
    """The columns of change events' envelopes; none without an envelope."""
    return debezium.COLUMNS if spec.value.envelope == "debezium" else pa.schema([])


def parser(spec: TableSpec, settled: pa.Schema, *, retry_s: float) -> Parse:
    """The parser of values. `settled`: the table's fields; `retry_s`: how long to retry an unreachable registry.

    Raises SpecError.
    """
    promotes = spec.format == "iceberg"
    if spec.value.envelope == "debezium":
        return Events(spec.value, settled, retry_s=retry_s, promotes=promotes)
    if spec.value.format == "protobuf":
        from kraft_pipeline.tables.formats.protovalues import ProtoParser  # noqa: PLC0415 - only if needed

        return ProtoParser(spec.value, retry_s=retry_s, promotes=promotes)
    if spec.value.format == "json" and spec.value.registry:
        from kraft_pipeline.tables.formats.jsonschemas import JsonSchemaParser  # noqa: PLC0415 - only if needed

        return JsonSchemaParser(spec.value, settled, retry_s=retry_s, promotes=promotes)
    if spec.value.format != "avro":
        return jsonvalues.JsonParser(spec.value, settled)
    from kraft_pipeline.tables.formats.avrovalues import AvroParser  # noqa: PLC0415 - only if needed

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
    meta: MetaReader | None = None,
) -> Rows:
    """Decode records to rows and dead letters. Rows by key have the column `DELETED`, too.

    `damaged`: offsets of records with a header key that is not UTF-8. If the registry or a disk is unreachable, raises
    ClientError or OSError, and the batch waits.
    """
    meta = meta or MetaReader(spec.key, spec.headers)
    spoiled = _spoiled(records, damaged)
    if spoiled:
        sound = np.ones(records.num_rows, bool)
        sound[list(spoiled)] = False
        letters, records = _letters(pa.table(records), spoiled, batch), records.filter(pa.array(sound))
    try:
        found = _decoded(records, spec, fields, batch, additive=additive, taken=taken, parse=parse, meta=meta)
    except (ClientError, OSError, MemoryError):
        raise
    except Exception as e:
        if records.num_rows > 1:
            found = _decode_halves(records, spec, fields, batch, additive=additive, taken=taken, parse=parse, meta=meta)
        else:  # a defect in this program must not stop the table
            _LOG.warning("offset %s: the record cannot be decoded", records.column("offset")[0], exc_info=True)
            bad = {0: Bad("defect", f"{type(e).__name__}: {e}"[:REASON_CHARACTERS])}
            dead = _letters(pa.table(records), bad, batch)
            found = _decoded(
                records.slice(0, 0), spec, fields, batch, additive=additive, taken=taken, parse=parse, meta=meta
            )
            found = found._replace(dead=dead)
    return found._replace(dead=pa.concat_tables([letters, found.dead])) if spoiled else found


def _decode_halves(records: pa.RecordBatch, spec: TableSpec, fields: pa.Schema, batch: int, **options: Any) -> Rows:
    """Decode each half alone, recursively, to isolate the records that cannot be decoded."""
    half = records.num_rows // 2
    first = decode(records.slice(0, half), spec, fields, batch, **options)
    second = decode(records.slice(half), spec, first.fields, batch, **options)
    if not second.fields.equals(first.fields):  # a column may have widened
        first = decode(records.slice(0, half), spec, second.fields, batch, **options)
    rows = pa.concat_tables([first.rows, second.rows], promote_options="permissive")
    return Rows(rows, pa.concat_tables([first.dead, second.dead]), second.fields)


def _spoiled(records: pa.RecordBatch, damaged: Collection[int]) -> dict[int, Bad]:
    """Records with headers or a timestamp that no table can hold, by index."""
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
    meta: MetaReader,
) -> Rows:
    read, wrong = meta(records)
    if wrong:
        good = np.ones(records.num_rows, bool)
        good[list(wrong)] = False
        letters, kept = _letters(pa.table(records), wrong, batch), records.filter(pa.array(good))
        found = _decoded(kept, spec, fields, batch, additive=additive, taken=taken, parse=parse, meta=meta)
        return found._replace(dead=pa.concat_tables([letters, found.dead]))
    whole = pa.table(records)
    if spec.value.format == "raw":
        rows = pa.Table.from_arrays([read.get(n, whole.column(n)) for n in RAW], schema=schema_of(spec, fields))
        return _move_invalid(Rows(rows, DEAD_SCHEMA.empty_table(), fields), whole, spec, batch)
    parsed = parse(records.column("value"), fields, additive=additive, reserved=taken)
    fields = parsed.table.schema if len(parsed.good) else fields
    gone = np.asarray(records.column("value").is_null())  # tombstones: rows without fields
    if isinstance(parse, Events) and spec.mode == "append":
        gone = np.zeros(len(gone), bool)  # the delete event before a tombstone is a row already
    nulls = np.flatnonzero(gone)
    places = np.concatenate([parsed.good, nulls])
    values, envelope = aligned(parsed.table, fields), _envelope(spec)
    marks = parsed.marks if parsed.marks is not None else envelope.empty_table()
    if len(nulls):
        values = pa.concat_tables([values, _nothing(fields, len(nulls))]) if len(fields) else values
        marks = pa.concat_tables([marks, _nothing(envelope, len(nulls))]) if len(envelope) else marks
    order = np.argsort(places, kind="stable")
    if not np.array_equal(order, np.arange(len(order))):
        values = values.take(pa.array(order)) if len(fields) else values
        marks = marks.take(pa.array(order)) if len(envelope) else marks
        places = places[order]
    metas = whole.take(pa.array(places))
    about = [read[name].take(pa.array(places)) if name in read else metas.column(name) for name in META]
    columns: list[Any] = [*values.columns, *marks.columns, *about]
    found = Rows(pa.Table.from_arrays(columns, schema=schema_of(spec, fields)), pa.table({}), fields)
    bad = parsed.bad
    if isinstance(parse, Events) and spec.mode == "upsert":
        found = found._replace(rows=ranked(found.rows, metas, spec.order_by))
        found, metas, more = _by_their_keys(found, metas, spec, parse)
        bad = bad | {int(places[place]): one for place, one in more.items()}
    return _move_invalid(found._replace(dead=_letters(whole, bad, batch)), metas, spec, batch)


def _nothing(schema: pa.Schema, count: int) -> pa.Table:
    return pa.Table.from_arrays([pa.nulls(count, f.type) for f in schema], schema=schema)


def _by_their_keys(
    found: Rows, records: pa.Table, spec: TableSpec, parse: Events
) -> tuple[Rows, pa.Table, dict[int, Bad]]:
    """Fill missing key columns of deletions from the record's key. Returns rows, their records, and unreadable keys.

    A tombstone is left out if its key lacks columns of the table's key: the event before it has deleted the row. All
    tombstones before the first event are left out, too: only an event has the columns of the key.
    """
    rows, keys = found.rows, [name for name in spec.keys if name in found.fields.names]
    lacking = np.zeros(rows.num_rows, bool)
    for name in keys:
        lacking |= np.asarray(rows.column(name).is_null())
    if len(keys) < len(spec.keys):  # without an event, no row exists to delete
        kept = pa.array(~np.asarray(records.column("value").is_null()))
        return found._replace(rows=rows.filter(kept)), records.filter(kept), {}
    places = np.flatnonzero(lacking & _deleted(rows, records))
    if not len(places):
        return found, records, {}
    wanted = pa.schema([found.fields.field(name) for name in keys])
    read_keys, whole, wrong = parse.keys(records.column("key").take(pa.array(places)).combine_chunks(), wanted)
    key_rows = np.full(rows.num_rows, -1, np.int64)  # for each row, its row in `read_keys`
    key_rows[places[whole]] = np.flatnonzero(whole)
    chosen, is_filled = pa.array(key_rows, mask=key_rows < 0), pa.array(key_rows >= 0)
    for name in keys:
        column = pc.if_else(is_filled, read_keys.column(name).take(chosen), rows.column(name))
        rows = rows.set_column(rows.column_names.index(name), found.fields.field(name), column)
    tombstones = (
        np.asarray(records.column("value").is_null())[places] & np.asarray(records.column("key").is_valid())[places]
    )
    good = np.ones(rows.num_rows, bool)
    good[places[~whole & tombstones]] = False
    bad = {int(places[place]): reason for place, reason in wrong.items() if tombstones[place]}
    kept = pa.array(good)
    return found._replace(rows=rows.filter(kept)), records.filter(kept), bad


def _deleted(rows: pa.Table, records: pa.Table) -> np.ndarray:
    """A mask of the rows that delete: tombstones and delete events."""
    gone = np.asarray(records.column("value").is_null())
    if debezium.OP in rows.column_names:
        gone = gone | np.asarray(pc.equal(rows.column(debezium.OP), debezium.DELETION).fill_null(False))
    return gone


def _move_invalid(found: Rows, records: pa.Table, spec: TableSpec, batch: int) -> Rows:
    """Move rows without a valid partition or key to the dead letters. `records`: the records of the rows."""
    entries, names = spec.partition_by, found.rows.column_names
    if spec.transform:  # the transform computes the other columns
        entries = tuple(entry for entry in entries if partitions.column_of(entry, found.rows.schema) in names)
    bad = partitions.unfiled(found.rows, entries)
    dead = [found.dead, _letters(records, bad, batch, "partition")]
    if spec.mode == "upsert" and spec.transform:
        found = found._replace(rows=found.rows.append_column(GONE, pa.array(_deleted(found.rows, records))))
    elif spec.mode == "upsert" and found.rows.num_rows:
        gone = pa.array(_deleted(found.rows, records))
        found = found._replace(rows=found.rows.append_column(DELETED, gone))
        more = {place: reason for place, reason in keyless(found.rows, spec).items() if place not in bad}
        dead.append(_letters(records, more, batch, "key"))
        bad |= more
    if not bad:
        return found._replace(dead=pa.concat_tables(dead))
    good = np.ones(found.rows.num_rows, bool)
    good[list(bad)] = False
    return Rows(found.rows.filter(pa.array(good)), pa.concat_tables(dead), found.fields)


def keyless(rows: pa.Table, spec: TableSpec) -> dict[int, Bad]:
    """Rows with a null key, by index, with the reason."""
    nulls = np.zeros(rows.num_rows, bool)
    for key in spec.keys:
        # If no record has had the column yet, no row is written. Either the run fails when the table is created, or
        # all records of the batch lack fields.
        nulls |= np.asarray(rows.column(key).is_null()) if key in rows.column_names else True
    gone = rows.column(DELETED)
    return {
        place: Bad("key", f"{'a tombstone' if gone[place].as_py() else 'the record'} has no {' and '.join(spec.keys)}")
        for place in np.flatnonzero(nulls).tolist()
    }


def identified(letters: pa.Table, topic_id: bytes) -> pa.Table:
    """The dead letters with the id of their topic."""
    ids = pa.array([topic_id.hex()] * letters.num_rows, pa.string())
    return letters.set_column(DEAD_SCHEMA.get_field_index("topic_id"), "topic_id", ids)


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
        pa.nulls(len(places), pa.string()),
    ]
    return pa.Table.from_arrays(columns, schema=DEAD_SCHEMA)
