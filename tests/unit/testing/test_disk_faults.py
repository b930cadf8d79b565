"""The simulated disk when it is full, when a directory on it dies, and when it stops answering."""

from __future__ import annotations

import errno
import random
from typing import Any

import pytest

from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import SimBackground, SimHost, World


def disk() -> SimDisk:
    made = SimDisk(random.Random(1))
    made.mkdir("/a")
    made.mkdir("/b")
    return made


def test_a_write_on_a_full_disk_changes_only_existing_bytes() -> None:
    full = disk()
    file = full.open("/a/file", create=True)
    file.pwrite(0, [b"0123"])
    full.full = True
    with pytest.raises(OSError, match="no space") as caught:
        file.pwrite(2, [b"xyz"])
    assert caught.value.errno == errno.ENOSPC
    assert file.pread(0, 9) == b"01xy"
    file.pwrite(0, [b"AB"])
    with pytest.raises(OSError, match="no space"):
        full.open("/a/other", create=True)
    full.full = False
    file.pwrite(4, [b"z"])
    assert file.pread(0, 9) == b"ABxyz"


def test_a_failed_directory_fails_its_files_and_no_other() -> None:
    dying = disk()
    files = [dying.open(f"/{name}/file", create=True) for name in "ab"]
    for file in files:
        file.pwrite(0, [b"synced"])
        file.fsync()
        file.pwrite(6, [b" not"])
    dying.dead = "/b"
    for touch in (
        lambda: files[1].pread(0, 1),
        lambda: files[1].pwrite(0, [b"x"]),
        files[1].fsync,
        lambda: dying.open("/b/file"),
        lambda: dying.listdir("/b"),
    ):
        with pytest.raises(OSError, match="input/output"):
            touch()
    assert files[0].pread(0, 99) == b"synced not"
    found = set()
    for seed in range(20):
        again = disk()
        again.rng = random.Random(seed)
        file = again.open("/b/file", create=True)
        file.pwrite(0, [b"synced"])
        file.fsync()
        file.pwrite(6, [b" not"])
        again.dead = "/b"
        again.revive("/b")
        found.add(file.pread(0, 99))
    assert found == {b"synced", b"synced not"}, "what was not synced may be gone"


def test_jobs_wait_while_a_disk_does_not_answer_and_keep_their_order() -> None:
    world = World(3)
    host = SimHost(world, "n1", disk())
    background = SimBackground(world, host)
    done: list[tuple[int, float]] = []

    def submit(number: int) -> None:
        def finished(_result: Any) -> None:
            done.append((number, world.now_ms))

        background.submit("lane", lambda: None, finished)

    submit(0)
    host.stalled_until_ms = 5_000.0
    submit(1)
    world.rest(1_000)
    submit(2)
    world.rest(3_900)
    assert not done
    world.rest(1_000)
    assert [number for number, _ in done] == [0, 1, 2]
    assert all(at >= 5_000 for _, at in done)


def test_jobs_that_a_slow_disk_has_delayed_are_fast_once_it_has_healed() -> None:
    """Seed 77 of `whole`, in its world of 2026-11-30: jobs kept the time that they were given when they were queued,
    each with the write-back of the same dirty bytes. A disk was slow for two more minutes after all faults."""
    world = World(3)
    host = SimHost(world, "n1", disk())
    background = SimBackground(world, host)
    host.background_ms = 2000.0
    done: list[float] = []
    for _ in range(100):
        background.submit("lane", lambda: None, lambda _: done.append(world.now_ms))
    world.rest(3_000)
    host.background_ms = 20.0
    world.rest(5_000)
    assert len(done) == 100


def test_the_jobs_of_a_lane_wait_for_the_same_dirty_bytes_once() -> None:
    world = World(3)
    small = SimDisk(random.Random(1), lambda: int(world.now_ms))
    small.mkdir("/a")
    host = SimHost(world, "n1", small)
    small.memory.ceiling, small.memory.rate, small.memory.speed = 24_000, 100, 100
    small.open("/a/0.log", create=True).pwrite(0, [bytes(20_000)])
    background = SimBackground(world, host)
    done: list[float] = []
    for _ in range(10):
        background.submit("lane", lambda: None, lambda _: done.append(world.now_ms))
    world.rest(200 + 10 * (host.background_ms + 1))
    assert len(done) == 10


def test_a_large_snapshot_does_not_make_a_small_append_wait() -> None:
    """Node seed 1100244: the metadata's snapshot exceeded twice the ceiling of a small machine."""
    small = disk()
    small.memory.ceiling, small.memory.rate = 24_000, 0
    log, snapshot = small.open("/a/0.log", create=True), small.open("/b/0.checkpoint.part", create=True)

    def append(size: int) -> int:
        small.spent.clear()
        log.pwrite(log.size(), [bytes(size)])
        return small.spent.waits

    assert not append(20_000)
    for _ in range(3):
        small.spent.clear()
        snapshot.pwrite(snapshot.size(), [bytes(16_000)])
    assert not append(100), "allowed before the snapshot"
    assert not any(append(1000) for _ in range(8)), "within the overshoot"
    assert sum(append(1000) for _ in range(80)) > 10, "far beyond the ceiling without the snapshot"
    snapshot.fsync()
    assert append(100), "a clean snapshot excuses nothing"


def test_a_closed_file_and_a_file_for_reading_refuse_as_real_files_do() -> None:
    """A use after close, or a write to a file that was opened for reading, was never found."""
    real = disk()
    file = real.open("/a/file", create=True)
    file.pwrite(0, [b"0123"])
    reader = real.open("/a/file", read_only=True)
    assert reader.pread(0, 4) == b"0123"
    reader.fsync()
    file.close()
    for use in (
        lambda: file.pread(0, 1),
        file.size,
        lambda: file.pwrite(0, [b"x"]),
        lambda: reader.pwrite(0, [b"x"]),
        lambda: reader.truncate(1),
    ):
        with pytest.raises(OSError, match=r"closed|for reading") as caught:
            use()
        assert caught.value.errno == errno.EBADF


def test_nothing_is_known_about_a_dead_directory() -> None:
    dying = disk()
    dying.open("/a/file", create=True).close()
    dying.dead = "/a"
    for look in (dying.exists, dying.is_dir, dying.size, dying.mtime_ms):
        with pytest.raises(OSError, match="input/output"):
            look("/a/file")
    assert not dying.exists("/b/file")


def test_a_copy_of_a_disk_keeps_the_names_of_one_file_together() -> None:
    disk = SimDisk(random.Random(1))
    disk.open("/a", create=True).pwrite(0, (b"1",))
    disk.link("/a", "/b")
    copy = disk.copy()
    copy.open("/a").pwrite(0, (b"2",))
    assert copy.open("/b").pread(0, 1) == b"2"
    assert disk.open("/b").pread(0, 1) == b"1"
