"""Data files in Delta's log: actions that add and remove them, the files of a version, and merges."""

from __future__ import annotations

import time
from collections.abc import Sequence
from urllib.parse import unquote

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.transaction import AddAction, RemoveAction

from kraft_pipeline.tables.stores.committer import DELETED, Added
from kraft_pipeline.tables.stores.deltastats import statistics


def add(file: Added, schema: pa.Schema | None, *, new: bool) -> AddAction:
    """Add a file; `new`: its rows are new to readers of changes."""
    assert schema is not None, "a table is created before anything is committed"
    now = int(time.time() * 1000)
    return AddAction(file.path, file.size, dict(file.values), now, new, statistics(file, schema))


def remove(file: Added, *, data_change: bool) -> RemoveAction:
    """Remove a file; `data_change`: its rows are gone for readers of changes."""
    now = int(time.time() * 1000)
    return RemoveAction(file.path, data_change, now, size=file.size, partition_values=dict(file.values))


def live_files(table: DeltaTable, bounded: Sequence[str], *, whole: bool) -> list[Added]:
    """The files of the loaded version, with bounds of the columns `bounded` if the commits have them."""
    rows = pa.table(table.get_add_actions(flatten=True))
    found = zip(*(rows.column(name).to_pylist() for name in ("path", "size_bytes", "num_records")), strict=True)
    names = table.metadata().partition_columns
    texts = [rows.column(f"partition.{name}").cast(pa.string()).to_pylist() for name in names]
    bounds = {
        bound: {name: rows.column(f"{bound}.{name}") for name in bounded if f"{bound}.{name}" in rows.column_names}
        for bound in ("min", "max")
    }
    added = []
    for at, (path, size, count) in enumerate(found):
        values = {name: text[at] for name, text in zip(names, texts, strict=True)}
        least, most = ({n: column[at].as_py() for n, column in bounds[bound].items()} for bound in ("min", "max"))
        added.append(Added(unquote(path), size, count or 0, values, least, most, whole=whole))
    return added


def merge(table: DeltaTable, rows: pa.Table, keys: Sequence[str], properties: CommitProperties) -> None:
    """Merge with delta-rs, which also writes the change data feed. VACUUM removes files of a killed merge.

    Raises DeltaError.
    """
    columns = {_quoted(f.name): f"source.{_quoted(f.name)}" for f in table.schema().fields}
    merger = table.merge(
        rows,
        " AND ".join(f"target.{_quoted(key)} = source.{_quoted(key)}" for key in keys),
        source_alias="source",
        target_alias="target",
        streamed_exec=False,  # the changes are in memory, so delta-rs skips files by the bounds of their keys
        commit_properties=properties,
    )
    merger = merger.when_matched_delete(f"source.{DELETED}").when_matched_update(columns)
    merger.when_not_matched_insert(columns, f"NOT source.{DELETED}").execute()


def _quoted(name: str) -> str:
    return "`" + name.replace("`", "``") + "`"
