"""The kernel's numbers of dirty memory, as Linux gives them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from kraft_node.runtime import dirty_pages
from kraft_node.runtime.dirty_pages import PAGE_BYTES, DirtyPages
from kraft_node.runtime.disk import RealDisk

VMSTAT = "nr_dirty 10\nnr_writeback 5\nnr_dirty_threshold 300\nnr_dirty_background_threshold 100\n"


def files(path: Path, monkeypatch: pytest.MonkeyPatch, vmstat: str = VMSTAT) -> None:
    (path / "vmstat").write_text(vmstat)
    monkeypatch.setattr(dirty_pages, "VMSTAT", str(path / "vmstat"))


def group(path: Path, monkeypatch: pytest.MonkeyPatch, limit: str) -> None:
    (path / "memory.max").write_text(limit + "\n")
    (path / "memory.current").write_text("600000\n")
    (path / "memory.stat").write_text("file_dirty 1000\nfile_writeback 500\ninactive_file 300000\nactive_file 100000\n")
    monkeypatch.setattr(dirty_pages, "_limited_groups", lambda: [str(path)])
    monkeypatch.setattr(dirty_pages, "_share_percent", lambda: 15)


def test_the_room_equals_the_dirty_bytes_that_the_kernel_permits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    files(tmp_path, monkeypatch)
    monkeypatch.setattr(dirty_pages, "_limited_groups", list)
    assert DirtyPages().room() == (185 * PAGE_BYTES, 200 * PAGE_BYTES)


def test_a_control_group_with_less_room_limits_the_room(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, monkeypatch)
    group(tmp_path, monkeypatch, "1000000")
    assert DirtyPages().room() == (120_000 - 1500, 120_000)


def test_a_control_group_without_a_limit_is_ignored(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, monkeypatch)
    group(tmp_path, monkeypatch, "max")
    assert DirtyPages().room() == (185 * PAGE_BYTES, 200 * PAGE_BYTES)


def test_without_kernel_numbers_the_room_is_unknown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files(tmp_path, monkeypatch, "nr_free_pages 7\n")
    assert DirtyPages().room() is None
    monkeypatch.setattr(dirty_pages, "VMSTAT", str(tmp_path / "missing"))
    assert DirtyPages().room() is None


@pytest.mark.skipif(sys.platform != "linux", reason="needs Linux's /proc/vmstat")
def test_this_machine_reports_its_room(tmp_path: Path) -> None:
    room = RealDisk().dirty_room()
    assert room is not None
    assert room.left <= room.ceiling


def test_a_file_is_written_back_through_a_descriptor_for_reading(tmp_path: Path) -> None:
    disk = RealDisk()
    path = str(tmp_path / "some.log")
    file = disk.open(path, create=True)
    file.pwrite(0, [bytes(100_000)])
    other = disk.open(path, read_only=True)
    other.write_back()
    other.close()
    assert file.size() == 100_000
