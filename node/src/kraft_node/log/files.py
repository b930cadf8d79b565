"""Open files, bounded; and what all logs of one log directory share.

A node may hold a million segments, a process some thousand descriptors. `FileCache` keeps the recently used files open
and drops others by letting go of the reference: a `FileSlice` that is being sent keeps its file open until it is gone.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable
from typing import TYPE_CHECKING, Final, TypeAlias

from kraft_node.base.env import Buffer, Disk, Env, File
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.ids import ZERO_UUID, Uuid
from kraft_node.base.turns import Turns
from kraft_node.log.errors import LogDirDamaged, LogDirError, LogDirFailure, is_shortage

if TYPE_CHECKING:
    from kraft_node.log.log import Log

OPEN_FILES_MAX: Final = 2048
"""Files kept open by default; half of what common systems allow a process, the rest is for connections."""


PENDING_INDEX_BYTES: Final = 4096
"""Index entries that a segment gathers before it writes them: 512, for 2 MiB of log, or more with large batches."""

ORIGINALS_MAX: Final = 64
"""Files to make links to, a few hundred bytes of memory each. Partitions of one topic are mostly made together."""

SHORTAGE_PAUSE_MS: Final = 100
"""Until work is tried again for which there was no descriptor."""

Put: TypeAlias = Callable[[str, int, Buffer], None]
"""Writes bytes to a file, now or later: path, position, data. From position 0 on they are all that the file holds."""


def write_file(disk: Disk, path: str, position: int, data: Buffer) -> None:
    """Write `data` at `position`, by any thread; the file exists afterwards. Raises OSError."""
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
    """Small files that many logs have alike: the first is written, the others are further names of it (hard links).

    Making a file is what a new partition costs most: two thirds of it with a file system that looks for free inodes. So
    only files may be made here that are never changed in place, by whoever: who has something else to say puts a new
    file under the name (`write_atomic` and the like, as Apache Kafka does).
    """

    __slots__ = ("_disk", "_paths")

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self._paths: dict[bytes, str] = {}

    def put(self, path: str, data: bytes) -> None:
        """Make the file at `path`, where none is, with `data` in it. Raises OSError."""
        original = self._paths.get(data)
        if original is not None:
            try:
                self._disk.link(original, path)
            except OSError:  # it is gone, has as many names as it can have, or there are no links here
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


class Handle:
    """A file that may be open. `used` saves it from the next round of closing; `retired` ones are not kept open."""

    __slots__ = ("file", "retired", "used")

    def __init__(self) -> None:
        self.file: File | None = None
        self.retired = False
        self.used = False


class FileCache:
    """Opens files for handles and keeps at most `limit` of them open."""

    __slots__ = ("_disk", "_limit", "_open")

    def __init__(self, disk: Disk, limit: int = OPEN_FILES_MAX) -> None:
        self._disk = disk
        self._limit = limit
        self._open: OrderedDict[Handle, None] = OrderedDict()

    def __len__(self) -> int:
        return len(self._open)

    def open(self, handle: Handle, path: str, *, create: bool = False) -> File:
        """The open file of `handle`. Raises OSError."""
        file = handle.file
        handle.used = True
        if file is None:
            file = self._disk.open(path, create=create)
            if handle.retired:
                return file
            handle.file = file
            self._open[handle] = None
            if len(self._open) > self._limit:
                self._evict()
        return file

    def drop(self, handle: Handle) -> None:
        """Let go of the file, for instance because its path is about to mean another one."""
        if handle.file is not None:
            handle.file = None
            self._open.pop(handle, None)

    def shed(self) -> bool:
        """Close all files: descriptors are short. Whether any was open; those that are being sent stay open."""
        shed = bool(self._open)
        for handle in self._open:
            handle.file = None
            handle.used = False
        self._open.clear()
        return shed

    def _evict(self) -> None:
        while len(self._open) > self._limit:
            handle, _ = self._open.popitem(last=False)
            if handle.used:
                handle.used = False
                self._open[handle] = None
            else:
                handle.file = None


class LogDir:
    """A log directory: where its files are, who fsyncs them, and whether it is still alive.

    `lane` is the background thread of this directory. `failed` is set once and stays; `on_failure` hears of it.
    """

    __slots__ = ("env", "failed", "files", "id", "lane", "on_failure", "path", "pending_index_bytes", "turns")

    def __init__(self, env: Env, path: str, files: FileCache, directory_id: Uuid = ZERO_UUID) -> None:
        self.env = env
        self.path = path
        self.files = files
        self.id = directory_id
        self.lane = f"log-dir:{path}"
        self.turns = Turns(env)
        """Work on many files or logs that is done in turns of the loop."""
        self.pending_index_bytes = PENDING_INDEX_BYTES
        self.failed: LogDirError | None = None
        self.on_failure: Callable[[LogDir], None] | None = None

    def promise_less(self, topic: str, partition: int, offset: int) -> None:
        """A log is about to be cut off at `offset`; what is kept of it elsewhere must not reach further."""

    def tick(self) -> None:
        """Called now and then by long walks over the files; may raise to end the walk."""

    def fail(self, error: BaseException) -> KafkaError:
        """The directory is dead from now on; the error for whoever asked. A shortage of descriptors ends nothing."""
        if is_shortage(error):
            self.files.shed()
            return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.path}: {error}; try again")
        if self.failed is None:
            self.failed = error if isinstance(error, LogDirError) else LogDirFailure(self.path, error)
            if self.on_failure is not None:
                self.on_failure(self)
        return self.storage_error()

    def damaged(self, log: Log, error: LogDirDamaged) -> KafkaError:  # noqa: ARG002
        """Data of a log is not what was written; the error for whoever asked. A directory of one log ends with it."""
        return self.fail(error)

    def unsettled(self, log: Log) -> None:
        """For want of a descriptor a change of a log was given up half done: its files are right, its memory is not."""

    def run(self, work: Callable[[], None], done: Callable[[], None], failed: Callable[[], None] | None = None) -> None:
        """Have the directory's thread do `work`, then call `done`.

        An error ends the directory and calls `failed`. While descriptors are short, `work` is done again and again.
        """

        def finished(result: BaseException | None) -> None:
            if not isinstance(result, BaseException):
                done()
            elif is_shortage(result) and self.failed is None:
                self.files.shed()
                self.env.scheduler.call_later(SHORTAGE_PAUSE_MS, self.run, work, done, failed)
            else:
                self.fail(result)
                if failed is not None:
                    failed()

        self.env.background.submit(self.lane, work, finished)

    def check(self) -> None:
        """Raise KAFKA_STORAGE_ERROR when the directory is dead."""
        if self.failed is not None:
            raise self.storage_error()

    def storage_error(self) -> KafkaError:
        return KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"log directory {self.failed}")
