"""KafkaTable on an S3-compatible store: rows, its position, leftovers of interrupted batches, kills."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import stem
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import ObjectStore
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import FORMATS, document, kill_often, rows, run
from tests.compat.pipeline.test_pipeline_table_life import KEYED, kill_often_by_key
from tests.compat.targets import Ours
from tests.objectstore import object_store

KILLS = int(os.environ.get("KRAFT_KILLS", "5"))
pytestmark = [pytest.mark.xdist_group("stores"), pytest.mark.timeout(900 + 60 * KILLS)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with object_store(tmp_path_factory.mktemp("store"), "lake") as options:
        yield options


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    target = Ours("kraftcluster", tmp_path_factory.mktemp("server"))
    yield target.start()
    target.kill()


def stored(target: Ours, topic: str, kind: str, store: dict[str, str], **more: Any) -> dict[str, Any]:
    table = {"storageOptions": store, **more.pop("table", {})}
    return document(target, topic, f"s3://lake/{topic}", kind, table=table, **more)


@pytest.mark.parametrize("kind", FORMATS)
def test_tables_on_an_object_store_have_every_row(server: Ours, store: dict[str, str], kind: str) -> None:
    create(server, kind)
    values = produced(server, kind, 200)
    given = stored(server, kind, kind, store, commit={"maxRows": 120})
    parsed = table_spec.parse(given)
    assert [p.rows for p in run(given)] == [120, 80]
    left = f"{stem(parsed.app_id, 0)}b00000009-0-0.parquet"
    files = ObjectStore(parsed.path, store)
    intents.batch(files, parsed.app_id, 0, 9).intend([left])
    files.write(left, b"of a batch that was cut off")
    produced(server, kind, 5, first=200)
    assert [(p.batch, p.rows) for p in run(given)] == [(2, 5)]
    assert not files.exists(left)
    found = sorted(rows(parsed.path, kind, store), key=lambda row: row["offset"])
    assert [row["value"] for row in found][:200] == values
    assert [row["offset"] for row in found] == list(range(205))
    assert maintenance.compact(parsed) == (3, 1)
    assert maintenance.reset(parsed) > 0
    assert list(files.list()) == []
    assert sum(p.rows for p in run(given)) == 205


def test_of_two_simultaneous_transactions_the_store_accepts_one(store: dict[str, str]) -> None:
    files = ObjectStore("s3://lake/contested", store)
    assert files.create("a/1", b"one")
    assert not files.create("a/1", b"two")
    assert files.create("a/1", b"one")  # the answer was lost, and the put repeated
    assert files.read("a/1") == b"one"
    assert [(file.path, file.size) for file in files.list("a")] == [("a/1", 3)]
    files.delete("a/1")
    files.delete("a/1")
    with pytest.raises(FileNotFoundError):
        files.read("a/1")
    with pytest.raises(OSError, match="nosuchbucket"):
        ObjectStore("s3://nosuchbucket/t", store).create("a", b"")
    assert ParquetTable(files, "a").state().batch == -1


@pytest.mark.slow
@pytest.mark.parametrize("kind", FORMATS)
def test_killed_on_an_object_store(server: Ours, tmp_path: Path, store: dict[str, str], kind: str) -> None:
    kill_often(server, tmp_path, stored(server, f"killed-{kind}", kind, store), KILLS)


@pytest.mark.slow
@pytest.mark.parametrize("kind", KEYED)
def test_rows_by_key_killed_on_an_object_store(server: Ours, tmp_path: Path, store: dict[str, str], kind: str) -> None:
    kill_often_by_key(server, tmp_path, stored(server, f"keyed-{kind}", kind, store), KILLS)
