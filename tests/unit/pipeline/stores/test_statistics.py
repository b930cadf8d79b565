"""Statistics of columns: readers that skip files by them find the same rows as readers that do not."""

from __future__ import annotations

import json
import math
import random
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable
from pyiceberg.expressions import EqualTo, GreaterThanOrEqual, IsNull, LessThanOrEqual, NotNull
from pyiceberg.table import StaticTable

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.stores.datafiles import BOUND_LENGTH, encoded
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.storage import Folder
from tests.feed import Feed
from tests.tiers import seeds
from tests.unit.pipeline.tables.test_table_changes import parsed

TYPES = {"n": "long", "i": "int", "x": "double", "f": "float", "at": "timestamp", "day": "date"}
TYPES |= {"s": "string", "b": "boolean", "d": "decimal(38,10)", "e": "decimal(5,2)"}
LETTERS = ["", "a", "\0", "\x7f", "\ud7ff", "\ue000", "\U0001f600", "\U0010ffff"]


def text(value: Any) -> Any:
    return value.isoformat() if isinstance(value, date) else str(value) if isinstance(value, Decimal) else value


def exact(number: int, scale: int) -> Decimal:
    """A decimal with more digits than Python's context has."""
    return Decimal(Decimal(number).as_tuple()._replace(exponent=-scale))


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
        "s": chance.choice(LETTERS) * chance.choice([1, 31, 32, 40]) + chance.choice(LETTERS),
        "b": chance.choice([low < 0, True]),
        "d": exact(low * 10**27 + chance.randrange(10), 10),
        "e": exact(low % 100 - 50, 2),
    }
    return {name: value for name, value in row.items() if chance.random() < 0.8}


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
@pytest.mark.parametrize("seed", seeds([1, 0, 2], everyday=2))
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
    given: Any = value.isoformat() if isinstance(value, date) else value
    ways: Any = {"==": EqualTo, ">=": GreaterThanOrEqual, "<=": LessThanOrEqual}
    return int(iceberg(path).scan(row_filter=ways[way](name, given)).to_arrow().num_rows)


def iceberg(path: str) -> StaticTable:
    version = (Path(path) / "metadata/version-hint.text").read_text()
    return StaticTable.from_metadata(f"{path}/metadata/v{version}.metadata.json")


KINDS = [pa.int64(), pa.int32(), pa.float64(), pa.float32(), pa.timestamp("us", "UTC"), pa.date32()]
KINDS += [pa.string(), pa.bool_(), pa.decimal128(38, 10), pa.decimal128(5, 2)]


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
    _, _, least, most, nulls = encoded(rows)
    assert (set(least), set(most), nulls) == ({"y"}, {"y"}, {"x": 1, "y": 1})
    assert math.copysign(1, least["y"]) == -1 and math.copysign(1, most["y"]) == 1
    assert pc.min_max(rows.column("y")).as_py()["max"] == 0


@pytest.mark.parametrize(
    ("given", "least", "most"),
    [
        ("x" * 32, "x" * 32, "x" * 32),
        ("x" * 33, "x" * 32, "x" * 31 + "y"),
        ("x" * 31 + "\ud7ff" + "z", "x" * 31 + "\ud7ff", "x" * 31 + "\ue000"),
        ("x" * 31 + "\U0010ffff" + "z", "x" * 31 + "\U0010ffff", "x" * 30 + "y"),
        ("\U0010ffff" * 33, None, None),
        (b"\1" * 33, b"\1" * 32, b"\1" * 31 + b"\2"),
        (b"\1" * 30 + b"\xff" * 3, b"\1" * 30 + b"\xff\xff", b"\1" * 29 + b"\2"),
        (b"\xff" * 33, None, None),
    ],
)
def test_bounds_of_long_texts_are_shorter_and_still_bounds(given: Any, least: Any, most: Any) -> None:
    found = encoded(pa.table({"s": [given, None]}))
    assert (found.minima.get("s"), found.maxima.get("s")) == (least, most)
    assert least is None or (least <= given <= most and len(least) <= BOUND_LENGTH)


