"""Files on the real file system."""

from __future__ import annotations

import multiprocessing
import os
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraft_node.base.env import read_file, write_atomic
from kraft_node.runtime.disk import IOV_MAX, RealDisk

DISK = RealDisk()


def test_write_and_read_in_many_buffers(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "f"), create=True)
    parts = [bytes([i % 256]) * (i % 7) for i in range(3 * IOV_MAX + 5)]
    file.pwrite(10, parts)
    whole = b"".join(parts)
    assert file.size() == 10 + len(whole)
    assert file.pread(10, len(whole)) == whole
    assert file.pread(10, 10 * len(whole)) == whole
    assert file.pread(file.size(), 5) == b""
    file.truncate(12)
    assert file.size() == 12
    file.fsync()
    file.close()
    file.close()


def test_missing_files_and_read_only(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        DISK.open(str(tmp_path / "none"))
    path = str(tmp_path / "f")
    write_atomic(DISK, path, b"old")
    write_atomic(DISK, path, b"newer")
    assert read_file(DISK, path) == b"newer"
    assert DISK.listdir(str(tmp_path)) == ["f"]
    file = DISK.open(path, read_only=True)
    with pytest.raises(OSError, match="descriptor"):
        file.pwrite(0, [b"x"])
    file.close()


def test_an_open_file_survives_rename_and_removal(tmp_path: Path) -> None:
    path = str(tmp_path / "f")
    write_atomic(DISK, path, b"data")
    file = DISK.open(path)
    DISK.rename(path, path + ".deleted")
    DISK.remove(path + ".deleted")
    DISK.fsync_dir(str(tmp_path))
    assert file.pread(0, 4) == b"data"
    file.close()


def test_descriptors_of_forgotten_files_are_closed(tmp_path: Path) -> None:
    file = DISK.open(str(tmp_path / "f"), create=True)
    fd = file.fileno()
    del file
    with pytest.raises(OSError, match="Bad file descriptor"):
        os.fstat(fd)


def _try_lock(path: str, answers: multiprocessing.Queue[bool]) -> None:
    try:
        RealDisk().lock(path).release()
        answers.put(True)
    except BlockingIOError:
        answers.put(False)


def test_a_lock_excludes_other_processes_and_this_one(tmp_path: Path) -> None:
    path = str(tmp_path / ".lock")
    lock = DISK.lock(path)
    with pytest.raises(BlockingIOError):
        DISK.lock(path)
    context = multiprocessing.get_context("fork")
    answers: multiprocessing.Queue[bool] = context.Queue()
    for expected in (False, True):
        process = context.Process(target=_try_lock, args=(path, answers))
        process.start()
        assert answers.get(timeout=20) is expected
        process.join()
        lock.release()
    answers.close()
    answers.join_thread()


def test_space(tmp_path: Path) -> None:
    assert 0 < DISK.free_bytes(str(tmp_path)) <= DISK.total_bytes(str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="syncfs is Linux's")
def test_a_whole_file_system_is_synced_where_errors_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "uname", lambda: SimpleNamespace(release="6.1.0-test"))
        found = RealDisk().file_system(str(tmp_path))
    assert found is not None
    found.sync()
    found.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        found.sync()


@pytest.mark.parametrize("release", ["5.7.19", "4.19.0-test", "unknown"])
def test_kernels_that_keep_errors_to_themselves_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert RealDisk().file_system(str(tmp_path)) is None
