"""Spark, with the jars of Delta and Iceberg, finds the rows of files by their statistics and transforms.

Spark computes buckets and truncated values of a filter by itself.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.specs import table_spec
from kraft_protocol.records.batch import NewRecord, build_batch
from tests.documents import table_document
from tests.feed import Feed
from tests.lake import Lake

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("lake"), pytest.mark.timeout(900)]
TYPES = {"id": "long", "s": "string", "d": "decimal(38,10)", "b": "boolean", "day": "date"}
BY = ["bucket(4, id)", "truncate(2, s)", "bucket(3, d)", "truncate(100, id)", "bucket(3, day)"]
ROWS: list[dict[str, Any]] = [
    {"id": 1, "s": "a" * 40, "d": "1234567890123456789012345678.0123456789", "b": True, "day": "2024-02-29"},
    {"id": -500, "s": "a" * 40 + "b", "d": "-0.5000000000", "b": False, "day": "1969-12-31"},
    {"id": 1 << 60, "s": "\u00e4\U0001f600\U0001f600", "d": "0.0000000001", "b": True, "day": "9999-12-31"},
    {"id": 7, "s": "\U0010ffff" * 33, "d": "-1234567890123456789012345678.0123456789", "day": "0001-01-01"},
    {"id": 8, "s": "it's", "b": False},
    {"id": 9},
]


@pytest.fixture(scope="module")
def lake(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    with Lake(tmp_path_factory.mktemp("lake")) as found:
        yield found


def literal(name: str, value: Any) -> str:
    """A value in Spark's SQL."""
    text = str(value).replace("'", "\\'")
    return {
        "id": f"{value}",
        "s": f"'{text}'",
        "d": f"CAST('{value}' AS DECIMAL(38,10))",
        "b": str(value).lower(),
        "day": f"DATE'{value}'",
    }[name]


@pytest.mark.parametrize("merged", [False, pytest.param(True, marks=pytest.mark.slow)], ids=["files", "merged files"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_spark_finds_rows_by_their_values(tmp_path: Path, lake: Lake, kind: str, merged: bool) -> None:
    more: dict[str, Any] = {"partitionBy": BY} if kind == "iceberg" else {}
    table = {"path": str(tmp_path / "t"), "format": kind, **more}
    value = {"format": "json", "schema": TYPES}
    given = table_spec.parse(table_document(name="t", engine={"mode": "inline"}, value=value, table=table))
    feed = Feed(given)
    for row in ROWS:
        feed.values(json.dumps(row).encode())
    if merged:
        maintenance.compact(given)
    for name in TYPES:
        for one in {row[name] for row in ROWS if name in row}:
            found = lake.read(kind, given.path, where=f"{name} = {literal(name, one)}")
            expected = sorted(row["id"] for row in ROWS if row.get(name) == one)
            assert sorted(row["id"] for row in found) == expected, (name, one)
        found = lake.read(kind, given.path, where=f"{name} IS NULL")
        assert sorted(row["id"] for row in found) == sorted(row["id"] for row in ROWS if name not in row)
    assert {row["d"] for row in lake.read(kind, given.path) if row["d"] is not None} == {
        Decimal(row["d"]) for row in ROWS if "d" in row
    }


@pytest.mark.parametrize(
    ("kind", "single"),
    [
        ("delta", False),
        ("iceberg", True),
        pytest.param("delta", True, marks=pytest.mark.slow),
        pytest.param("iceberg", False, marks=pytest.mark.slow),
    ],
)
def test_spark_reads_decoded_keys_and_maps_of_headers(tmp_path: Path, lake: Lake, kind: str, single: bool) -> None:
    key: dict[str, Any] = (
        {"format": "json", "type": "string"} if single else {"format": "json", "schema": {"k": "long"}}
    )
    table = {"path": str(tmp_path / "t"), "format": kind}
    sections: Any = {"key": key, "headers": {"format": "map", "values": "string"}, "table": table}
    value = {"format": "json", "schema": {"id": "long"}}
    given = table_spec.parse(table_document(name="t", engine={"mode": "inline"}, value=value, **sections))
    keys = [b'"\xc3\xa4"' if single else b'{"k": 5}', None]
    headers: list[tuple[tuple[str, bytes | None], ...]] = [(("h", b"1"), ("n", None)), ()]
    records = [
        NewRecord(key, b'{"id": %d}' % n, 1_000_000 + n, more)
        for n, (key, more) in enumerate(zip(keys, headers, strict=True))
    ]
    Feed(given).put(0, 2, build_batch(records, base_offset=0))
    found = sorted(lake.read(kind, given.path), key=lambda row: int(row["id"]))
    assert [row["_key"] for row in found] == ["\u00e4" if single else {"k": 5}, None]
    assert [row["_headers"] for row in found] == [{"h": "1", "n": None}, None]
