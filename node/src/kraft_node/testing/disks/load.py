"""The load of a simulated disk: the cost of an event on the loop, and the dirty bytes in memory."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import DirtyRoom
from kraft_protocol.ids import METADATA_TOPIC_NAME

if TYPE_CHECKING:
    from kraft_node.testing.disks.inode import Inode

GROUPS_TOPIC_NAME: Final = "__consumer_offsets"
OVERSHOOT: Final = 2
"""The allowed multiple of the ceiling before an event. The ceiling here is smaller than some batches, and not all
writes wait. The bytes of fetch responses come on top (`IN_FLIGHT`)."""
IN_FLIGHT: Final = 2
"""The number of fetch responses that may arrive after the memory is full. A follower checks before it sends a fetch,
and has one fetch at each of two leaders. A response may exceed the ceiling here; on real machines the ceiling is a
hundred times larger."""


class Spent:
    """The disk operations of one event, during which the rest of the process waits."""

    __slots__ = ("bytes", "checkpoints", "fsyncs", "operations", "waits", "written")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Reset all counters."""
        self.operations = 0
        """Operations on files and names of any kind."""
        self.bytes = 0
        """Bytes read and written."""
        self.written = 0
        """Bytes written."""
        self.checkpoints = 0
        """Offset checkpoints made durable."""
        self.fsyncs = 0
        """Files and directories made durable."""
        self.waits = 0
        """Writes of records that should have waited for the disk, because too many bytes were dirty."""


class Eviction:
    """The data that the kernel has evicted from the page cache; as a context, it is `Disk.no_wait`.

    A file is found evicted at a read that must not wait, with probability `chance`, and stays so until a read waits.
    """

    def __init__(self) -> None:
        self.chance = 0.0
        self.rng = random.Random()
        self.waits = True
        """Whether reads wait for the disk."""
        self.reads = 0
        """Reads that have waited for evicted bytes."""

    def __enter__(self) -> None:
        self.waits = False

    def __exit__(self, *_: object) -> None:
        self.waits = True

    @contextmanager
    def suspended(self) -> Iterator[None]:
        """Let reads wait."""
        before, self.waits = self.waits, True
        try:
            yield
        finally:
            self.waits = before

    def is_cold(self, inode: Inode) -> bool:
        """Whether a read of this file ends because it would have to wait."""
        if self.waits:
            self.reads += inode.is_cold
            inode.is_cold = False
        elif self.chance and not inode.is_cold:
            inode.is_cold = self.rng.random() < self.chance
        return inode.is_cold


class DirtyMemory:
    """A machine's dirty page cache. `ceiling`: writers wait from this many bytes on; None: never."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.ceiling: int | None = None
        self.size = 0
        self.rate = 50
        """Bytes per millisecond that the kernel writes back by itself."""
        self.speed: int | None = None
        """Bytes per millisecond that the disk takes; None: all at once."""
        self._largest = 0
        """The bytes written by the largest event that appended since the dirty bytes were last below the ceiling."""
        self._unheld = 0
        """The dirty bytes of files that never wait, written since then. A snapshot of the metadata may exceed the
        ceiling here. Appends that were allowed before it go on."""
        self._now_ms = now_ms
        self._drained_ms = now_ms()

    def dirtied(self, path: str, inode: Inode, size: int, by_event: int) -> bool:
        """Note bytes written to a file's page cache. Returns whether an append should have waited.

        `by_event`: the bytes that this event has written so far, including these.
        """
        self._drain()
        inode.dirty += size
        self.size += size
        if self.ceiling is None:
            return False
        inode.never_waits = not path.endswith(".log") or METADATA_TOPIC_NAME in path or GROUPS_TOPIC_NAME in path
        if self.size <= self.ceiling:
            self._largest = self._unheld = 0
        if inode.never_waits:
            self._unheld += size
            return False
        self._largest = max(self._largest, by_event)
        return self.size - IN_FLIGHT * self._largest - self._unheld > OVERSHOOT * self.ceiling

    def cleaned(self, inode: Inode) -> None:
        """Note that a file has been written back."""
        self._drain()
        self.size = max(self.size - inode.dirty, 0)
        if inode.never_waits:
            self._unheld = max(self._unheld - inode.dirty, 0)
        inode.dirty = 0

    def clear(self) -> None:
        """Forget all dirty bytes, as after a loss of power."""
        self.size = self._largest = self._unheld = 0

    def room(self) -> DirtyRoom | None:
        """Like `Disk.dirty_room`."""
        self._drain()
        return None if self.ceiling is None else DirtyRoom(self.ceiling - self.size, self.ceiling)

    def backlog_ms(self) -> float:
        """How long the disk needs for the dirty bytes. A job that begins now waits behind them."""
        self._drain()
        return 0.0 if self.ceiling is None or self.speed is None else self.size / self.speed

    def _drain(self) -> None:
        """Subtract the bytes that the kernel has written back since the last call, from any files."""
        now_ms = self._now_ms()
        drained = max(now_ms - self._drained_ms, 0) * self.rate
        self.size = max(self.size - drained, 0)
        self._unheld = max(self._unheld - drained, 0)
        self._drained_ms = now_ms
