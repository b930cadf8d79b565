"""Attempts of tasks that write files after Spark has given them up: no reader sees their rows for long."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from kraft_pipeline.tables import maintenance, runner
from kraft_pipeline.tables.engines.tasks import Job, Result
from kraft_pipeline.tables.errors import SPARK, Failure, FencedError, TaskError
from kraft_pipeline.tables.specs import table_spec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.opening import open_table
from kraft_pipeline.tables.stores.storage import Folder
from kraft_protocol.client.fetch import Range
from tests.documents import table_document
from tests.feed import Fed, Feed

LATE = "late.parquet"


class Speculating(Fed):
    """Begins a second attempt beside the first run, which records its file and writes it later."""

    outlives = True

    def __init__(self, logs: dict[int, bytes], *, fails: bool) -> None:
        """`fails`: whether Spark fails the first run."""
        super().__init__(logs)
        self._is_first, self._fails = True, fails

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        found = super().run(job, ranges)
        if self._is_first:
            self._is_first = False
            intents.batch(Folder(Path(job.spec.path)), job.app, job.epoch, job.batch).intend([LATE])
            if self._fails:
                raise TaskError(Failure(SPARK, "environment", True, "killed"))
        return found


def fed(path: Path, kind: str, *, fails: bool = False) -> tuple[table_spec.TableSpec, Any]:
    value = {"format": "json", "schema": {"n": "long"}}
    sections = {"engine": {"mode": "inline"}, "value": value, "table": {"path": str(path), "format": kind}}
    given = table_spec.parse(table_document(**sections))
    feed: Any = Feed(given)
    feed.runner._engine = Speculating(feed._logs, fails=fails)
    return given, feed


def there(given: table_spec.TableSpec) -> set[str]:
    """The data files in the table's folder."""
    return {path.name for path in Path(given.path).glob("*.parquet")}


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_file_written_after_the_commit_is_removed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str) -> None:
    """The commit removed the records of all attempts, also of attempts that wrote. Parquet's readers saw rows twice."""
    given, feed = fed(tmp_path / "t", kind)
    feed.values(b'{"n": 1}')
    known, late = open_table(given).files(), tmp_path / "t" / LATE
    assert len(known) == 1
    for patience_s in (30.0, 0.0):
        late.write_bytes(b"rows")
        monkeypatch.setattr(runner, "LATE_S", patience_s)
        feed.runner._settle_late()
        assert there(given) == known == open_table(given).files()
    assert list(intents.unsettled(Folder(tmp_path / "t"), given.app_id)) == []


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_file_written_after_its_batch_has_failed_is_removed(tmp_path: Path, kind: str) -> None:
    given, feed = fed(tmp_path / "t", kind, fails=True)
    with pytest.raises(TaskError):
        feed.values(b'{"n": 1}')
    feed.runner.begin()
    assert there(given) == set()
    (tmp_path / "t" / LATE).write_bytes(b"rows")
    feed._end = 0
    feed.values(b'{"n": 1}')
    assert there(given) == open_table(given).files()
    assert len(there(given)) == 1


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_a_merged_file_that_is_written_twice_is_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """If a second attempt of a merge recorded its file after the merge, the file stayed until the next start."""
    given, feed = fed(tmp_path / "t", kind)
    for n in range(3):
        feed.values(b'{"n": %d}' % n)
    engine, works = feed.runner._caretaker._engine, list[Any]()
    merge = maintenance._merge

    def seen(keys: Any, columns: Any, work: Any, group: Any) -> Any:
        works.append(work)
        return merge(keys, columns, work, group)

    monkeypatch.setattr(maintenance, "_merge", seen)
    monkeypatch.setattr(engine, "outlives", True, raising=False)
    feed.runner._caretaker._pass()
    (work,) = works
    known, twice = {file.path for file in open_table(given).live()}, tmp_path / "t" / "twice.parquet"
    assert len(known) == 1
    for patience_s in (30.0, 0.0):
        work.intend([twice.name])
        twice.write_bytes(b"rows")
        monkeypatch.setattr(runner, "LATE_S", patience_s)
        feed.runner._settle_late()
        assert not twice.exists()
        assert {file.path for file in open_table(given).live()} == known <= there(given)
    assert [one for one in intents.unsettled(Folder(tmp_path / "t"), given.app_id) if one.is_beside] == []


class Paused(Fed):
    """Its process is paused between the plan of a batch and its tasks, and another one takes over."""

    def __init__(self, logs: dict[int, bytes], then: Callable[[], None]) -> None:
        super().__init__(logs)
        self._then = then

    def run(self, job: Job, ranges: Sequence[Range]) -> list[Result]:
        self._then()
        return super().run(job, ranges)


@pytest.mark.parametrize("kind", table_spec.FORMATS)
def test_files_of_a_fenced_writer_that_goes_on_are_removed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    """It wrote its files after the clean-up of its successor, which looked again only at its next start."""
    given, old = fed(tmp_path / "t", kind)
    old.runner._engine = Fed(old._logs)
    old.values(b'{"n": 1}')
    new: Any = Feed(given)
    old.runner._engine = Paused(old._logs, new.begin)
    with pytest.raises(FencedError):
        old.values(b'{"n": 2}')
    assert len(there(given)) == 2
    for patience_s in (30.0, 0.0):
        monkeypatch.setattr(runner, "LATE_S", patience_s)
        new.runner._settle_late()
        assert there(given) == open_table(given).files()
    left = intents.unsettled(Folder(tmp_path / "t"), given.app_id)
    assert [work for work in left if not work.is_formats] == []
