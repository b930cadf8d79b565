"""The outside world as the node sees it: clock, timers, randomness, disk, background work.

The cores get only an `Env`. `runtime.env` provides the real environment, `testing` an environment in which a single
seed decides everything. The cores cannot distinguish them. The network's interfaces are in `base.net`.

All callbacks (timer, background completion, network) run on one event loop, never concurrently.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol, TypeVar

from kraft_node.base.turns import Line

if TYPE_CHECKING:
    from kraft_node.base.lag import LoopLag
    from kraft_node.base.net import Net
    from kraft_protocol.buffers import Buffer

T = TypeVar("T")


class Clock(Protocol):
    """Reads the time in whole milliseconds."""

    def monotonic_ms(self) -> int:
        """Milliseconds since some fixed moment; never decreases. For time-outs and leases."""

    def wall_ms(self) -> int:
        """Milliseconds since the Unix epoch; may jump. Only for record timestamps and retention."""


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> None:
        """Cancel the call; harmless if it has run already."""


class Scheduler(Protocol):
    """Runs functions on the event loop later."""

    def call_soon(self, function: Callable[..., None], *args: Any) -> Timer:
        """Run `function` after the current callback."""

    def call_later(self, delay_ms: float, function: Callable[..., None], *args: Any) -> Timer:
        """Run `function` no sooner than `delay_ms` milliseconds from now."""


class Rng(Protocol):
    """The only source of randomness."""

    def random_bytes(self, count: int) -> bytes:
        """`count` random bytes."""

    def randrange(self, stop: int) -> int:
        """A number from 0 (included) to `stop` (excluded)."""


class Background(Protocol):
    """Work that would block the loop (fsync, deleting, compressing), with one thread per lane."""

    def submit(self, lane: str, work: Callable[[], T], done: Callable[[T | BaseException], None]) -> None:
        """Run `work` in the thread of `lane`, after the lane's earlier work; then `done(result)` on the loop.

        An exception of `work` becomes the result. `work` may use files, but never the node's state.
        """


READ_LANES: Final = 4
"""Lanes for each log directory that read cold data. A disk reads several ranges faster together than one by one."""
READ_PREFIX: Final = "read:"
"""The beginning of their names."""


def read_lane(path: str, number: int) -> str:
    """The lane that reads cold data of the file at `path` in a log; `number` distributes files over the lanes."""
    directory = path.rpartition("/")[0].rpartition("/")[0]
    return f"{READ_PREFIX}{directory}:{number % READ_LANES}"


class ColdRead(Exception):  # noqa: N818 - a state, not a fault
    """A read of `length` bytes at `position` would have to wait for the disk: see `Disk.no_wait`."""

    def __init__(self, path: str, position: int, length: int) -> None:
        super().__init__(f"{length} bytes at {position} of {path} are not in memory")
        self.path = path
        self.position = position
        self.length = length


class File(Protocol):
    """An open file. Every method may raise OSError."""

    path: str

    def size(self) -> int:
        """The length of the file in bytes."""

    def pread(self, position: int, length: int) -> bytes:
        """The bytes at `position`; fewer than `length` only at the end of the file. Raises ColdRead in `no_wait`."""

    def pwrite(self, position: int, buffers: Sequence[Buffer]) -> None:
        """Write all `buffers` in order at `position` (with one system call if possible)."""

    def truncate(self, size: int) -> None:
        """Set the length of the file to `size` bytes."""

    def write_back(self) -> None:
        """Return once the dirty data has been written. Promises nothing for a power loss.

        The system reports an OSError once: a later fsync of a newly opened file may miss it.
        """

    def fsync(self) -> None:
        """Return once data and size are on stable storage. After an OSError the contents are unknown: never retry."""

    def fileno(self) -> int:
        """The descriptor for sendfile; -1 without a descriptor (simulated files)."""

    def close(self) -> None:
        """Close the file; it is not fsynced."""


class DirtyRoom(NamedTuple):
    """Bytes that may be written before writers have to wait for a disk: now, and when nothing is dirty."""

    left: int
    ceiling: int


class Disk(Protocol):
    """A file system. Paths are absolute or relative strings; every method may raise OSError."""

    open_max: int
    """How many files may be kept open for later use. The process needs descriptors for other purposes, too."""
    relief: Callable[[], bool] | None
    """Called on the loop if descriptors run out: closes files that can be reopened. Returns whether it closed any."""

    @property
    def no_wait(self) -> AbstractContextManager[None]:
        """In this context `File.pread` raises ColdRead for bytes that are not in memory.

        Only for the thread that entered it, and never nested. If the system cannot detect this, reads wait.
        """

    def may_wait(self) -> AbstractContextManager[None]:
        """A context in which reads wait, also inside `no_wait`: for work that must not end half-way."""

    def open(self, path: str, *, create: bool = False, read_only: bool = False) -> File:
        """Open for reading and writing. Raises FileNotFoundError if the file is missing and not `create`."""

    def exists(self, path: str) -> bool:
        """Whether the path names a file or a directory."""

    def is_dir(self, path: str) -> bool:
        """Whether the path names a directory."""

    def size(self, path: str) -> int:
        """The length of a file in bytes."""

    def mtime_ms(self, path: str) -> int:
        """The time of the last change of a file, in milliseconds since 1970."""

    def listdir(self, path: str) -> list[str]:
        """The names in the directory, sorted."""

    def mkdir(self, path: str, *, new: bool = False) -> None:
        """Create the directory and its missing parents; allowed if it exists.

        With `new`: create only this directory; raises FileExistsError if it exists.
        """

    def link(self, path: str, new: str) -> None:
        """Create a hard link: another name for the file, far cheaper than another file.

        Not all file systems support this, and links are limited.
        """

    def rename(self, old: str, new: str) -> None:
        """Replace `new` atomically. Durable only after `fsync_dir` of the directory (of both, if they differ)."""

    def remove(self, path: str) -> None:
        """Remove a file. Durable only after `fsync_dir` of its directory."""

    def rmtree(self, path: str) -> None:
        """Remove a directory with its content."""

    def fsync_dir(self, path: str) -> None:
        """Make the names in a directory durable."""

    def lock(self, path: str) -> DiskLock:
        """Take the exclusive lock on `path`, and create the file.

        Raises BlockingIOError if another process holds it.
        """

    def file_system(self, path: str) -> FileSystem | None:
        """The file system of `path`; None if it cannot be made durable as a whole with all errors reported."""

    def identity(self, path: str) -> str:
        """The identity of a directory on this machine. A copy or another volume has another identity."""

    def dirty_room(self) -> DirtyRoom | None:
        """The bytes that may be written to all disks before a write waits; None if the system does not report it."""

    def free_bytes(self, path: str) -> int:
        """Free bytes of the file system of `path`."""

    def total_bytes(self, path: str) -> int:
        """Size in bytes of the file system of `path`."""


class FileSystem(Protocol):
    """A file system as a whole, for making very many files durable together."""

    def sync(self) -> None:
        """Make all writes to the file system and all names in it durable, of all processes.

        Raises OSError, also for an asynchronous write that has failed since this object was created. It reports every
        error that fsyncs of the files would report. The duration depends on all dirty data of the file system.
        """

    def close(self) -> None:
        """Release the descriptor."""


class DiskLock(Protocol):
    """An exclusive lock. It ends with the process at the latest."""

    def release(self) -> None:
        """Release the lock."""


@dataclass(slots=True, frozen=True)
class Env:
    """The whole outside world; the composition root passes it down."""

    clock: Clock
    scheduler: Scheduler
    rng: Rng
    disk: Disk
    background: Background
    net: Net
    boot_id: str | None = None
    """Changes with each boot of the machine; None if the system does not provide it."""
    lag: LoopLag | None = None
    """Measures the turns of the loop; None if time does not advance in a turn (simulation)."""
    turn_ms: Callable[[], int] | None = None
    """The clock that ends a turn of `line`, if it is not `clock`: a simulation counts the work of an event."""
    line: Line = field(init=False, repr=False, compare=False)
    """Long work of all parts of the process."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "line", Line(self.turn_ms or self.clock.monotonic_ms, self.scheduler.call_soon))


TEMPORARY: Final = ".tmp"


def write_atomic(disk: Disk, path: str, data: bytes, beside: str = TEMPORARY) -> None:
    """Replace the file at `path` atomically: after a crash it holds either the old or the new bytes.

    Writes a temporary file, fsyncs it, renames it, and fsyncs the directory, in this order. `beside` is the suffix of
    the temporary file; concurrent writers need different suffixes.
    """
    temporary = path + beside
    file = disk.open(temporary, create=True)
    try:
        file.truncate(0)
        file.pwrite(0, [data])
        file.fsync()
    except OSError as e:
        e.filename = e.filename or temporary  # errors of calls on descriptors do not name the file
        raise
    finally:
        file.close()
    disk.rename(temporary, path)
    head, _, _ = path.rpartition("/")
    disk.fsync_dir(head or ".")


def read_file(disk: Disk, path: str) -> bytes:
    """The content of a small file."""
    file = disk.open(path, read_only=True)
    try:
        return file.pread(0, file.size())
    finally:
        file.close()
