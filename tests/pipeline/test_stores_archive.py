"""An archive on an S3-compatible store: conditional puts replace its files."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_pipeline.archive.run import archive, archived, state_at
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.stores.storage import ObjectStore
from tests.objectstore import object_store
from tests.unit.pipeline_archive.test_command import SECOND, batch, log_folder

pytestmark = [pytest.mark.xdist_group("stores"), pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    with object_store(tmp_path_factory.mktemp("store"), "lake") as options:
        yield options


def test_a_refused_writer_replaces_no_file(store: dict[str, str]) -> None:
    """Another writer puts the file after this one has looked at it: the put fails, and the check runs again."""
    files = ObjectStore("s3://lake/contested", store)
    asked: list[str] = []

    def check() -> None:
        asked.append("")
        if len(asked) > 1:
            raise FencedError("replaced")
        files.replace("a", b"newer", lambda: None)

    with pytest.raises(FencedError):
        files.replace("a", b"older", check)
    assert files.read("a") == b"newer"
    files.replace("a", b"newest", lambda: None)
    assert files.read("a") == b"newest"


@pytest.mark.parametrize("kind", ["parquet", "delta"])
def test_two_runs_at_once(tmp_path: Path, store: dict[str, str], kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """At some writes of one run another run begins, sees more of the log, and ends."""
    log, end = log_folder(tmp_path / "data") / f"{0:020}.log", 8
    spec = ArchiveSpec(paths=(str(tmp_path / "data"),), format=kind, path=f"s3://lake/{kind}", storage=store)
    files, plain = ObjectStore(spec.path, store), ObjectStore.write
    archive(spec)
    for number in (1, 4):
        seen = 0

        def writing(store: ObjectStore, path: str, data: bytes) -> None:
            nonlocal seen, end
            seen += 1
            if seen == number:  # noqa: B023 - called within this turn
                with log.open("ab") as out:
                    out.write(batch(end, *SECOND))
                end += 2
                archive(spec)
            plain(store, path, data)

        with log.open("ab") as out:
            out.write(batch(end, *SECOND))
        end += 2
        with monkeypatch.context() as patch, pytest.raises(ConflictError):
            patch.setattr(ObjectStore, "write", writing)
            archive(spec)
        reported = json.loads(files.read("state.json"))
        assert (reported["offset"], reported["published"]) == (end - 1, True)
        assert state_at(archived(spec)).offset == end - 1
        if kind == "parquet":
            assert files.read("partitions/partitions.parquet") == files.read(reported["tables"]["partitions"])
