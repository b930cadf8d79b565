"""`ReplicaState`: what one replica of the metadata log knows, what roles ask of it, and how work gets into `Ready`."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import Final

from kraft_node.base.env import Rng
from kraft_node.raft.amnesia import READER, Amnesia
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.epochs import EpochGuard
from kraft_node.raft.follower import Follower
from kraft_node.raft.leader import Leader
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.messages import Request
from kraft_node.raft.quorum import NOBODY, QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.ready import LogAppend, Message, Ready, Send
from kraft_node.raft.replication import WaitingFetch
from kraft_node.raft.requests import Requests
from kraft_node.raft.role import RoleState
from kraft_node.raft.unattached import Unattached
from kraft_node.raft.voter_changes import VoterSets

HELD_MAX: Final = 100_000
"""Messages held back for one quorum-state write; an fsync that lets more pile up has failed in all but name."""

STAND_APART_MS: Final = 50
"""Between two voters that would stand for election at the same moment: several times what winning one takes."""


class NotLeader(Exception):  # noqa: N818 - a fact, not a fault
    """Only the leader of that epoch may append or resign."""


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
        """`voters` are those of configuration or formatting, `voter_sets` those that the log states, by offset; `own`
        is what this node would be as a voter. `state` and `log` are what the disk holds. `is_amnesiac`: the disk was
        found empty under a known id, so the node may have promised things it does not remember (`amnesia`)."""
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
        self.waiting: dict[Hashable, WaitingFetch] = {}
        self.role: RoleState = Unattached(state.epoch, 0)
        self.now_ms = 0
        self.high_watermark = -1
        self.flushing = False
        self.flush_needed = False
        """The log was truncated: a flush is to begin before its end is acknowledged (contract 8)."""
        self._settling = False
        self.loading: SnapshotId | None = None
        """A fetched snapshot that is about to take the log's place: until then the log stays as it is."""
        self.is_shutting_down = False
        self._durable_state: QuorumState | None = state
        self.timer_ms: int | None = None
        """When the host is to give the next `Tick`; None: not by itself."""
        self.ready = Ready()
        """What the step that is under way wants done."""
        self._waiting_messages = 0
        """Given as `Ready.after_state` and not released yet."""

    # What roles and helpers ask.

    @property
    def epoch(self) -> int:
        return self.role.epoch

    @property
    def leader_id(self) -> int:
        return self.role.leader_id

    @property
    def fetches_as(self) -> ReplicaKey:
        """Who asks for records: while nothing is acknowledged, nobody in particular."""
        return READER if self.is_amnesiac else self.local

    @property
    def is_voter(self) -> bool:
        return self.voters.has(self.local)

    @property
    def may_stand(self) -> bool:
        """Whether it may be elected: a voter, or one just removed, as long as that is not known to be committed. It may
        be the only one whose log allows it to be elected, and then has to bring its own removal to the others."""
        return self.is_voter or self.voter_sets.removed_just_now(self.local, self.high_watermark)

    @property
    def is_leader(self) -> bool:
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
        return self._durable_state == self.state

    @property
    def is_log_durable(self) -> bool:
        """Contract 5: whether everything written here would survive a crash."""
        return not self.flush_needed and not self._settling and self.log.flushed_offset >= self.log.end_offset

    @property
    def next_offset(self) -> int:
        """The offset that the next record appended here would get."""
        return self.role.accumulator.next_offset if isinstance(self.role, Leader) else self.log.end_offset

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may wait at the leader for records to come."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.seeks_end(self.epoch):
            return 0
        return self.config.fetch_max_wait_ms

    def prepare(self, epoch: int, batches: Sequence[Sequence[bytes]]) -> int:
        """The offset that the first of these records gets if `Propose` comes next. Nothing changes.

        Raises NotLeader unless this node leads that epoch, BatchTooLarge when the batches are too large or too many.
        """
        accumulator = self.leading(epoch).accumulator
        accumulator.check(batches)
        return accumulator.next_offset

    def leading(self, epoch: int) -> Leader:
        """The role, once everything committed before is known. Raises NotLeader unless this node leads that epoch."""
        role = self.role
        if not isinstance(role, Leader) or role.epoch != epoch or not role.announced:
            raise NotLeader(f"this node is {role.role.name} in epoch {role.epoch}, not the leader of {epoch}")
        return role

    def random_election_timeout_ms(self) -> int:
        """Once to twice the configured time, so that two voters seldom stand at the same moment."""
        timeout = self.config.election_timeout_ms
        return timeout + self.rng.randrange(timeout)

    def stand_apart_ms(self, leader_id: int = NOBODY) -> int:
        """How much later than the first one this voter stands when all begin to at one moment, so that they do not
        split the votes: the lower ids go first. Pre-votes keep it safe to stand early."""
        others = [voter_id for voter_id in self.voters.ids if voter_id != leader_id]
        if not self.is_voter:
            return len(others) * STAND_APART_MS if self.may_stand else 0
        return others.index(self.local.id) * STAND_APART_MS

    # What they do.

    def write(self, batch: LogAppend) -> None:
        """Have a batch appended to the log, which the view has taken in already."""
        self.ready.appends.append(batch)

    def say(self, message: Message) -> None:
        """Words to others: they wait while the quorum state is not durable (contract 2)."""
        if self.is_quorum_state_durable:
            self.ready.messages.append(message)
        else:
            assert self._waiting_messages < HELD_MAX, "law: what waits for the quorum state is bounded"
            self._waiting_messages += 1
            self.ready.after_state.append(message)

    def state_written(self, state: QuorumState) -> None:
        """That quorum state is on stable storage."""
        self._durable_state = state
        if self.is_quorum_state_durable:
            self._waiting_messages = 0
            self.ready.releases = True

    def ask(self, node_id: int, request: Request) -> bool:
        """Send a request unless that node has one of the kind in flight; whether it was sent."""
        if not self.requests.is_ready(node_id, type(request), self.now_ms):
            return False
        self.say(Send(self.requests.sent(node_id, request, self.now_ms), node_id, request))
        return True

    def flushed(self, offset: int) -> None:
        """The flush that was under way has ended."""
        self.flushing = self._settling = False
        self.log.flushed(offset)

    def want_flush(self) -> None:
        """Have what is written made durable; one flush at a time, so that each takes all there is."""
        log = self.log
        if not self.flushing and (self.flush_needed or log.flushed_offset < log.end_offset):
            self.flushing = True
            self._settling = self.flush_needed
            self.flush_needed = False
            self.ready.flush = log.end_offset

    def advance_high_watermark(self, offset: int) -> None:
        """Contract 7: only forward, only over what a majority has."""
        if offset <= self.high_watermark:
            return
        assert offset <= self.log.end_offset, (
            f"law: only what exists is committed ({offset}, end {self.log.end_offset})"
        )
        self.high_watermark = offset
        self.ready.committed = offset
