"""Follower (observer, where this node is no voter): fetches from the leader; a voter that hears nothing pre-votes."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import replication, snapshots, voter_changes
from kraft_node.raft.role import RoleState
from kraft_node.raft.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.transitions import RaftReplica


class Follower(RoleState):
    __slots__ = ("_apart_ms", "_leader_id", "download", "fetch_deadline_ms", "has_fetched", "has_told", "join_ms")

    role = Role.FOLLOWER

    def __init__(self, node: RaftReplica, epoch: int, leader_id: int) -> None:
        super().__init__(epoch)
        self._leader_id = leader_id
        self._apart_ms = node.stand_apart_ms(leader_id)
        """All voters notice at the same moment that the leader is gone."""
        self.fetch_deadline_ms = node.now_ms + node.config.fetch_timeout_ms + self._apart_ms
        self.has_fetched = False
        """A fetch from this leader has succeeded: from then on, until it falls silent, pre-votes are refused."""
        self.has_told = False
        """The leader knows what this static voter says of itself."""
        self.join_ms = node.now_ms + node.config.fetch_timeout_ms
        """When to ask next to be stated as a voter (KIP-853)."""
        self.download: snapshots.Download | None = None

    @property
    def leader_id(self) -> int:
        return self._leader_id

    def alive(self, node: RaftReplica) -> None:
        """The leader has answered in this epoch."""
        self.has_fetched = True
        self.fetch_deadline_ms = node.now_ms + node.config.fetch_timeout_ms + self._apart_ms

    def suspect(self, node: RaftReplica) -> None:
        """The leader has closed its connection: look for another one, and hold nobody back who stands for election."""
        self.has_fetched = False
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, node.now_ms + self._apart_ms)

    def act(self, node: RaftReplica) -> None:
        expired = node.now_ms >= self.fetch_deadline_ms
        if expired and node.may_stand:
            node.become_prospective()
            return
        if expired:
            self.has_fetched = False  # an observer may be a voter in the candidate's set, whose vote decides
        node.want_flush()
        if self.download is not None:
            snapshots.fetch_part(node, self, self.download)
        elif expired:
            replication.fetch_from_anyone(node)
        else:
            replication.fetch_from(node, self._leader_id)
        voter_changes.ask_to_join(node, self)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:  # noqa: ARG002
        return [self.fetch_deadline_ms, self.join_ms]
