"""Looking after a table: where it stands, small files to large ones, old ones away, and beginning anew."""

from __future__ import annotations

import io
import uuid
from collections.abc import Iterator
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.client import Cluster
from kraft_pipeline.sources import offsets
from kraft_pipeline.tables import partitions
from kraft_pipeline.tables.committer import Added
from kraft_pipeline.tables.opening import open_table, options_of
from kraft_pipeline.tables.spec import TableSpec
from kraft_pipeline.tables.storage import open_storage
from kraft_pipeline.tables.tasks import encoded, prefix

SMALL: Final = 0.75
"""Files below this part of the size wanted are merged; those above stay, or each pass would write all of them anew."""


def status(spec: TableSpec) -> dict[str, Any]:
    """Where the table and its topics stand: batch, rows, files, deadLetters, lag, and a list by partition."""
    table, dead = open_table(spec), open_table(spec, dead_letters=True)
    state, live, options = table.state(), table.live(), options_of(spec)
    with Cluster(options.settings) as cluster:
        ends = offsets.latest(cluster, options)
        begins = offsets.earliest(cluster, sorted(ends))
    there = {} if state.position is None else state.position.offsets
    rows = []
    for (topic, partition), end in sorted(ends.items()):
        at = there.get((topic, partition), begins[topic, partition])
        rows.append({"topic": topic, "partition": partition, "offset": at, "end": end, "lag": max(0, end - at)})
    return {
        "name": spec.name,
        "batch": state.batch,
        "rows": sum(file.rows for file in live),
        "files": len(live),
        "bytes": sum(file.size for file in live),
        "deadLetters": sum(file.rows for file in dead.live()),
        "lag": sum(row["lag"] for row in rows),
        "partitions": rows,
    }


def compact(spec: TableSpec) -> tuple[int, int]:
    """Merge small files of one folder into ones of `compactTo` bytes; how many, into how many.

    Each merged file is a transaction of its own, so that a writer which commits meanwhile is in the way of one only.
    """
    table, storage = open_table(spec), open_storage(spec.path, spec.storage)
    merged = into = 0
    for group in _groups(table.live(), spec.compact_to):
        parts = [pq.ParquetFile(io.BytesIO(storage.read(file.path))).read() for file in group]
        rows = pa.concat_tables(parts, promote_options="permissive")
        data, minima, maxima = encoded(rows)
        folder = partitions.folder(dict(group[0].values))
        name = f"{prefix(spec.app_id)}compact-{uuid.uuid4().hex}.parquet"
        path = f"{folder}/{name}" if folder else name
        storage.write(path, data)
        table.replace(
            [file.path for file in group], [Added(path, data.size, rows.num_rows, group[0].values, minima, maxima)]
        )
        merged += len(group)
        into += 1
    return merged, into


def _groups(live: list[Added], wanted: int) -> Iterator[list[Added]]:
    """Small files that have the same partition values, as many as make one of the size wanted."""
    small = [file for file in live if file.size < SMALL * wanted]
    group: list[Added] = []
    for file in sorted(small, key=lambda file: (sorted(file.values.items(), key=repr), file.path)):
        full = sum(other.size for other in group) + file.size > wanted
        if group and (full or file.values != group[0].values):
            if len(group) > 1:
                yield group
            group = []
        group.append(file)
    if len(group) > 1:
        yield group


def vacuum(spec: TableSpec) -> int:
    """Remove files that no version of the last `vacuumAfter` refers to; how many."""
    table = open_table(spec)
    found: int = table.vacuum(spec.vacuum_after_s)
    return found


def reset(spec: TableSpec) -> int:
    """Remove the table and its dead letters, so that the next run begins anew; how many files.

    Raises ValueError where something lies there that is no table of this writer.
    """
    count = 0
    for path, dead in ((spec.path, False), (spec.dead_letter_path, True)):
        storage = open_storage(path, spec.storage)
        files = [file.path for file in storage.list()]
        table = open_table(spec, dead_letters=dead)
        if files and table.schema() is None:
            raise ValueError(f"{path} has files and is no {spec.format} table: nothing is removed")
        table.forget()
        logs = ("_kraft/", "_delta_log/", "metadata/")
        for file in sorted(files, key=lambda f: not f.startswith(logs)):  # first what makes it a table
            storage.delete(file)
            count += 1
    return count
