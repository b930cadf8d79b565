"""What a simulated disk is loaded with: what an event on the loop has cost, and what is dirty in memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.base.env import DirtyRoom
from kraft_node.base.ids import METADATA_TOPIC_NAME

if TYPE_CHECKING:
    from kraft_node.testing.disk import Inode

GROUPS_TOPIC_NAME: Final = "__consumer_offsets"
OVERSHOOT: Final = 2
"""How far dirty bytes may go beyond the ceiling before an event: it is smaller here than some batches, and not all
writes wait. What the largest event has written comes on top: all that a fetch brought is appended after one look, and
may be more than the ceiling here, where it is a hundredth of it on real machines."""


class Spent:
    """What one event has cost the disk while everybody else in the process waited for it."""

    __slots__ = ("bytes", "checkpoints", "fsyncs", "operations", "waits", "written")

    def __init__(self) -> None:
        self.clear()

    def clear(self) -> None:
        """Count anew."""
        self.operations = 0
        """Calls on files and names, of whatever kind."""
        self.bytes = 0
        """Read and written."""
        self.written = 0
        """Bytes written alone."""
        self.checkpoints = 0
        """Offset checkpoints made durable."""
        self.fsyncs = 0
        """Files and folders made durable."""
        self.waits = 0
        """Writes of records that would have had to wait for the disk, because too much was dirty."""


class DirtyMemory:
    """What a machine's kernel has not written back yet. `ceiling`: from so many bytes on, writers wait; None: never."""

    def __init__(self, now_ms: Callable[[], int]) -> None:
        self.ceiling: int | None = None
        self.size = 0
        self.rate = 50
        """Bytes that the kernel writes back by itself in a millisecond."""
        self._largest = 0
        """Bytes of the event that has written most since so little was dirty that nobody had to wait."""
        self._now_ms = now_ms
        self._drained_ms = now_ms()

    def dirtied(self, path: str, inode: Inode, size: int, by_event: int) -> bool:
        """Bytes have been written to a file, and are in memory only; whether an append would have had to wait.

        `by_event`: bytes that this event has written, these included.
        """
        self._drain()
        inode.dirty += size
        self.size += size
        if self.ceiling is None:
            return False
        self._largest = max(self._largest if self.size > self.ceiling else 0, by_event)
        is_held_back = path.endswith(".log") and METADATA_TOPIC_NAME not in path and GROUPS_TOPIC_NAME not in path
        return is_held_back and self.size - self._largest > OVERSHOOT * self.ceiling

    def cleaned(self, inode: Inode) -> None:
        """A file has been written back."""
        self._drain()
        self.size = max(self.size - inode.dirty, 0)
        inode.dirty = 0

    def room(self) -> DirtyRoom | None:
        """As `Disk.dirty_room`."""
        self._drain()
        return None if self.ceiling is None else DirtyRoom(self.ceiling - self.size, self.ceiling)

    def _drain(self) -> None:
        """What the kernel has written back by itself since the last call, of whatever files."""
        now_ms = self._now_ms()
        self.size = max(self.size - max(now_ms - self._drained_ms, 0) * self.rate, 0)
        self._drained_ms = now_ms
