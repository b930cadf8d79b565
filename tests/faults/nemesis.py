"""The faults. Each is a context: the fault holds within it, and at its end the member is whole or recovering.

`FAULTS` names all faults; a round applies them alone and in pairs on different members.
"""

from __future__ import annotations

import contextlib
import ctypes.util
import os
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

from tests.faults.members import Cluster, Member
from tests.faults.proxy import CLIENT

Fault = Callable[[Cluster, Member, random.Random], contextlib.AbstractContextManager[None]]
CLOCK_SHIFT_S = 3600


@contextlib.contextmanager
def killed(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """SIGKILL; restarted at the end."""
    member.kill()
    try:
        yield
    finally:
        member.start()


@contextlib.contextmanager
def restarted(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """A clean stop; restarted at the end."""
    code = member.stop()
    assert code in (0, 128 + signal.SIGTERM), f"{member.name} ended with {code}:\n{member.tail()}"
    try:
        yield
    finally:
        member.start()


@contextlib.contextmanager
def paused(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """SIGSTOP and SIGCONT, like a long pause of the machine."""
    member.signal(signal.SIGSTOP)
    try:
        yield
    finally:
        member.signal(signal.SIGCONT)


def _others(cluster: Cluster, member: Member) -> list[str]:
    return [name for name in (*cluster.members, CLIENT) if name != member.name]


@contextlib.contextmanager
def _without(cluster: Cluster, pairs: list[tuple[str, str]]) -> Iterator[None]:
    cluster.proxy.cut(pairs)
    try:
        yield
    finally:
        cluster.proxy.heal(pairs)


def cut_off(cluster: Cluster, member: Member, rng: random.Random) -> contextlib.AbstractContextManager[None]:
    """Nothing goes to or from the member."""
    others = _others(cluster, member)
    return _without(cluster, [(member.name, o) for o in others] + [(o, member.name) for o in others])


def deaf(cluster: Cluster, member: Member, rng: random.Random) -> contextlib.AbstractContextManager[None]:
    """The member can send, but receives nothing."""
    return _without(cluster, [(o, member.name) for o in _others(cluster, member)])


def mute(cluster: Cluster, member: Member, rng: random.Random) -> contextlib.AbstractContextManager[None]:
    """The member receives, but no other node receives its messages."""
    return _without(cluster, [(member.name, o) for o in _others(cluster, member)])


def split(cluster: Cluster, member: Member, rng: random.Random) -> contextlib.AbstractContextManager[None]:
    """The member and some of the others on one side, the rest on the other; clients reach both."""
    others = [name for name in cluster.members if name != member.name]
    rng.shuffle(others)
    side = {member.name, *others[: rng.randint(1, 2)]}
    pairs = [(a, b) for a in side for b in cluster.members if b not in side]
    return _without(cluster, pairs + [(b, a) for a, b in pairs])


@contextlib.contextmanager
def resets(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """Every connection of the member is closed at once."""
    cluster.proxy.reset(member.name)
    yield


@contextlib.contextmanager
def clock_shifted(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """Restarted with a clock that is an hour off, and at the end with the right one."""
    library = faketime_library()
    assert library, "needs libfaketime"
    shift = rng.choice((-CLOCK_SHIFT_S, CLOCK_SHIFT_S))
    member.kill()
    member.preload = {"LD_PRELOAD": library, "FAKETIME": f"{shift:+d}s", "DONT_FAKE_MONOTONIC": "1"}
    member.start()
    try:
        yield
    finally:
        member.kill()
        member.preload = {}
        member.start()


@contextlib.contextmanager
def wiped(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """Killed, its disk lost; at the end an empty formatted disk under the same id."""
    member.kill()
    try:
        yield
    finally:
        member.wipe()
        member.start()


@contextlib.contextmanager
def disk_full(cluster: Cluster, member: Member, rng: random.Random) -> Iterator[None]:
    """Moved to a small file system that then fills up; at the end it gets room and is restarted."""
    member.stop()
    kept = member.folder / "kept"
    member.data.rename(kept)
    member.data.mkdir()
    used = sum(f.stat().st_blocks * 512 for f in kept.rglob("*") if f.is_file())
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={used + (8 << 20)}", "none", str(member.data)], check=True, timeout=30
    )
    shutil.copytree(kept, member.data, dirs_exist_ok=True)
    member.start()
    try:
        _fill(member.data / "filler")
        yield
    finally:
        member.kill()
        (member.data / "filler").unlink(missing_ok=True)
        shutil.rmtree(kept)
        shutil.copytree(member.data, kept)
        subprocess.run(["umount", str(member.data)], check=True, timeout=30)
        member.data.rmdir()
        kept.rename(member.data)
        member.start()


def _fill(path: Path) -> None:
    handle = os.open(path, os.O_CREAT | os.O_WRONLY)
    with contextlib.suppress(OSError):
        while True:
            os.write(handle, bytes(64 * 1024))
    os.close(handle)


def faketime_library() -> str | None:
    """The path of libfaketime, or None."""
    for path in Path("/usr/lib").glob("*/faketime/libfaketime.so.1"):
        return str(path)
    return ctypes.util.find_library("faketime")


def can_mount() -> bool:
    """Whether a small file system can be mounted: as root, where mounting is allowed."""
    return os.geteuid() == 0 and shutil.which("mount") is not None


FAULTS: dict[str, Fault] = {
    "killed": killed,
    "restarted": restarted,
    "paused": paused,
    "cut off": cut_off,
    "deaf": deaf,
    "mute": mute,
    "split": split,
    "resets": resets,
    "clock shifted": clock_shifted,
    "disk wiped": wiped,
    "disk full": disk_full,
}


def available() -> dict[str, Fault]:
    """The faults that this machine can make; compare with FAULTS to report the missing ones."""
    faults = dict(FAULTS)
    if faketime_library() is None:
        del faults["clock shifted"]
    if not can_mount():
        del faults["disk full"]
    return faults
