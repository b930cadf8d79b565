"""The base class of all roles."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft.membership.quorum import NO_NODE
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class RoleState:
    """A role in one epoch: its state, and its work on timers."""

    __slots__ = ("epoch",)

    role: Role

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch; -1 if unknown."""
        return NO_NODE

    def act(self, node: RaftReplica) -> None:
        """Do the work that is due now. Called after every event. May change the node's role."""

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        """When `act` must run without an event. Times in the past are ignored."""
        return []
