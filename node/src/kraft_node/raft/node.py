"""`RaftNode`: takes one event, lets the present role act, gives out effects in an order that keeps the contract."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.raft import effects as do
from kraft_node.raft import election, events, replication, snapshots, voter_changes
from kraft_node.raft.amnesia import READER, Amnesia
from kraft_node.raft.candidate import Candidate
from kraft_node.raft.config import RaftConfig
from kraft_node.raft.epochs import EPOCH_MAX, EpochGuard, EpochsExhausted
from kraft_node.raft.follower import Follower
from kraft_node.raft.leader import Leader
from kraft_node.raft.log_view import LogView, SnapshotId
from kraft_node.raft.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    BeginQuorumEpochReply,
    BeginQuorumEpochRequest,
    EndQuorumEpochReply,
    EndQuorumEpochRequest,
    FetchReply,
    FetchRequest,
    FetchSnapshotReply,
    FetchSnapshotRequest,
    Reply,
    Request,
    UpdateVoterRequest,
    VersionsReply,
    VersionsRequest,
    VoteReply,
    VoteRequest,
)
from kraft_node.raft.prospective import Prospective
from kraft_node.raft.quorum import NOBODY, QuorumState, ReplicaKey, Voter, VoterSet
from kraft_node.raft.replication import WaitingFetch
from kraft_node.raft.requests import Requests
from kraft_node.raft.resigned import Resigned
from kraft_node.raft.role import RoleState
from kraft_node.raft.states import Role, check_transition
from kraft_node.raft.unattached import Unattached
from kraft_node.raft.voter_changes import VoterSets

if TYPE_CHECKING:
    from kraft_node.base.env import Rng

HELD_MAX: Final = 100_000
"""Messages held back for one quorum-state write; an fsync that lets more pile up has failed in all but name."""

STAND_APART_MS: Final = 50
"""Between two voters that would stand for election at the same moment: several times what winning one takes."""

NEW_QUORUM_MS: Final = 200
"""Between finding out that the quorum is new and standing, so that the other voters find out as well: one that misses
it cannot vote for seconds, and then a leader that is lost at once cannot be replaced."""

TRANSITIONS_A_STEP_MAX: Final = 8
"""A lone voter goes unattached, prospective, candidate, leader in two steps; more in one is a loop."""


class NotLeader(Exception):  # noqa: N818 - a fact, not a fault
    """Only the leader of that epoch may append or resign."""


class _HasTally(Protocol):
    tally: election.Tally


class RaftNode:
    """One replica of the metadata log. Give `Started` first; then whatever happens; carry out what `step` returns."""

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
        self._is_shut_down = False
        self._started = False
        self._durable_state: QuorumState | None = state
        self._effects: list[do.Effect] = []
        self._held: list[do.Effect] = []
        self._timer: int | None = None
        self._announced = (NOBODY, -1)
        self._transitions = 0

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

    def prepare(self, epoch: int, batches: Sequence[Sequence[bytes]]) -> int:
        """The offset that the first of these records gets if `Propose` comes next. Nothing changes.

        Raises NotLeader unless this node leads that epoch, BatchTooLarge when the batches are too large or too many.
        """
        accumulator = self._leading(epoch).accumulator
        accumulator.check(batches)
        return accumulator.next_offset

    def _leading(self, epoch: int) -> Leader:
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

    def emit(self, effect: do.Effect) -> None:
        """Local work: nobody else learns of it."""
        self._effects.append(effect)

    def say(self, effect: do.Effect) -> None:
        """Words to others: held back while the quorum state is not durable (contract 2)."""
        if self.is_quorum_state_durable:
            self._effects.append(effect)
        else:
            assert len(self._held) < HELD_MAX, "law: what waits for the quorum state is bounded"
            self._held.append(effect)

    def ask(self, node_id: int, request: Request) -> bool:
        """Send a request unless that node has one of the kind in flight; whether it was sent."""
        if not self.requests.is_ready(node_id, type(request), self.now_ms):
            return False
        self.say(do.Send(self.requests.sent(node_id, request, self.now_ms), node_id, request))
        return True

    def want_flush(self) -> None:
        """Have what is written made durable; one flush at a time, so that each takes all there is."""
        log = self.log
        if not self.flushing and (self.flush_needed or log.flushed_offset < log.end_offset):
            self.flushing = True
            self._settling = self.flush_needed
            self.flush_needed = False
            self.emit(do.Flush(log.end_offset))

    def advance_high_watermark(self, offset: int) -> None:
        """Contract 7: only forward, only over what a majority has."""
        if offset <= self.high_watermark:
            return
        assert offset <= self.log.end_offset, (
            f"law: only what exists is committed ({offset}, end {self.log.end_offset})"
        )
        self.high_watermark = offset
        self.emit(do.Committed(offset))

    # Transitions. The new role's first `act` follows in the same step.

    def _become(self, role: RoleState) -> None:
        old = self.role if self._started else None
        check_transition(None if old is None else old.role, role.role, self.state.epoch, role.epoch)
        self._transitions += 1
        assert self._transitions <= TRANSITIONS_A_STEP_MAX, "law: a step settles in a role"
        if isinstance(old, Leader):
            voter_changes.abandon(self, old)
            if old.announced:
                self.emit(do.LostLeadership(old.epoch))
        if old is not None and role.epoch != old.epoch:
            self.requests.forget()
        self.role = role
        self._started = True

    def _remember(self, epoch: int, leader_id: int, voted: ReplicaKey) -> None:
        state = QuorumState(epoch, leader_id, voted)
        if state != self.state:
            assert epoch >= self.state.epoch, f"law: epochs never go back (from {self.state.epoch} to {epoch})"
            kept = self.state.voted
            if epoch == self.state.epoch and NOBODY not in (kept.id, voted.id):
                assert voted == kept, f"law: one vote an epoch ({kept} in {epoch}, now {voted})"
            self.state = state
            if self.is_amnesiac:
                self._durable_state = state
            else:
                self.emit(do.WriteQuorumState(state))

    def remember_again(self) -> None:
        """The amnesia is over: from now on what is said is on disk before (contract 2)."""
        self.is_amnesiac = False
        self._durable_state = None
        self.emit(do.WriteQuorumState(self.state))
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.stand_apart_ms()

    def hear(self, voter_id: int, epoch: int) -> None:
        """A voter has said what epoch it is in."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.heard(self, voter_id, epoch):
            self.remember_again()
            if isinstance(self.role, Unattached):
                self.role.election_deadline_ms += NEW_QUORUM_MS

    @property
    def fetch_wait_ms(self) -> int:
        """How long a fetch may wait at the leader for records to come."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.seeks_end(self.epoch):
            return 0
        return self.config.fetch_max_wait_ms

    def caught_up_perhaps(self, request: FetchRequest, reply: FetchReply) -> None:
        """The leader has answered a fetch."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.fetched(self, request, reply):
            self.remember_again()

    def _voted_in(self, epoch: int) -> ReplicaKey:
        return self.state.voted if epoch == self.state.epoch else ReplicaKey(NOBODY)

    def become_unattached(self, epoch: int, leader_id: int = NOBODY) -> None:
        voted = self._voted_in(epoch)
        self._become(Unattached(epoch, self._election_deadline_ms(epoch), leader_id))
        self._remember(epoch, leader_id, voted)

    def _election_deadline_ms(self, epoch: int) -> int:
        """A newer epoch alone lengthens nobody's wait, as in Kafka: a voter with a shorter log that stands again and
        again (it knows no pre-votes) would keep those from standing who can be elected."""
        role = self.role
        if epoch > role.epoch:
            if isinstance(role, Unattached):
                return role.election_deadline_ms
            if isinstance(role, Candidate | Prospective):
                return role.deadline
        return self.now_ms + self.random_election_timeout_ms()

    def become_follower(self, epoch: int, leader_id: int) -> None:
        assert leader_id != self.local.id, "law: nobody follows itself"
        voted = self._voted_in(epoch)
        self._become(Follower(self, epoch, leader_id))
        self._remember(epoch, leader_id, voted)

    def become_prospective(self) -> None:
        if self.is_amnesiac or self.loading is not None:
            self._wait_on()
            return
        leader_id = self.leader_id if self.role.role is not Role.RESIGNED else NOBODY
        self._become(Prospective(self, leader_id))

    def _wait_on(self) -> None:
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        else:
            self.become_unattached(self.epoch, self.leader_id)

    def give_up_pre_vote(self, leader_id: int) -> None:
        if leader_id != NOBODY and voter_changes.is_known(self, leader_id):
            self.become_follower(self.epoch, leader_id)
        else:
            self.become_unattached(self.epoch, leader_id)

    def next_epoch(self) -> int:
        """The epoch of the next election. Raises EpochsExhausted."""
        if self.epoch >= EPOCH_MAX:
            raise EpochsExhausted(self.epoch)
        return self.epoch + 1

    def become_candidate(self) -> None:
        epoch = self.next_epoch()
        self._become(Candidate(self, epoch))
        self._remember(epoch, NOBODY, self.local)

    def become_leader(self, granting: tuple[ReplicaKey, ...]) -> None:
        assert self.is_quorum_state_durable, "law: a candidate counts its own vote once it is on disk (contract 3)"
        offset = self.log.end_offset
        self._become(Leader(self, offset))
        self._remember(self.epoch, self.local.id, self.state.voted)
        self.log.appended(offset, self.leader.accumulator.next_offset, self.epoch)
        stated = None
        if self.voter_sets.is_missing_from_log:
            stated = self.voters
            self.voter_sets.stated(self.log.end_offset - 1, stated)
        voters = tuple(voter.key for voter in self.voters)
        self.emit(do.AppendLeaderChange(offset, self.epoch, voters, granting, stated))

    def resign(self) -> None:
        """Give up leadership of this epoch, and say so to the other voters."""
        successors = self.leader.progress.successors()
        self._become(Resigned(self, self.epoch, successors))

    def remember_vote(self, candidate: ReplicaKey) -> None:
        if self.state.has_voted:
            return
        self._remember(self.epoch, NOBODY, candidate)
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()

    def finish_shutdown(self) -> None:
        if not self._is_shut_down:
            self._is_shut_down = True
            self.emit(do.ShutdownComplete())

    # The one way in.

    def step(self, event: events.Event, now_ms: int) -> list[do.Effect]:
        """What is to be done now that `event` has happened at `now_ms` (monotonic).

        Raises NotLeader for `Propose` and `Resign` when this node does not lead that epoch, BatchTooLarge for records
        that can never be one batch. Nothing has changed then.
        """
        assert now_ms >= self.now_ms, "law: monotonic time does not go back"
        assert self._started or isinstance(event, events.Started), "law: Started comes first"
        self.now_ms = now_ms
        self._transitions = 0
        _HANDLERS[type(event)](self, event)
        if self.is_shutting_down and not isinstance(self.role, Leader | Resigned):
            self.finish_shutdown()  # somebody else leads already, or the epoch is over
        if not self._is_shut_down:
            self.requests.expire(now_ms)
            self._remove_stale_snapshots()
            self._act()
            replication.release_waiting(self)
            self._announce_leader()
            self._set_timer()
        given, self._effects = self._effects, []
        return given

    def _remove_stale_snapshots(self) -> None:
        if self.log.stale:
            self.emit(do.RemoveSnapshots(tuple(self.log.stale)))
            self.log.stale.clear()

    def _act(self) -> None:
        """Let the role act, and the one that follows from it, until one stays."""
        role = None
        while role is not self.role:
            role = self.role
            role.act(self)

    def _announce_leader(self) -> None:
        leader = NOBODY if self.role.role is Role.RESIGNED else self.leader_id
        if (leader, self.epoch) != self._announced:
            self._announced = (leader, self.epoch)
            self.emit(do.LeaderChanged(leader, self.epoch))

    def _set_timer(self) -> None:
        times = [waiting.deadline_ms for waiting in self.waiting.values()]
        times += self.role.deadlines_ms(self)
        times += self.requests.deadlines_ms()
        # What is due and still not done waits for something else: an answer, a flush, a line that is busy.
        at_ms = min((time for time in times if time > self.now_ms), default=None)
        if at_ms != self._timer:
            self._timer = at_ms
            self.emit(do.SetTimer(at_ms))

    def _start(self, event: events.Started) -> None:  # noqa: ARG002
        state = self.state
        if max(state.epoch, self.log.last_epoch) >= EPOCH_MAX:
            raise EpochsExhausted(max(state.epoch, self.log.last_epoch))
        self._amnesia = Amnesia(self.now_ms)
        if self.log.last_epoch > state.epoch:
            self.state = self._durable_state = state = QuorumState()
            self.become_unattached(self.log.last_epoch)
        elif self.may_stand and self._has_led(state):
            self._become(Resigned(self, state.epoch, ()))
        elif self.may_stand and not self.is_amnesiac and state.voted.matches(self.local) and state.leader_id == NOBODY:
            self._become(Candidate(self, state.epoch))
        elif state.leader_id in (NOBODY, self.local.id):
            self.become_unattached(state.epoch)
        elif voter_changes.is_known(self, state.leader_id):
            self.become_follower(state.epoch, state.leader_id)
        else:
            # Kept: forgotten, the next start would take that leader's records for its own (`_has_led`).
            self.become_unattached(state.epoch, state.leader_id)
        if isinstance(self.role, Unattached):
            # Everybody may have just been started: whoever is first asks at once, rather than after a time-out.
            self.role.election_deadline_ms = self.now_ms + self.stand_apart_ms()
        if self.voters.is_only(self.local) and self.role.role is not Role.CANDIDATE:
            self.become_prospective()

    def _has_led(self, state: QuorumState) -> bool:
        """Whether this node was leader of the stored epoch: leading it again could write other records in its place."""
        if state.leader_id != NOBODY:
            return state.leader_id == self.local.id
        return state.voted.matches(self.local) and self.log.last_epoch == state.epoch > 0

    def _tick(self, event: events.Tick) -> None:  # noqa: ARG002
        """Everything that is due is found by `act`; the timer is spent, be it early."""
        self._timer = None

    def _quorum_state_written(self, event: events.QuorumStateWritten) -> None:
        self._durable_state = event.state
        if self.is_quorum_state_durable:
            self._effects += self._held
            self._held = []

    def _flushed(self, event: events.Flushed) -> None:
        self.flushing = self._settling = False
        self.log.flushed(event.offset)

    def _propose(self, event: events.Propose) -> None:
        first = self.prepare(event.epoch, event.batches)
        assert all(event.batches), "law: somebody who proposes proposes something"
        accumulator = self.leader.accumulator
        for records in event.batches:
            accumulator.add(records, self.now_ms)
        self.emit(do.Proposed(first, accumulator.next_offset - 1))

    def _upgrade_version(self, event: events.UpgradeVersion) -> None:
        self._leading(event.epoch)
        voter_changes.upgrade(self, event.kraft_version)

    def _resign(self, event: events.Resign) -> None:
        if not isinstance(self.role, Leader) or self.epoch != event.epoch:
            raise NotLeader(f"this node does not lead epoch {event.epoch}")
        self.resign()

    def _shut_down(self, event: events.Shutdown) -> None:  # noqa: ARG002
        self.is_shutting_down = True
        if isinstance(self.role, Leader):
            self.resign()
        else:
            self.finish_shutdown()
        replication.release_waiting(self)

    def _snapshot_stored(self, event: events.SnapshotStored) -> None:
        snapshots.stored(self, event.snapshot, event.voters)

    def _snapshots_dropped(self, event: events.SnapshotsDropped) -> None:
        self.log.prefix_deleted(event.first_kept, event.log_start_offset)

    def _learned(self, event: events.Learned) -> None:
        if event.node_id not in self.bootstrap_ids and event.node_id != self.local.id:
            self.bootstrap_ids.append(event.node_id)

    def _disconnected(self, event: events.Disconnected) -> None:
        """A leader that closed its connections is gone: ask soon whether to stand (the pre-vote keeps it safe)."""
        role = self.role
        if isinstance(role, Follower) and event.node_id == role.leader_id:
            role.suspect(self)

    # Others' requests.

    def _asked(self, event: events.Asked) -> None:
        token, request = event.token, event.request
        if isinstance(request, FetchRequest):
            replication.answer_fetch(self, token, request)
        elif isinstance(request, FetchSnapshotRequest):
            snapshots.answer_fetch_snapshot(self, token, request)
        elif isinstance(request, VoteRequest):
            reply = election.answer_vote(self, request)
            self.say(do.Respond(token, reply))
        elif isinstance(request, BeginQuorumEpochRequest):
            self.say(do.Respond(token, self._answer_begin(request)))
        elif isinstance(request, EndQuorumEpochRequest):
            self.say(do.Respond(token, self._answer_end(request)))
        elif isinstance(request, VersionsRequest):
            # Over the wire it is an ApiVersions request, which the listener answers.
            self.say(do.Respond(token, VersionsReply(NONE, None if self.own is None else self.own.kraft_versions)))
        else:
            voter_changes.answer(self, token, request)

    def _answer_begin(self, request: BeginQuorumEpochRequest) -> BeginQuorumEpochReply:
        error = self._voter_error(request.epoch, request.cluster_id)
        if not error:
            self._learn(request.epoch, request.leader_id)
            if request.voter is not None and not request.voter.matches(self.local):
                error = INVALID_VOTER_KEY
        return BeginQuorumEpochReply(error, self.epoch, self.leader_id)

    def _answer_end(self, request: EndQuorumEpochRequest) -> EndQuorumEpochReply:
        error = self._voter_error(request.epoch, request.cluster_id)
        if not error:
            self._learn(request.epoch, request.leader_id)
            role = self.role
            if isinstance(role, Follower) and role.leader_id == request.leader_id:
                role.fetch_deadline_ms = self.now_ms + self._handover_delay_ms(request.successors)
        return EndQuorumEpochReply(error, self.epoch, self.leader_id)

    def _voter_error(self, epoch: int, cluster_id: str | None) -> int:
        if cluster_id is not None and cluster_id != self.cluster_id:
            return INCONSISTENT_CLUSTER_ID
        if not self.epochs.admits(epoch, self.epoch, self.now_ms):
            return INVALID_REQUEST
        return FENCED_LEADER_EPOCH if epoch < self.epoch else NONE

    def _handover_delay_ms(self, successors: tuple[ReplicaKey, ...]) -> int:
        """The resigning leader's favourite stands at once, the next a little later, who is not named last (KIP-595)."""
        longest = self.config.election_backoff_max_ms
        for position, successor in enumerate(successors):
            if successor.matches(self.local):
                if position == 0:
                    return 0
                return min(longest, (longest >> (len(successors) - 1)) << (position - 1))
        return longest

    def _cancelled(self, event: events.Cancelled) -> None:
        self.waiting.pop(event.token, None)

    # Others' answers.

    def _answered(self, event: events.Answered) -> None:
        found = self.requests.answered(event.number, self.now_ms, failed=event.reply is None)
        if found is None:
            return
        node_id, request = found
        reply = event.reply
        if isinstance(request, VersionsRequest):
            voter_changes.take_versions(self, node_id, reply if isinstance(reply, VersionsReply) else None)
            return
        if reply is None:
            return
        if not self.epochs.admits(reply.epoch, self.epoch, self.now_ms):
            self.requests.back_off(node_id, type(request), self.now_ms)
            return
        self.hear(node_id, reply.epoch)
        if reply.error != NONE:
            self.requests.back_off(node_id, type(request), self.now_ms)
        if self._is_stale(reply):
            return
        self._use(node_id, request, reply)

    def _unsupported(self, event: events.Unsupported) -> None:
        found = self.requests.answered(event.number, self.now_ms, failed=True)
        if found is None:
            return
        node_id, request = found
        if isinstance(request, VoteRequest):
            election.take_unsupported(self, node_id, request)
        elif isinstance(request, VersionsRequest):
            voter_changes.take_versions(self, node_id, None)
        elif isinstance(request, UpdateVoterRequest) and isinstance(self.role, Follower):
            self.role.has_told = True  # a leader that never asks for it

    def _is_stale(self, reply: Reply) -> bool:
        """Take over a newer epoch or a leader not known before; whether the answer says nothing more."""
        lost = self.leader_id == NOBODY or isinstance(self.role, Unattached)
        if reply.epoch > self.epoch or (reply.epoch == self.epoch and lost and reply.leader_id != NOBODY):
            self._learn(reply.epoch, reply.leader_id)
            return True
        return reply.epoch < self.epoch

    def _learn(self, epoch: int, leader_id: int) -> None:
        """Somebody says who leads an epoch that is not older than ours."""
        # Be it one of our voters or not: those of the log may be newer than ours, and static ones differ while they are
        # being changed. Who is no voter there counts for nothing there; majorities meet all the same (decision 4).
        known = leader_id not in (NOBODY, self.local.id)
        if epoch > self.epoch:
            if known:
                self.become_follower(epoch, leader_id)
            else:
                self.become_unattached(epoch)
        elif known and not isinstance(self.role, Follower | Leader | Resigned):
            self.become_follower(epoch, leader_id)

    def _use(self, node_id: int, request: Request, reply: Reply) -> None:
        if isinstance(request, FetchRequest) and isinstance(reply, FetchReply):
            replication.take_fetch(self, node_id, request, reply)
        elif isinstance(request, FetchSnapshotRequest) and isinstance(reply, FetchSnapshotReply):
            snapshots.take_part(self, node_id, request, reply)
        elif isinstance(request, VoteRequest) and isinstance(reply, VoteReply):
            election.take_vote(self, node_id, request, reply)
        elif isinstance(request, BeginQuorumEpochRequest):
            self._take_begin(node_id, reply)
        elif isinstance(request, UpdateVoterRequest) and isinstance(self.role, Follower):
            self.role.has_told = self.role.has_told or reply.error == NONE
        elif isinstance(request, EndQuorumEpochRequest) and isinstance(self.role, Resigned):
            self.role.unacknowledged.discard(node_id)

    def _take_begin(self, node_id: int, reply: Reply) -> None:
        if isinstance(self.role, Leader) and reply.error == NONE and node_id in self.role.progress.voters:
            self.role.progress.voters[node_id].told_epoch = True


_HANDLERS: Final[dict[type, Any]] = {
    events.Started: RaftNode._start,
    events.Tick: RaftNode._tick,
    events.QuorumStateWritten: RaftNode._quorum_state_written,
    events.Flushed: RaftNode._flushed,
    events.Asked: RaftNode._asked,
    events.Cancelled: RaftNode._cancelled,
    events.Answered: RaftNode._answered,
    events.Unsupported: RaftNode._unsupported,
    events.Disconnected: RaftNode._disconnected,
    events.Learned: RaftNode._learned,
    events.Propose: RaftNode._propose,
    events.UpgradeVersion: RaftNode._upgrade_version,
    events.SnapshotStored: RaftNode._snapshot_stored,
    events.SnapshotsDropped: RaftNode._snapshots_dropped,
    events.Resign: RaftNode._resign,
    events.Shutdown: RaftNode._shut_down,
}
