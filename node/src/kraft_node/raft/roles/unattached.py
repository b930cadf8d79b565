"""Unattached: the leader of this epoch is unknown or unreachable.

A voter waits an election time-out, then pre-votes.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import replication
from kraft_node.raft.membership.quorum import NO_NODE
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Unattached(RoleState):
    """A replica that knows no leader of its epoch."""

    __slots__ = ("_leader_id", "election_deadline_ms")

    role = Role.UNATTACHED

    def __init__(self, epoch: int, election_deadline_ms: int, leader_id: int = NO_NODE) -> None:
        super().__init__(epoch)
        self.election_deadline_ms = election_deadline_ms
        self._leader_id = leader_id

    @property
    def leader_id(self) -> int:
        """The leader of this epoch if it is known but not followed; -1 if unknown."""
        return self._leader_id

    def act(self, node: RaftReplica) -> None:
        """Look for a leader; a voter campaigns after its election time-out."""
        # Records that this node wrote as a leader may not be on disk yet, and then it could not fetch.
        node.want_flush()
        if node.is_amnesiac:
            for voter_id in node.voters.ids:
                if voter_id != node.local.id:
                    replication.fetch_from(node, voter_id)
        elif node.may_campaign and node.now_ms >= self.election_deadline_ms:
            node.become_prospective()
        else:
            replication.fetch_from_anyone(node)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:
        """The end of the wait for a leader; observers never campaign, so they have none."""
        return [self.election_deadline_ms] if node.may_campaign else []
