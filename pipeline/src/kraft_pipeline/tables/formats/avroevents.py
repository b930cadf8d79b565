"""Debezium change events in Avro: an envelope is a record that contains the rows as records."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from kraft_pipeline.codec.varints import Bytes, Ints
from kraft_pipeline.tables.errors import RecordError
from kraft_pipeline.tables.formats import debezium
from kraft_pipeline.tables.formats.avrotypes import NoColumnError
from kraft_pipeline.tables.formats.avrovalues import AvroParser, AvroWay
from kraft_pipeline.tables.formats.byschema import Reading, Way
from kraft_pipeline.tables.schemas import aligned


class AvroEvents(AvroParser):
    """Parses the values of a table. Not thread-safe."""

    def made(self, way: AvroWay) -> Way:
        """Return how to read envelopes of a schema. Raises NoColumnError."""
        kinds = {f.name: f.type for f in way.columns}
        row = kinds.get("after")
        if "op" not in kinds or row is None:
            raise NoColumnError("the schema does not describe a Debezium change event: it has no op or no after")
        if not pa.types.is_struct(row):
            raise NoColumnError(f"/after: {row} is not a record, so it cannot become a row")
        if not kinds.get("before", row).equals(row):
            raise NoColumnError("/before: its type differs from the type of after")
        return EventWay(way, pa.schema(list(row)))


class EventWay:
    """Reads envelopes of an Avro schema."""

    def __init__(self, way: Way, columns: pa.Schema) -> None:
        self._way, self.columns = way, columns

    def read(self, data: Bytes, begins: Ints, ends: Ints, fields: pa.Schema) -> Reading:
        """The rows as columns of `fields`, with the marks of their envelopes."""
        inner = self._way.read(data, begins, ends, self._way.columns)
        kind, bad = pa.struct(list(self.columns)), dict(inner.bad)
        whole, count = inner.table, inner.table.num_rows
        sides = {name: _column(whole, name, kind) for name in ("after", "before")}
        there = {name: np.asarray(side.is_valid()) for name, side in sides.items()}
        taken, kept, ops = list[int](), list[int](), list[str]()
        for place, op in enumerate(whole.column("op").to_pylist()):
            try:
                side = debezium.OPERATIONS[debezium.operation(op)]
                if not there[side][place]:
                    raise debezium.without_row(op, None)
                taken.append(place + (count if side == "before" else 0))
                kept.append(place)
                ops.append(op)
            except RecordError as e:
                bad[int(inner.good[place])] = e.bad
        rows = pa.concat_arrays([sides["after"], sides["before"]]).take(pa.array(taken, pa.int64()))
        table = aligned(pa.Table.from_arrays(rows.flatten(), schema=self.columns), fields)
        sources = _column(whole, "source", pa.struct([])).take(pa.array(kept, pa.int64())).to_pylist()
        good = inner.good[np.array(kept, np.int64)] if kept else np.empty(0, np.int64)
        return Reading(table, good, bad, debezium.marks(ops, sources))


def _column(table: pa.Table, name: str, kind: pa.DataType) -> Any:
    if name not in table.column_names:
        return pa.nulls(table.num_rows, kind)
    found = table.column(name).combine_chunks()
    return pa.concat_arrays(found.chunks) if isinstance(found, pa.ChunkedArray) else found
