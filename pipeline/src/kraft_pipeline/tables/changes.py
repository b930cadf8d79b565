"""Records as changes of rows by key: of a batch the last one of each key, a tombstone for a row that goes.

A task writes what it has as a file beside the table's (`STAGED`, which readers do not see and the next start sweeps);
the driver puts these together and merges them into the table in one transaction. Of two records with one key, the
later offset counts; from two partitions, the later time (Kafka's producers keep a key in one partition).
"""

from __future__ import annotations

import io
from collections.abc import Mapping, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray

from kraft_pipeline.tables.committer import DELETED, Added
from kraft_pipeline.tables.partitions import By, with_values
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.spec import SpecError
from kraft_pipeline.tables.storage import Storage
from kraft_pipeline.tables.values import META

STAGED: Final = "_staged"
"""Folder of files that have been written and not been merged."""
MERGED: Final = "part-"
"""How the names of files begin that delta-rs writes when it merges."""
_PLACE: Final = "_kraft_place"


def check(keys: Sequence[str], schema: pa.Schema) -> None:
    """Raises SpecError unless all keys are columns that can be compared."""
    for key in keys:
        if key not in schema.names:
            raise SpecError(f"spec.table.key: there is no column {key!r}")
        if pa.types.is_nested(schema.field(key).type) or pa.types.is_floating(schema.field(key).type):
            raise SpecError(f"spec.table.key: {key!r} is {schema.field(key).type}, which is no key")


def untouched(there: pa.Table, keys: pa.Table) -> NDArray[np.bool_]:
    """Which rows have none of `keys`; both tables have the columns of the keys and no other."""
    names = keys.column_names
    places = there.append_column(_PLACE, pa.array(np.arange(there.num_rows)))
    kept = np.zeros(there.num_rows, np.bool_)
    kept[places.join(keys, names, join_type="left anti").column(_PLACE).to_numpy()] = True
    return kept


def last(rows: pa.Table, keys: Sequence[str]) -> pa.Table:
    """The last row of each key, in the order of the rows."""
    places = rows.select(list(keys)).append_column(_PLACE, pa.array(np.arange(rows.num_rows)))
    found = places.group_by(list(keys)).aggregate([(_PLACE, "max")]).column(f"{_PLACE}_max")
    return rows.take(pa.array(np.sort(found.to_numpy())))


def gathered(
    storage: Storage, files: Sequence[Added], keys: Sequence[str], schema: pa.Schema, levels: Sequence[By]
) -> pa.Table:
    """What the files of a batch change: rows of `schema`, and `DELETED`; one of each key."""
    names: Mapping[str, str] = META if META["offset"] in schema.names else {}
    plain = pa.schema([f for f in schema if f.name not in {by.name for by in levels if by.transform}])
    staged = plain.append(pa.field(DELETED, pa.bool_()))
    parts: list[Any] = [staged.empty_table()]
    parts += [aligned(pq.ParquetFile(io.BytesIO(storage.read(file.path))).read(), staged) for file in files]
    topic, partition, offset, time = (names.get(name, name) for name in ("topic", "partition", "offset", "timestamp"))
    rows = pa.concat_tables(parts).sort_by([(topic, "ascending"), (partition, "ascending"), (offset, "ascending")])
    rows = last(last(rows, [*keys, topic, partition]).sort_by([(time, "ascending")]), keys)
    return with_values(rows, levels).select([*schema.names, DELETED])
