"""A limited number of open files, and small files that many logs share.

A node may hold a million segments, a process some thousand descriptors. `FileCache` keeps recently used files open and
drops references to others. A `FileSlice` that is being sent keeps its file open until it is sent.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import Final, Protocol, TypeAlias

from kraft_node.base.env import Disk, File
from kraft_protocol.buffers import Buffer

OPEN_FILES_MAX: Final = 2048
"""Default number of files kept open: half of the usual limit of a process; the rest is for connections."""

ORIGINALS_MAX: Final = 64
"""Files to link to, a few hundred bytes of memory each. Partitions of one topic are mostly created together."""

SHORTAGE_PAUSE_MS: Final = 100
"""The delay until work without a free descriptor is retried."""

Put: TypeAlias = Callable[[str, int, Buffer], None]
"""Writes bytes to a file, now or later: path, position, data. From position 0 they are the whole content of the
file."""


def write_file(disk: Disk, path: str, position: int, data: Buffer) -> None:
    """Write `data` at `position`, from any thread; the file exists afterwards. Raises OSError."""
    file = disk.open(path, create=True)
    try:
        if position == 0:
            file.truncate(0)
        if len(data):
            file.pwrite(position, [data])
    finally:
        file.close()


def remove_if_there(disk: Disk, path: str) -> None:
    """Remove a file that may be missing. Raises OSError."""
    if disk.exists(path):
        disk.remove(path)


class Originals:
    """Small files with equal content in many logs: the first is written, the others are hard links to it.

    Creating files is the largest cost of a new partition: two thirds of it on a file system that searches for free
    inodes. Only files that are never changed in place may be created here. To change the content, replace the file
    (`write_atomic` and similar functions, as in Apache Kafka).
    """

    __slots__ = ("_disk", "_paths")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: dict[bytes, str] = {}

    def put(self, path: str, data: bytes) -> None:
        """Create the file at `path`, which must not exist, with content `data`. Raises OSError."""
        original = self._paths.get(data)
        if original is not None:
            try:
                self._disk.link(original, path)
            except OSError:  # it was removed, has the maximum of links, or links are not supported
                del self._paths[data]
            else:
                return
        write_file(self._disk, path, 0, data)
        if len(self._paths) >= ORIGINALS_MAX:
            del self._paths[next(iter(self._paths))]
        self._paths[data] = path

    def forget(self) -> None:
        """Names of directories have changed: a path may mean another file now."""
        self._paths.clear()


NO_ENDS: Final[dict[int, int]] = {}
"""Shared by all files that nothing has been appended to, and never added to."""


class Holder(Protocol):
    """The user of an open file. It keeps the file's handle only as long as the file is open."""

    def closed(self, handle: Handle) -> None:
        """The file of `handle` was closed: drop the handle."""


class Handle:
    """An open file, and what only an open file needs: `FileCache` limits both.

    `used` saves the file from the next round of closing.
    """

    __slots__ = ("ends", "file", "holder", "used")

    def __init__(self, holder: Holder) -> None:
        self.holder = holder
        self.file: File | None = None
        self.ends = NO_ENDS
        """Positions by offset where the latest batches end, for readers near the end."""
        self.used = False


class FileCache:
    """Opens files for handles, and keeps at most `limit` of them open."""

    __slots__ = ("_disk", "_limit", "_open")

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        self._disk = disk
        self._limit = limit
        self._open: OrderedDict[Handle, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, holder: Holder, path: str, *, create: bool = False) -> Handle:
        """Open a file for `holder`, which is notified when the cache closes it. Raises OSError."""
        handle = Handle(holder)
        handle.file = self._disk.open(path, create=create)
        handle.used = True
        self._open[handle] = None
        if len(self._open) > self._limit:
            self._evict()
        return handle

    def open_once(self, path: str, *, create: bool = False) -> File:
        """Open a file that the cache does not keep. Raises OSError."""
        return self._disk.open(path, create=create)

    def drop(self, handle: Handle) -> None:
        """Close a file, for example because its path will soon name another file."""
        self._open.pop(handle, None)
        self._close(handle)

    def shed(self) -> bool:
        """Close all files because descriptors are short.

        Returns whether any was open; files that are being sent stay open.
        """
        closed, self._open = self._open, OrderedDict()
        for handle in closed:
            self._close(handle)
        return bool(closed)

    def _evict(self) -> None:
        while len(self._open) > self._limit:
            handle, _ = self._open.popitem(last=False)
            if handle.used:
                handle.used = False
                self._open[handle] = None
            else:
                self._close(handle)

    def _close(self, handle: Handle) -> None:
        handle.file = None
        handle.ends = NO_ENDS
        handle.holder.closed(handle)
