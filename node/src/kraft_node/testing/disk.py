"""A simulated disk (`base.env.Disk`).

Fault model. A write is in the page cache at once: a process that is killed loses nothing. A machine that loses power
keeps what was fsynced; of every write since, in each file by itself and as the seed says, a write is kept, lost or torn
at a sector boundary (the bytes not written read as before or, beyond the old end, as zeros). Creating, renaming and
removing names is durable after `fsync_dir` of the directory; of later changes of names a prefix, in their order,
survives. Removed files live on for who has them open. `fail` makes any operation fail with the error that it returns
(EIO on fsync, ENOSPC on write): a failed write has not happened, a failed fsync has made nothing durable. `die_after`
ends the process at one of its operations, before that has happened; what it does while it unwinds does not reach the
disk. Nothing else ever changes a stored byte: `flip` does, for tests of bit rot.
"""

from __future__ import annotations

import errno
import random
from collections.abc import Callable, Sequence
from typing import Final

from kraft_node.base.env import Buffer

SECTOR: Final = 512
DISK_BYTES: Final = 1 << 40


class Inode:
    """A file's contents: as the process sees them, as they are durable, and the difference in order."""

    __slots__ = ("data", "durable", "mtime_ms", "pending")

    def __init__(self) -> None:
        self.data = bytearray()
        self.durable = bytearray()
        self.pending: list[tuple[int, bytes | None]] = []
        """Unsynced: (position, bytes) of a write, (size, None) of a truncation."""
        self.mtime_ms = 0

    def write(self, position: int, raw: bytes) -> None:
        _apply(self.data, position, raw)
        self.pending.append((position, raw))

    def truncate(self, size: int) -> None:
        _apply(self.data, size, None)
        self.pending.append((size, None))

    def sync(self) -> None:
        for position, raw in self.pending:
            _apply(self.durable, position, raw)
        self.pending.clear()

    def lose_power(self, rng: random.Random) -> None:
        """What of the unsynced writes survives is decided; afterwards everything is durable."""
        mode = rng.choice(("kept", "lost", "some"))
        for position, raw in self.pending:
            if mode == "lost":
                break
            if mode == "kept" or raw is None or len(raw) <= SECTOR:
                if mode == "kept" or rng.random() < 0.5:
                    _apply(self.durable, position, raw)
                continue
            sectors = [raw[i : i + SECTOR] for i in range(0, len(raw), SECTOR)]
            for number, sector in enumerate(sectors):
                if rng.random() < 0.7:
                    _apply(self.durable, position + number * SECTOR, sector)
        self.pending.clear()
        self.data = bytearray(self.durable)


def _apply(data: bytearray, position: int, raw: bytes | None) -> None:
    if len(data) < position:
        data.extend(bytes(position - len(data)))
    if raw is None:
        del data[position:]
    else:
        data[position : position + len(raw)] = raw


class SimFile:
    """An open file (`base.env.File`)."""

    __slots__ = ("_disk", "_inode", "_open", "path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self.path = path
        self._disk = disk
        self._inode = inode
        self._open = True

    def size(self) -> int:
        return len(self._inode.data)

    def pread(self, position: int, length: int) -> bytes:
        return bytes(self._inode.data[position : position + length])

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> None:
        self._check()
        raw = b"".join(buffers)
        self._disk.about_to("write", self.path)
        self._inode.write(position, raw)
        self._inode.mtime_ms = self._disk.now_ms()

    def truncate(self, size: int) -> None:
        self._check()
        self._disk.about_to("truncate", self.path)
        self._inode.truncate(size)

    def fsync(self) -> None:
        self._check()
        self._disk.about_to("fsync", self.path)
        self._inode.sync()

    def fileno(self) -> int:
        return -1

    def close(self) -> None:
        self._open = False

    def _check(self) -> None:
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self.path)


