"""The core's view of the log. The driver owns the bytes; the view knows where the log and its epochs begin and end.

The core updates the view with each piece of work that it requests, so its decisions never need a disk.

The view keeps one invariant, when it is opened and after each change. No snapshot ends before the log starts. If the
log starts above 0, a snapshot ends where the log starts. A crash may leave older snapshots on the disk. An older
snapshot would name the wrong epoch for the records before the log's start. A deposed leader would then keep records
that were replaced. The bootstrap snapshot (0, 0) never belongs to the view: the leader never offers it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Iterable
from typing import NamedTuple


class SnapshotId(NamedTuple):
    """A snapshot holds everything below `end_offset`; `epoch` is the epoch of its last record."""

    end_offset: int
    epoch: int

    @property
    def is_bootstrap(self) -> bool:
        """Whether this is the snapshot (0, 0) that formatting writes. It is for its own node only and never offered."""
        return self.end_offset == 0


class EpochEnd(NamedTuple):
    """The largest epoch that is not above the requested epoch, and the offset after its last record."""

    epoch: int
    end_offset: int


class LogView:
    """Offsets of the metadata log. `end_offset`: the end of written records; `flushed_offset`: the end of durable
    records.
    """

    __slots__ = ("_epochs", "_starts", "end_offset", "flushed_offset", "snapshots", "stale", "start_offset")

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
        """The log found at start counts as flushed: the driver flushes the log once before it starts the core."""
        self._epochs: list[int] = []
        self._starts: list[int] = []
        for epoch, offset in epochs:
            self._epochs.append(epoch)
            self._starts.append(offset)
        self.snapshots = sorted(snapshot for snapshot in snapshots if not snapshot.is_bootstrap)
        """Complete snapshots that end at the log's start or later, oldest first."""
        self.stale: list[SnapshotId] = []
        """Snapshots on the disk that no longer count, until the core has them deleted."""
        self._set_aside_stale()
        assert self._is_start_covered, f"law: a snapshot covers the offsets before the log's start ({start_offset})"

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, or of the snapshot at the log's start. 0 if both are missing."""
        if self._epochs:
            return self._epochs[-1]
        snapshot = self.latest_snapshot
        return 0 if snapshot is None else snapshot.epoch

    @property
    def latest_snapshot(self) -> SnapshotId | None:
        """The complete snapshot with the highest end offset; None if no snapshot counts."""
        return self.snapshots[-1] if self.snapshots else None

    @property
    def earliest_snapshot(self) -> SnapshotId | None:
        """The complete snapshot with the lowest end offset, never below the log's start; None if no snapshot counts."""
        return self.snapshots[0] if self.snapshots else None

    @property
    def _is_start_covered(self) -> bool:
        return self.start_offset == 0 or (bool(self.snapshots) and self.snapshots[0].end_offset >= self.start_offset)

    def _set_aside_stale(self) -> None:
        count = bisect_left(self.snapshots, self.start_offset, key=lambda snapshot: snapshot.end_offset)
        self.stale += self.snapshots[:count]
        del self.snapshots[:count]

    @property
    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs, ascending."""
        return list(zip(self._epochs, self._starts, strict=True))

    def appended(self, base_offset: int, next_offset: int, epoch: int) -> None:
        """Note that a batch was written at the end."""
        assert base_offset == self.end_offset, f"law: the log has no gaps ({base_offset} after {self.end_offset})"
        assert not self._epochs or epoch >= self._epochs[-1], f"law: epochs in the log never go back (to {epoch})"
        if not self._epochs or epoch > self._epochs[-1]:
            self._epochs.append(epoch)
            self._starts.append(base_offset)
        self.end_offset = next_offset

    def flushed(self, offset: int) -> None:
        """Note that a flush up to `offset` has ended. Records that were truncated meanwhile do not count."""
        self.flushed_offset = max(self.flushed_offset, min(offset, self.end_offset))

    def truncated(self, offset: int) -> None:
        """Note that everything from `offset` on was removed."""
        while self._starts and self._starts[-1] >= offset:
            self._starts.pop()
            self._epochs.pop()
        self.end_offset = min(self.end_offset, offset)
        self.flushed_offset = min(self.flushed_offset, offset)

    def snapshot_stored(self, snapshot: SnapshotId) -> None:
        """Note that a snapshot of this node is durable. It does not count if a later snapshot has replaced the log
        meanwhile.
        """
        if snapshot not in self.snapshots:
            insort(self.snapshots, snapshot)
        self._set_aside_stale()

    def prefix_deleted(self, first_kept: SnapshotId, offset: int) -> None:
        """Note that everything below `offset` was deleted, with the snapshots before `first_kept`, which covers those
        offsets.
        """
        assert first_kept in self.snapshots, f"law: only a valid snapshot covers the log ({first_kept})"
        assert offset <= first_kept.end_offset, f"law: a snapshot covers deleted offsets ({offset}, {first_kept})"
        del self.snapshots[: self.snapshots.index(first_kept)]
        self.start_offset = max(self.start_offset, offset)
        index = bisect_right(self._starts, self.start_offset) - 1
        if index > 0:
            del self._starts[:index], self._epochs[:index]
        if self._starts and self._starts[0] < self.start_offset:
            self._starts[0] = self.start_offset

    def reset_to(self, snapshot: SnapshotId) -> None:
        """Note that a fetched snapshot replaced the whole log."""
        self._epochs.clear()
        self._starts.clear()
        self.start_offset = self.end_offset = self.flushed_offset = snapshot.end_offset
        self.snapshot_stored(snapshot)

    def end_of_epoch(self, epoch: int) -> EpochEnd:
        """Where the largest epoch <= `epoch` ends. Used to find where two logs diverge (KIP-595, KIP-101)."""
        index = bisect_right(self._epochs, epoch) - 1
        if index < 0:
            first = self._starts[0] if self._starts else self.end_offset
            earliest = self.earliest_snapshot
            if earliest is not None and earliest.end_offset == first:
                return EpochEnd(earliest.epoch, first)
            return EpochEnd(epoch if self._starts else self.last_epoch, first)
        end = self._starts[index + 1] if index + 1 < len(self._starts) else self.end_offset
        return EpochEnd(self._epochs[index], end)
