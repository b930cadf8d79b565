"""Candidate: has begun an epoch, and requests votes once its own vote is on disk (contract 2 and 3)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import election
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Candidate(RoleState):
    """A replica that requests votes for its epoch."""

    __slots__ = ("_asks", "_timeout_ms", "deadline", "tally")

    role = Role.CANDIDATE

    def __init__(self, node: RaftReplica, epoch: int) -> None:
        super().__init__(epoch)
        self._timeout_ms = node.random_election_timeout_ms()
        self.deadline = node.now_ms + self._timeout_ms
        self._asks = False
        """Whether the own vote is on disk, so that requests leave."""
        self.tally = election.Tally(node.voters)

    def act(self, node: RaftReplica) -> None:
        """Count the own vote once it is durable. Then win, give up after a time-out, or ask for votes.

        The time-out begins when the requests leave. Otherwise a disk that takes longer would never let a voter lead.
        """
        if not self._asks:
            if not node.is_quorum_state_durable:
                return
            self._asks = True
            self.deadline = node.now_ms + self._timeout_ms
            self.tally.grant(node.local.id)
        if node.now_ms >= self.deadline:
            # Checked before the votes: a vote granted so long ago must not count (`amnesia`).
            node.become_prospective()
        elif self.tally.is_won:
            node.become_leader(self.tally.granting())
        else:
            election.request_votes(node, self.tally, pre_vote=False)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        """The end of this election, once it has begun."""
        return [self.deadline] if self._asks else []
