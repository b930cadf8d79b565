"""Losses of power, on a real file system: some of them here, hundreds by `make crash-points`."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.crash.lossy import Lossy
from tests.crash.points import Rig

POINTS = 4
pytestmark = [pytest.mark.xdist_group("crash"), pytest.mark.slow]
"""Slow: beside other tests at a load of 14, three of these failed for a reason that is not known yet."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Lossy]:
    pytest.importorskip("mfusepy", reason="libfuse is missing: install fuse3", exc_type=OSError)
    lossy = Lossy(tmp_path / "disk", 7)
    try:
        lossy.__enter__()
    except OSError as error:
        pytest.skip(f"this user may not mount file systems: {error}")
    yield lossy
    lossy.__exit__(None, None, None)


def _sync(path: Path) -> None:
    fd = os.open(path, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def test_a_power_loss_keeps_what_was_fsynced_and_loses_names_that_were_not(disk: Lossy) -> None:
    kept, lost = disk.folder / "kept", disk.folder / "lost"
    kept.write_bytes(b"before")
    _sync(kept)
    _sync(disk.folder)
    found = set()
    for _ in range(20):
        lost.write_bytes(b"x")
        disk.restore_power()
        assert kept.read_bytes() == b"before"
        found.add(lost.exists())
        lost.unlink(missing_ok=True)
        _sync(disk.folder)
    assert found == {True, False}, "the fault model draws whether a name survives"


def test_a_rename_over_an_open_file_is_one_change(disk: Lossy) -> None:
    old, new = disk.folder / "state", disk.folder / "state.tmp"
    old.write_bytes(b"1")
    _sync(old)
    _sync(disk.folder)
    outcomes = set()
    for _ in range(12):
        with old.open("rb") as reader:
            new.write_bytes(b"2")
            _sync(new)
            new.replace(old)
            assert reader.read() in (b"1", b"2")
        disk.restore_power()
        outcomes.add(old.read_bytes())
        old.write_bytes(b"1")
        _sync(old)
        _sync(disk.folder)
    assert outcomes == {b"1", b"2"}


def test_a_cut_fails_every_later_change(disk: Lossy) -> None:
    disk.cut_power_after(1)
    with pytest.raises(OSError, match="Input/output error") as error:
        (disk.folder / "file").write_bytes(b"x")
    assert error.value.errno == errno.EIO
    assert disk.is_off
    disk.restore_power()
    assert not disk.is_off


def test_promises_survive_losses_of_power(disk: Lossy, tmp_path: Path) -> None:
    with Rig(tmp_path / "rig", 1) as rig:
        for _ in range(POINTS):
            rig.lose_power_once()
        assert rig.acknowledged > 0
