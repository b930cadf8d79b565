"""What the raft driver needs of the metadata log's storage; `log.metadata_log` provides it, the simulator another.

Nothing here is called by the core itself. `OSError` from any of these is fatal for the voter (contract 10). Methods
whose names begin with `begin_` return work for a background thread; everything else is quick and runs on the loop.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple, Protocol, TypeAlias

from kraft_node.base.env import Buffer, FileSlice
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.quorum import QuorumState

Work: TypeAlias = Callable[[], object]


class SnapshotFile(NamedTuple):
    """A complete snapshot on disk."""

    id: SnapshotId
    size_bytes: int
    mtime_ms: int


class SnapshotWriter(Protocol):
    """A snapshot being written, under its `.part` name."""

    def append(self, data: Buffer) -> None:
        """Add bytes at the end."""

    def begin_finish(self) -> Work:
        """Fsync, rename into place, fsync the directory."""

    def abandon(self) -> None:
        """Remove what was written."""


class MetadataStorage(Protocol):
    """The log `__cluster_metadata-0`, its snapshots and the quorum-state. Opened, recovered and flushed once."""

    @property
    def start_offset(self) -> int: ...

    @property
    def end_offset(self) -> int: ...

    @property
    def size_bytes(self) -> int:
        """Of all segments."""

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs of the log, ascending."""

    def append(self, batches: Sequence[Buffer]) -> None:
        """Write batches, whose offsets follow the end, into the page cache."""

    def read(self, offset: int, max_bytes: int) -> bytes | memoryview | FileSlice:
        """Whole batches from the one that holds `offset` on: at least one, then as many as fit."""

    def truncate(self, offset: int) -> None:
        """Remove everything from `offset` on."""

    def begin_flush(self) -> Work:
        """Fsync what has been written until now."""

    def delete_before(self, offset: int) -> int:
        """Raise the log's start to `offset`, removing whole segments below it; the new start offset."""

    def reset_to(self, offset: int) -> None:
        """Empty the log; it goes on at `offset`."""

    @property
    def has_quorum_state(self) -> bool:
        """Whether one was ever saved."""

    def load_quorum_state(self) -> QuorumState: ...

    def begin_save_quorum_state(self, state: QuorumState, kraft_version: int, voter_ids: Sequence[int]) -> Work:
        """Replace the quorum-state, whose form follows the finalized kraft.version."""

    def snapshots(self) -> list[SnapshotFile]:
        """Complete ones, oldest first; `.part` files are not."""

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[memoryview]:
        """The batches of a snapshot, checked, one after the other."""

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes | FileSlice: ...

    def create_snapshot(self, snapshot: SnapshotId) -> SnapshotWriter:
        """Begin a `.part` file, replacing one that was left."""

    def remove_snapshot(self, snapshot: SnapshotId) -> None: ...

    def bootstrap_records(self) -> list[bytes]:
        """The record values in bootstrap.checkpoint; empty when the file is missing."""

    def close(self) -> None: ...
