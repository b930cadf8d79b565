"""Snapshots of Iceberg tables expire: the metadata stays small, scans continue, writers resume, no file is left."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from kraft_pipeline.tables.iceberg import IcebergTable, expiry
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline.iceberg.test_iceberg import SCHEMA, opened, position, put, read, table

VERSIONS = 20


@pytest.fixture(autouse=True)
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(expiry, "VERSIONS", VERSIONS)


def written(path: Path, batches: int, app: str = "a") -> IcebergTable:
    """A table with a row for each batch; the batch before the last replaced the files by one."""
    one = opened(path, app)
    one.create(SCHEMA, [])
    for batch in range(batches):
        one.commit(batch, position(batch), put(path, table(batch)), after=batch - 1)
    return one


def test_commits_expire_the_oldest_snapshots_of_many(tmp_path: Path) -> None:
    one = written(tmp_path, 30)
    before = read(tmp_path)
    old = [file.path for file in one.live()]
    one.replace(old, put(tmp_path, table(*range(30))))
    for batch in range(30, 70):
        one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
    metadata = read(tmp_path).metadata
    assert VERSIONS <= len(metadata.snapshots) <= VERSIONS * 1.1
    assert len(metadata.snapshot_log) <= VERSIONS * 1.1
    assert opened(tmp_path).state() == State(69, position(69))
    assert one.vacuum(3600) == 0
    assert before.scan().to_arrow().num_rows == 30, "a scan that began before the files were replaced"
    assert one.files() >= set(old)
    assert one.vacuum(0) == 30
    assert not any((tmp_path / path).exists() for path in old)
    assert sorted(read(tmp_path).scan().to_arrow().column("n").to_pylist()) == list(range(70))
    assert list(Folder(tmp_path).list(expiry.FOLDER)) == []


def test_a_tagged_snapshot_stays(tmp_path: Path) -> None:
    one = written(tmp_path, 3)
    assert one._table is not None
    tagged = one._table.metadata.snapshots[0].snapshot_id
    one._table.manage_snapshots().create_tag(tagged, "kept").commit()
    for batch in range(3, 50):
        one.commit(batch, position(batch), [], after=batch - 1)
    assert one.vacuum(0) == 0
    assert read(tmp_path).scan(snapshot_id=tagged).to_arrow().num_rows == 1


def test_more_snapshots_stay_if_the_table_requests_it(tmp_path: Path) -> None:
    one = written(tmp_path, 1)
    assert one._table is not None
    one._table.transaction().set_properties({expiry.KEEP: "40"}).commit_transaction()
    for batch in range(1, 60):
        one.commit(batch, position(batch), [], after=batch - 1)
    assert 40 <= len(read(tmp_path).metadata.snapshots) <= 44


def test_a_writer_resumes_after_all_of_its_snapshots_have_expired(tmp_path: Path) -> None:
    """A table was paused for long while another writer continued: its position is a property of the table.

    Before, a table whose older snapshots PyIceberg had expired counted as one without batches, and got all rows again.
    """
    one = written(tmp_path, 3)
    one.claim(7)
    written(tmp_path, 50, "other").vacuum(0)
    snapshots = read(tmp_path).metadata.snapshots
    assert {s.summary.additional_properties["kraft.app"] for s in snapshots if s.summary} == {"other"}
    again = opened(tmp_path)
    assert again.state() == State(2, position(2), epoch=7)
    again.claim(8)
    again.commit(3, position(3), put(tmp_path, table(3)), after=2)
    assert opened(tmp_path).state() == State(3, position(3), epoch=8)
    assert opened(tmp_path, "other").state() == State(49, position(49))
    assert read(tmp_path).scan().to_arrow().num_rows == 54


def test_a_table_rolled_back_past_expired_snapshots_is_refused(tmp_path: Path) -> None:
    one = written(tmp_path, 1)
    other = written(tmp_path, 1, "other")
    other.commit(1, position(1), [], after=0)
    assert other._table is not None
    to = other._table.metadata.snapshots[-1].snapshot_id
    one.commit(1, position(1), [], after=0)
    table_of = one._table
    assert table_of is not None
    first = [snapshot.snapshot_id for snapshot in table_of.metadata.snapshots[:2]]
    table_of.manage_snapshots().set_current_snapshot(to).create_tag(
        table_of.metadata.snapshots[-1].snapshot_id, "ours"
    ).commit()
    assert opened(tmp_path).state() == State(0, position(0)), "none has expired yet"
    opened(tmp_path)._table.maintenance.expire_snapshots().by_ids(first).commit()  # type: ignore[union-attr]
    with pytest.raises(
        ValueError, match=r"rolled back to before batch 1, .* have expired. It is unknown which batch of a"
    ):
        opened(tmp_path).state()


@pytest.mark.parametrize("many", [False, True])
def test_files_that_were_replaced_just_now_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, many: bool) -> None:
    """The age of a snapshot counted, not the time since its replacement: a table that had rested for longer than
    `vacuumAfter` lost its files right after a compaction, and scans that had begun failed."""
    one = written(tmp_path, 3)
    assert one._table is not None
    now = time.time() + 8 * 86_400
    before = read(tmp_path)
    old = [file.path for file in one.live()]
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now)
        one.replace(old, put(tmp_path, table(0, 1, 2)))
        for batch in range(3, 50 if many else 4):
            one.commit(batch, position(batch), put(tmp_path, table(batch)), after=batch - 1)
        one.vacuum(7 * 86_400)
    assert before.scan().to_arrow().num_rows == 3
    with monkeypatch.context() as patched:
        patched.setattr(time, "time", lambda: now + 8 * 86_400)
        one.vacuum(7 * 86_400)
    assert not any((tmp_path / path).exists() for path in old)


@pytest.mark.parametrize("after", range(0, 60, 7))
def test_an_interrupted_vacuum_is_completed_by_the_next(
    tmp_path: Path, after: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, files of snapshots that had expired already stayed for ever."""
    one = written(tmp_path, 10)
    one.replace([file.path for file in one.live()], put(tmp_path, table(*range(10))))
    plain, left = Folder.delete, iter(range(after))

    def delete(store: Folder, path: str) -> None:
        if next(left, None) is None:
            raise KeyboardInterrupt
        plain(store, path)

    with monkeypatch.context() as cut, pytest.raises(KeyboardInterrupt):
        cut.setattr(Folder, "delete", delete)
        one.vacuum(0)
        raise KeyboardInterrupt  # the work was done before
    opened(tmp_path).vacuum(0)
    metadata = read(tmp_path).metadata
    snapshot = metadata.current_snapshot()
    assert snapshot is not None
    found = expiry.referred(read(tmp_path).io, str(tmp_path), [snapshot])
    there = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*.avro")}
    found = expiry.Referred(found.data, {path.removeprefix(f"{tmp_path}/") for path in found.rest})
    assert there == found.rest
    assert {path.name for path in tmp_path.glob("*.parquet")} == {path.rpartition("/")[2] for path in found.data}
