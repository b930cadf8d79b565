"""Two processes that write one table: the later one takes over, wherever the other is."""

from __future__ import annotations

import itertools
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kraft_pipeline.tables.engines.engine import InlineEngine
from kraft_pipeline.tables.iceberg import IcebergTable
from kraft_pipeline.tables.maintenance import reset
from kraft_pipeline.tables.runner import Runner
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores import delta
from kraft_pipeline.tables.stores.committer import (
    DELETED,
    Added,
    Changes,
    Committer,
    ConflictError,
    FencedError,
    State,
    is_left,
    stem,
)
from kraft_pipeline.tables.stores.delta import DeltaTableOf
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline.tables.test_table_changes import parsed
from tests.unit.pipeline.tables.test_tables import position

SCHEMA = pa.schema([("n", pa.int64())])
KINDS = ["delta", "iceberg", "catalog", "parquet"]


def opened(kind: str, path: Path) -> Committer:
    if kind == "delta":
        return DeltaTableOf(str(path), "a", {})
    if kind == "parquet":
        return ParquetTable(Folder(path), "a")
    given = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "name": "lake.t"} if kind == "catalog" else {}
    return IcebergTable(Folder(path), "a", given)


def file(path: Path, epoch: int, number: int) -> Added:
    name = f"{stem('a', epoch)}{number}.parquet"
    pq.write_table(pa.table({"n": [number]}, SCHEMA), path / name)
    return Added(name, (path / name).stat().st_size, 1)


def created(kind: str, path: Path) -> Committer:
    table = opened(kind, path)
    table.create(SCHEMA, [])
    table.claim(5)
    table.commit(0, position(1), [file(path, 5, 0)], after=-1)
    return table


@pytest.mark.parametrize("kind", KINDS)
def test_a_replaced_writer_commits_nothing(tmp_path: Path, kind: str) -> None:
    old, new = created(kind, tmp_path), opened(kind, tmp_path)
    assert new.state() == State(0, position(1), epoch=5)
    with pytest.raises(ConflictError, match="writer 5 has claimed it before writer 5"):
        new.claim(5)
    new.claim(6)
    assert opened(kind, tmp_path).state() == State(0, position(1), epoch=6)
    refused = pytest.raises(FencedError, match=r"table .*: writer 6 has taken over, writer 5 commits nothing")
    with refused:
        old.commit(1, position(2), [file(tmp_path, 5, 1)], after=0)
    with refused:
        old.replace([one.path for one in old.live()], [file(tmp_path, 5, 2)])
    new.commit(1, position(2), [file(tmp_path, 6, 1)], after=0)
    beside = opened(kind, tmp_path)
    assert beside.join() == 6
    beside.replace([one.path for one in beside.live()], [file(tmp_path, 6, 3)])
    assert [one.path for one in new.live()] == [f"{stem('a', 6)}3.parquet"]
    assert opened(kind, tmp_path).state() == State(1, position(2), epoch=6)


