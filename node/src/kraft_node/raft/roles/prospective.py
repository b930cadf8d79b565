"""Prospective: finds out whether it would win an election, without disturbing the epoch (pre-vote, KIP-996)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import election
from kraft_node.raft.membership.quorum import NO_NODE
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Prospective(RoleState):
    """A replica that sends pre-votes: would a majority elect it?"""

    __slots__ = ("_leader_id", "deadline", "tally")

    role = Role.PROSPECTIVE

    def __init__(self, node: RaftReplica, leader_id: int = NO_NODE) -> None:
        super().__init__(node.epoch)
        self._leader_id = leader_id
        self.deadline = node.now_ms + node.random_election_timeout_ms()
        self.tally = election.Tally(node.voters)
        self.tally.grant(node.local.id)

    @property
    def leader_id(self) -> int:
        """The leader that was lost, in the same epoch; -1 if unknown."""
        return self._leader_id

    def act(self, node: RaftReplica) -> None:
        """Ask for pre-votes. Campaign if a majority grants them; give up if that is impossible or takes too long."""
        if self.tally.is_won:
            node.become_candidate()
        elif self.tally.is_lost or node.now_ms >= self.deadline:
            node.give_up_pre_vote(self._leader_id)
        else:
            election.request_votes(node, self.tally, pre_vote=True)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        """The end of this pre-vote."""
        return [self.deadline]
