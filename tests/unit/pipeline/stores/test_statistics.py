"""Statistics of columns: readers that skip files by them find the same rows as readers that do not."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, LessThanOrEqual
from pyiceberg.table import StaticTable

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.tasks import encoded
from tests.feed import Feed
from tests.unit.pipeline.test_table_changes import parsed

TYPES = {"n": "long", "i": "int", "x": "double", "f": "float", "at": "timestamp", "day": "date"}


def text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else value


def generated(chance: random.Random, low: int) -> dict[str, Any]:
    """A row near `low`, so that files have different bounds."""
    at = datetime(1970, 1, 1, tzinfo=UTC) + timedelta(days=low, microseconds=chance.randrange(10**9))
    row = {
        "n": low * 10 + chance.randrange(10),
        "i": low,
        "x": chance.choice([-0.0, 0.0, low + chance.random()]),
        "f": chance.choice([low / 2, -0.0]),
        "at": at,
        "day": at.date(),
    }
    return {name: value for name, value in row.items() if chance.random() < 0.8}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("seed", range(3))
def test_readers_that_skip_files_find_the_same_rows(tmp_path: Path, kind: str, seed: int) -> None:
    chance = random.Random(seed)
    given = parsed({"format": "json", "schema": TYPES}, path=str(tmp_path / "t"), format=kind)
    feed, rows = Feed(given), []
    for low in (-40_000, -1, 0, 1, 700_000):
        some = [generated(chance, low) for _ in range(4)]
        rows += some
        feed.values(*(json.dumps({k: text(v) for k, v in row.items()}).encode() for row in some))
    if seed == 1:
        maintenance.compact(given)
    if kind == "parquet":
        return  # no reader uses its log: it must only be written
    values = sorted({(name, value) for row in rows for name, value in row.items()}, key=repr)
    for name, value in chance.sample(values, 25):
        for way in ("==", ">=", "<="):
            expected = sum(1 for row in rows if name in row and holds(row[name], way, value))
            assert found(given.path, kind, name, way, value) == expected, (name, way, value)


def holds(one: Any, way: str, other: Any) -> bool:
    return bool(one == other if way == "==" else one >= other if way == ">=" else one <= other)


def found(path: str, kind: str, name: str, way: str, value: Any) -> int:
    if kind == "delta":
        field = ds.field(name)
        like = pa.scalar(value, dict(zip(TYPES, KINDS, strict=True))[name])
        wanted = {"==": field == like, ">=": field >= like, "<=": field <= like}[way]
        return int(DeltaTable(path).to_pyarrow_dataset().count_rows(filter=wanted))
    given = value.isoformat() if isinstance(value, date) else value
    ways: Any = {"==": EqualTo, ">=": GreaterThanOrEqual, "<=": LessThanOrEqual}
    return int(iceberg(path).scan(row_filter=ways[way](name, given)).to_arrow().num_rows)


def iceberg(path: str) -> StaticTable:
    version = (Path(path) / "metadata/version-hint.text").read_text()
    return StaticTable.from_metadata(f"{path}/metadata/v{version}.metadata.json")


KINDS = [pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.timestamp("us", "UTC"), pa.date32()]


def test_bounds_of_files_are_in_the_logs(tmp_path: Path) -> None:
    """A test of skipping passes without bounds, too."""
    given = parsed({"format": "json", "schema": TYPES}, path=str(tmp_path / "d"), format="delta")
    value = b'{"n": 1, "i": 2, "x": -0.5, "f": 0.25, "at": "2024-02-29T10:00:00.000001Z", "day": "2024-02-29"}'
    Feed(given).values(value)
    adds = pa.table(DeltaTable(given.path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (adds["min.x"], adds["max.f"], adds["max.day"]) == (-0.5, 0.25, date(2024, 2, 29))
    assert adds["min.at"] == datetime(2024, 2, 29, 10, tzinfo=UTC)
    assert adds["max.at"] == datetime(2024, 2, 29, 10, 0, 0, 1000, UTC), "milliseconds, rounded up"
    given = parsed({"format": "json", "schema": TYPES}, path=str(tmp_path / "i"), format="iceberg")
    Feed(given).values(value)
    (file,) = iceberg(given.path).inspect.files().to_pylist()
    assert file["readable_metrics"]["at"]["upper_bound"] == datetime(2024, 2, 29, 10, 0, 0, 1, UTC)
    assert file["readable_metrics"]["x"]["lower_bound"] == -0.5


@pytest.mark.parametrize("strange", [math.nan, math.inf, -math.inf])
def test_columns_with_strange_numbers_have_no_bounds(strange: float) -> None:
    """Spark orders NaN above all numbers, Iceberg counts them apart, and JSON has none of these."""
    rows = pa.table({"x": [1.0, strange, None], "y": [0.0, -0.0, None]})
    _, least, most = encoded(rows)
    assert (set(least), set(most)) == ({"y"}, {"y"})
    assert math.copysign(1, least["y"]) == -1 and math.copysign(1, most["y"]) == 1
    assert pc.min_max(rows.column("y")).as_py()["max"] == 0
