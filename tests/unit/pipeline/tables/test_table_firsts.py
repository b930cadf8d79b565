"""First batches without a row: dead letters, tombstones and gaps neither stop a table nor fix its columns."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from kraft_pipeline.tables import maintenance, values
from kraft_pipeline.tables.formats import jsonvalues
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores.opening import open_table
from kraft_protocol.records.batch import build_batch
from tests.debezium import event
from tests.documents import table_document
from tests.feed import Feed
from tests.unit.pipeline.tables.test_table_changes import records
from tests.unit.pipeline.tables.test_table_debezium import Topic

BY_ID = {"mode": "upsert", "key": ["id"]}
FIRSTS: dict[str, list[bytes | None]] = {
    "malformed": [b"no json", b"\xff"],
    "tombstones": [None, None],
    "nothing": [],
    "objects without fields": [b"{}", b"{}"],
    "some of each": [None, b"no json", b"{}", b"[]"],
}


def table(path: Path, value: dict[str, Any] | None = None, **more: Any) -> table_spec.TableSpec:
    value = {"format": "json", "evolve": "additive", **(value or {})}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), **more}}
    return table_spec.parse(table_document(name="t", **sections))


def rows(given: table_spec.TableSpec) -> list[dict[str, Any]]:
    """The rows with fields, by foreign readers."""
    if given.format == "delta":
        found = DeltaTable(given.path).to_pyarrow_table()
    elif given.format == "iceberg":
        found = StaticTable.from_metadata(given.path).scan().to_arrow()
    else:
        paths = [f"{given.path}/{file.path}" for file in open_table(given).live()]
        if not paths:
            return []
        found = duckdb.read_parquet(paths, hive_partitioning=True, union_by_name=True).to_arrow_table()
    return [row for row in found.to_pylist() if row.get("id") is not None]


def dead(given: table_spec.TableSpec) -> list[str]:
    found = open_table(given, dead_letters=True)
    if found.schema() is None:
        return []
    if given.format == "iceberg":
        return [row["code"] for row in StaticTable.from_metadata(given.dead_letter_path).scan().to_arrow().to_pylist()]
    texts = [f"{given.dead_letter_path}/{file.path}" for file in found.live()]
    return [code for text in texts for (code,) in duckdb.read_parquet(text).project("code").fetchall()]


KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "delta": ("delta", {}),
    "iceberg": ("iceberg", {}),
    "parquet": ("parquet", {}),
    "delta by key": ("delta", BY_ID),
    "iceberg by key": ("iceberg", BY_ID),
}


PARTITIONS: dict[str, list[str]] = {"whole": [], "country": ["country"], "both": ["date", "country"]}


def cases() -> Iterator[Any]:
    """Every first batch with every kind of table and partitions; at night those that differ in one way only."""
    for first, table_of, by in itertools.product(FIRSTS, KINDS, PARTITIONS):
        marks = () if by == "both" or first == "some of each" else (pytest.mark.slow,)
        yield pytest.param(first, table_of, PARTITIONS[by], id=f"{first}-{table_of}-{by}", marks=marks)


@pytest.mark.parametrize(("first", "table_of", "by"), list(cases()))
def test_a_table_grows_from_a_first_batch_without_fields(
    tmp_path: Path, first: str, table_of: str, by: list[str]
) -> None:
    """A table by key ended the run: 'there is no column id'; so did `partitionBy` of a field."""
    kind, mode = KINDS[table_of]
    given = table(tmp_path / "t", format=kind, partitionBy=by, **mode)
    feed = Feed(given)
    feed.values(*FIRSTS[first])
    assert rows(given) == []
    assert open_table(given).state().batch == 0
    feed.values(*FIRSTS[first])
    feed.values(b'{"id":1,"country":"de"}', b'{"id":2,"country":"fr"}', b'{"id":1,"country":"fr"}', b"no json")
    feed.values(b'{"id":3,"country":"de","more":1.5}')
    expected = [(2, "fr"), (1, "fr"), (3, "de")] if mode else [(1, "de"), (2, "fr"), (1, "fr"), (3, "de")]
    assert sorted((row["id"], row["country"]) for row in rows(given)) == sorted(expected)
    assert open_table(given).state().batch == 3
    assert [code for code in dead(given) if code.startswith("json")].count("defect") == 0
    maintenance.compact(given)
    assert sorted((row["id"], row["country"]) for row in rows(given)) == sorted(expected)


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_another_writer_continues_after_a_batch_without_fields(tmp_path: Path, kind: str) -> None:
    """The situation after a restart: the second writer finds the table, and the first one is fenced."""
    given = table(tmp_path / "t", format=kind, partitionBy=["country"], **BY_ID)
    logs, ends = itertools.count(), [b"no json", b'{"id":1,"country":"de"}', b'{"id":1,"country":"fr"}']
    for number, value in zip(logs, ends, strict=False):
        feed = Feed(given)
        feed.begin()
        feed.put(number, number + 1, build_batch([(b"k", value)], base_offset=number))
    assert [(row["id"], row["country"]) for row in rows(given)] == [(1, "fr")]
    assert len(dead(given)) == 1


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mode": "upsert", "key": ["idd"]}, "spec.table.key: column 'idd' does not exist"),
        ({**BY_ID, "orderBy": "when"}, "spec.table.orderBy: column 'when' does not exist"),
        ({"partitionBy": ["land"]}, "spec.table.partitionBy: 'land' is neither a column"),
    ],
)
@pytest.mark.parametrize("first", [[], [b"no json"]])
def test_a_wrong_name_is_reported_with_the_first_fields(
    tmp_path: Path, first: list[bytes], more: dict[str, Any], message: str
) -> None:
    """Only a batch with fields shows whether a name is right."""
    feed = Feed(table(tmp_path / "t", **more))
    if first:
        feed.values(*first)
    with pytest.raises(SpecError, match=f"^{message}"):
        feed.values(b'{"id":1,"country":"de"}')


@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_table_with_columns_does_not_get_a_key_from_values(tmp_path: Path, kind: str) -> None:
    """Its columns have types, so values do not change them."""
    Feed(table(tmp_path / "t", format=kind)).values(b'{"id":1,"n":1.5}')
    other = Feed(table(tmp_path / "t", {"evolve": "none"}, format=kind, mode="upsert", key=["other"]))
    other.begin()
    with pytest.raises(SpecError, match=r"^spec.table.key: column 'other' does not exist"):
        other.values(b'{"id":1,"n":1,"other":1}')


@pytest.mark.parametrize("kind", ["delta", "iceberg", "parquet"])
def test_a_table_with_rows_keeps_its_partitions(tmp_path: Path, kind: str) -> None:
    """Only a table without files may get other partitions."""
    Feed(table(tmp_path / "t", format=kind)).values(b'{"id":1,"country":"de"}')
    other = Feed(table(tmp_path / "t", format=kind, partitionBy=["country"]))
    other.begin()
    with pytest.raises(ValueError, match="is partitioned by"):
        other.values(b'{"id":1,"country":"de"}')


def test_a_column_that_a_transform_makes_is_not_missed() -> None:
    """Every record of a table that was partitioned by a column of the SELECT became a dead letter."""
    given = replace(
        table(Path("/t"), partitionBy=["tag", "country"]), transform="SELECT 'x' AS tag, country FROM records"
    )
    some = records((b"k", b'{"country":"de"}'), (b"k", b'{"country":"%s"}' % (b"x" * 300)))
    fields = pa.schema([("country", pa.string())])
    found = values.decode(some, given, fields, 0, additive=False, parse=jsonvalues.parse)
    assert found.rows.column("country").to_pylist() == ["de"]
    assert found.dead.column("code").to_pylist() == ["partition.name"]


def test_tombstones_before_the_first_change_event_are_left_out(tmp_path: Path) -> None:
    """A compacted topic may keep only the tombstone of a row; its key's columns are unknown until an event comes."""
    topic = Topic(table(tmp_path / "t", {"envelope": "debezium"}, **BY_ID))
    topic.put((b'{"id":1}', None), (b'{"id":2}', None))
    assert topic.dead() == []
    topic.put((b'{"id":3}', event("c", None, {"id": 3, "name": "ada"})))
    assert topic.rows("id", "name") == [{"id": 3, "name": "ada"}]
