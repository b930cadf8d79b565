"""How much a log directory may append before the kernel would block the event loop.

Appends go to the page cache on the loop, which costs microseconds. If too much of the cache is dirty, the kernel makes
the writer wait for the disk. The directory therefore counts its appends. Every 32 MiB, or more often if little room is
left, it reads the kernel's numbers (`Disk.dirty_room`). It lets appends wait before the kernel does. Meanwhile a lane
writes the files back, which also measures the speed of the disk.

If the system does not have these numbers, at most OWN_BYTES may be dirty. Coordinators, metadata and checkpoints write
little and never wait.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.base.env import DirtyRoom, Disk
from kraft_node.log.errors import is_shortage
from kraft_protocol.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.log.waiting.seams import WaitingDir

STEP_BYTES: Final = 32 << 20
"""Appended at most between two looks."""
OWN_BYTES: Final = 256 << 20
"""Limit of the dirty bytes of a directory if the system does not have a limit."""
WATCHED: Final = 0.75
"""Logs that are appended to are noted for a write-back when less than this share of the room is left."""
NEAR: Final = 4
"""Write-back begins when less than one part in NEAR of the room is left. If nothing is left, each write-back allows at
most as much to be appended again."""
FULL: Final = 32
"""Appends wait when less than one part in FULL of the room is left."""
FILES_MAX: Final = 2000
"""Files written back by one job."""
WAITING_BYTES_MAX: Final = 128 << 20
"""Batches that may wait. Beyond it appends go on: the kernel's wait is better than running out of memory."""
LEAST_BYTES: Final = 1 << 20
"""Appended at least after each write-back, so that no append waits without end."""
RETRY_MS: Final = 20
"""Until the next look when nothing of ours is dirty: others fill the memory."""


class WrittenLog(Protocol):
    """What a write-back needs of a log that was appended to."""

    closed: bool

    def unflushed_files(self) -> list[str]:
        """The files of records that no flush covers."""
        ...


class AppendLater(KafkaError):  # noqa: N818 - a state, not a fault
    """A batch is not appended yet, because too much data waits for the disk. `budget.wait` calls when to retry."""

    def __init__(self, name: str, budget: WriteBudget) -> None:
        super().__init__(ErrorCode.REQUEST_TIMED_OUT, f"{name}: the disk is slower than the producers")
        self.budget = budget


class WriteBudget:
    """The budget of one log directory. `left` may be spent before the next look.

    While `is_watched`, the logs that spend it are recorded in `written`. Before that the kernel writes back without
    help, and a node may have a million logs.
    """

    __slots__ = (
        "_background",
        "_dir",
        "_granted",
        "_lane",
        "_unwritten",
        "_waiting",
        "_waiting_bytes",
        "_waking",
        "_writing_back",
        "is_watched",
        "left",
        "written",
    )

    def __init__(self, log_dir: WaitingDir) -> None:
        self.left = 0
        self.is_watched = False
        self.written: dict[WrittenLog, None] = {}
        self._dir = log_dir
        self._lane = f"write-back:{log_dir.path}"
        self._granted = 0
        self._unwritten = 0
        """Bytes appended that no write-back has covered; the bytes of `left` come on top."""
        self._writing_back = False
        self._waiting: deque[tuple[int, Callable[[], None]]] = deque()
        self._waiting_bytes = 0
        self._waking = False

    def must_wait(self) -> bool:
        """Whether an append must wait; reads the kernel's numbers if the last grant is used up."""
        if self.left > 0 or self._waiting_bytes > WAITING_BYTES_MAX or self._dir.failed is not None:
            return False
        self._count()
        room = self._room()
        if room.left < room.ceiling // NEAR:
            self._write_back()
        if room.left < room.ceiling // FULL:
            return True
        self._grant(min(STEP_BYTES, room.left // 2))
        return False

    def wait(self, size: int, ready: Callable[[], None]) -> None:
        """Call `ready` in a later turn, once the budget has room for a waiting batch of `size` bytes."""
        self._waiting.append((size, ready))
        self._waiting_bytes += size
        if not self._writing_back:
            self._wake()

    # --- counting ---

    def _count(self) -> None:
        self._unwritten += self._granted - self.left
        self._granted = self.left = 0

    def _grant(self, size: int) -> None:
        self._granted = self.left = size

    def _room(self) -> DirtyRoom:
        disk: Disk = self._dir.env.disk
        room = disk.dirty_room()
        self.is_watched = room is None or room.left < WATCHED * room.ceiling
        return room or DirtyRoom(OWN_BYTES - self._unwritten, OWN_BYTES)

    # --- write-back ---

    def _write_back(self) -> None:
        """Have a lane write all appended data, unless it is already writing."""
        if self._writing_back:
            return
        self._writing_back = True
        some = [log for log, _ in zip(self.written, range(FILES_MAX), strict=False)]
        for log in some:
            del self.written[log]
        paths = [path for log in some if not log.closed for path in log.unflushed_files()]
        covered = self._unwritten * len(some) // max(len(some) + len(self.written), 1)
        work = partial(_write_back, self._dir.env.disk, paths)
        if paths:
            self._dir.env.background.submit(self._lane, work, partial(self._written_back, covered))
        else:
            self._dir.env.scheduler.call_later(RETRY_MS, self._written_back, covered, None)

    def _written_back(self, covered: int, result: BaseException | None) -> None:
        self._writing_back = False
        if isinstance(result, BaseException) and not is_shortage(result):
            self._dir.fail(result)  # the kernel reports an error once: no later fsync would see it
        self._unwritten -= covered
        if self._waiting and self.left <= 0:
            self._count()
            room = self._room()
            if room.left >= room.ceiling // FULL:
                self._grant(min(STEP_BYTES, room.left // 2))
            else:  # others fill the memory: grant as much as the disk has just written
                taken = min(covered, STEP_BYTES, room.ceiling // NEAR)
                self._grant(max(taken, min(room.ceiling // FULL, LEAST_BYTES)))
        self._wake()

    # --- waiting ---

    def _wake(self) -> None:
        if self._waiting and not self._waking:
            self._waking = True
            self._dir.turns.add(self._wake_next)

    def _wake_next(self) -> bool:
        self._waking = bool(self._waiting) and not self.must_wait()
        if not self._waking:
            if self._waiting:
                self._write_back()
            return False
        size, ready = self._waiting.popleft()
        self._waiting_bytes -= size
        self._waking = bool(self._waiting)
        more = self._waking
        try:
            ready()
        except BaseException:
            self._waking = False
            self._wake()
            raise
        return more


def _write_back(disk: Disk, paths: list[str]) -> None:
    for path in paths:
        try:
            file = disk.open(path, read_only=True)
        except FileNotFoundError:
            continue  # deleted or renamed
        try:
            file.write_back()
        finally:
            file.close()
