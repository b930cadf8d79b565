"""At its start a writer deletes leftovers of its own table's writers, but no files that others are about to commit."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import stem
from kraft_pipeline.tables.stores.storage import Folder
from tests.compat.pipeline.test_pipeline_client import create, produced
from tests.compat.pipeline.test_pipeline_table import document, rows, run, send, written_files
from tests.compat.pipeline.test_pipeline_table_life import keyed
from tests.compat.targets import Target

CLIENT = "KafkaTable"
XDIST_GROUP = "spark"
FORMATS = ["delta", "iceberg", "parquet"]
pytestmark = pytest.mark.timeout(600)


def named(given: dict[str, Any], name: str) -> dict[str, Any]:
    return given | {"metadata": {"name": name}}


class Interrupted(InlineEngine):
    """Runs a function after tasks have written their files and before these are committed."""

    def __init__(self, what: Any) -> None:
        self._what = what

    def run(self, job: Any, ranges: Any) -> Any:
        found = super().run(job, ranges)
        self._what()
        return found


class Dies(InlineEngine):
    def run(self, job: Any, ranges: Any) -> Any:
        super().run(job, ranges)
        raise KeyboardInterrupt


@pytest.mark.parametrize("kind", FORMATS)
@pytest.mark.parametrize(("first", "second"), [("orders", "orders-eu"), ("orders-eu", "orders")])
def test_two_specifications_on_one_path(
    cluster: Target, name: str, tmp_path: Path, kind: str, first: str, second: str
) -> None:
    """A writer starts while the other is between files and commit; each sweeps only its own files."""
    create(cluster, name)
    produced(cluster, name, 30)
    given = document(cluster, name, tmp_path / "t", kind)
    one, other = (table_spec.parse(named(given, which)) for which in (first, second))
    run(named(given, first))
    produced(cluster, name, 30, first=30)
    engine = Interrupted(lambda: runner.Runner(other, InlineEngine()).run(once=True))
    runner.Runner(one, engine).run(once=True)
    runner.Runner(other, InlineEngine()).run(once=True)
    offsets = Counter(row["offset"] for row in rows(tmp_path / "t", kind))
    assert offsets == Counter([*range(60), *range(60)])
    produced(cluster, name, 10, first=60)
    for which in (one, other):
        with pytest.raises(KeyboardInterrupt):
            runner.Runner(which, Dies()).run(once=True)
    known = runner.open_table(one).files()
    assert len(written_files(one) - known) == 2
    runner.Runner(one, InlineEngine()).begin()
    (left,) = written_files(one) - known
    assert Path(left).name.startswith(f"{other.app_id}-e")
    runner.Runner(other, InlineEngine()).begin()
    assert written_files(one) == known


@pytest.mark.parametrize("kind", FORMATS)
def test_a_start_does_not_list_the_table(
    cluster: Target, name: str, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    create(cluster, name)
    produced(cluster, name, 20)
    given = table_spec.parse(document(cluster, name, tmp_path / "t", kind))
    runner.Runner(given, InlineEngine()).run(once=True)
    produced(cluster, name, 10, first=20)
    with pytest.raises(KeyboardInterrupt):
        runner.Runner(given, Dies()).run(once=True)
    listed, plain = list[str](), Folder.list

    def listing(store: Folder, path: str = "") -> Any:
        listed.append(path)
        return plain(store, path)

    monkeypatch.setattr(Folder, "list", listing)
    runner.Runner(given, InlineEngine()).run(once=True)
    assert "" not in listed
    monkeypatch.undo()
    assert Counter(row["offset"] for row in rows(tmp_path / "t", kind)) == Counter(range(30))
    assert written_files(given) == runner.open_table(given).files()
    assert list(intents.unsettled(Folder(tmp_path / "t"), given.app_id)) == []


@pytest.mark.parametrize("kind", FORMATS)
def test_files_of_a_repeated_task_are_removed_with_their_batch(
    cluster: Target, name: str, tmp_path: Path, kind: str
) -> None:
    """Spark runs a task again if it lost the executor or finds the task slow."""

    class Twice(InlineEngine):
        def run(self, job: Any, ranges: Any) -> Any:
            super().run(job, ranges)
            return super().run(job, ranges)

    create(cluster, name)
    send(cluster, name, [b'{"n": 1}', b"dead"])
    value = {"format": "json", "schema": {"n": "long"}}
    given = table_spec.parse(document(cluster, name, tmp_path / "t", kind, value=value))
    runner.Runner(given, Twice()).run(once=True)
    for dead_letters in (False, True):
        files = runner.open_table(given, dead_letters=dead_letters).files()
        assert len(files) == 1
        assert written_files(given, dead_letters=dead_letters) == files


def test_files_that_another_engine_is_writing_are_left_alone(cluster: Target, name: str, tmp_path: Path) -> None:
    """Spark's tasks name their files part-…, as delta-rs does: for rows by key, each start deleted them."""
    create(cluster, name)
    keyed(cluster, name, [("a", b"1"), ("b", b"2")])
    given = document(cluster, name, tmp_path / "t", "delta", table={"mode": "upsert", "key": ["key"]})
    run(given)
    strangers = [
        tmp_path / "t" / "part-00000-7-c000.snappy.parquet",
        tmp_path / "t" / f"{stem('x', 1)}b00000001.parquet",
    ]
    for stranger in strangers:
        stranger.write_bytes(b"in flight")
    keyed(cluster, name, [("a", None)])
    run(given)
    assert all(stranger.exists() for stranger in strangers)


