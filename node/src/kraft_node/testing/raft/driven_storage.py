"""The simulator's disk model behind the real driver's storage interface (`raft.storage.MetadataStorage`).

The model keeps batches as offsets and values; their bytes are kept beside it, once for the whole quorum.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.log_batches import iter_values
from kraft_node.metadata.records import decode_record
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.membership.quorum import QuorumState
from kraft_node.raft.storage import SnapshotFile
from kraft_node.testing.raft.driven_voters import stated_by_snapshot, stated_in
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.storage import RaftEntry, Snapshot, make_entry
from kraft_protocol.buffers import Buffer
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import iter_control_records

if TYPE_CHECKING:
    from kraft_node.testing.raft.quorum import RaftMachine

BATCHES_A_READ: Final = 4


def _values(header: Any, data: bytes) -> list[int]:
    """The model's value of each record: the number in it; for a control record, minus its kind."""
    if header.is_control:
        return [-int(control.type) for control in iter_control_records(data, header)]
    records: list[Any] = [decode_record(value) for value in iter_values(data, header)]
    return [int(record.value) for record in records]


class DrivenStorage:
    """The disk of one replica, for one life."""

    def __init__(self, replica: RaftMachine, writes_itself: Callable[[bytes, Any], bool]) -> None:
        """`writes_itself`: whether a batch is the leader's own, rather than fetched, by its bytes and header."""
        self._replica = replica
        self._writes_itself = writes_itself
        self._disk = replica.disk

    # The log.

    @property
    def start_offset(self) -> int:
        """The first offset of the log in the process's view, which may be ahead of the durable log."""
        return self._disk.log.start

    @property
    def end_offset(self) -> int:
        """The offset after the last record in the process's view, durable or not."""
        return self._disk.log.end

    @property
    def size_bytes(self) -> int:
        """Bytes of all batches in the log, with the whole batch that holds the start offset."""
        return sum(len(self._bytes(entry)) for entry in self._disk.log.entries)

    def epochs(self) -> list[tuple[int, int]]:
        """(epoch, first offset) pairs from the model's batches, ascending."""
        return self._disk.log.epochs()

    def _bytes(self, entry: RaftEntry) -> bytes:
        return self._replica.sim.batches[entry.base, entry.chains[-1]]

    def append(self, batches: Sequence[Buffer]) -> None:
        """Add the batches to the log, not yet durable. Raises DiskFailed if the disk is full.

        Raises LawBroken if the batches leave a gap, or if a follower's bytes differ from the leader's.
        """
        replica, log = self._replica, self._disk.log
        replica.check_disk()
        for some in batches:
            data = bytes(some)
            for header in iter_headers(data):
                require(
                    header.base_offset == log.end, "batches continue at the log's end", f"{replica.id} at {log.end}"
                )
                epoch = header.partition_leader_epoch
                voters = stated_in(data, header)
                entry = make_entry(header.base_offset, epoch, _values(header, data), log.last_chain, voters)
                replica.voters_moved |= voters is not None
                place = (entry.base, entry.chains[-1])
                piece = data[header.position : header.position + header.length]
                if self._writes_itself(data, header):
                    replica.sim.batches[place] = piece
                known = replica.sim.batches.get(place)
                require(known == piece, "followers write the leader's bytes", f"{replica.id} at {entry.base}")
                self._disk.append(entry)
                replica.sim.laws.appended(replica, entry)

    def read(self, offset: int, max_bytes: int) -> bytes:
        """A random number of batches, at most BATCHES_A_READ, so that reads end at any batch."""
        log = self._disk.log
        index = log.index_of(offset)
        size = 0
        pieces: list[bytes] = []
        for entry in log.entries[index : index + self._replica.sim.rng.randint(1, BATCHES_A_READ)]:
            piece = self._bytes(entry)
            if pieces and size + len(piece) > max_bytes:
                break
            pieces.append(piece)
            size += len(piece)
        return b"".join(pieces)

    def truncate(self, offset: int) -> None:
        """Remove the records from `offset` on, not yet durably. Raises DiskFailed if the disk is full."""
        self._replica.check_disk()
        self._replica.sim.laws.truncated(self._replica, offset)
        self._replica.voters_moved = self._replica.sim.is_dynamic or self._replica.sim.is_upgradable
        self._disk.truncate(offset)

    def begin_flush(self) -> Callable[[], object]:
        """The work covers the writes up to this call; it raises OSError if the disk is full or its fsync fails."""
        disk, count = self._disk, len(self._disk.pending)

        def work() -> None:
            self._check_fsync()
            disk.sync(count)

        return work

    def _check_fsync(self) -> None:
        self._replica.check_disk()
        if self._replica.failing_fsync:
            raise OSError("fsync failed")

    def delete_before(self, offset: int) -> int:
        """Raise the start to exactly `offset`; records in the middle of a batch may go, unlike with real segments."""
        self._disk.delete_before(offset)
        self._replica.sim.laws.log_starts(self._replica, self._disk.log)
        return self._disk.log.start

    def reset_to(self, offset: int) -> None:
        """Replace the log by the snapshot that ends at `offset`. Raises ValueError unless there is exactly one."""
        (snapshot,) = (kept for kept in self._disk.snapshots if kept.id.end_offset == offset)
        self._disk.reset(snapshot)
        self._replica.voters_moved = self._replica.sim.is_dynamic or self._replica.sim.is_upgradable

    # The quorum state.

    @property
    def has_quorum_state(self) -> bool:
        """Whether the model disk has a quorum-state; False after a wipe."""
        return self._disk.has_state

    def load_quorum_state(self) -> QuorumState:
        """The last durable state."""
        return self._disk.state

    def begin_save_quorum_state(
        self,
        state: QuorumState,
        kraft_version: int,  # noqa: ARG002
        voter_ids: Sequence[int],  # noqa: ARG002
    ) -> Callable[[], object]:
        """Note the state for the laws now; the work makes it durable. Version and voters are not modelled."""
        replica, disk = self._replica, self._disk
        replica.state = state

        def work() -> None:
            self._check_fsync()
            require(state.epoch >= disk.state.epoch, "epochs on disk are monotonic", f"{replica.id}: {state}")
            disk.state = state
            disk.has_state = True

        return work

    # Snapshots.

    def snapshots(self) -> list[SnapshotFile]:
        """The snapshots of the model disk in the order of ids; `mtime_ms` is by the machine's calendar."""
        return [SnapshotFile(kept.id, kept.size, kept.wall_ms) for kept in self._disk.snapshots]

    def snapshot_batches(self, snapshot: SnapshotId) -> Iterator[memoryview]:
        """The whole file as one piece; empty if its bytes are missing."""
        yield memoryview(self._disk.files.get(snapshot, b""))

    def read_snapshot(self, snapshot: SnapshotId, position: int, max_bytes: int) -> bytes:
        """Bytes of the file from memory; KeyError if the snapshot was never written."""
        return self._disk.files[snapshot][position : position + max_bytes]

    def create_snapshot(self, snapshot: SnapshotId) -> DrivenWriter:
        """Begin a snapshot. Raises LawBroken if it would cover records that are not committed."""
        return DrivenWriter(self._replica, snapshot, self._check_fsync)

    def remove_snapshot(self, snapshot: SnapshotId) -> None:
        """Remove it, not durably: it may return after a power loss. Raises LawBroken if it does not exist."""
        require(self._disk.snapshot(snapshot) is not None, "only what exists is deleted", f"{self._replica.id}")
        self._disk.remove_snapshots([snapshot])

    def bootstrap_records(self) -> list[bytes]:
        """Empty: the simulator formats disks with a bootstrap snapshot, or without."""
        return []

    def close(self) -> None:
        """Make all pending writes durable, as a clean stop does."""
        self._disk.sync(len(self._disk.pending))


