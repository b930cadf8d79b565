"""The storage interface that the Raft driver needs; `log.metadata_log` implements it, the simulator has its own.

The core itself calls nothing here. An `OSError` from any method is fatal for the voter (contract 10). Methods with
names `begin_…` return work for a background thread. All other methods are quick and run on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState
from kraft_protocol.buffers import Buffer, FileSlice

Work: TypeAlias = Callable[[], object]


class SnapshotFile(NamedTuple):
    """A complete snapshot on disk."""

    id: SnapshotId
    size_bytes: int
    mtime_ms: int


class SnapshotWriter(Protocol):
    """A snapshot that is being written to a `.part` file."""

    def append(self, data: Buffer) -> None:
        """Append bytes."""

    def begin_finish(self) -> Work:
        """Fsync the file, rename it into place, fsync the directory."""

    def abandon(self) -> None:
        """Delete the file."""


class MetadataStorage(Protocol):
    """The log `__cluster_metadata-0`, its snapshots and the quorum-state. Opened, recovered and flushed once."""

    @property
    def start_offset(self) -> int:
        """The first offset of the log."""

    @property
    def end_offset(self) -> int:
        """The offset after the last record."""

    @property
    def size_bytes(self) -> int:
        """The size of all segments."""

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs of the log, ascending."""

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write batches into the page cache; their offsets continue the log."""

    def read(self, offset: int, max_bytes: int) -> bytes | memoryview | FileSlice:
        """Whole batches from the batch that holds `offset` on: at least one, then as many as fit."""

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on."""

    def begin_flush(self) -> Work:
        """Fsync everything written so far."""

    def delete_before(self, offset: int) -> int:
        """Raise the log's start to `offset` and delete whole segments below it. Returns the new start offset."""

    def reset_to(self, offset: int) -> None:
        """Empty the log; it continues at `offset`."""

    @property
    def has_quorum_state(self) -> bool:
        """Whether a quorum-state was ever saved."""

    def load_quorum_state(self) -> QuorumState:
        """The saved quorum-state; the initial state if it was never saved."""

    def begin_save_quorum_state(self, state: QuorumState, kraft_version: int, voter_ids: Sequence[int]) -> Work:
        """Replace the quorum-state file. Its format depends on the finalized kraft.version."""

    def snapshots(self) -> list[SnapshotFile]:
        """Complete snapshots, oldest first; `.part` files are not listed."""

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[memoryview]:
        """The batches of a snapshot, checked, in order."""

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes | FileSlice:
        """Up to `max_bytes` of a snapshot from the byte `position` on."""

    def create_snapshot(self, snapshot: SnapshotId) -> SnapshotWriter:
        """Create a `.part` file; it replaces a leftover file."""

    def remove_snapshot(self, snapshot: SnapshotId) -> None:
        """Set a snapshot aside; its file is deleted later."""

    def bootstrap_records(self) -> list[bytes]:
        """The record values in bootstrap.checkpoint; empty if the file is missing."""

    def close(self) -> None:
        """Close all files."""
