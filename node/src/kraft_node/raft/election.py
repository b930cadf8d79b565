"""Votes: counting granted votes, and granting votes to others (KIP-595, KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft.membership.quorum import NO_NODE, ReplicaKey, VoterSet
from kraft_node.raft.messages import (
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    INVALID_REQUEST,
    INVALID_VOTER_KEY,
    NONE,
    VoteReply,
    VoteRequest,
)
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Tally:
    """The answers to the vote requests of one election or pre-vote."""

    __slots__ = ("_answers", "_voters")

    def __init__(self, voters: VoterSet) -> None:
        self._voters = voters
        self._answers: dict[int, bool | None] = dict.fromkeys(voters.ids)

    def grant(self, voter_id: int) -> None:
        """Count a granted vote. A replica that is not a voter is ignored; a later refusal does not revoke the grant."""
        if voter_id in self._answers:
            self._answers[voter_id] = True

    def reject(self, voter_id: int) -> None:
        """Count a refusal, unless the voter has granted its vote before. A replica that is not a voter is ignored."""
        if voter_id in self._answers and self._answers[voter_id] is None:
            self._answers[voter_id] = False

    @property
    def is_won(self) -> bool:
        """Whether a majority of the voters has granted its vote."""
        return sum(answer is True for answer in self._answers.values()) >= self._voters.majority

    @property
    def is_lost(self) -> bool:
        """Whether so many voters have refused that a majority is impossible."""
        possible = sum(answer is not False for answer in self._answers.values())
        return possible < self._voters.majority

    def unanswered(self) -> list[int]:
        """Ids of the voters that have neither granted nor refused, ascending. May include this replica."""
        return [voter_id for voter_id, answer in self._answers.items() if answer is None]

    def granting(self) -> tuple[ReplicaKey, ...]:
        """The voters that granted their vote."""
        return tuple(voter.key for voter in self._voters if self._answers[voter.key.id])


def request_votes(node: RaftReplica, tally: Tally, *, pre_vote: bool) -> None:
    """Send a vote request to every voter that has not answered."""
    for voter_id in tally.unanswered():
        if voter_id == node.local.id:
            continue
        voter = node.voters.get(voter_id)
        request = VoteRequest(
            node.epoch,
            node.local,
            node.log.last_epoch,
            node.log.end_offset,
            pre_vote,
            None if voter is None else voter.key,
            node.cluster_id,
        )
        node.send_request(voter_id, request)


def answer_vote(node: RaftReplica, request: VoteRequest) -> VoteReply:
    """Answer a vote request. A granted vote is durable before the answer leaves (contract 2)."""
    if request.cluster_id is not None and request.cluster_id != node.cluster_id:
        return _refuse(node, INCONSISTENT_CLUSTER_ID)
    if request.epoch < node.epoch:
        return _refuse(node, FENCED_LEADER_EPOCH)
    too_new = request.last_epoch > request.epoch if request.pre_vote else request.last_epoch >= request.epoch
    is_sound = request.end_offset >= 0 and request.last_epoch >= 0 and not too_new
    if not is_sound or not node.epochs.admits(request.epoch, node.epoch, node.now_ms):
        return _refuse(node, INVALID_REQUEST)
    if request.epoch > node.epoch:
        node.become_unattached(request.epoch)
    if request.voter is not None and not request.voter.matches(node.local):
        return _refuse(node, INVALID_VOTER_KEY)
    node.note_voter_epoch(request.candidate.id, request.epoch)
    granted = _may_grant(node, request)
    if granted and not request.pre_vote:
        node.remember_vote(request.candidate)
    return VoteReply(NONE, node.epoch, node.leader_id, granted)


def _refuse(node: RaftReplica, error: int) -> VoteReply:
    return VoteReply(error, node.epoch, node.leader_id, granted=False)


def _may_grant(node: RaftReplica, request: VoteRequest) -> bool:
    up_to_date = (request.last_epoch, request.end_offset) >= (node.log.last_epoch, node.log.end_offset)
    if not up_to_date or node.is_amnesiac:
        return False
    role = node.role.role
    if request.pre_vote:
        if role is Role.FOLLOWER:
            return not node.follower.has_fetched
        return role is not Role.LEADER
    if role not in (Role.UNATTACHED, Role.PROSPECTIVE):
        return False
    if node.state.has_voted:
        return node.state.voted.matches(request.candidate)
    return node.leader_id == NO_NODE


def take_vote(node: RaftReplica, voter_id: int, request: VoteRequest, reply: VoteReply) -> None:
    """Count the answer to a vote request of this epoch."""
    role = node.role
    wanted = Role.PROSPECTIVE if request.pre_vote else Role.CANDIDATE
    if role.role is not wanted or request.epoch != node.epoch:
        return
    tally: Tally = role.tally  # type: ignore[attr-defined]
    if reply.error != NONE:
        node.requests.back_off(voter_id, VoteRequest, node.now_ms)
    elif reply.granted:
        tally.grant(voter_id)
    else:
        tally.reject(voter_id)


def take_unsupported(node: RaftReplica, voter_id: int, request: VoteRequest) -> None:
    """Count a voter that does not know pre-votes (3.9 and older) as granting.

    Kafka campaigns at once in this case, with any answers of the other voters. That may disturb a quorum that has a
    leader, or a quorum that is finding out that it is new.
    """
    role = node.role
    if request.pre_vote and role.role is Role.PROSPECTIVE and request.epoch == node.epoch:
        tally: Tally = role.tally  # type: ignore[attr-defined]
        tally.grant(voter_id)