class DrivenWriter:
    """A snapshot being written, or downloaded."""

    def __init__(self, replica: RaftMachine, snapshot: SnapshotId, check_fsync: Callable[[], None]) -> None:
        self._replica = replica
        self._snapshot = snapshot
        self._check_fsync = check_fsync
        self._parts: list[bytes] = []
        laws, end = replica.sim.laws, snapshot.end_offset
        require(end <= laws.end, "snapshots hold committed records only", f"{replica.id} writes {snapshot}")
        self._chain = laws.committed[end]
        if end <= replica.high_watermark:
            chain = replica.disk.log.chain_at(end)
            require(chain == self._chain, "snapshots hold committed records only", f"{replica.id} takes {snapshot}")

    def append(self, data: Buffer) -> None:
        """Keep the bytes in memory; nothing is on the disk before the finish. Raises DiskFailed if the disk is full."""
        self._replica.check_disk()
        self._parts.append(bytes(data))

    def begin_finish(self) -> Callable[[], object]:
        """The work makes the snapshot exist with all its bytes at once; without it, nothing exists."""
        replica, disk, data = self._replica, self._replica.disk, b"".join(self._parts)

        def work() -> None:
            self._check_fsync()
            disk.files[self._snapshot] = data
            voters = stated_by_snapshot(data)
            disk.add_snapshot(Snapshot(self._snapshot, self._chain, len(data), replica.wall_ms(), voters))

        return work

    def abandon(self) -> None:
        """Forget the bytes; the disk has none of them."""
        self._parts.clear()


__all__ = ["DrivenStorage"]