def test_bounds_of_texts_decimals_and_booleans_are_in_the_logs(tmp_path: Path) -> None:
    """deltalake misreads escaped characters above U+FFFF, and a decimal as a double would be another one."""
    schema = {"s": "string", "d": "decimal(38,10)", "b": "boolean", "none": "string"}
    digits, smile = "1234567890123456789012345678.0123456789", "\U0001f600"
    value = json.dumps({"s": smile, "d": digits, "b": True}).encode()
    given = parsed({"format": "json", "schema": schema}, path=str(tmp_path / "d"), format="delta")
    Feed(given).values(value)
    adds = pa.table(DeltaTable(given.path).get_add_actions(flatten=True)).to_pylist()[0]
    assert (adds["min.s"], adds["max.s"], adds["min.d"], adds["max.b"]) == (smile, smile, Decimal(digits), True)
    assert (adds["null_count.s"], adds["null_count.none"]) == (0, 1)
    given = parsed({"format": "json", "schema": schema}, path=str(tmp_path / "i"), format="iceberg")
    Feed(given).values(value)
    table = iceberg(given.path)
    (file,) = table.inspect.files().to_pylist()
    metrics = file["readable_metrics"]
    assert (metrics["s"]["lower_bound"], metrics["d"]["upper_bound"]) == (smile, Decimal(digits))
    assert metrics["_key"]["lower_bound"] == b"k"
    assert [(metrics[name]["value_count"], metrics[name]["null_value_count"]) for name in ("b", "none")] == [
        (1, 0),
        (1, 1),
    ]
    for where, files in ((IsNull("none"), 1), (IsNull("s"), 0), (NotNull("none"), 0), (NotNull("s"), 1)):
        assert len(list(table.scan(row_filter=where).plan_files())) == files


STRANGE = {
    "nan": pa.array([1.5, math.nan]),
    "infinity": pa.array([1.5, math.inf]),
    "text": pa.array(["b", "\U0010ffff" * (BOUND_LENGTH + 1)]),
    "time": pa.array([5, 1 << 62], pa.timestamp("us", "UTC")),
}


@pytest.mark.parametrize("what", STRANGE)
def test_deltalake_finds_the_rows_of_files_without_bounds(tmp_path: Path, what: str) -> None:
    """It compares the other rows of such a file with null, unless the file has no bounds at all."""
    values = STRANGE[what]
    plain, strange = pa.table({"x": values.slice(0, 1), "n": [1]}), pa.table({"x": values, "n": [2, 3]})
    table = DeltaTableOf(str(tmp_path), "app", {})
    table.create(plain.schema, [])
    for batch, rows in enumerate((plain, strange)):
        made = encoded(rows)
        Folder(tmp_path).write(f"{batch}.parquet", made.data)
        table.commit(batch, Position({}), [made.at(f"{batch}.parquet", {})], after=batch - 1)
    found = DeltaTable(str(tmp_path)).to_pyarrow_dataset()
    assert found.to_table(filter=ds.field("x") == values[0]).num_rows == 2
    assert found.to_table(filter=ds.field("n") >= 2).num_rows == 2


def test_deltalake_finds_rows_by_columns_behind_those_with_statistics(tmp_path: Path) -> None:
    nested = {"l": "array<string>", "m": "map<string, long>", "o": "struct<a: string, b: long>"}
    types = {**nested, **{f"c{n}": "string" for n in range(40)}}
    given = parsed({"format": "json", "schema": types}, path=str(tmp_path / "t"), format="delta", partitionBy=["c3"])
    feed = Feed(given)
    for low in range(3):
        feed.values(json.dumps({"o": {"a": "x", "b": low}, **{f"c{n}": f"v{low}" for n in range(40)}}).encode())
    table = DeltaTable(given.path).to_pyarrow_dataset()
    for name in [f"c{n}" for n in range(40)] + ["_topic"]:
        assert table.count_rows(filter=ds.field(name) == ("t" if name == "_topic" else "v1")) == (
            3 if name == "_topic" else 1
        ), name


@pytest.mark.parametrize("seed", range(3))
def test_bounds_of_texts_are_those_of_all_rows(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """They come from the statistics of the groups of rows in the file."""
    chance = random.Random(seed)
    write = pq.write_table
    monkeypatch.setattr(pq, "write_table", lambda *given, **more: write(*given, **{**more, "row_group_size": 3}))
    texts = [chance.choice([None, "".join(chance.choices(LETTERS[1:], k=chance.randrange(4)))]) for _ in range(20)]
    texts[:3] = [None] * 3
    texts[3] = "m"
    data = [None if text is None else text.encode() for text in texts]
    long = [*texts[:19], "\u00e4" * 5000]
    nested = [{"s": "zz"}] * 20
    rows = pa.table({"s": texts, "b": data, "long": long, "o": nested, "o.s": texts, "none": pa.nulls(20, pa.string())})
    found = encoded(rows)
    for name in ("s", "b", "o.s"):
        least, most = pc.min_max(rows.column(name)).as_py().values()
        assert (found.minima[name], found.maxima[name]) == (least, most)
    assert found.maxima["long"] >= max(text for text in long if text)[:BOUND_LENGTH]
    assert "none" not in found.minima