def test_a_change_data_feed_stays_readable(cluster: Target, name: str, tmp_path: Path) -> None:
    """A Delta table with rows by key and a change data feed; a start deleted the files of the feed."""
    from deltalake import DeltaTable

    create(cluster, name)
    keyed(cluster, name, [("a", b"1"), ("b", b"2")])
    given = document(cluster, name, tmp_path / "t", "delta", table={"mode": "upsert", "key": ["key"]})
    run(given)
    DeltaTable(str(tmp_path / "t")).alter.set_table_properties({"delta.enableChangeDataFeed": "true"})
    begin = DeltaTable(str(tmp_path / "t")).version() + 1
    keyed(cluster, name, [("a", b"3"), ("b", None), ("c", b"4")])
    run(given)
    keyed(cluster, name, [("a", b"5")])
    run(given)
    feed = pa.table(DeltaTable(str(tmp_path / "t")).load_cdf(starting_version=begin).read_all())
    changes = Counter((row["key"], row["value"], row["_change_type"]) for row in feed.to_pylist())
    assert changes == Counter(
        [
            (b"a", b"1", "update_preimage"),
            (b"a", b"3", "update_postimage"),
            (b"b", b"2", "delete"),
            (b"c", b"4", "insert"),
            (b"a", b"3", "update_preimage"),
            (b"a", b"5", "update_postimage"),
        ]
    )
    assert {row["key"]: row["value"] for row in rows(tmp_path / "t", "delta")} == {b"a": b"5", b"c": b"4"}


@pytest.mark.parametrize("kind", FORMATS)
def test_a_table_of_an_earlier_version_continues(cluster: Target, name: str, tmp_path: Path, kind: str) -> None:
    """It has neither leader epochs nor records of files. Once, the files of its writers are recognized by name."""
    create(cluster, name)
    produced(cluster, name, 20)
    given = document(cluster, name, tmp_path / "t", kind)
    run(given)
    parsed, folder = table_spec.parse(given), tmp_path / "t"
    for file in (folder / intents.FOLDER).rglob("*.json"):
        file.unlink()
    for file in folder.rglob("*.json"):
        file.write_text(_without_epochs(file.read_text()))
    left = folder / f"{stem(parsed.app_id, 1)}b00000009-x-0-y.parquet"
    kept = folder / f"{stem(parsed.app_id + '-eu', 1)}b00000009-x-0-y.parquet"
    left.touch()
    kept.touch()
    assert runner.open_table(parsed).state().position.epochs == {}  # type: ignore[union-attr]
    produced(cluster, name, 10, first=20)
    assert sum(p.rows for p in run(given)) == 10
    assert Counter(row["offset"] for row in rows(folder, kind)) == Counter(range(30))
    assert not left.exists()
    assert kept.exists()
    left.touch()
    run(given)
    assert left.exists()
    assert runner.open_table(parsed).state().position.epochs == {(name, 0): 0}  # type: ignore[union-attr]
    assert maintenance.status(parsed)["lag"] == 0


def _without_epochs(text: str) -> str:
    """A commit by a version without epochs, whose positions are JSON, or texts of JSON in JSON."""

    def plain(found: Any) -> Any:
        if isinstance(found, dict):
            return {key: plain(value) for key, value in found.items() if key != "@epochs"}
        if isinstance(found, list):
            return [plain(value) for value in found]
        if isinstance(found, str) and "@epochs" in found:
            return json.dumps(plain(json.loads(found)))
        return found

    return "\n".join(json.dumps(plain(json.loads(line))) for line in text.splitlines())
