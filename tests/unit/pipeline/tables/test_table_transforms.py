"""Iceberg's partition transforms `bucket` and `truncate`: the specification's values, PyIceberg's, and tables."""

from __future__ import annotations

import random
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pytest
from pyiceberg import types
from pyiceberg.expressions import EqualTo
from pyiceberg.table import StaticTable
from pyiceberg.transforms import BucketTransform, TruncateTransform

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.specs import partitions, transforms
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores.opening import open_table
from tests.feed import Feed
from tests.unit.pipeline.tables.test_table_changes import parsed

UTC_US = pa.timestamp("us", "UTC")
SPECIFIED = [
    (34, pa.int32(), 2017239379),
    (34, pa.int64(), 2017239379),
    (Decimal("14.20"), pa.decimal128(9, 2), -500754589),
    (date(2017, 11, 16), pa.date32(), -653330422),
    (datetime(2017, 11, 16, 22, 31, 8), pa.timestamp("us"), -2047944441),
    (datetime(2017, 11, 16, 22, 31, 8, tzinfo=UTC), UTC_US, -2047944441),
    ("iceberg", pa.string(), 1210000089),
    (b"\0\1\2\3", pa.binary(), -188683207),
]
"""Of Appendix B of Iceberg's specification."""


@pytest.mark.parametrize(("value", "kind", "expected"), SPECIFIED, ids=[str(kind) for _, kind, _ in SPECIFIED])
def test_hashes_are_those_of_the_specification(value: Any, kind: pa.DataType, expected: int) -> None:
    column = pa.array([None, value, value], kind)
    assert transforms.hashes(column)[1:].tolist() == [expected] * 2
    assert transforms.bucket(column, 16).to_pylist() == [None, *[(expected & 0x7FFFFFFF) % 16] * 2]


@pytest.mark.parametrize(
    ("values", "kind", "width", "expected"),
    [
        ([1, -1, 19, None], pa.int32(), 10, [0, -10, 10, None]),
        ([1, -1], pa.int64(), 10, [0, -10]),
        (
            [Decimal("10.65"), Decimal("-0.05"), None],
            pa.decimal128(9, 2),
            50,
            [Decimal("10.50"), Decimal("-0.50"), None],
        ),
        (
            ["iceberg", "", "\U0001f600\U0001f601\U0001f602\U0001f603", None],
            pa.string(),
            3,
            ["ice", "", "\U0001f600\U0001f601\U0001f602", None],
        ),
    ],
)
def test_truncation_is_that_of_the_specification(values: Any, kind: pa.DataType, width: int, expected: Any) -> None:
    assert transforms.truncate(pa.array(values, kind), width).to_pylist() == expected


KINDS: dict[pa.DataType, Any] = {
    pa.int32(): types.IntegerType(),
    pa.int64(): types.LongType(),
    pa.decimal128(38, 10): types.DecimalType(38, 10),
    pa.date32(): types.DateType(),
    UTC_US: types.TimestamptzType(),
    pa.string(): types.StringType(),
    pa.binary(): types.BinaryType(),
}


@pytest.mark.parametrize("kind", KINDS, ids=str)
def test_random_values_go_where_pyiceberg_says(kind: pa.DataType) -> None:
    chance = random.Random(7)
    most = {pa.int32(): 31, pa.date32(): 21, UTC_US: 57, pa.decimal128(38, 10): 124}.get(kind, 63)
    numbers = [0, 1, -1, 127, 128, -128, -129, *(chance.randrange(-(1 << most), 1 << most) for _ in range(300))]
    if pa.types.is_decimal(kind):
        given: Any = [Decimal(Decimal(n).as_tuple()._replace(exponent=-10)) for n in numbers]
    elif kind in (pa.string(), pa.binary()):
        given = [chr(97 + n % 26) * (n % 40) + "\u00e4" for n in numbers]
    else:
        given = numbers
    plain = {pa.date32(): pa.int32(), UTC_US: pa.int64(), pa.binary(): pa.string()}.get(kind, kind)
    column = pa.array(given, plain).cast(kind)
    values = [value.encode() for value in given] if kind == pa.binary() else given
    expected = BucketTransform(37).transform(KINDS[kind])
    assert transforms.bucket(column, 37).to_pylist() == [expected(value) for value in values]
    if transforms.takes("truncate", kind):
        cut: Any = TruncateTransform(7).transform(KINDS[kind])
        wanted = pa.array([cut(value) for value in values[:100]], kind)
        assert transforms.truncate(column.slice(0, 100), 7).equals(wanted)


