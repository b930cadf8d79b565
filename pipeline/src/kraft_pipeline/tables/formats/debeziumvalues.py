"""Converts Debezium change events in JSON or Avro to rows, and record keys to key columns."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kraft_pipeline.tables.errors import REASON_CHARACTERS, Bad
from kraft_pipeline.tables.formats.connectjson import ConnectJson
from kraft_pipeline.tables.formats.debezium import DELETION, OP
from kraft_pipeline.tables.formats.jsonvalues import Parsed
from kraft_pipeline.tables.formats.valuespec import ValueSpec

NO_KEY: Final = Bad("key", "the record's key cannot be read: Avro without a registry has no schema of keys")


class Events:
    """Parses the values and keys of one table. One thread only."""

    def __init__(self, spec: ValueSpec, settled: pa.Schema, *, retry_s: float, promotes: bool) -> None:
        """Parameters are as in the JSON and Avro parsers. Raises SpecError."""
        self._values: Any
        self._keys: Any
        if spec.format == "json":
            self._values = ConnectJson(spec, settled, promotes=promotes, events=True)
            self._keys = ConnectJson(spec, settled, promotes=promotes, events=False)
            return
        from kraft_pipeline.tables.formats.avroevents import AvroEvents  # noqa: PLC0415 - an extra that the others do without
        from kraft_pipeline.tables.formats.avrovalues import AvroParser  # noqa: PLC0415 - only if needed

        self._values = AvroEvents(spec, retry_s=retry_s, promotes=promotes, connect=True)
        keys = replace(spec, avro="", envelope="none")
        self._keys = AvroParser(keys, retry_s=retry_s, connect=True) if spec.registry else None

    def __call__(self, values: pa.Array, fields: pa.Schema, *, additive: bool, reserved: frozenset[str]) -> Parsed:
        """Parse the non-null values, with the columns of their envelopes as `marks`. Raises ClientError."""
        found: Parsed = self._values(values, fields, additive=additive, reserved=reserved)
        return found

    def keys(self, keys: pa.Array, wanted: pa.Schema) -> tuple[pa.Table, NDArray[np.bool_], dict[int, Bad]]:
        """Parse record keys. Returns the `wanted` columns, a mask of the keys that have all of them, and failures.

        Raises ClientError if the registry is unreachable.
        """
        rows = pa.table({f.name: pa.nulls(len(keys), f.type) for f in wanted}, schema=wanted)
        whole = np.zeros(len(keys), bool)
        if self._keys is None:
            return rows, whole, dict.fromkeys(range(len(keys)), NO_KEY)
        found: Parsed = self._keys(keys, wanted, additive=True, reserved=frozenset())
        bad = {
            place: Bad("key", f"the record's key: {one.reason}"[:REASON_CHARACTERS]) for place, one in found.bad.items()
        }
        if len(found.good):
            places = np.full(len(keys), -1, np.int64)
            places[found.good] = np.arange(len(found.good))
            rows = found.table.select(wanted.names).take(pa.array(places, mask=places < 0))
            whole = np.logical_and.reduce([np.asarray(rows.column(name).is_valid()) for name in wanted.names])
        return rows, whole, bad


def ranked(rows: pa.Table, records: pa.Table, by: str) -> pa.Table:
    """Give each tombstone the value of the column `by` that the delete event right before it has.

    Debezium sends a tombstone after each delete event, with the same key. If a killed connector sends both again, an
    unranked tombstone would delete a row that was inserted later. `records`: the records of the rows.
    """
    if rows.num_rows < 2 or by not in rows.column_names:
        return rows
    offsets, keys = records.column("offset").to_numpy(), records.column("key").combine_chunks()
    after = np.zeros(rows.num_rows, np.bool_)
    after[1:] = np.asarray(records.column("value").is_null())[1:] & (offsets[1:] == offsets[:-1] + 1)
    after[1:] &= np.asarray(pc.equal(rows.column(OP), DELETION).fill_null(False))[:-1]
    after[1:] &= np.asarray(pc.equal(keys.slice(1), keys.slice(0, len(keys) - 1)).fill_null(False))
    if not after.any():
        return rows
    places = np.arange(rows.num_rows) - after
    at = rows.schema.get_field_index(by)
    return rows.set_column(at, rows.schema.field(at), rows.column(by).take(pa.array(places)))
