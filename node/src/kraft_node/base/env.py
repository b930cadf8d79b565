"""The outside world as the node sees it: clock, timers, randomness, disk, background work.

The cores are handed an `Env` and nothing else. `runtime.env` provides the real one, `testing` one in which a single
seed decides everything; the code between cannot tell which. The network's protocols are in `base.net`.

Every call back (timer, background completion, network) runs on the one event loop, never concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kraft_node.base.lag import LoopLag
    from kraft_node.base.net import Net

Buffer: TypeAlias = bytes | bytearray | memoryview
T = TypeVar("T")


class Clock(Protocol):
    """Reads the time; both in whole milliseconds."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never goes back. For timeouts and leases."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump. For record timestamps and retention only."""


class Timer(Protocol):
    """A call that has been asked for."""

    def cancel(self) -> None:
        """Forget the call; harmless when it has run already."""


class Scheduler(Protocol):
    """Runs functions on the event loop later."""

    def call_soon(self, function: Callable[..., None], *args: Any) -> Timer:
        """Run `function` after what is now being handled."""

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> Timer:
        """Run `function` no sooner than `delay_ms` milliseconds from now."""


class Rng(Protocol):
    """The only source of randomness."""

    def random_bytes(self, count: int) -> bytes: ...

    def randrange(self, stop: int) -> int:
        """A number from 0 (included) to `stop` (excluded)."""


class Background(Protocol):
    """Work that would block the loop (fsync, deleting, compressing big things), one thread a lane."""

    def submit(self, lane: str, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` in the thread of `lane`, after what that lane already has; then `done(result)` on the loop.

        What `work` raises is handed to `done` as the result. `work` may touch files, never the node's state.
        """


class File(Protocol):
    """An open file. Every method may raise OSError."""

    path: str

    def size(self) -> int: ...

    def pread(self, position: int, length: int) -> bytes:
        """The bytes at `position`; fewer than `length` only at the end of the file."""

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all of `buffers`, one after the other, at `position` (one system call where possible)."""

    def truncate(self, size: int) -> None: ...

    def fsync(self) -> None:
        """Return once data and size are on stable storage. After an OSError the contents are unknown: never retry."""

    def fileno(self) -> int:
        """The descriptor for sendfile, or -1 where there is none (simulated files)."""

    def close(self) -> None: ...


class Disk(Protocol):
    """A file system. Paths are absolute or relative strings; every method may raise OSError."""

    open_max: int
    """How many files may be kept open for later use; the process needs descriptors for other things, too."""
    relief: Callable[[], bool] | None
    """Asked on the loop to close files that can be opened again, when descriptors run out: whether it closed any."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing; FileNotFoundError when missing and not `create`."""

    def exists(self, path: str) -> bool: ...

    def is_dir(self, path: str) -> bool: ...

    def size(self, path: str) -> int: ...

    def mtime_ms(self, path: str) -> int: ...

    def listdir(self, path: str) -> list[str]:
        """The names in the directory, sorted."""

    def mkdir(self, path: str, *, new: bool = False) -> None:
        """Make the directory and its missing parents; fine when it is there.

        With `new`: only itself, FileExistsError when it is there.
        """

    def link(self, path: str, new: str) -> None:
        """Another name for a file: far cheaper than another file. Not all file systems have that, nor without end."""

    def rename(self, old: str, new: str) -> None:
        """Replace `new` atomically. Durable only after `fsync_dir` of the directory (of both, when they differ)."""

    def remove(self, path: str) -> None: ...

    def rmtree(self, path: str) -> None: ...

    def fsync_dir(self, path: str) -> None: ...

    def lock(self, path: str) -> DiskLock:
        """Take the exclusive lock on `path`, creating it; BlockingIOError when another process holds it."""

    def file_system(self, path: str) -> FileSystem | None:
        """The file system that `path` is on; None where a whole one cannot be made durable with all errors told."""

    def identity(self, path: str) -> str:
        """The identity of a directory on this machine; a copy or another volume has another one."""

    def free_bytes(self, path: str) -> int: ...

    def total_bytes(self, path: str) -> int: ...


class FileSystem(Protocol):
    """A file system as a whole, for when very many of its files are to become durable together."""

    def sync(self) -> None:
        """Make durable everything that has been written to it and every name in it, whoever did that.

        Raises OSError, also for a write that has failed behind anybody's back since this object was made: what an
        fsync of each file would tell, and more. It takes as long as the dirtiest user of the file system makes it.
        """

    def close(self) -> None: ...


class DiskLock(Protocol):
    """An exclusive lock that ends with the process at the latest."""

    def release(self) -> None: ...


@dataclass(slots=True, frozen=True)
class Env:
    """All of the outside world, handed down from the composition root."""

    clock: Clock
    scheduler: Scheduler
    rng: Rng
    disk: Disk
    background: Background
    net: Net
    boot_id: str | None = None
    """Changes with each boot of the machine; None where the system does not say."""
    lag: LoopLag | None = None
    """How long the turns of the loop take; None where time stands still in a turn (simulation)."""


@dataclass(slots=True, frozen=True)
class FileSlice:
    """Bytes in a file that need not be read to be sent: `runtime` hands them to sendfile.

    Stands for a records field in a response. The file may be renamed or unlinked meanwhile; it stays open until the
    slice has been sent (the holder of a slice keeps `file` referenced).
    """

    file: File
    position: int
    length: int
    is_recent: bool = False
    """Whether it was written a moment ago, so that it is in memory."""

    def read(self) -> bytes:
        """The bytes themselves, for tests, simulation and connections without sendfile."""
        return self.file.pread(self.position, self.length)


TEMPORARY: Final = ".tmp"


def write_atomic(disk: Disk, path: str, data: bytes, beside: str = TEMPORARY) -> None:
    """Replace the file at `path` so that after a crash it holds either the old or the new bytes.

    Write beside, fsync, rename, fsync the directory: the order is what makes it durable. `beside` is added to the name
    of the file beside; two writers at one time need different ones.
    """
    temporary = path + beside
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(0, [data])
        file.fsync()
    except OSError as e:
        e.filename = e.filename or temporary  # calls on descriptors do not know it
        raise
    finally:
        file.close()
    disk.rename(temporary, path)
    head, _, _ = path.rpartition("/")
    disk.fsync_dir(head or ".")


def read_file(disk: Disk, path: str) -> bytes:
    """All of a small file."""
    file = disk.open(path, read_only=True)
    try:
        return file.pread(0, file.size())
    finally:
        file.close()