class SimLock:
    """A lock that its process gives back, or its end."""

    def __init__(self, disk: SimDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        self._disk.locks.discard(self._path)


class SimDisk:
    """One machine's disk: a flat map of paths, with directories as entries of their own."""

    def __init__(self, rng: random.Random, now_ms: Callable[[], int] = lambda: 0) -> None:
        self.rng = rng
        self.now_ms = now_ms
        self.locks: set[str] = set()
        self.fail: Callable[[str, str], OSError | None] | None = None
        """Asked before every (operation, path); what it returns is raised."""
        self.operations = 0
        """Changes so far: the crash points of a trace."""
        self.on_death: Callable[[], BaseException] | None = None
        """What `die_after` raises."""
        self._dies_at = -1
        self._names: dict[str, Inode | None] = {"/": None}
        self._durable_names: dict[str, Inode | None] = {"/": None}
        self._pending_names: list[tuple[str, str, Inode | None, str]] = []

    def about_to(self, operation: str, path: str) -> None:
        """Count a change, and let it fail where the test says so."""
        self.operations += 1
        if 0 <= self._dies_at < self.operations and self.on_death is not None:
            raise self.on_death()
        if self.fail is not None:
            error = self.fail(operation, path)
            if error is not None:
                raise error

    # -- faults

    def die_after(self, operations: int) -> None:
        """Let the process end at its next operation but `operations`, and at every one that it still tries after."""
        self._dies_at = self.operations + operations

    def kill_process(self) -> None:
        """The process ends: locks are free, the page cache stays."""
        self.locks.clear()
        self._dies_at = -1

    def lose_power(self) -> None:
        """The machine ends: unsynced data and names survive as the fault model says."""
        self.kill_process()
        keep = self.rng.randrange(len(self._pending_names) + 1)
        for change in self._pending_names[:keep]:
            _change(self._durable_names, change)
        self._pending_names.clear()
        self._names = dict(self._durable_names)
        for inode in self._names.values():
            if inode is not None:
                inode.lose_power(self.rng)

    def sync_all(self) -> None:
        """Everything is durable: the machine has been up for long."""
        self._pending_names.clear()
        self._durable_names = dict(self._names)
        for inode in self._names.values():
            if inode is not None:
                inode.sync()

    def flip(self, path: str, position: int, bit: int) -> None:
        """Bit rot."""
        inode = self._inode(path)
        inode.data[position] ^= 1 << bit
        inode.durable[:] = inode.data

    def copy(self) -> SimDisk:
        """The same contents, all durable, on another disk: for trying a crash point without moving on."""
        other = SimDisk(random.Random(self.rng.random()), self.now_ms)
        for path, inode in self._names.items():
            if inode is None:
                other._names[path] = None
                continue
            made = Inode()
            made.data, made.durable = bytearray(inode.data), bytearray(inode.data)
            other._names[path] = made
        other._durable_names = dict(other._names)
        return other

    # -- base.env.Disk

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> SimFile:
        path = _clean(path)
        found = self._names.get(path, _MISSING)
        if found is None:
            raise IsADirectoryError(errno.EISDIR, "is a directory", path)
        if isinstance(found, Inode):
            return SimFile(self, path, found)
        if not create or read_only:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        if self._names.get(_parent(path), _MISSING) is not None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", _parent(path))
        self.about_to("create", path)
        inode = Inode()
        inode.mtime_ms = self.now_ms()
        self._record("create", path, inode)
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        return _clean(path) in self._names

    def is_dir(self, path: str) -> bool:
        return self._names.get(_clean(path), _MISSING) is None

    def size(self, path: str) -> int:
        return len(self._inode(path).data)

    def mtime_ms(self, path: str) -> int:
        return self._inode(path).mtime_ms

    def listdir(self, path: str) -> list[str]:
        path = _clean(path)
        if self._names.get(path, _MISSING) is not None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        prefix = path.rstrip("/") + "/"
        return sorted(
            p[len(prefix) :] for p in self._names if p.startswith(prefix) and "/" not in p[len(prefix) :] and p != "/"
        )

    def mkdir(self, path: str) -> None:
        path = _clean(path)
        missing = []
        while path not in self._names:
            missing.append(path)
            path = _parent(path)
        for each in reversed(missing):
            self.about_to("mkdir", each)
            self._record("create", each, None)

    def rename(self, old: str, new: str) -> None:
        old, new = _clean(old), _clean(new)
        if old not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", old)
        self.about_to("rename", old)
        self._record("rename", old, None, new)

    def remove(self, path: str) -> None:
        path = _clean(path)
        self._inode(path)
        self.about_to("remove", path)
        self._record("remove", path, None)

    def rmtree(self, path: str) -> None:
        path = _clean(path)
        if path not in self._names:
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        for each in sorted((p for p in self._names if p == path or p.startswith(path + "/")), reverse=True):
            self.about_to("remove", each)
            self._record("remove", each, None)

    def fsync_dir(self, path: str) -> None:
        path = _clean(path)
        if self._names.get(path, _MISSING) is not None:
            raise FileNotFoundError(errno.ENOENT, "no such directory", path)
        self.about_to("fsync_dir", path)
        rest = []
        for change in self._pending_names:
            if path in {_parent(change[1]), _parent(change[3]) if change[3] else path, change[1]}:
                _change(self._durable_names, change)
            else:
                rest.append(change)
        self._pending_names = rest

    def lock(self, path: str) -> SimLock:
        path = _clean(path)
        if path in self.locks:
            raise BlockingIOError(errno.EAGAIN, "locked by another process", path)
        if path not in self._names:
            self.open(path, create=True).close()
        self.locks.add(path)
        return SimLock(self, path)

    def free_bytes(self, path: str) -> int:  # noqa: ARG002
        return DISK_BYTES // 2

    def total_bytes(self, path: str) -> int:  # noqa: ARG002
        return DISK_BYTES

    # -- names

    def _inode(self, path: str) -> Inode:
        path = _clean(path)
        found = self._names.get(path, _MISSING)
        if not isinstance(found, Inode):
            raise FileNotFoundError(errno.ENOENT, "no such file", path)
        return found

    def _record(self, kind: str, path: str, inode: Inode | None, new: str = "") -> None:
        change = (kind, path, inode, new)
        _change(self._names, change)
        self._pending_names.append(change)


_MISSING: Final = object()


def _change(names: dict[str, Inode | None], change: tuple[str, str, Inode | None, str]) -> None:
    kind, path, inode, new = change
    if kind == "create":
        names.setdefault(path, inode)
    elif kind == "remove":
        names.pop(path, None)
    elif path in names:
        for old in [p for p in names if p == path or p.startswith(path + "/")]:
            names[new + old[len(path) :]] = names.pop(old)


def _clean(path: str) -> str:
    return "/" + "/".join(part for part in path.split("/") if part not in {"", "."})


def _parent(path: str) -> str:
    return path.rpartition("/")[0] or "/"
