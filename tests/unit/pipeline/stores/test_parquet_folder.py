"""Engines read all files in the folder of a Parquet table: each row is there once, also after replacements."""

from __future__ import annotations

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pytest

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.replay import Replayed, replay
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores import intents, parquet
from kraft_pipeline.tables.stores.committer import Added, stem
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import open_storage
from tests.documents import table_document
from tests.feed import Feed


def given(path: Path, **value: Any) -> table_spec.TableSpec:
    value = {"format": "json", "schema": {"n": "long"}, **value}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), "format": "parquet"}}
    return table_spec.parse(table_document(**sections))


def column(path: str, name: str) -> list[int]:
    """The values of a column, as an engine reads them."""
    return [row[0] for row in duckdb.read_parquet(f"{path}/*.parquet").order(name).project(name).fetchall()]


def merge(table: table_spec.TableSpec, *, beside: bool) -> None:
    maintenance.care(table, InlineEngine()) if beside else maintenance.compact(table)


@pytest.mark.parametrize("beside", [False, True])
def test_merged_rows_are_there_once(tmp_path: Path, beside: bool) -> None:
    """Replaced files stayed for `vacuumAfter`, seven days, so engines read each merged row twice."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(3):
        feed.values(b'{"n": %d}' % n)
    merge(table, beside=beside)
    assert len(list((tmp_path / "t").glob("*.parquet"))) == 1
    assert column(table.path, "n") == [0, 1, 2]


class Watching(InlineEngine):
    """Notes the rows that an engine reads before each step."""

    def __init__(self, path: str) -> None:
        self._path, self.seen = path, list[list[int]]()

    def map(self, call: Any, work: Any) -> Any:
        self.seen.append(column(self._path, "n"))
        return super().map(call, work)


def test_files_are_replaced_group_by_group(tmp_path: Path) -> None:
    """A large table takes hours to merge: all merged files stood beside their parts until the last one was written."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(4):
        feed.values(b'{"n": %d}' % n)
    size = max(file.size for file in open_table(table).live())
    engine = Watching(table.path)
    assert maintenance.compact(replace(table, compact_to=size * 5 // 2), engine) == (4, 2)
    assert engine.seen == [[0, 1, 2, 3]] * 2
    assert column(table.path, "n") == [0, 1, 2, 3]


@pytest.mark.parametrize("next_step", ["maintenance", "start"])
@pytest.mark.parametrize("beside", [False, True])
def test_replaced_files_of_a_killed_writer_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, beside: bool, next_step: str
) -> None:
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(3):
        feed.values(b'{"n": %d}' % n)

    def killed(_: ParquetTable) -> int:
        raise KeyboardInterrupt

    with monkeypatch.context() as patched:
        patched.setattr(ParquetTable, "_remove_replaced", killed)
        with pytest.raises(KeyboardInterrupt):
            merge(table, beside=beside)
    if next_step == "start":
        Runner(table, InlineEngine()).begin()
    else:
        maintenance.care(table, InlineEngine())
    assert column(table.path, "n") == [0, 1, 2]


def test_dead_letters_are_there_once_after_a_replay(tmp_path: Path) -> None:
    table = given(tmp_path / "t")
    Feed(table).values(b'{"n": 0}', b'{"n": 1, "more": 1}', b"dead")
    assert column(table.dead_letter_path, '"offset"') == [1, 2]
    assert replay(given(tmp_path / "t", evolve="additive")) == Replayed(1, 1)
    assert column(table.dead_letter_path, '"offset"') == [2]


class Killed(BaseException):
    """A process ends at once: no handler of Exception runs."""


def killed_compaction(table: table_spec.TableSpec, monkeypatch: pytest.MonkeyPatch) -> None:
    """A compaction that dies with a merged file that is not committed."""

    def killed(*_: Any) -> None:
        raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(ParquetTable, "replace", killed)
        with pytest.raises(Killed):
            maintenance.compact(table)
    assert column(table.path, "n") == [0, 0, 1, 1]


def test_a_merged_file_of_a_killed_compaction_is_removed_by_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Engines saw its rows twice until the writer of the table was started again."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(2):
        feed.values(b'{"n": %d}' % n)
    killed_compaction(table, monkeypatch)
    assert maintenance.compact(table) == (2, 1)
    assert column(table.path, "n") == [0, 1]


def test_a_merged_file_of_a_killed_compaction_is_removed_by_a_running_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(2):
        feed.values(b'{"n": %d}' % n)
    killed_compaction(table, monkeypatch)
    feed.runner._settle_late()
    assert column(table.path, "n") == [0, 0, 1, 1], "the compaction may be at work"
    for path in (tmp_path / "t" / intents.FOLDER).rglob("*.json"):
        os.utime(path, (0, 0))
    feed.runner._settle_late()
    assert column(table.path, "n") == [0, 1]


def uncommitted(table: table_spec.TableSpec, app: str, epoch: int) -> str:
    """The visible file of a batch that was not committed."""
    storage, path = open_storage(table.path, {}), f"{stem(app, epoch)}b00000000-x.parquet"
    intents.batch(storage, app, epoch, 0).intend([path])
    storage.write(path, encoded(pa.table({"n": [7]})).data)
    return path


@pytest.mark.parametrize("by", ["run", "compact"])
@pytest.mark.parametrize("backfill", [True, False])
def test_files_of_a_killed_backfill_or_replay_are_removed_beside_it(tmp_path: Path, backfill: bool, by: str) -> None:
    """Engines saw its rows until it was started again, which may be never."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    feed.values(b'{"n": 0}')
    other = open_table(table, backfill=backfill, replay=not backfill)
    other.claim(5)
    path = uncommitted(table, table.backfill_id if backfill else table.replay_id, 5)

    def step() -> None:
        feed.runner._settle_late() if by == "run" else maintenance.compact(table)

    step()
    assert column(table.path, "n") == [0, 7], "it may be at work"
    for record in (tmp_path / "t" / intents.FOLDER).rglob("*.json"):
        os.utime(record, (0, 0))
    step()
    assert column(table.path, "n") == [0]
    with pytest.raises(ConflictError, match="has been removed, because its writer seemed dead: run it again"):
        other.commit(0, Position({}), [Added(path, 1, 1)], after=-1)
    other.claim(6)
    again = uncommitted(table, table.backfill_id if backfill else table.replay_id, 6)
    other.commit(0, Position({}), [Added(again, 1, 1)], after=-1)
    step()
    assert column(table.path, "n") == [0, 7]


@pytest.mark.parametrize("by_writer", [False, True])
def test_a_compaction_commits_no_file_that_others_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, by_writer: bool
) -> None:
    """It was only slow: another process has taken its file for a leftover before it commits."""
    table = given(tmp_path / "t")
    feed = Feed(table)
    for n in range(2):
        feed.values(b'{"n": %d}' % n)
    whole = ParquetTable.replace

    def late(self: ParquetTable, *files: Any) -> None:
        monkeypatch.setattr(ParquetTable, "replace", whole)
        if by_writer:
            for path in (tmp_path / "t" / intents.FOLDER).rglob("*.json"):
                os.utime(path, (0, 0))
            feed.runner._settle_late()
        else:
            assert maintenance.compact(replace(table, compact_to=1)) == (0, 0)
        whole(self, *files)

    monkeypatch.setattr(ParquetTable, "replace", late)
    with pytest.raises(ConflictError, match="has been removed"):
        maintenance.compact(table)
    assert column(table.path, "n") == [0, 1]
    assert [file.rows for file in open_table(table).live()] == [1, 1]
    assert maintenance.compact(table) == (2, 1)
    assert column(table.path, "n") == [0, 1]


def test_dropped_files_are_known_after_a_checkpoint(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parquet, "CHECKPOINT_EVERY", 2)
    table = given(tmp_path / "t")
    feed = Feed(table)
    feed.values(b'{"n": 0}')
    one = ParquetTable(open_storage(table.path, {}), table.app_id)
    one.join()
    (live,) = one.live()
    assert one.drop([live.path, "new.parquet"]) == {"new.parquet"}
    for n in range(1, 5):
        feed.values(b'{"n": %d}' % n)
    other = ParquetTable(open_storage(table.path, {}), table.app_id)
    for stale in (one, other):
        stale.join()
        with pytest.raises(ConflictError, match=r"new\.parquet has been removed"):
            stale.replace([live.path], [replace(live, path="new.parquet")])
    other.claim(other.state().epoch + 1)
    assert other._dropped == {}, "the epoch fences the compaction"
