"""Tables partitioned by values of any kind: each file is known by its path and its values, in every format."""

from __future__ import annotations

import datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import partitions, table_spec
from kraft_pipeline.tables.stores.committer import stem
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline.tables.test_table_changes import parsed, position, seen

FIRST = datetime.datetime(2024, 2, 29, 23, 30, tzinfo=datetime.UTC)
VALUES: dict[str, tuple[pa.DataType, list[Any]]] = {
    "text": (pa.string(), ["a b", "q/=", "100%", "ä", "a=b&c", "", None]),
    "number": (pa.int32(), [-1, 0, None]),
    "day": (pa.date32(), [FIRST.date(), None]),
    "flag": (pa.bool_(), [True, False, None]),
    "when": (pa.timestamp("us", "UTC"), [FIRST, FIRST + datetime.timedelta(microseconds=1), None]),
    "date(when)": (pa.timestamp("us", "UTC"), [FIRST, FIRST + datetime.timedelta(days=1), None]),
}


def put(given: table_spec.TableSpec, batch: int, rows: pa.Table) -> None:
    """Write and commit, as tasks and the runner do."""
    table, levels, files = open_table(given), partitions.parse(given.partition_by, rows.schema), []
    table.create(rows.schema, levels)
    for values, part in partitions.split(rows, levels, whole=given.format == "iceberg"):
        made = encoded(part)
        name = f"{partitions.folder(values)}/{stem(given.app_id, 0)}{batch}.parquet"
        Folder(Path(given.path)).write(name, made.data)
        files.append(made.at(name, values))
    table.commit(batch, position(batch), files, after=batch - 1)


def rows_of(given: table_spec.TableSpec) -> list[dict[str, Any]]:
    if given.format != "parquet":
        return seen(given.format, Path(given.path))
    return [
        {**row, **file.values}
        for file in open_table(given).live()
        for row in pq.ParquetFile(Path(given.path) / file.path).read().to_pylist()
    ]


@pytest.mark.parametrize("by", VALUES)
@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_files_are_found_by_path_and_values(tmp_path: Path, kind: str, by: str) -> None:
    """No file counts as left over, and only files of the same values are merged."""
    name, (column, values) = by.removeprefix("date(").removesuffix(")"), VALUES[by]
    if kind == "delta" and by == "text":
        values = [value for value in values if value != ""]  # Delta cannot tell it from null
    given = parsed(path=str(tmp_path), format=kind, partitionBy=[by])
    rows = pa.table({"n": range(len(values)), name: pa.array(values, column)})
    for batch in range(2):
        put(given, batch, rows)
    table = open_table(given)
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("kafkatable-*.parquet")}
    assert {file.path for file in table.live()} == table.files() == there
    before = sorted(map(repr, rows_of(given)))
    assert len(before) == 2 * len(values)
    assert runner.Runner(given, InlineEngine()).begin() == 0
    folders = len({file.path.rpartition("/")[0] for file in table.live()})
    assert maintenance.compact(given) == (2 * folders, folders)
    assert sorted(map(repr, rows_of(given))) == before
    assert runner.Runner(given, InlineEngine()).begin() == 0
    if kind != "parquet":
        kept = {(row["n"], row[name]) for row in rows_of(given)}
        assert kept == set(zip(range(len(values)), values, strict=True))