@pytest.mark.parametrize("what", ["commit", "upsert", "replace"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_pending_commit_is_refused(tmp_path: Path, kind: str, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The new writer begins after the old one has checked that it is still the writer."""
    old, new = created(kind, tmp_path), opened(kind, tmp_path)
    check, begin = State.check, [lambda: new.claim(6)]

    def checked(state: State, table: str, epoch: int) -> None:
        check(state, table, epoch)
        while begin:
            begin.pop()()

    monkeypatch.setattr(State, "check", checked)
    added = file(tmp_path, 5, 1)

    def again() -> None:
        if what == "commit":
            old.commit(1, position(2), [added], after=0)
        elif what == "replace":
            old.replace([one.path for one in old.live()], [added])
        else:
            rows: Any = pa.table({"n": [0, 1], DELETED: [False, False]})
            keyed: Any = old
            keyed.upsert(1, position(2), Changes(rows, ("n",)), after=0, each=InlineEngine().map)

    if what == "upsert" and kind == "parquet":
        return
    with pytest.raises(ConflictError):
        again()
    with pytest.raises(FencedError):
        again()
    assert not begin
    assert opened(kind, tmp_path).state() == State(0, position(1), epoch=6)
    assert [one.path for one in new.live()] == [f"{stem('a', 5)}0.parquet"]


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_replaced_writer_is_fenced_by_the_dead_letters(tmp_path: Path, kind: str) -> None:
    """It gets the exit code for this case; before, it tried twenty times to claim them from its successor."""
    given = parsed(path=str(tmp_path / "t"), format=kind)
    open_table(given).create(SCHEMA, [])
    open_table(given, dead_letters=True).create(SCHEMA, [])
    old, new = Runner(given, InlineEngine()), Runner(given, InlineEngine())
    old.begin()
    old.begin()  # as after an outage of brokers
    new.begin()
    with pytest.raises(FencedError, match=r"t_dead_letters: writer \d+ has taken over"):
        old.begin()


@pytest.mark.parametrize("what", ["create", "vacuum"])
def test_harmless_changes_of_others_stop_no_batch(tmp_path: Path, what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """New columns, and files that are deleted, meet a batch of another writer."""
    given = parsed(path=str(tmp_path), format="parquet")
    one, runner = created("parquet", tmp_path), Runner(given, InlineEngine())
    old = one.live()[0].path
    with monkeypatch.context() as killed:  # between the transaction and the removal of the replaced file
        killed.setattr(ParquetTable, "_remove_replaced", lambda _: 0)
        one.replace([old], [file(tmp_path, 5, 1)])
    other, put, begin = opened("parquet", tmp_path), Folder.create, [1]
    other.join()

    def create(store: Folder, path: str, data: bytes) -> bool:
        while begin:
            other.commit(begin.pop(), position(2), [], after=0)
        return put(store, path, data)

    monkeypatch.setattr(Folder, "create", create)
    if what == "create":
        runner._create(pa.schema([]))
        there = opened("parquet", tmp_path).schema()
        assert there is not None
        assert there.names[:3] == ["n", "key", "value"]
    else:
        assert one.vacuum(0) == 1
        assert opened("parquet", tmp_path).files() == {one.live()[0].path}
        assert not (tmp_path / old).exists()
    assert not begin
    assert other.state().batch == 1


def test_delta_keeps_files_for_the_configured_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """An hour and a half became one hour, half an hour became zero."""
    created("delta", tmp_path)
    asked: list[int] = []

    def vacuum(table: DeltaTable, retention_hours: int, **_: bool) -> list[str]:
        asked.append(retention_hours)
        return []

    monkeypatch.setattr(DeltaTable, "vacuum", vacuum)
    for seconds in (0, 1800, 5400, 7200):
        opened("delta", tmp_path).vacuum(seconds)
    assert asked == [0, 1, 2, 2]


def test_a_writer_sweeps_only_its_own_files() -> None:
    """Files of later writers, of a compaction beside it, or of another table may not be swept."""
    names = {
        "of a longer name": f"{stem('a-eu', 5)}b00000001-x.parquet",
        "of one before": f"{stem('a', 5)}b00000001-x.parquet",
        "its own": f"{stem('a', 6)}b00000001-x.parquet",
        "of a later one": f"{stem('a', 7)}b00000001-x.parquet",
        "of a compaction before": f"{stem('a', 5)}compact-x.parquet",
        "of a compaction beside": f"{stem('a', 6)}compact-x.parquet",
        "before there were epochs": "a-b00000001-x.parquet",
        "another's": f"{stem('b', 5)}b00000001-x.parquet",
    }
    swept = ["of one before", "its own", "of a compaction before", "before there were epochs"]
    assert [what for what, name in names.items() if is_left(name, "a", 6)] == swept


@pytest.mark.parametrize(("there", "wanted"), [*itertools.permutations(table_spec.FORMATS, 2)])
def test_a_table_of_another_format_is_left_alone(tmp_path: Path, there: str, wanted: str) -> None:
    """Readers of the folder would see both tables."""
    open_table(parsed(path=str(tmp_path / "t"), format=there)).create(SCHEMA, [])
    with pytest.raises(ValueError, match=rf"spec.table.format: .*/t holds a table of format {there}, not {wanted}"):
        open_table(parsed(path=str(tmp_path / "t"), format=wanted))


@pytest.mark.parametrize("again", [False, True])
@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_reset_table_fences_its_writer(tmp_path: Path, kind: str, again: bool) -> None:
    given = parsed(path=str(tmp_path), format=kind)
    old = created(kind, tmp_path)
    assert reset(given) > 0
    if again:
        opened(kind, tmp_path).create(SCHEMA, [])
    with pytest.raises(ConflictError):
        old.commit(1, position(2), [], after=0)
    assert opened(kind, tmp_path).state() == State()


@pytest.mark.parametrize("is_paused", [False, True])
@pytest.mark.parametrize("more", [0, 1])
@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_recreated_table_is_not_taken_for_the_former_table(
    tmp_path: Path, kind: str, more: int, is_paused: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has as many commits as the former table, or more. Only the content of a commit shows which table it is of."""
    old, planner = created(kind, tmp_path), opened(kind, tmp_path)
    assert planner.state() == State(0, position(1), epoch=5)
    reset(parsed(path=str(tmp_path), format=kind))
    new = opened(kind, tmp_path)
    new.create(SCHEMA, [])
    new.claim(7)
    new.commit(0, position(9), [file(tmp_path, 7, 0)], after=-1)
    for batch in range(1, 1 + more):
        new.commit(batch, position(10), [file(tmp_path, 7, batch)], after=batch - 1)
    there = opened(kind, tmp_path).state()
    assert there == State(more, position(9 + more), epoch=7)
    if is_paused:
        monkeypatch.setattr(delta, "LOADED_S", -1.0)
    if kind == "parquet":
        with pytest.raises(FencedError, match="was removed or recreated meanwhile"):
            planner.state()
    else:
        assert planner.state() == there
    added = file(tmp_path, 5, 9)
    with pytest.raises(FencedError):
        old.commit(1, position(2), [added], after=0)
    with pytest.raises(FencedError):
        old.commit(more + 1, position(2), [added], after=more)
    assert opened(kind, tmp_path).state() == there
    assert {one.path for one in new.live()} == {f"{stem('a', 7)}{number}.parquet" for number in range(1 + more)}
