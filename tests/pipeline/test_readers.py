"""Foreign readers read the tables: Spark, pandas, DuckDB, deltalake, PyIceberg."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pandas as pd
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores.parquet import SCHEMA
from tests.documents import table_document
from tests.feed import Feed
from tests.peer import missing
from tests.spark import spark

__all__ = ["spark"]
pytestmark = [pytest.mark.timeout(900), pytest.mark.xdist_group("spark")]
TEXTS = ["plain", "a b", "q/=", "100%", "\u00e4", "\u65e5\u672c", "", None, "a+b", "x'y", "c:d", "e#f?"]


def written(folder: Path, kind: str) -> Path:
    """A table of two batches, partitioned by texts of every kind; the second batch adds a field."""
    table = {"path": str(folder / kind), "format": kind, "partitionBy": ["c"]}
    sections = {"value": {"format": "json", "evolve": "additive"}, "table": table, "engine": {"mode": "inline"}}
    feed = Feed(table_spec.parse(table_document(name="t", **sections)))
    feed.values(*(json.dumps({"n": n, "c": text}).encode() for n, text in enumerate(TEXTS)))
    feed.values(b'{"n":100,"c":"plain","more":"new"}')
    return folder / kind


def expected(*, empty: str | None) -> dict[int, str | None]:
    """The partition of each row; `empty` is the result of an empty text."""
    return {**{n: empty if text == "" else text for n, text in enumerate(TEXTS)}, 100: "plain"}


def cells(rows: list[dict[str, Any]]) -> dict[int, str | None]:
    found = {int(row["n"]): None if pd.isna(row["c"]) else str(row["c"]) for row in rows}
    assert len(found) == len(rows)
    return found


def test_spark_reads_a_parquet_table_with_every_partition_and_field(spark: Any, tmp_path: Path) -> None:
    """Texts beyond ASCII were garbled, an empty text made the table unreadable, and a new field was dropped."""
    rows = [row.asDict() for row in spark.read.parquet(str(written(tmp_path, "parquet"))).collect()]
    assert cells(rows) == expected(empty=None)
    assert {row["n"]: row["more"] for row in rows if row["more"] is not None} == {100: "new"}


def test_pandas_reads_a_parquet_table_with_its_schema(tmp_path: Path) -> None:
    """pandas reads Hive's folders as dictionaries, which have no null."""
    path, by_folder = written(tmp_path, "parquet"), ds.partitioning(flavor="hive")
    schema = pq.read_schema(path / SCHEMA).append(pa.field("c", pa.string()))
    found = pd.read_parquet(path, partitioning=by_folder, schema=schema)
    assert cells(found.to_dict("records")) == expected(empty=None)
    assert found.set_index("n")["more"].dropna().to_dict() == {100: "new"}


def test_duckdb_reads_a_parquet_table(tmp_path: Path) -> None:
    try:
        import duckdb
    except ImportError:
        missing("DuckDB", "pip install '.[dev]' installs it")
    path = written(tmp_path, "parquet")
    text = f"SELECT n, c, more FROM read_parquet('{path}/*/*.parquet', hive_partitioning=true, union_by_name=true)"
    found = duckdb.sql(text).df().to_dict("records")
    assert cells(found) == expected(empty=None)
    assert [row["n"] for row in found if row["more"] == "new"] == [100]


def test_deltalake_reads_a_delta_table(tmp_path: Path) -> None:
    """An empty text is null by Delta's protocol: Spark showed a text where deltalake and DuckDB showed null."""
    path = written(tmp_path, "delta")
    assert cells(DeltaTable(str(path)).to_pandas().to_dict("records")) == expected(empty=None)
    added = [
        json.loads(line) for file in (path / "_delta_log").glob("*.json") for line in file.read_text().splitlines()
    ]
    values = [one["add"]["partitionValues"]["c"] for one in added if "add" in one]
    assert "" not in values
    assert None in values


def test_pyiceberg_reads_an_iceberg_table(tmp_path: Path) -> None:
    rows = StaticTable.from_metadata(str(written(tmp_path, "iceberg"))).scan().to_arrow().to_pylist()
    assert cells(rows) == expected(empty="")
