"""Leader: appends, counts the majority's offsets, announces its epoch, and resigns if a majority is silent."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft.accumulator import Accumulator
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.messages import BeginQuorumEpochRequest
from kraft_node.raft.progress import Progress
from kraft_node.raft.ready import Append
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.membership.quorum import Voter
    from kraft_node.raft.roles.transitions import RaftReplica


class Leader(RoleState):
    """The leader of its epoch."""

    __slots__ = (
        "_contact_ms",
        "_fetched_by",
        "_quorum_deadline",
        "accumulator",
        "announced",
        "local_id",
        "pending_change",
        "progress",
        "reported",
    )

    role = Role.LEADER

    def __init__(self, node: RaftReplica, epoch_start_offset: int) -> None:
        super().__init__(node.epoch)
        self.local_id = node.local.id
        self.progress = Progress(node.voters, node.local, epoch_start_offset)
        facts = voter_changes.FACTS if node.voter_sets.is_missing_from_log else 0
        self.accumulator = Accumulator(epoch_start_offset + 1 + facts)
        self.announced = False
        """`Ready.became_leader` was reported: everything that was committed before is known to be committed."""
        self.pending_change: voter_changes.Pending | None = None
        """A change of the voters with a requester that waits for the answer (KIP-853)."""
        self.reported: dict[int, Voter] = {} if node.own is None else {node.local.id: node.own}
        """What static voters have reported about themselves in this epoch; an upgrade of kraft.version writes it to the
        log.
        """
        self._fetched_by: set[int] = set()
        self._quorum_deadline = node.now_ms + node.config.check_quorum_timeout_ms
        self._contact_ms: dict[int, int] = {}

    @property
    def leader_id(self) -> int:
        """This replica's own id."""
        return self.local_id

    def act(self, node: RaftReplica) -> None:
        """Write what waits, advance the high watermark, announce the epoch. Resign if a majority is silent."""
        others = len(self.progress.voters) - (self.local_id in self.progress.voters)
        if others and node.now_ms >= self._quorum_deadline:
            node.resign()
            return
        self.write_pending(node)
        node.want_flush()
        self.progress.flushed(node.log.flushed_offset)
        node.advance_high_watermark(self.progress.high_watermark())
        if not self.announced and node.high_watermark > self.progress.epoch_start_offset:
            self.announced = True
            node.ready.became_leader = self.epoch
            voter_changes.state_own(node)
        if others:
            self._announce_epoch(node)
        self.progress.expire_observers(node.now_ms)
        voter_changes.settle(node, self)

    def write_pending(self, node: RaftReplica) -> None:
        """Write waiting records, unless they can wait for a running flush."""
        pending = self.accumulator
        if pending.is_empty:
            return
        if node.flushing and node.now_ms < pending.first_ms + node.config.append_linger_ms:
            return
        self.write_all(node)

    def write_all(self, node: RaftReplica) -> None:
        """Write waiting records now."""
        pending = self.accumulator
        for records in pending.drain():
            offset = node.log.end_offset
            node.log.appended(offset, offset + len(records), self.epoch)
            node.write(Append(offset, self.epoch, records))
        assert node.log.end_offset == pending.next_offset, "law: assigned offsets are the written offsets"

    def use_voters(self, node: RaftReplica) -> None:
        """Count other voters from now on. The new majority has the full time-out to fetch."""
        self.progress.use(node.voters)
        self._quorum_deadline = node.now_ms + node.config.check_quorum_timeout_ms

    def note_fetch(self, node: RaftReplica, voter_id: int) -> None:
        """A voter has fetched in this epoch, so it still follows this leader (CheckQuorum)."""
        if voter_id not in self.progress.voters or voter_id == self.local_id:
            return
        self._contact_ms[voter_id] = node.now_ms
        self._fetched_by.add(voter_id)
        self._fetched_by &= self.progress.voters.keys()
        if len(self._fetched_by) + node.is_voter >= node.voters.majority:
            self._fetched_by.clear()
            self._quorum_deadline = node.now_ms + node.config.check_quorum_timeout_ms

    def _announce_epoch(self, node: RaftReplica) -> None:
        for voter_id in self.progress.voters:
            if voter_id == self.local_id:
                continue
            contact_ms = self._contact_ms.get(voter_id)
            if contact_ms is not None and node.now_ms < contact_ms + node.config.begin_quorum_epoch_interval_ms:
                continue
            voter = node.voters.get(voter_id)
            key = None if voter is None else voter.key
            if node.send_request(voter_id, BeginQuorumEpochRequest(self.epoch, self.local_id, key, node.cluster_id)):
                self._contact_ms[voter_id] = node.now_ms

    def deadlines_ms(self, node: RaftReplica) -> list[int]:
        """The times at which `act` has work.

        The work: appends, a voter change, contact to a majority, announcements of the epoch.
        """
        times = []
        if not self.accumulator.is_empty:
            times.append(self.accumulator.first_ms + node.config.append_linger_ms)
        if self.pending_change is not None:
            times.append(self.pending_change.deadline_ms)
        if len(self.progress.voters) > 1 or not node.is_voter:
            times.append(self._quorum_deadline)
            interval = node.config.begin_quorum_epoch_interval_ms
            times += [contact + interval for contact in self._contact_ms.values()]
        return times
