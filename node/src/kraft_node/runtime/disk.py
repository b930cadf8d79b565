"""Files of the operating system (`base.env.Disk`). Every method may raise OSError."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import re
import resource
import shutil
import stat
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import cache
from typing import Final, TypeVar

from kraft_node.base.env import ColdRead, DirtyRoom
from kraft_node.runtime.dirty_pages import DirtyPages
from kraft_node.runtime.residency import read_resident
from kraft_protocol.buffers import Buffer

IOV_MAX: Final = 1024
"""Buffers that one pwritev may take on Linux and macOS."""

SYNCFS_TELLS_ERRORS: Final = (5, 8)
"""The first Linux release with a syncfs that reports write-back errors; before, it always returned 0."""

SYNC_RANGE_AND_WAIT: Final = 1 | 2 | 4
"""Flags of sync_file_range: wait for writes under way, write dirty pages, wait for these writes."""

SHORTAGES: Final = (errno.EMFILE, errno.ENFILE)
SHORTAGE_PAUSE_S: Final = 0.05
SHORTAGE_TRIES: Final = 200
"""How often a lane retries if the process has no free descriptor: for ten seconds, then the job fails."""
T = TypeVar("T")

_fdatasync = getattr(os, "fdatasync", os.fsync)


class _Hurry(threading.local):
    """Whether this thread's reads must not wait for the disk."""

    is_on = False


_hurry = _Hurry()


class _NoWait:
    """The context `Disk.no_wait`."""

    __slots__ = ()

    def __enter__(self) -> None:
        _hurry.is_on = True

    def __exit__(self, *_: object) -> None:
        _hurry.is_on = False


class RealFile:
    """An open file. It is closed when the last reference is gone, at the latest."""

    __slots__ = ("_fd", "path")

    def __init__(self, path: str, fd: int) -> None:
        self.path = path
        self._fd = fd

    def size(self) -> int:
        """The length in bytes now, from fstat(2)."""
        return os.fstat(self._fd).st_size

    def pread(self, position: int, length: int) -> bytes:
        """Repeat short reads. In `no_wait`, read the page cache only, and return a bytearray."""
        if _hurry.is_on:
            found = read_resident(self._fd, position, length)
            if found is None:
                raise ColdRead(self.path, position, length)
            return found  # type: ignore[return-value]  # a copy costs a tenth of a look-up
        data = os.pread(self._fd, length, position)
        if len(data) == length or not data:
            return data
        parts = [data]
        got = len(data)
        while got < length:
            data = os.pread(self._fd, length - got, position + got)
            if not data:
                break
            parts.append(data)
            got += len(data)
        return b"".join(parts)

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write with pwritev(2), at most IOV_MAX buffers per call; complete a short write or raise its error."""
        if len(buffers) > IOV_MAX:
            for start in range(0, len(buffers), IOV_MAX):
                some = buffers[start : start + IOV_MAX]
                self.pwrite(position, some)
                position += sum(map(len, some))
            return
        expected = sum([len(b) for b in buffers])
        written = os.pwritev(self._fd, buffers, position)
        if written != expected:
            self._pwrite_rest(position, buffers, written)

    def _pwrite_rest(self, position: int, buffers: Sequence[Buffer], written: int) -> None:
        """Write the rest after a short write, which happens near a full disk or a size limit, until the error itself
        occurs.
        """
        rest = memoryview(b"".join(buffers))
        while written < len(rest):
            written += os.pwrite(self._fd, rest[written:], position + written)

    def truncate(self, size: int) -> None:
        """Set the length with ftruncate(2); a longer file ends with zeros."""
        os.ftruncate(self._fd, size)

    def write_back(self) -> None:
        """Write all dirty pages with sync_file_range(2) and wait; fdatasync(2) on systems other than Linux."""
        if _sync_range is None:
            _fdatasync(self._fd)
            return
        import ctypes  # noqa: PLC0415  (a few milliseconds that only pressure needs)

        if _sync_range()(self._fd, 0, 0, SYNC_RANGE_AND_WAIT) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self.path)

    def fsync(self) -> None:
        """Run fdatasync(2), which covers data and size; fsync(2) on systems without it."""
        _fdatasync(self._fd)

    def fileno(self) -> int:
        """The descriptor; -1 after `close`."""
        return self._fd

    def close(self) -> None:
        """Close the descriptor; allowed if it is closed already."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)

    def __del__(self) -> None:
        fd = getattr(self, "_fd", -1)
        if fd >= 0:
            self._fd = -1
            with contextlib.suppress(OSError):
                os.close(fd)

    def __repr__(self) -> str:
        return f"RealFile({self.path!r})"


