"""`RaftReplica`: how a replica changes its role, and the state that it keeps. The new role's first `act` runs in the
same step.

`states` defines which role may follow which.
"""

from __future__ import annotations

from typing import Final

from kraft_node.raft.epochs import EPOCH_MAX, EpochsExhausted
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.membership.amnesia import Amnesia
from kraft_node.raft.membership.quorum import NO_NODE, QuorumState, ReplicaKey
from kraft_node.raft.messages import FetchReply, FetchRequest
from kraft_node.raft.ready import AppendLeaderChange
from kraft_node.raft.replica_state import ReplicaState
from kraft_node.raft.roles.candidate import Candidate
from kraft_node.raft.roles.follower import Follower
from kraft_node.raft.roles.leader import Leader
from kraft_node.raft.roles.prospective import Prospective
from kraft_node.raft.roles.resigned import Resigned
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role, check_transition
from kraft_node.raft.roles.unattached import Unattached

NEW_QUORUM_MS: Final = 200
"""The delay between finding out that the quorum is new and campaigning. The other voters find out meanwhile. A voter
that misses it cannot vote for seconds, and a leader that is lost early could not be replaced."""

TRANSITIONS_A_STEP_MAX: Final = 8
"""A lone voter becomes unattached, prospective, candidate and leader in two steps; more transitions in one step are a
loop.
"""


