"""Open files, locks and file systems of a simulated disk (`testing.disk`)."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Protocol

from kraft_node.base.env import ColdRead
from kraft_node.testing.disks.inode import Inode
from kraft_protocol.buffers import Buffer

if TYPE_CHECKING:
    from weakref import WeakSet

    from kraft_node.testing.disks.load import DirtyMemory, Eviction, Spent


class FaultyDisk(Protocol):
    """The disk of a handle: the faults and the costs of its operations."""

    eviction: Eviction
    locks: set[str]
    memory: DirtyMemory
    now_ms: Callable[[], int]
    """The wall time in ms."""
    opened: WeakSet[SimFile]
    """Files that the process has open."""
    spent: Spent
    """The cost of the current event on the loop."""

    def about_to(self, operation: str, path: str) -> None:
        """Count a change, and raise the error that a test has set up."""

    def reach(self, path: str) -> None:
        """Count an operation; raise EIO for a path in a dead directory."""

    def room(self, inode: Inode, position: int, length: int) -> int:
        """The number of bytes of a write that fit."""

    def sync_all(self) -> None:
        """Make everything durable."""


class SimFile:
    """An open file (`base.env.File`)."""

    __slots__ = ("__weakref__", "_disk", "_is_writable", "_open", "inode", "path")

    def __init__(self, disk: FaultyDisk, path: str, inode: Inode, *, is_writable: bool = True) -> None:
        self.path = path
        self.inode = inode
        self._disk = disk
        self._is_writable = is_writable
        self._open = True
        disk.opened.add(self)

    def size(self) -> int:
        """The length in bytes now."""
        self._check()
        return len(self.inode.data)

    def pread(self, position: int, length: int) -> bytes:
        """Raises ColdRead in `no_wait` if the file is evicted."""
        self._check()
        self._disk.reach(self.path)
        if self._disk.eviction.is_cold(self.inode) and length:
            raise ColdRead(self.path, position, length)
        data = bytes(self.inode.data[position : position + length])
        self._disk.spent.bytes += len(data)
        return data

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write; on a `full` disk, write the part within the file's old length, then raise ENOSPC."""
        self._check(writes=True)
        raw = b"".join(buffers)
        self._disk.about_to("write", self.path)
        self._disk.spent.bytes += len(raw)
        fits = self._disk.room(self.inode, position, len(raw))
        self.inode.write(position, raw[:fits])
        spent = self._disk.spent
        spent.written += fits
        spent.waits += self._disk.memory.dirtied(self.path, self.inode, fits, spent.written)
        self.inode.mtime_ms = self._disk.now_ms()
        if fits < len(raw):
            raise OSError(errno.ENOSPC, "no space left on device", self.path)

    def truncate(self, size: int) -> None:
        """Cut the file, or extend it with zeros."""
        self._check(writes=True)
        self._disk.about_to("truncate", self.path)
        self.inode.truncate(size)

    def write_back(self) -> None:
        """Clean its pages; nothing becomes durable."""
        self._check()
        self._disk.about_to("write_back", self.path)
        self._disk.memory.cleaned(self.inode)

    def fsync(self) -> None:
        """Make its contents durable, and clean its pages."""
        self._check()
        self._disk.about_to("fsync", self.path)
        self.inode.sync()
        self._disk.memory.cleaned(self.inode)

    def fileno(self) -> int:
        """No descriptor: -1."""
        return -1

    def close(self) -> None:
        """Later calls fail with EBADF, as on a real file."""
        self._open = False
        self._disk.opened.discard(self)

    def _check(self, *, writes: bool = False) -> None:
        if not self._open:
            raise OSError(errno.EBADF, "the file is closed", self.path)
        if writes and not self._is_writable:
            raise OSError(errno.EBADF, "the file was opened for reading", self.path)


class SimLock:
    """A lock; it is released by its process or when the process ends."""

    def __init__(self, disk: FaultyDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def release(self) -> None:
        """Let another process take it."""
        self._disk.locks.discard(self._path)


class SimFileSystem:
    """The whole disk: it is one file system."""

    __slots__ = ("_disk", "_path")

    def __init__(self, disk: FaultyDisk, path: str) -> None:
        self._disk = disk
        self._path = path

    def sync(self) -> None:
        """Make the whole disk durable."""
        self._disk.about_to("syncfs", self._path)
        self._disk.sync_all()

    def close(self) -> None:
        """Does nothing: no resource is held."""
