"""Commits of unknown outcome: a store that does not answer may have written, or may write later."""

from __future__ import annotations

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from pyiceberg.catalog.sql import SqlCatalog
from pyiceberg.exceptions import CommitFailedException

from kraft_pipeline.tables import maintenance
from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.iceberg import IcebergTable
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Folder
from tests.feed import Feed
from tests.unit.pipeline.crashes.test_table_replay import rows, table

KINDS = {"delta": DeltaTableOf, "iceberg": IcebergTable, "parquet": ParquetTable}


def fed(path: Path, kind: str) -> tuple[TableSpec, Feed]:
    more: dict[str, Any] = {"format": kind}
    if kind == "catalog":
        uri = f"sqlite:///{path}/catalog.db"
        more = {"format": "iceberg", "catalog": {"type": "sql", "uri": uri, "name": "lake.t"}}
    given = table(path / "t", {"schema": {"id": "long"}}, **more)
    feed = Feed(given)
    for number in range(3):
        feed.values(b'{"id": %d}' % number)
    return given, feed


def unanswered(monkeypatch: pytest.MonkeyPatch, kind: str, name: str, error: Exception) -> list[str]:
    """From now on, a method call on a table does its work once and then fails with `error`."""
    real: Callable[..., None] = getattr(KINDS[kind], name)
    calls = list[str]()

    def call(*given: Any, **more: Any) -> None:
        real(*given, **more)
        if not calls:
            calls.append(name)
            raise error

    monkeypatch.setattr(KINDS[kind], name, call)
    return calls


@pytest.mark.parametrize("error", [OSError("no answer"), ConflictError("another writer was first")], ids=type)
@pytest.mark.parametrize("beside", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_merged_file_stays_if_its_commit_was_not_answered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, beside: bool, error: Exception
) -> None:
    """The file was removed, though the table had it. A repeated put meets its own transaction."""
    given, _ = fed(tmp_path, kind)
    calls = unanswered(monkeypatch, kind, "replace", error)
    try:
        maintenance.care(given, InlineEngine()) if beside else maintenance.compact(given)
    except OSError as found:
        assert found is error
    assert calls
    assert [row["id"] for row in rows(given)] == [0, 1, 2]
    Runner(given, InlineEngine()).begin()
    assert [row["id"] for row in rows(given)] == [0, 1, 2]


def parquet_put(monkeypatch: pytest.MonkeyPatch, mark: bytes = b'"batch": 3') -> list[Callable[[], bool]]:
    """The put of a transaction is held back once, and its writer gets no answer. Returns the put."""
    create, late = Folder.create, list[Callable[[], bool]]()

    def lost(folder: Folder, path: str, data: bytes) -> bool:
        if not late and mark in data:
            late.append(lambda: create(folder, path, data))
            raise OSError("no answer")
        return create(folder, path, data)

    monkeypatch.setattr(Folder, "create", lost)
    return late


def iceberg_put(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], bool]]:
    """The same for a version of Iceberg's metadata."""
    return parquet_put(monkeypatch, b'"kraft.batch":"3"')


def catalog_put(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], bool]]:
    """The same for a commit through a catalog, which checks the requirements of a late request."""
    commit, late = SqlCatalog.commit_table, list[Callable[[], bool]]()

    def arrives(catalog: SqlCatalog, *request: Any) -> bool:
        try:
            commit(catalog, *request)
        except CommitFailedException:
            return False
        return True

    def lost(catalog: SqlCatalog, *request: Any) -> Any:
        if not late and "'kraft.batch': '3'" in f"{request!r}".replace('"', "'"):
            late.append(lambda: arrives(catalog, *request))
            raise OSError("no answer")
        return commit(catalog, *request)

    monkeypatch.setattr(SqlCatalog, "commit_table", lost)
    return late


def delta_put(monkeypatch: pytest.MonkeyPatch) -> list[Callable[[], bool]]:
    """The same for a version of Delta's log: a copy of the table writes it, and then it is taken away."""
    write, late = DeltaTableOf._write, list[Callable[[], bool]]()

    def lost(table: DeltaTableOf, actions: list[Any], properties: Any) -> None:
        if late or not actions:
            write(table, actions, properties)
            return
        other = copy.copy(table)
        other._table = DeltaTable(table._uri)
        write(other, actions, properties)
        entry = max((Path(table._uri) / "_delta_log").glob("*.json"))
        name, data = f"_delta_log/{entry.name}", entry.read_bytes()
        entry.unlink()
        late.append(lambda: Folder(Path(table._uri)).create(name, data))
        raise OSError("no answer")

    monkeypatch.setattr(DeltaTableOf, "_write", lost)
    return late


PUTS = {"parquet": parquet_put, "delta": delta_put, "iceberg": iceberg_put, "catalog": catalog_put}


@pytest.mark.parametrize("taken_over", [False, True], ids=["same-run", "new-run"])
@pytest.mark.parametrize("kind", PUTS)
def test_a_commit_that_arrives_late_is_fenced_before_its_files_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, taken_over: bool
) -> None:
    """A put without an answer arrived after the files of its batch had been removed as uncommitted."""
    given, feed = fed(tmp_path, kind)
    late = PUTS[kind](monkeypatch)
    with pytest.raises(OSError, match="no answer"):
        feed.values(b'{"id": 3}')
    if taken_over:
        feed.runner = Runner(given, feed.runner._engine)
    feed.runner.begin()  # as before the next attempt
    assert late[0]() is False
    assert [row["id"] for row in rows(given)] == [0, 1, 2]
    feed.values(b'{"id": 3}')
    assert [row["id"] for row in rows(given)] == [0, 1, 2, 3]


def test_a_writer_that_was_replaced_does_not_take_the_table_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, feed = fed(tmp_path, "parquet")
    unanswered(monkeypatch, "parquet", "commit", OSError("no answer"))
    with pytest.raises(OSError, match="no answer"):
        feed.values(b'{"id": 3}')
    Runner(given, InlineEngine()).begin()
    with pytest.raises(FencedError):
        feed.runner.begin()
    assert open_table(given).state().batch == 3
