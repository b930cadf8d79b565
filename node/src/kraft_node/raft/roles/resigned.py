"""Resigned: was leader of this epoch; hands over with EndQuorumEpoch, then becomes unattached in a new epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import replication
from kraft_node.raft.membership.quorum import ReplicaKey
from kraft_node.raft.messages import EndQuorumEpochRequest
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Resigned(RoleState):
    """A former leader in its last epoch, until another replica leads."""

    __slots__ = ("_successors", "deadline", "local_id", "unacknowledged")

    role = Role.RESIGNED

    def __init__(self, node: RaftReplica, epoch: int, successors: tuple[ReplicaKey, ...]) -> None:
        super().__init__(epoch)
        self.local_id = node.local.id
        self._successors = successors
        self.unacknowledged = {key.id for key in successors}
        self.deadline = node.now_ms + node.random_election_timeout_ms()

    @property
    def leader_id(self) -> int:
        """This replica's own id: it was the leader of this epoch."""
        return self.local_id

    def act(self, node: RaftReplica) -> None:
        """Notify the voters. When all know it, end or look for another leader; campaign again after a time."""
        if node.is_shutting_down:
            if not self.unacknowledged or node.now_ms >= self.deadline:
                node.finish_shutdown()
                return
        elif node.now_ms >= self.deadline:
            node.become_unattached(node.next_epoch())
            return
        request = EndQuorumEpochRequest(self.epoch, self.local_id, self._successors, node.cluster_id)
        for voter_id in sorted(self.unacknowledged):
            node.send_request(voter_id, request)
        if not self.unacknowledged and not node.is_shutting_down:
            # Restarted, or all voters have acknowledged: another node may lead by now.
            replication.fetch_from_anyone(node)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        """When to begin a new epoch, or to end a shutdown although voters have not acknowledged."""
        return [self.deadline]