class RealLock:
    """Two locks on one file: flock, which also excludes this process itself, and the POSIX record lock that the JVM
    takes.

    So Apache Kafka and this node exclude each other.
    """

    __slots__ = ("_fd", "path")

    def __init__(self, path: str) -> None:
        self.path = path
        self._fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            fcntl.lockf(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as e:
            os.close(self._fd)
            self._fd = -1
            raise BlockingIOError(e.errno, "locked by another process", path) from None

    def release(self) -> None:
        """Release both locks, by closing the file. The file stays; a second call does nothing."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


class RealFileSystem:
    """syncfs(2) on a directory that is kept open: the kernel reports a write-back error to every process with an open
    file.
    """

    __slots__ = ("_fd", "_path", "_syncfs")

    def __init__(self, path: str, syncfs: Callable[[int], int]) -> None:
        self._path = path
        self._syncfs = syncfs
        self._fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def sync(self) -> None:
        """Run syncfs(2). It waits for all dirty data of the file system, so run it in a lane."""
        import ctypes  # noqa: PLC0415

        if self._syncfs(self._fd) != 0:
            number = ctypes.get_errno()
            raise OSError(number, os.strerror(number), self._path)

    def close(self) -> None:
        """Close the directory; allowed if it is closed already. Later write errors go unnoticed."""
        fd, self._fd = self._fd, -1
        if fd >= 0:
            os.close(fd)


def _find_syncfs() -> Callable[[int], int] | None:
    """syncfs, if the kernel reports write-back errors (Linux 5.8 and later); else None."""
    if sys.platform != "linux":
        return None
    release = re.match(r"(\d+)\.(\d+)", os.uname().release)
    if release is None or (int(release[1]), int(release[2])) < SYNCFS_TELLS_ERRORS:
        return None
    import ctypes  # noqa: PLC0415  (a few milliseconds that only a stop needs)

    syncfs: Callable[[int], int] | None = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
    return syncfs


@cache
def _libc_sync_range() -> Callable[[int, int, int, int], int]:
    """sync_file_range(2): file, position, length (0: to the end), flags."""
    import ctypes  # noqa: PLC0415

    call = ctypes.CDLL(None, use_errno=True).sync_file_range
    call.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    function: Callable[[int, int, int, int], int] = call
    return function


_sync_range = _libc_sync_range if sys.platform == "linux" else None


def _mode(path: str) -> int | None:
    """The type and rights of a file; None if it does not exist.

    `os.path.exists` takes a file that cannot be examined for one that does not exist. Raises OSError.
    """
    try:
        return os.stat(path).st_mode
    except (FileNotFoundError, NotADirectoryError):
        return None


class RealDisk:
    """The file systems of this machine. The loop's thread must create it."""

    def __init__(self) -> None:
        soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
        self.open_max = sys.maxsize if soft == resource.RLIM_INFINITY else soft // 2
        self.relief: Callable[[], bool] | None = None
        self.no_wait = _NoWait()
        self._loop_thread = threading.get_ident()
        self._dirty_pages = DirtyPages()

    @contextlib.contextmanager
    def may_wait(self) -> Iterator[None]:
        """A context that suspends this thread's `no_wait`."""
        before, _hurry.is_on = _hurry.is_on, False
        try:
            yield
        finally:
            _hurry.is_on = before

    def _relieved(self, work: Callable[[], T]) -> T:
        """Run `work`, which needs a descriptor.

        Without a free descriptor, close idle files (on the loop) or wait (in other threads).
        """
        is_loop = threading.get_ident() == self._loop_thread
        for attempt in range(SHORTAGE_TRIES):
            try:
                return work()
            except OSError as e:
                if e.errno not in SHORTAGES:
                    raise
                if is_loop and (attempt or self.relief is None or not self.relief()):
                    raise
            if not is_loop:
                time.sleep(SHORTAGE_PAUSE_S)
        return work()

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> RealFile:
        """New files get mode 0644 minus the umask. If no descriptor is free, close idle files or wait."""
        flags = os.O_CLOEXEC | (os.O_RDONLY if read_only else os.O_RDWR) | (os.O_CREAT if create else 0)
        try:
            return RealFile(path, os.open(path, flags, 0o644))
        except OSError as e:
            if e.errno not in SHORTAGES:
                raise
        return RealFile(path, self._relieved(lambda: os.open(path, flags, 0o644)))

    def exists(self, path: str) -> bool:
        """Whether a file or directory is there; False for a broken link. A path that cannot be examined is an error."""
        return _mode(path) is not None

    def is_dir(self, path: str) -> bool:
        """Whether a directory is there; links are followed. A path that cannot be examined is an error."""
        mode = _mode(path)
        return mode is not None and stat.S_ISDIR(mode)

    def size(self, path: str) -> int:
        """The length in bytes, from stat(2): links are followed."""
        return os.stat(path).st_size

    def mtime_ms(self, path: str) -> int:
        """The modification time from stat(2), rounded down to milliseconds."""
        return os.stat(path).st_mtime_ns // 1_000_000

    def listdir(self, path: str) -> list[str]:
        """Sorted as strings, without `.` and `..`. If no descriptor is free, close idle files or wait."""
        return sorted(self._relieved(lambda: os.listdir(path)))

    def mkdir(self, path: str, *, new: bool = False) -> None:
        """Directories get mode 0777 minus the umask. Raises FileExistsError also if `path` is a file."""
        if new:
            os.mkdir(path)
        else:
            os.makedirs(path, exist_ok=True)

    def link(self, path: str, new: str) -> None:
        """Create a hard link. Raises OSError if the file system has no links, or no more for this file."""
        os.link(path, new)

    def rename(self, old: str, new: str) -> None:
        """Use rename(2). Raises OSError EXDEV if the paths are on different file systems."""
        os.replace(old, new)

    def remove(self, path: str) -> None:
        """Use unlink(2); open files stay readable. Raises FileNotFoundError if the file is missing."""
        os.remove(path)

    def rmtree(self, path: str) -> None:
        """Remove entry by entry. The first OSError ends it half-way."""
        shutil.rmtree(path)

    def fsync_dir(self, path: str) -> None:
        """Run fsync(2) on the directory. If no descriptor is free, close idle files or wait."""
        fd = self._relieved(lambda: os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def lock(self, path: str) -> RealLock:
        """A `RealLock`, which never waits. The lock file is never removed."""
        return RealLock(path)

    def file_system(self, path: str) -> RealFileSystem | None:
        """None unless syncfs(2) reports write-back errors: Linux 5.8 and later."""
        syncfs = _find_syncfs()
        return None if syncfs is None else RealFileSystem(path, syncfs)

    def identity(self, path: str) -> str:
        """Device and inode number from stat(2), as `device:inode`."""
        found = os.stat(path)
        return f"{found.st_dev}:{found.st_ino}"

    def dirty_room(self) -> DirtyRoom | None:
        """From /proc/vmstat and the control groups; None on systems without /proc/vmstat."""
        return self._dirty_pages.room()

    def free_bytes(self, path: str) -> int:
        """Bytes that processes without privileges can still use (f_bavail of statvfs)."""
        found = os.statvfs(path)
        return found.f_bavail * found.f_frsize

    def total_bytes(self, path: str) -> int:
        """All bytes of the file system (f_blocks of statvfs), including the reserve for root."""
        found = os.statvfs(path)
        return found.f_blocks * found.f_frsize
