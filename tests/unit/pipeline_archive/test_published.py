"""Changes and state of an archive are one transaction: runs that are killed at any write, and two at once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable

from kraft_pipeline.archive import published
from kraft_pipeline.archive.run import archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.tables import ChangeWriter
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.stores.storage import Folder
from tests.unit.pipeline_archive.test_command import SECOND, batch, broker, log_folder


@contextmanager
def before_write(number: int, what: Callable[[], None], *, renames: bool = True) -> Iterator[list[int]]:
    """Call `what` before write number `number` of this process: of a file, a rename, a link, or a commit of Delta.

    Renames hold a lock, so a call before a rename must not wait for that lock.
    """
    seen, inside = [0], [False]
    plain = Folder._put, os.replace, os.link, published._overwritten

    def counted(call: Any) -> Any:
        def counting(*arguments: Any, **options: Any) -> Any:
            if not inside[0]:
                seen[0] += 1
                if seen[0] == number:
                    inside[0] = True
                    try:
                        what()
                    finally:
                        inside[0] = False
            return call(*arguments, **options)

        return counting

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "_put", counted(plain[0]))
        if renames:
            patch.setattr(os, "replace", counted(plain[1]))
        patch.setattr(os, "link", counted(plain[2]))
        patch.setattr(published, "_overwritten", counted(plain[3]))
        yield seen


def shown(spec: ArchiveSpec) -> tuple[int, dict[int, int]]:
    """Offset of the published state, and leaders by partition: of the set, and of its copies in the tables."""
    reported = json.loads((Path(spec.path) / "state.json").read_text())
    rows = pq.read_table(f"{spec.path}/{reported['tables']['partitions']}").to_pylist()
    leaders = {row["partition"]: row["leader"] for row in rows}
    if reported["published"]:
        where = f"{spec.path}/partitions"
        copy = pq.read_table(where) if spec.format == "parquet" else DeltaTable(where).to_pyarrow_table()
        assert {row["partition"]: row["leader"] for row in copy.to_pylist()} == leaders
    return reported["offset"], leaders


def whole(spec: ArchiveSpec) -> None:
    """Check that everything is published and equals the result of the changes."""
    state = state_at(archived(spec))
    leaders = {row["partition"]: row["leader"] for row in state.partitions.to_pylist()}
    assert shown(spec) == (state.offset, leaders)
    assert json.loads((Path(spec.path) / "state.json").read_text())["published"]


def killed() -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("kind", ["parquet", pytest.param("delta", marks=pytest.mark.slow)])
def test_a_run_that_is_killed_at_any_write_leaves_a_whole_state(tmp_path: Path, kind: str) -> None:
    log = log_folder(tmp_path / "data") / f"{0:020}.log"
    spec = ArchiveSpec(paths=(str(tmp_path / "data"),), format=kind, path=str(tmp_path / "table"))
    archive(spec)
    end, number = 8, 0
    while True:
        number += 1
        with log.open("ab") as out:
            out.write(batch(end, broker(number + 10), *SECOND))
        end += 3
        before = shown(spec)
        with before_write(number, killed):
            try:
                archive(spec)
            except KeyboardInterrupt:
                now = shown(spec)
                assert now[0] in {before[0], end - 1}, "a reader of the set sees the state before or after"
            else:
                break
        archive(spec)
        whole(spec)
    assert number > 12
    assert len(list((tmp_path / "table" / "state").iterdir())) > 1  # of runs that may still be read


@pytest.mark.parametrize("kind", [pytest.param("parquet", marks=pytest.mark.slow), "delta"])
def test_of_two_runs_the_later_publishes_last(tmp_path: Path, kind: str) -> None:
    """At every write of one run another run begins, sees more of the log, and ends."""
    log = log_folder(tmp_path / "data") / f"{0:020}.log"
    spec = ArchiveSpec(paths=(str(tmp_path / "data"),), format=kind, path=str(tmp_path / "table"))
    archive(spec)
    end, number, refused = 8, 0, 0
    while True:
        number += 1

        def more() -> None:
            nonlocal end
            with log.open("ab") as out:
                out.write(batch(end, *SECOND))
            end += 2

        def other() -> None:
            more()
            archive(spec)

        more()
        with before_write(number, other, renames=False) as seen:
            try:
                archive(spec)
            except ConflictError:
                refused += 1
        if seen[0] < number:
            break
        whole(spec)
        assert shown(spec)[0] == end - 1
        assert [row for b in archived(spec) for row in b.column("offset").to_pylist()] == list(range(end))
    assert refused > 10


def test_a_replaced_run_publishes_nothing(tmp_path: Path) -> None:
    log_folder(tmp_path / "data")
    spec = ArchiveSpec(paths=(str(tmp_path / "data"),), path=str(tmp_path / "table"))
    archive(spec)
    reported = json.loads((tmp_path / "table" / "state.json").read_text())
    assert reported["offset"] == 7
    old, new = ChangeWriter(spec), ChangeWriter(spec)
    old.take_over()
    new.take_over()
    tables = {"topics": pq.read_table(tmp_path / "table" / "topics")}
    folder = published.Published(spec, old.check).write(tables, 1)
    with pytest.raises(FencedError):
        published.Published(spec, old.check).publish(folder, 9, old.epoch)
    assert json.loads((tmp_path / "table" / "state.json").read_text()) == reported
    published.Published(spec, new.check).publish(folder, 9, new.epoch)
    assert json.loads((tmp_path / "table" / "state.json").read_text())["epoch"] == new.epoch
    for one in (old, new):
        one.close()


def test_old_sets_are_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = log_folder(tmp_path / "data") / f"{0:020}.log"
    spec = ArchiveSpec(paths=(str(tmp_path / "data"),), path=str(tmp_path / "table"))
    archive(spec)
    monkeypatch.setattr(published, "LEFT_S", 0.0)
    log.write_bytes(log.read_bytes() + batch(8, *SECOND))
    archive(spec)
    names = {path.parent.name for path in (tmp_path / "table" / "state").rglob("*.parquet")}
    assert len(names) == 1
    whole(spec)
