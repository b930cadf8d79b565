"""Files on the real file system."""

from __future__ import annotations

import errno
import multiprocessing
import os
import sys
import threading
from pathlib import Path
from types import SimpleNamespace

import pytest

from kraft_node.base.env import ColdRead, read_file, write_atomic
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


def test_free_space_is_reported(tmp_path: Path) -> None:
    assert 0 < DISK.free_bytes(str(tmp_path)) <= DISK.total_bytes(str(tmp_path))


@pytest.mark.skipif(sys.platform != "linux", reason="syncfs is Linux's")
def test_a_file_system_is_synced_whole_if_the_kernel_reports_errors(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(os, "uname", lambda: SimpleNamespace(release="6.1.0-test"))
        found = RealDisk().file_system(str(tmp_path))
    assert found is not None
    found.sync()
    found.close()
    with pytest.raises(OSError, match="Bad file descriptor"):
        found.sync()


@pytest.mark.parametrize("release", ["5.7.19", "4.19.0-test", "unknown"])
def test_kernels_that_hide_sync_errors_are_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, release: str
) -> None:
    monkeypatch.setattr(os, "uname", lambda: SimpleNamespace(release=release))
    assert RealDisk().file_system(str(tmp_path)) is None


FAR = 600_000
"""So far into a file, the kernel has read nothing when byte 0 was asked for."""


def evicted(path: Path, size: int) -> None:
    """Make a file of `size` bytes that is not in the page cache; skip where that is impossible."""
    path.write_bytes(bytes(size))
    fd = os.open(path, os.O_RDWR)
    try:
        os.fsync(fd)
        os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
        try:
            os.preadv(fd, [bytearray(1)], 0, os.RWF_NOWAIT)
        except BlockingIOError:
            return
        except OSError:
            pytest.skip("the file system does not say what is in memory")
        pytest.skip("the file stays in memory")
    finally:
        os.close(fd)


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no RWF_NOWAIT")
def test_reads_without_waiting_report_data_that_is_not_in_memory(tmp_path: Path) -> None:
    evicted(tmp_path / "f", 1 << 20)
    file = DISK.open(str(tmp_path / "f"))
    with DISK.no_wait, pytest.raises(ColdRead) as cold:
        file.pread(FAR, 100)
    assert (cold.value.path, cold.value.position, cold.value.length) == (str(tmp_path / "f"), FAR, 100)
    with DISK.no_wait:
        with DISK.may_wait():
            assert file.pread(FAR, 100) == bytes(100)
        assert file.pread(FAR, 100) == bytes(100)
    assert file.pread(0, 1 << 20) == bytes(1 << 20)
    with DISK.no_wait:
        assert file.pread((1 << 20) - 5, 100) == bytes(5)
        assert file.pread(1 << 20, 100) == b""


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no RWF_NOWAIT")
def test_reads_of_other_threads_wait(tmp_path: Path) -> None:
    evicted(tmp_path / "f", 1 << 20)
    file = DISK.open(str(tmp_path / "f"))
    found: list[bytes] = []
    with DISK.no_wait:
        thread = threading.Thread(target=lambda: found.append(file.pread(0, 10)))
        thread.start()
        thread.join()
    assert found == [bytes(10)]


@pytest.mark.skipif(not hasattr(os, "RWF_NOWAIT"), reason="this system has no RWF_NOWAIT")
def test_reads_wait_if_the_file_system_cannot_report_residency(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "f").write_bytes(b"0123456789")
    real = os.preadv

    def preadv(fd: int, buffers: list[bytearray], position: int, flags: int = 0) -> int:
        if flags:
            raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))
        return real(fd, buffers, position)

    monkeypatch.setattr(os, "preadv", preadv)
    file = DISK.open(str(tmp_path / "f"))
    with DISK.no_wait:
        assert file.pread(2, 100) == b"23456789"


def test_a_path_that_cannot_be_examined_is_not_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was: a flush left it out, and a deleted segment kept its name."""
    file = tmp_path / "file"
    file.touch()
    assert DISK.exists(str(file))
    assert DISK.is_dir(str(tmp_path))
    assert not DISK.is_dir(str(file))
    for missing in (tmp_path / "none", file / "below"):
        assert not DISK.exists(str(missing))
        assert not DISK.is_dir(str(missing))

    def broken(*_: object) -> os.stat_result:
        raise OSError(errno.EIO, "input/output error")

    monkeypatch.setattr(os, "stat", broken)
    for look in (DISK.exists, DISK.is_dir):
        with pytest.raises(OSError, match="input/output error"):
            look(str(file))
