"""What all roles have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft.quorum import NOBODY
from kraft_node.raft.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.transitions import RaftReplica


class RoleState:
    """A role in one epoch: what it remembers, and what it does by itself."""

    __slots__ = ("epoch",)

    role: Role

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch

    @property
    def leader_id(self) -> int:
        """The leader of the epoch as far as known, else -1."""
        return NOBODY

    def act(self, node: RaftReplica) -> None:
        """Do what is due now; called after every event. May change the node's role."""

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        """When `act` has something to do by itself; times gone by are ignored."""
        return []
