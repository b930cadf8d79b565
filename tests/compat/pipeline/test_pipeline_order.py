"""Rows by key never go backwards: older records of another partition come later, with tombstones between them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import table_spec
from tests.compat.pipeline.test_pipeline_client import NOW, create
from tests.compat.pipeline.test_pipeline_table import document, rows, run
from tests.compat.targets import Target

CLIENT = "KafkaTable"
XDIST_GROUP = "spark"
KEYED = ["delta", "iceberg"]
pytestmark = pytest.mark.timeout(600)


def put(target: Target, topic: str, key: str, value: Any, partition: int, second: int) -> None:
    """Put a record with a time; a value of None is a tombstone."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": target.bootstrap})
    text = None if value is None else json.dumps(value)
    producer.produce(topic, text, key=key, partition=partition, timestamp=NOW + 1000 * second)
    assert producer.flush(60) == 0


def table(target: Target, topic: str, path: Path, kind: str, **more: Any) -> dict[str, Any]:
    value = {"format": "json", "schema": {"n": "long", "version": "long"}}
    return document(target, topic, path, kind, value=value, table={"mode": "upsert", "key": ["_key"], **more})


def numbers(path: Path, kind: str) -> dict[bytes, int]:
    found = rows(path, kind)
    assert len({row["_key"] for row in found}) == len(found)
    return {row["_key"]: row["n"] for row in found}


@pytest.mark.parametrize("kind", KEYED)
def test_an_older_record_of_another_partition_changes_nothing(
    cluster: Target, name: str, tmp_path: Path, kind: str
) -> None:
    """The older record changes neither rows nor tombstones. Within a partition only the offset decides."""
    create(cluster, name, 2)
    given = table(cluster, name, tmp_path / "t", kind)
    for key in ("row", "gone", "same"):
        put(cluster, name, key, {"n": 1}, 0, 100)
    put(cluster, name, "other", {"n": 1}, 0, 10)
    run(given)
    put(cluster, name, "row", {"n": 2}, 1, 50)
    put(cluster, name, "gone", None, 1, 50)
    put(cluster, name, "same", {"n": 2}, 0, 50)
    put(cluster, name, "other", {"n": 2}, 1, 50)
    run(given)
    assert numbers(tmp_path / "t", kind) == {b"row": 1, b"gone": 1, b"same": 2, b"other": 2}


@pytest.mark.parametrize("kind", KEYED)
def test_a_row_older_than_its_tombstone_does_not_return(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    """This holds as long as tombstones are remembered; a newer row does come."""
    create(cluster, name, 2)
    given = table(cluster, name, tmp_path / "t", kind)
    for key in ("a", "b", "never"):
        if key != "never":
            put(cluster, name, key, {"n": 1}, 0, 10)
        put(cluster, name, key, None, 0, 100)
    run(given)
    assert numbers(tmp_path / "t", kind) == {}
    for key, second in (("a", 50), ("b", 150), ("never", 99)):
        put(cluster, name, key, {"n": 2}, 1, second)
    run(given)
    assert numbers(tmp_path / "t", kind) == {b"b": 2}
    given["spec"]["table"]["tombstones"] = "0s"
    put(cluster, name, "a", {"n": 3}, 1, 60)
    run(given)
    assert numbers(tmp_path / "t", kind) == {b"a": 3, b"b": 2}
    maintenance.care(table_spec.parse(given), InlineEngine())
    assert not list((tmp_path / "t" / "_kraft_tombstones").iterdir())


@pytest.mark.parametrize("kind", KEYED)
def test_a_column_decides_the_order(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    """Within a partition as well. A tombstone has no columns, so its time and offset decide."""
    create(cluster, name, 2)
    given = table(cluster, name, tmp_path / "t", kind, orderBy="version")
    put(cluster, name, "a", {"n": 1, "version": 7}, 0, 10)
    put(cluster, name, "a", {"n": 2, "version": 6}, 0, 20)
    put(cluster, name, "b", {"n": 1, "version": 1}, 0, 10)
    run(given)
    put(cluster, name, "a", {"n": 3, "version": 5}, 0, 30)
    put(cluster, name, "b", {"n": 2, "version": 2}, 1, 5)
    run(given)
    assert numbers(tmp_path / "t", kind) == {b"a": 1, b"b": 2}
    put(cluster, name, "a", None, 0, 40)
    put(cluster, name, "b", {"n": 3, "version": 3}, 0, 1)
    run(given)
    assert numbers(tmp_path / "t", kind) == {b"b": 3}
