"""Files of another writer with other types: Spark's Delta writes timestamps as INT96."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.stores.opening import open_table
from tests.feed import Feed
from tests.unit.pipeline.tables.test_table_changes import parsed

VALUE = {"format": "json", "schema": {"n": "long", "at": "timestamp", "deep": "struct<at: timestamp>"}}
LATE = datetime(3000, 1, 2, 3, 4, 5, 678901, UTC)
"""A nanosecond of this year does not fit 64 bits."""


def as_spark_does(path: Path) -> None:
    """Replace the rows of a Delta table's files by files with INT96."""
    table = DeltaTable(path)
    for name in table.file_uris():
        rows = pq.read_table(name, partitioning=None)
        pq.write_table(rows, name, use_deprecated_int96_timestamps=True)
        kinds = [pq.ParquetFile(name).schema.column(n).physical_type for n in range(3)]
        assert "INT96" in kinds


def fed(path: Path, **table: Any) -> tuple[Any, Feed]:
    given = parsed(VALUE, path=str(path / "t"), format="delta", **table)
    feed = Feed(given)
    for number in range(3):
        at = LATE.isoformat().encode()
        feed.values(b'{"n": %d, "at": "%s", "deep": {"at": "%s"}}' % (number, at, at))
    as_spark_does(path / "t")
    return given, feed


def check(given: Any, numbers: list[int]) -> None:
    rows = sorted(pa.table(DeltaTable(given.path).to_pyarrow_table()).to_pylist(), key=lambda row: row["n"])
    assert [(row["n"], row["at"], row["deep"]) for row in rows] == [(n, LATE, {"at": LATE}) for n in numbers]
    for file in open_table(given).live():
        schema = pq.read_schema(Path(given.path) / file.path)
        assert schema.field("at").type == schema.field("deep").type.field(0).type == pa.timestamp("us", "UTC")
        assert pq.ParquetFile(Path(given.path) / file.path).schema.column(1).physical_type == "INT64"


@pytest.mark.parametrize("beside", [False, True])
def test_merged_files_have_the_types_of_the_table(tmp_path: Path, beside: bool) -> None:
    """Spark could not read the merged file: its timestamps were nanoseconds without a zone."""
    given, _ = fed(tmp_path)
    maintenance.care(given, InlineEngine()) if beside else maintenance.compact(given)
    assert len(open_table(given).live()) == 1
    check(given, [0, 1, 2])


def test_a_merge_by_key_writes_the_types_of_the_table(tmp_path: Path) -> None:
    given = parsed(VALUE, path=str(tmp_path / "t"), format="delta", mode="upsert", key=["n"])
    feed = Feed(given)
    at = LATE.isoformat()
    feed.values(*(f'{{"n": {n}, "at": "{at}", "deep": {{"at": "{at}"}}}}'.encode() for n in range(3)))
    as_spark_does(tmp_path / "t")
    feed.values(f'{{"n": 1, "at": "{at}", "deep": {{"at": "{at}"}}}}'.encode())
    check(given, [0, 1, 2])
