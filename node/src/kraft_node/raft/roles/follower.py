"""Follower (observer if this node is not a voter): fetches from the leader; a voter without answers starts a
pre-vote."""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.raft import replication, snapshots
from kraft_node.raft.membership import voter_changes
from kraft_node.raft.roles.role import RoleState
from kraft_node.raft.roles.states import Role

if TYPE_CHECKING:
    from kraft_node.raft.roles.transitions import RaftReplica


class Follower(RoleState):
    """A replica that fetches from the leader of its epoch."""

    __slots__ = (
        "_campaign_delay_ms",
        "_leader_id",
        "download",
        "fetch_deadline_ms",
        "has_fetched",
        "has_reported",
    )

    role = Role.FOLLOWER

    def __init__(self, node: RaftReplica, epoch: int, leader_id: int) -> None:
        super().__init__(epoch)
        self._leader_id = leader_id
        self._campaign_delay_ms = node.campaign_delay_ms(leader_id)
        """Delay of this voter: all voters notice the loss of the leader at the same moment."""
        self.fetch_deadline_ms = node.now_ms + node.config.fetch_timeout_ms + self._campaign_delay_ms
        self.has_fetched = False
        """A fetch from this leader has succeeded. Until the leader falls silent, pre-votes are refused."""
        self.has_reported = False
        """The leader knows the directory and endpoints of this static voter."""
        self.download: snapshots.Download | None = None

    @property
    def leader_id(self) -> int:
        """The leader that this replica fetches from; always known."""
        return self._leader_id

    def alive(self, node: RaftReplica) -> None:
        """Note that the leader has answered in this epoch."""
        self.has_fetched = True
        self.fetch_deadline_ms = node.now_ms + node.config.fetch_timeout_ms + self._campaign_delay_ms

    def suspect(self, node: RaftReplica) -> None:
        """The leader has closed its connection: look for another leader soon, and stop refusing pre-votes."""
        self.has_fetched = False
        self.fetch_deadline_ms = min(self.fetch_deadline_ms, node.now_ms + self._campaign_delay_ms)

    def act(self, node: RaftReplica) -> None:
        """Fetch from the leader. A voter campaigns if the leader has not answered in time."""
        expired = node.now_ms >= self.fetch_deadline_ms
        if expired and node.may_campaign:
            node.become_prospective()
            return
        if expired:
            self.has_fetched = False  # in the candidate's voter set this observer may be a voter with the deciding vote
        node.want_flush()
        if self.download is not None:
            snapshots.fetch_part(node, self, self.download)
        elif expired:
            replication.fetch_from_anyone(node)
        else:
            replication.fetch_from(node, self._leader_id)
        voter_changes.request_to_join(node, self)

    def deadlines_ms(self, node: RaftReplica) -> list[int]:
        """When the leader counts as lost, and when to request again to become a voter."""
        return [self.fetch_deadline_ms, node.join_ms]
