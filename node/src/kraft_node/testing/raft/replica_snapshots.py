"""The snapshots of one process of the Raft simulator: it takes, reads, fetches and drops them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.raft import events
from kraft_node.raft import ready as do
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.messages import POSITION_OUT_OF_RANGE, SNAPSHOT_NOT_FOUND, FetchSnapshotReply
from kraft_node.raft.roles.states import Role
from kraft_node.testing.raft.laws import require
from kraft_node.testing.raft.storage import Snapshot

if TYPE_CHECKING:
    from kraft_node.testing.raft.quorum import RaftMachine

SNAPSHOT_CHUNK: Final = bytes(8)


class ReplicaSnapshots:
    """The snapshots of one replica."""

    __slots__ = ("_part", "_replica", "_writing", "at")

    def __init__(self, replica: RaftMachine) -> None:
        self._replica = replica
        self._part: Snapshot | None = None
        self._writing = False
        self.at = 0
        """The end offset of the last snapshot begun."""

    def opened(self) -> None:
        """Start on the disk as it is."""
        kept = self._replica.disk.snapshots
        self._part = None
        self._writing = False
        self.at = kept[-1].id.end_offset if kept else 0

    def read(self, effect: do.ReadSnapshot) -> None:
        """Send a part of a snapshot."""
        replica = self._replica
        snapshot = replica.disk.snapshot(effect.snapshot)
        reply = effect.reply
        assert isinstance(reply, FetchSnapshotReply)
        if snapshot is None or effect.position >= snapshot.size:
            error = SNAPSHOT_NOT_FOUND if snapshot is None else POSITION_OUT_OF_RANGE
            replica.answer(effect.token, reply._replace(error=error))
            return
        data = SNAPSHOT_CHUNK[: snapshot.size - effect.position]
        replica.answer(effect.token, reply._replace(size=snapshot.size, data=_Part(data, snapshot)))

    def write_part(self, effect: do.SnapshotPart) -> None:
        """Write a part that was received."""
        replica = self._replica
        replica.check_disk()
        assert replica.node is not None
        require(replica.node.role.role is not Role.LEADER, "a leader never loads a snapshot", f"{replica.id}")
        if effect.position == 0:
            self._part = effect.data.snapshot
        require(
            self._part is not None and self._part.id == effect.snapshot,
            "a snapshot is fetched from its beginning",
            f"{replica.id}: {effect}",
        )

    def finish(self, snapshot: SnapshotId) -> None:
        """Complete a download: the snapshot is about to replace the log."""
        replica = self._replica
        require(self._part is not None and self._part.id == snapshot, "only a fetched snapshot is finished", "")
        replica.later(replica.io_us(), self._fetched, self._part)
        self._part = None

    def _fetched(self, snapshot: Snapshot) -> None:
        replica = self._replica
        if replica.failing_fsync:
            replica.lose_power()
            return
        assert replica.node is not None
        require(
            replica.sim.laws.end >= snapshot.id.end_offset
            and snapshot.chain == replica.sim.laws.committed[snapshot.id.end_offset],
            "snapshots hold committed records only",
            f"{replica.id} fetched {snapshot.id}",
        )
        require(replica.node.role.role is not Role.LEADER, "a leader never loads a snapshot", f"{replica.id}")
        replica.disk.add_snapshot(snapshot._replace(wall_ms=replica.wall_ms()))
        replica.later(replica.sim.rng.randrange(200), self._replace_log, snapshot)

    def _replace_log(self, snapshot: Snapshot) -> None:
        """Replace the log. If the process dies after naming the snapshot, the next open of the disk does it."""
        replica = self._replica
        replica.disk.reset(snapshot)
        self.at = snapshot.id.end_offset
        replica.voters_moved = replica.sim.is_dynamic or replica.sim.is_upgradable
        replica.step(events.SnapshotStored(snapshot.id, snapshot.voters))

    def begin(self, offset: int) -> None:
        """Begin a snapshot of the state machine as of `offset`."""
        replica = self._replica
        log = replica.disk.log
        chain = log.chain_at(offset)
        if self._writing or chain is None or not log.entries or offset <= log.start:
            return
        self._writing = True
        self.at = offset
        epoch = log.entries[log.index_of(offset - 1)].epoch
        size = replica.sim.rng.randint(1, 4 * len(SNAPSHOT_CHUNK))
        assert replica.node is not None
        voters = replica.node.voter_sets.at(offset) if replica.node.voter_sets.kraft_version else None
        if voters is replica.sim.voters and not replica.sim.is_dynamic:
            voters = None  # kraft.version was raised after the snapshot's end
        snapshot = Snapshot(SnapshotId(offset, epoch), chain, size, replica.wall_ms(), voters)
        replica.sim.laws.snapshot_taken(replica, offset, chain)
        replica.later(replica.io_us() * 3, self._taken, snapshot)

    def _taken(self, snapshot: Snapshot) -> None:
        replica = self._replica
        self._writing = False
        if replica.failing_fsync or replica.full_disk:
            replica.lose_power()
            return
        replica.disk.add_snapshot(snapshot)
        replica.later(replica.sim.rng.randrange(200), self._stored, snapshot)

    def _stored(self, snapshot: Snapshot) -> None:
        """Notify the loop, perhaps after a downloaded snapshot has replaced the log."""
        replica = self._replica
        replica.step(events.SnapshotStored(snapshot.id))
        if replica.node is not None and len(replica.node.log.snapshots) > 1 and replica.sim.rng.random() < 0.7:
            replica.later(replica.io_us(), self._drop_old)

    def _drop_old(self) -> None:
        """Drop old snapshots, and the log before the first kept snapshot (contract 9)."""
        replica = self._replica
        assert replica.node is not None
        known = replica.node.log.snapshots
        first = known[max(0, len(known) - 1 - (replica.sim.rng.random() < 0.3))]
        if first.end_offset <= replica.disk.log.start or first.end_offset > replica.disk.log.end:
            return
        replica.disk.remove_snapshots([kept.id for kept in replica.disk.snapshots if kept.id < first])
        replica.disk.delete_before(first.end_offset)
        replica.sim.laws.log_starts(replica, replica.disk.log)
        replica.step(events.SnapshotsDropped(first, replica.disk.log.start))


class _Part(bytes):
    """Bytes of a snapshot in flight, with the modelled snapshot attached."""

    snapshot: Snapshot

    def __new__(cls, data: bytes, snapshot: Snapshot) -> _Part:
        part = super().__new__(cls, data)
        part.snapshot = snapshot
        return part


__all__ = ["ReplicaSnapshots"]
