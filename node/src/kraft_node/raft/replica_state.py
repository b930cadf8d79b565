"""`ReplicaState`: the state of one replica of the metadata log, the properties that roles read, and how work gets into
`Ready`.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from kraft_node.base.env import Rng
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.epochs import EpochGuard
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.membership.amnesia import READER, Amnesia
from kraft_node.raft.membership.quorum import NO_NODE, QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.membership.voter_changes import VoterSets
from kraft_node.raft.messages import Request
from kraft_node.raft.ready import LogAppend, Message, Ready, Send
from kraft_node.raft.replication import WaitingRaftFetch
from kraft_node.raft.requests import Requests
from kraft_node.raft.roles.follower import Follower
from kraft_node.raft.roles.leader import Leader
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.unattached import Unattached

HELD_MAX: Final = 100_000
"""Maximum of messages held back for one write of the quorum-state. If more pile up, the fsync has in effect failed."""

CAMPAIGN_DELAY_MS: Final = 50
"""Delay between two voters that would campaign at the same moment: several times the duration of an election."""


class NotLeader(Exception):  # noqa: N818 - a fact, not a fault
    """Only the leader of the epoch may append or resign."""


class ReplicaState:
    """One replica of the metadata log: its log, votes, voters and role."""

    def __init__(
        self,
        *,
        local: ReplicaKey,
        voters: VoterSet,
        log: LogView,
        state: QuorumState,
        rng: Rng,
        cluster_id: str,
        config: RaftConfig | None = None,
        bootstrap_ids: Iterable[int] | None = None,
        is_amnesiac: bool = False,
        voter_sets: list[tuple[int, VoterSet]] | None = None,
        kraft_version: int = 0,
        own: Voter | None = None,
    ) -> None:
        """Create the state of a replica from the content of its disk.

        `voters` come from the configuration or from formatting; `voter_sets` are the voters that the log states, by
        offset. `own` describes this node as a voter. `state` and `log` are the content of the disk. `is_amnesiac`: the
        disk was found empty under a known id, so the node may have made promises that it does not remember
        (`amnesia`).
        """
        self.local = local
        self.voter_sets = VoterSets(voters, voter_sets, kraft_version)
        self.voters = self.voter_sets.current
        self.own = own
        self.log = log
        self.state = state
        self.rng = rng
        self.cluster_id = cluster_id
        self.config = config or RaftConfig()
        self.bootstrap_ids = list(voters.ids if bootstrap_ids is None else bootstrap_ids)
        self._amnesia: Amnesia | None = None
        self.is_amnesiac = is_amnesiac
        self.requests = Requests(self.config)
        self.epochs = EpochGuard()
        self.waiting: dict[Hashable, WaitingRaftFetch] = {}
        self.role: RoleState = Unattached(state.epoch, 0)
        self.now_ms = 0
        self.high_watermark = -1
        self.flushing = False
        self.flush_needed = False
        """The log was truncated: a flush must begin before its end is acknowledged (contract 8)."""
        self._settling = False
        self.loading: SnapshotId | None = None
        """A fetched snapshot that will replace the log. Until then the log stays unchanged."""
        self.is_shutting_down = False
        self._durable_state: QuorumState | None = state
        self.timer_ms: int | None = None
        """When the host must give the next `Tick`; None: no timer."""
        self.ready = Ready()
        """The work of the current step."""
        self.join_ms = 0
        """When a follower may request again to become a voter, or report its endpoints (KIP-853)."""
        self._followed = (-1, NO_NODE)
        """Epoch and id of the leader that was followed last."""
        self._waiting_messages = 0
        """The number of messages in `Ready.after_state` that were not released yet."""

    # Properties that roles and helpers read.

    @property
    def epoch(self) -> int:
        """The epoch of the current role. It never decreases."""
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch, this replica included; -1 if unknown. A resigned leader still counts."""
        return self.role.leader_id

    @property
    def fetches_as(self) -> ReplicaKey:
        """The replica id in Fetch requests.

        An amnesiac replica acknowledges nothing, so it fetches as a plain reader.
        """
        return READER if self.is_amnesiac else self.local

    @property
    def is_voter(self) -> bool:
        """Whether this replica, with its directory, is in the voter set in force; committed or not."""
        return self.voters.has(self.local)

    @property
    def may_campaign(self) -> bool:
        """Whether this replica may be elected: it is a voter, or its removal is not known to be committed.

        A replica that was just removed may be the only replica with a log that allows it to win. It must then
        replicate its own removal to the others.
        """
        return self.is_voter or self.voter_sets.removed_just_now(self.local, self.high_watermark)

    @property
    def is_leader(self) -> bool:
        """Whether this replica leads its epoch. Right after the election it may not accept appends yet (`leading`)."""
        return isinstance(self.role, Leader)

    @property
    def leader(self) -> Leader:
        """The role, which must be leader."""
        assert isinstance(self.role, Leader), f"law: only a leader does this, not {self.role.role.name}"
        return self.role

    @property
    def follower(self) -> Follower:
        """The role, which must be follower."""
        assert isinstance(self.role, Follower), f"law: only a follower does this, not {self.role.role.name}"
        return self.role

    @property
    def is_quorum_state_durable(self) -> bool:
        """Whether epoch and vote are on disk, so that messages may leave (contract 2)."""
        return self._durable_state == self.state

    @property
    def is_log_durable(self) -> bool:
        """Contract 5: whether everything written here would survive a crash."""
        return not self.flush_needed and not self._settling and self.log.flushed_offset >= self.log.end_offset

    @property
    def next_offset(self) -> int:
        """The offset of the next record appended here."""
        return self.role.accumulator.next_offset if isinstance(self.role, Leader) else self.log.end_offset

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may wait at the leader for new records."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.seeks_end(self.epoch):
            return 0
        return self.config.fetch_max_wait_ms

    def prepare(self, epoch: int, batches: Sequence[Sequence[bytes]]) -> int:
        """The offset that the first of these records gets if `Propose` comes next. Nothing changes.

        Raises NotLeader unless this node leads that epoch, BatchTooLarge if the batches are too large or too many.
        """
        accumulator = self.leading(epoch).accumulator
        accumulator.check(batches)
        return accumulator.next_offset

    def leading(self, epoch: int) -> Leader:
        """The leader role, once everything committed before is known. Raises NotLeader unless this node leads that
        epoch.
        """
        role = self.role
        if not isinstance(role, Leader) or role.epoch != epoch or not role.announced:
            raise NotLeader(f"this node is {role.role.name} in epoch {role.epoch}, not the leader of {epoch}")
        return role

    def random_election_timeout_ms(self) -> int:
        """A random time from one to two election time-outs, so that two voters seldom campaign at the same moment."""
        timeout = self.config.election_timeout_ms
        return timeout + self.rng.randrange(timeout)

    def campaign_delay_ms(self, leader_id: int = NO_NODE) -> int:
        """The delay of this voter if all voters would campaign at the same moment: lower ids go first.

        Without a delay they would split the votes. Pre-votes make campaigning early safe.
        """
        others = [voter_id for voter_id in self.voters.ids if voter_id != leader_id]
        if not self.is_voter:
            return len(others) * CAMPAIGN_DELAY_MS if self.may_campaign else 0
        return others.index(self.local.id) * CAMPAIGN_DELAY_MS

    # Actions of roles and helpers.

    def write(self, batch: LogAppend) -> None:
        """Request that a batch is appended to the log. The view contains it already."""
        self.ready.appends.append(batch)

    def send(self, message: Message) -> None:
        """Send a message to another node. It waits while the quorum state is not durable (contract 2)."""
        if self.is_quorum_state_durable:
            self.ready.messages.append(message)
        else:
            assert self._waiting_messages < HELD_MAX, "law: the messages that wait for the quorum state are bounded"
            self._waiting_messages += 1
            self.ready.after_state.append(message)

    def state_written(self, state: QuorumState) -> None:
        """Note that a quorum state is on stable storage."""
        self._durable_state = state
        if self.is_quorum_state_durable:
            self._waiting_messages = 0
            self.ready.releases = True

    def send_request(self, node_id: int, request: Request) -> bool:
        """Send a request unless one of its kind is in flight to that node. Returns whether it was sent."""
        if not self.requests.is_ready(node_id, type(request), self.now_ms):
            return False
        self.send(Send(self.requests.sent(node_id, request, self.now_ms), node_id, request))
        return True

    def flushed(self, offset: int) -> None:
        """Note that the running flush has ended."""
        self.flushing = self._settling = False
        self.log.flushed(offset)

    def want_flush(self) -> None:
        """Request a flush of written records. Only one flush runs at a time, so each flush covers all records before
        it.
        """
        log = self.log
        if not self.flushing and (self.flush_needed or log.flushed_offset < log.end_offset):
            self.flushing = True
            self._settling = self.flush_needed
            self.flush_needed = False
            self.ready.flush = log.end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Raise the high watermark (contract 7): it never decreases and covers only records that a majority has."""
        if offset <= self.high_watermark:
            return
        assert offset <= self.log.end_offset, (
            f"law: only existing records are committed ({offset}, end {self.log.end_offset})"
        )
        self.high_watermark = offset
        self.ready.committed = offset
