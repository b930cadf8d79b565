"""Whether this node can serve a request to the leader of an epoch."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft.messages import (
    BROKER_NOT_AVAILABLE,
    FENCED_LEADER_EPOCH,
    INCONSISTENT_CLUSTER_ID,
    NONE,
    NOT_LEADER_OR_FOLLOWER,
    UNKNOWN_LEADER_EPOCH,
)
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


def leader_error(node: RaftReplica, epoch: int, cluster_id: str | None) -> int:
    """The error code of the protocol if the request cannot be served; 0 if it can."""
    if cluster_id is not None and cluster_id != node.cluster_id:
        return INCONSISTENT_CLUSTER_ID
    if node.is_shutting_down:
        return BROKER_NOT_AVAILABLE
    if epoch < node.epoch:
        return FENCED_LEADER_EPOCH
    if epoch > node.epoch:
        return UNKNOWN_LEADER_EPOCH
    if node.role.role is not Role.LEADER:
        return NOT_LEADER_OR_FOLLOWER
    return NONE