def iceberg(path: Path) -> StaticTable:
    return StaticTable.from_metadata(str(path))


@pytest.mark.parametrize("mode", ["append", "upsert"])
def test_iceberg_tables_by_bucket_and_prefix(tmp_path: Path, mode: str) -> None:
    """PyIceberg computes the partitions of a filter by itself, and finds the rows."""
    by = ["bucket(4, id)", "truncate(2, name)", "truncate(100, id)", "bucket(3, _key)"]
    more: Any = {"mode": "upsert", "key": ["id"]} if mode == "upsert" else {}
    schema = {"id": "long", "name": "string"}
    given = parsed(
        {"format": "json", "schema": schema}, path=str(tmp_path / "t"), format="iceberg", partitionBy=by, **more
    )
    feed = Feed(given)
    feed.values(*(b'{"id": %d, "name": "name/%d"}' % (n * 37 - 400, n) for n in range(20)), b'{"id": 8}')
    feed.values(b'{"id": -400, "name": "other"}')
    table = iceberg(tmp_path / "t")
    assert [str(field.transform) for field in table.spec().fields] == [
        "bucket[4]",
        "truncate[2]",
        "truncate[100]",
        "bucket[3]",
    ]
    assert [field.name for field in table.spec().fields] == [
        "_id_bucket",
        "_name_truncate",
        "_id_truncate",
        "_key_bucket",
    ]
    rows = table.scan().to_arrow()
    for n in range(20):
        number = n * 37 - 400
        some = table.scan(row_filter=EqualTo("id", number))
        expected = rows.filter(pc.equal(rows.column("id"), number)).num_rows
        assert some.to_arrow().num_rows == expected == (2 if mode == "append" and not n else 1)
        assert len(list(some.plan_files())) < len(list(table.scan().plan_files())) / 2
    assert table.scan(row_filter="name = 'other'").to_arrow().column("id").to_pylist() == [-400]
    assert {file.values["_name_truncate"] for file in open_table(given).live()} == {"na", "ot", None}
    before = rows.num_rows
    maintenance.compact(given)
    assert iceberg(tmp_path / "t").scan().to_arrow().num_rows == before


def test_transforms_that_no_table_can_have(tmp_path: Path) -> None:
    schema = pa.schema(
        [("id", pa.int64()), ("x", pa.float64()), ("tags", pa.list_(pa.string())), ("_timestamp", UTC_US)]
    )
    for entry, message in (
        ("bucket(4, x)", "bucket does not apply to double"),
        ("truncate(4, _timestamp)", "truncate does not apply to timestamp"),
        ("bucket(4, tags)", "bucket does not apply to list"),
        ("bucket(0, id)", "is neither a column nor one of"),
        ("bucket(id, 4)", "is neither a column nor one of"),
        ("truncate(4, none)", "column 'none' does not exist"),
    ):
        with pytest.raises(SpecError, match=message):
            partitions.parse([entry], schema)
    with pytest.raises(SpecError, match=r"'bucket\(8, id\)' is the second _id_bucket"):
        partitions.parse(["bucket(4, id)", "bucket(8, id)"], schema)
    for kind in ("delta", "parquet"):
        with pytest.raises(SpecError, match=r"'bucket\(4, id\)' is a transform of Iceberg"):
            parsed({"format": "json"}, path=str(tmp_path), format=kind, partitionBy=["bucket(4, id)"])


def test_a_prefix_that_no_folder_can_have_makes_a_dead_letter(tmp_path: Path) -> None:
    given = parsed({"format": "json"}, path=str(tmp_path / "t"), format="iceberg", partitionBy=["truncate(99, name)"])
    Feed(given).values(b'{"name": "a"}', ('{"name": "%s"}' % ("\u00e4" * 99)).encode())
    assert iceberg(tmp_path / "t").scan().to_arrow().column("name").to_pylist() == ["a"]
    assert [file.rows for file in open_table(given, dead_letters=True).live()] == [1]


def test_numbers_near_the_least_one_wrap_as_in_java() -> None:
    least = np.iinfo(np.int64).min
    assert transforms.truncate(pa.array([least], pa.int64()), 10).to_pylist() == [least - least % 10 + (1 << 64)]