class RaftReplica(ReplicaState):
    """A replica that can change its role, its vote and its epoch."""

    _started = False
    _is_shut_down = False
    _transitions = 0
    """Transitions in the current step."""

    def start(self) -> None:
        """Take the first role, according to the disk's content. Raises EpochsExhausted."""
        state = self.state
        if max(state.epoch, self.log.last_epoch) >= EPOCH_MAX:
            raise EpochsExhausted(max(state.epoch, self.log.last_epoch))
        self._amnesia = Amnesia(self.now_ms)
        if self.log.last_epoch > state.epoch:
            self.state = self._durable_state = state = QuorumState()
            self.become_unattached(self.log.last_epoch)
        elif self.may_campaign and self._has_led(state):
            self._become(Resigned(self, state.epoch, ()))
        elif (
            self.may_campaign
            and not self.is_amnesiac
            and state.voted.matches(self.local)
            and state.leader_id == NO_NODE
        ):
            self._become(Candidate(self, state.epoch))
        elif state.leader_id in (NO_NODE, self.local.id):
            self.become_unattached(state.epoch)
        elif voter_changes.is_known(self, state.leader_id):
            self.become_follower(state.epoch, state.leader_id)
        else:
            # Keep the leader id: without it, the next start would take that leader's records for its own (`_has_led`).
            self.become_unattached(state.epoch, state.leader_id)
        if isinstance(self.role, Unattached):
            # All voters may have just started: the first voter campaigns at once, not after a time-out.
            self.role.election_deadline_ms = self.now_ms + self.campaign_delay_ms()
        if self.voters.is_only(self.local) and self.role.role is not Role.CANDIDATE:
            self.become_prospective()

    def _has_led(self, state: QuorumState) -> bool:
        """Whether this node was leader of the stored epoch: if it led that epoch again, it could write other records
        into it.
        """
        if state.leader_id != NO_NODE:
            return state.leader_id == self.local.id
        return state.voted.matches(self.local) and self.log.last_epoch == state.epoch > 0

    def _become(self, role: RoleState) -> None:
        old = self.role if self._started else None
        check_transition(None if old is None else old.role, role.role, self.state.epoch, role.epoch)
        self._transitions += 1
        assert self._transitions <= TRANSITIONS_A_STEP_MAX, "law: the transitions of a step end in one role"
        if isinstance(old, Leader):
            voter_changes.abandon(self, old)
            if old.announced:
                self.ready.lost_leadership = old.epoch
        if old is not None and role.epoch != old.epoch:
            self.requests.forget()
        self.role = role
        self._started = True

    def _remember(self, epoch: int, leader_id: int, voted: ReplicaKey) -> None:
        state = QuorumState(epoch, leader_id, voted)
        if state != self.state:
            assert epoch >= self.state.epoch, f"law: epochs never decrease (from {self.state.epoch} to {epoch})"
            kept = self.state.voted
            if epoch == self.state.epoch and NO_NODE not in (kept.id, voted.id):
                assert voted == kept, f"law: one vote an epoch ({kept} in {epoch}, now {voted})"
            self.state = state
            if self.is_amnesiac:
                self._durable_state = state
            else:
                self.ready.state = state

    def remember_again(self) -> None:
        """The amnesia is over: from now on messages leave only after their state is on disk (contract 2)."""
        self.is_amnesiac = False
        self._durable_state = None
        self.ready.state = self.state
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.campaign_delay_ms()

    def note_voter_epoch(self, voter_id: int, epoch: int) -> None:
        """Note the epoch that a voter reports."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.note_epoch(self, voter_id, epoch):
            self.remember_again()
            if isinstance(self.role, Unattached):
                self.role.election_deadline_ms += NEW_QUORUM_MS

    def caught_up_perhaps(self, request: FetchRequest, reply: FetchReply) -> None:
        """Note that the leader has answered a fetch."""
        if self.is_amnesiac and self._amnesia is not None and self._amnesia.fetched(self, request, reply):
            self.remember_again()

    def _voted_in(self, epoch: int) -> ReplicaKey:
        """The replica that got this replica's vote in the epoch; NO_NODE without a vote."""
        return self.state.voted if epoch == self.state.epoch else ReplicaKey(NO_NODE)

    def become_unattached(self, epoch: int, leader_id: int = NO_NODE) -> None:
        """Wait in `epoch` without following a leader. `leader_id`: its leader, if known. A vote is kept."""
        voted = self._voted_in(epoch)
        self._become(Unattached(epoch, self._election_deadline_ms(epoch), leader_id))
        self._remember(epoch, leader_id, voted)

    def _election_deadline_ms(self, epoch: int) -> int:
        """When to campaign after a change to `epoch`. A newer epoch alone does not lengthen the wait, as in Kafka.

        Otherwise a voter with a shorter log that campaigns again and again (because it does not know pre-votes) would
        keep electable voters from campaigning.
        """
        role = self.role
        if epoch > role.epoch:
            if isinstance(role, Unattached):
                return role.election_deadline_ms
            if isinstance(role, Candidate | Prospective):
                return role.deadline
        return self.now_ms + self.random_election_timeout_ms()

    def become_follower(self, epoch: int, leader_id: int) -> None:
        """Follow the leader of `epoch`. A vote that was given in that epoch is kept."""
        assert leader_id != self.local.id, "law: a replica never follows itself"
        voted = self._voted_in(epoch)
        if (epoch, leader_id) != self._followed:
            # Not for a leader that was followed before: if its connection closes again and again, the wait never ends.
            self._followed = (epoch, leader_id)
            self.join_ms = self.now_ms + self.config.fetch_timeout_ms
        self._become(Follower(self, epoch, leader_id))
        self._remember(epoch, leader_id, voted)

    def become_prospective(self) -> None:
        """Ask for pre-votes. A voter that may have lost its disk, or that loads a snapshot, waits instead."""
        if self.is_amnesiac or self.loading is not None:
            self._wait_on()
            return
        leader_id = self.leader_id if self.role.role is not Role.RESIGNED else NO_NODE
        self._become(Prospective(self, leader_id))

    def _wait_on(self) -> None:
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()
        else:
            self.become_unattached(self.epoch, self.leader_id)

    def give_up_pre_vote(self, leader_id: int) -> None:
        """Return to the former leader if it is known, otherwise wait without one."""
        if leader_id != NO_NODE and voter_changes.is_known(self, leader_id):
            self.become_follower(self.epoch, leader_id)
        else:
            self.become_unattached(self.epoch, leader_id)

    def next_epoch(self) -> int:
        """The epoch of the next election. Raises EpochsExhausted."""
        if self.epoch >= EPOCH_MAX:
            raise EpochsExhausted(self.epoch)
        return self.epoch + 1

    def become_candidate(self) -> None:
        """Begin the next epoch and vote for this replica. Raises EpochsExhausted."""
        epoch = self.next_epoch()
        self._become(Candidate(self, epoch))
        self._remember(epoch, NO_NODE, self.local)

    def become_leader(self, granting: tuple[ReplicaKey, ...]) -> None:
        """Lead the epoch: append LeaderChange with the voters that granted their votes."""
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
        self.write(AppendLeaderChange(offset, self.epoch, voters, granting, stated))

    def resign(self) -> None:
        """Give up the leadership of this epoch and notify the other voters."""
        successors = self.leader.progress.successors()
        self._become(Resigned(self, self.epoch, successors))

    def remember_vote(self, candidate: ReplicaKey) -> None:
        """Vote for the candidate, unless this replica has voted in this epoch. The vote is made durable."""
        if self.state.has_voted:
            return
        self._remember(self.epoch, NO_NODE, candidate)
        if isinstance(self.role, Unattached):
            self.role.election_deadline_ms = self.now_ms + self.random_election_timeout_ms()

    def finish_shutdown(self) -> None:
        """Report once that the shutdown is complete. The core gives no more work afterwards."""
        if not self._is_shut_down:
            self._is_shut_down = True
            self.ready.is_shut_down = True
