"""Changes of rows by key: the newest record of each key in a batch. A tombstone deletes the row.

A task writes its rows to a staged file beside the table (`STAGED`). Readers do not see it, and the next start removes
it. Other tasks gather staged files (`upserts`) and merge them into the table's files (`merging`); the driver commits.
Of two records with the same key, the newer record counts (`ordering`).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.tables.bykey.ordering import GENERATION, Order, matches, newer
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.values import META

STAGED: Final = "_staged"
"""Folder of files that are written but not merged."""
_PLACE: Final = "_kraft_place"


def check(keys: Sequence[str], schema: pa.Schema) -> None:
    """Raise SpecError unless all keys are columns, neither nested nor floating point."""
    for key in keys:
        if key not in schema.names:
            raise SpecError(f"spec.table.key: column {key!r} does not exist")
        if pa.types.is_nested(schema.field(key).type) or pa.types.is_floating(schema.field(key).type):
            raise SpecError(f"spec.table.key: {key!r} is {schema.field(key).type}, which cannot be a key")


def last(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the original order."""
    places = rows.select(list(keys)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    found = places.group_by(list(keys)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return rows.take(pa.array(np.sort(found.to_numpy())))


def order_of(schema: pa.Schema, by: str = "") -> Order:
    """The order of rows with `schema`. Raises SpecError unless `by` is "" or a column with an order."""
    names: Mapping[str, str] = META if META["offset"] in schema.names else {}
    if by and by not in schema.names:
        raise SpecError(f"spec.table.orderBy: column {by!r} does not exist")
    if by and (pa.types.is_nested(schema.field(by).type) or pa.types.is_boolean(schema.field(by).type)):
        raise SpecError(f"spec.table.orderBy: {by!r} is {schema.field(by).type}, which has no order")
    topic, partition, offset, time = (names.get(name, name) for name in ("topic", "partition", "offset", "timestamp"))
    return Order(topic, partition, offset, time, by, GENERATION if GENERATION in schema.names else "")


def newest(rows: pa.Table, keys: Sequence[str], order: Order) -> pa.Table:
    """The newest row of each key."""
    if order.by:
        ranked = order.ranked(rows)
        one, other = rows.filter(ranked), newest(rows.filter(pc.invert(ranked)), keys, order.plain)
        one = _last(one, [*keys, order.topic, order.partition, order.by], [order.offset])
        one = _last(one, keys, [order.by, order.time, order.topic, order.partition])
        return _newer_of_two(one, other, keys, order)
    rows = _last(rows, [*keys, order.topic, order.partition], [order.offset])
    return _last(rows, keys, [order.time, order.topic, order.partition])


def _last(rows: pa.Table, keys: Sequence[str], order: Sequence[str]) -> pa.Table:
    return last(rows.sort_by([(name, "ascending") for name in order]), keys)


def _newer_of_two(one: pa.Table, other: pa.Table, keys: Sequence[str], order: Order) -> pa.Table:
    """The newer row of each key in two tables that have each key at most once."""
    left, right = matches(one, other, list(keys))
    wins = newer(one.take(pa.array(left)), other.take(pa.array(right)), order)
    kept, others = np.ones(one.num_rows, np.bool_), np.ones(other.num_rows, np.bool_)
    kept[left[~wins]], others[right[wins]] = False, False
    return pa.concat_tables([one.filter(pa.array(kept)), other.filter(pa.array(others))])
