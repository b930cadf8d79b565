"""What the core knows of the log. The driver owns the bytes; this says where things begin and end.

Kept in step with the effects that the core gives out, so that deciding never needs a disk.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; `epoch` is that of the last record in it."""

    end_offset: int
    epoch: int

    @property
    def is_bootstrap(self) -> bool:
        """The snapshot (0, 0) that formatting leaves is for its own node only and never offered."""
        return self.end_offset == 0


class EpochEnd(NamedTuple):
    """The largest epoch not above one that was asked for, and the offset after its last record."""

    epoch: int
    end_offset: int


class LogView:
    """Offsets of the metadata log. `end_offset` is what is written, `flushed_offset` what would survive a crash."""

    __slots__ = ("_epochs", "_starts", "end_offset", "flushed_offset", "snapshots", "start_offset")

    def __init__(
        self,
        start_offset: int = 0,
        end_offset: int = 0,
        epochs: Iterable[tuple[int, int]] = (),
        snapshots: Iterable[SnapshotId] = (),
    ) -> None:
        self.start_offset = start_offset
        self.end_offset = end_offset
        self.flushed_offset = end_offset
        """What was found at start counts as flushed: the driver flushes the log once before it starts the core."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, offset in epochs:
            self._epochs.append(epoch)
            self._starts.append(offset)
        self.snapshots = sorted(snapshots)
        """Complete ones, oldest first."""

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot that the log starts at; 0 when there is nothing."""
        if self._epochs:
            return self._epochs[-1]
        snapshot = self.latest_snapshot
        return 0 if snapshot is None else snapshot.epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        return self.snapshots[-1] if self.snapshots else None

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs, ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def appended(self, base_offset: int, next_offset: int, epoch: int) -> None:
        """A batch was written at the end."""
        assert base_offset == self.end_offset, f"law: the log has no gaps ({base_offset} after {self.end_offset})"
        assert not self._epochs or epoch >= self._epochs[-1], f"law: epochs in the log never go back (to {epoch})"
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(base_offset)
        self.end_offset = next_offset

    def flushed(self, offset: int) -> None:
        self.flushed_offset = max(self.flushed_offset, min(offset, self.end_offset))

    def truncated(self, offset: int) -> None:
        """Everything from `offset` on is gone."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = min(self.end_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)

    def prefix_deleted(self, offset: int) -> None:
        """Everything below `offset` is gone; a snapshot stands for it."""
        self.start_offset = max(self.start_offset, offset)
        index = bisect_right(self._starts, self.start_offset) - 1
        if index > 0:
            del self._starts[:index], self._epochs[:index]
        if self._starts and self._starts[0] < self.start_offset:
            self._starts[0] = self.start_offset

    def reset_to(self, snapshot: SnapshotId) -> None:
        """The whole log was replaced by a snapshot that was fetched."""
        self._epochs.clear()
        self._starts.clear()
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.end_offset
        self.snapshots = [snapshot]

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where the largest epoch <= `epoch` ends, for finding out where two logs part (KIP-595, KIP-101)."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            first = self._starts[0] if self._starts else self.end_offset
            if self.snapshots and self.snapshots[0].end_offset == first:
                return EpochEnd(self.snapshots[0].epoch, first)
            return EpochEnd(epoch if self._starts else self.last_epoch, first)
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[index], end)
