"""Files of tables in folders survive a power failure."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from kraft_pipeline.tables.stores.storage import Folder


@pytest.fixture
def synced(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Paths of files and folders in the order of their fsyncs."""
    fsync, found = os.fsync, list[str]()

    def noted(handle: int) -> None:
        fsync(handle)
        found.append(os.readlink(f"/proc/self/fd/{handle}"))

    monkeypatch.setattr(os, "fsync", noted)
    return found


def test_a_written_file_is_durable_with_all_of_its_folders(tmp_path: Path, synced: list[str]) -> None:
    """A transaction could name a data file that a power loss had removed from its directory."""
    root = tmp_path / "lake" / "t"
    folder = Folder(root)
    folder.write("a=1/b=2/x.parquet", b"x")
    file = root / "a=1" / "b=2" / "x.parquet"
    assert set(synced) == {str(file), *(str(one) for one in list(file.parents)[:5])}
    assert synced[-1] == str(file.parent)
    synced.clear()
    folder.write("a=1/b=2/y.parquet", b"y")
    assert synced == [str(file.with_name("y.parquet")), str(file.parent)]


def test_folders_of_a_process_that_died_are_made_durable(tmp_path: Path, synced: list[str]) -> None:
    (tmp_path / "a=1").mkdir()
    Folder(tmp_path).write("a=1/x.parquet", b"x")
    assert str(tmp_path) in synced
    assert synced[-1] == str(tmp_path / "a=1")


def test_a_created_file_is_durable_before_success_is_returned(tmp_path: Path, synced: list[str]) -> None:
    assert Folder(tmp_path / "t").create("log/1.json", b"{}")
    assert synced[-1] == str(tmp_path / "t" / "log")
    assert str(tmp_path / "t") in synced
    assert not Folder(tmp_path / "t").create("log/1.json", b"other")
