"""Leading a partition with followers: the ISR, joining it, the progress of all replicas (KIP-497, KIP-966).

Created when a broker becomes leader of a partition with other replicas. Its partition gets the high watermark from it
and forwards its proposals. The rules of Kafka's `Partition`:

1. Until the controller has answered, the union of committed and proposed ISR counts (`maximal_isr`). Records are
   acknowledged only when they are on all these replicas, for any decision of the controller.
2. A follower joins when it has reached the high watermark and the start of the leader's epoch. Its broker must be
   alive in the incarnation that fetched (KIP-903). Before that, while it lags by less than replica.lag.time.max.ms,
   the high watermark waits for it, so that it can catch up under load.
3. If a member has lagged for replica.lag.time.max.ms, the leader proposes to remove it. Until the controller agrees,
   the high watermark waits for it.
4. Below min.insync.replicas the high watermark does not move (KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Protocol

from kraft_node.partition.followers import UNKNOWN, FollowerState
from kraft_node.partition.surroundings import Proposal, ProposingPartition, Surroundings
from kraft_protocol.errors import ErrorCode

if TYPE_CHECKING:
    from kraft_node.log.log import Log
    from kraft_node.metadata.partitions import PartitionState

_TAKEN_BACK: Final = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
"""The controller has not applied the proposal and will not: the earlier committed ISR counts again."""
_NEWS_UNDER_WAY: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    )
)
"""The controller has newer metadata than this broker: committed metadata will decide. Until then rule 1 applies."""


class LedPartition(ProposingPartition, Protocol):
    """A led partition, for its leadership."""

    isr: tuple[int, ...]
    leader_epoch: int
    leader_start_offset: int
    """The end of the log when this broker became leader in `leader_epoch`."""
    log: Log
    node_id: int
    partition_epoch: int

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, limited to the number of replicas."""
        ...

    def settled_end(self) -> int:
        """The offset up to which the own log counts for the high watermark."""


class Leadership:
    """The followers of one led partition."""

    __slots__ = ("_partition", "_surroundings", "any_at_end", "followers", "proposal")

    def __init__(self, partition: LedPartition, surroundings: Surroundings) -> None:
        self._partition = partition
        self._surroundings = surroundings
        self.followers: dict[int, FollowerState] = {}
        self.proposal: Proposal | None = None
        self.any_at_end = False
        """Whether a follower must be notified of the next append (`left_behind`)."""

    def begin_epoch(self, state: PartitionState) -> None:
        """Start a new leader epoch: forget all progress."""
        self.end()
        self.assigned(state)
        self.any_at_end = False

    def end(self) -> None:
        """End the leadership, or this leader epoch."""
        for follower in self.followers.values():
            follower.forget()
        self.followers.clear()

    def assigned(self, state: PartitionState) -> None:
        """Take the committed replicas or ISR; this decides a pending proposal."""
        self.proposal = None
        now_ms = self._surroundings.now_ms()
        own = self._partition.node_id
        for broker_id in [member for member in self.followers if member not in state.replicas]:
            self.followers.pop(broker_id).forget()
        for broker_id in state.replicas:
            if broker_id != own and broker_id not in self.followers:
                follower = FollowerState(broker_id, self._surroundings.clock_of(broker_id))
                self.followers[broker_id] = follower
                follower.begin(now_ms, in_sync=broker_id in state.isr)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        """The committed ISR, and the members that an unanswered proposal adds: commits wait for all of them."""
        return self._partition.isr if self.proposal is None else self.proposal.maximal_isr

    # --- progress of replicas ---

    def left_behind(self) -> None:
        """Note that the leader is about to append."""
        self.any_at_end = False
        for follower in self.followers.values():
            if follower.at_end:
                follower.left_behind()

    def replicated_end(self) -> int:
        """The offset below which all relevant replicas have every record; -1 if unknown."""
        partition = self._partition
        if len(partition.isr) < partition.min_isr:
            return UNKNOWN
        leader_end, end = partition.log.end_offset, partition.settled_end()
        maximal = self.maximal_isr
        for follower in self.followers.values():
            if follower.end_offset < end and (
                follower.broker_id in maximal or self._is_about_to_join(follower, leader_end)
            ):
                end = follower.end_offset
        return end

    def _is_about_to_join(self, follower: FollowerState, leader_end: int) -> bool:
        around = self._surroundings
        return follower.is_caught_up(leader_end, around.now_ms(), around.lag_max_ms) and self._may_join(follower)

    def low_watermark(self) -> int:
        """The smallest log start of the live replicas; -1 until all have reported theirs."""
        low = self._partition.log.start_offset
        for follower in self.followers.values():
            if follower.start_offset < low and self._surroundings.is_alive(follower.broker_id):
                low = follower.start_offset
        return low

    # --- the ISR ---

    def _may_join(self, follower: FollowerState) -> bool:
        return self._surroundings.may_join_isr(follower.broker_id, follower.broker_epoch)

    def consider_joining(self, follower: FollowerState) -> None:
        """Propose a follower that has caught up."""
        partition = self._partition
        end = follower.end_offset
        if (
            self.proposal is None
            and follower.broker_id not in partition.isr
            and end >= partition.log.high_watermark
            and end >= partition.leader_start_offset
        ):
            if self._may_join(follower):
                self._propose([*partition.isr, follower.broker_id])
            else:
                self._surroundings.joins_later(partition, follower.broker_id)

    def consider_all(self) -> None:
        """Check every follower outside the ISR: brokers may have been unfenced."""
        for follower in self.followers.values():
            if follower.end_offset >= 0:
                self.consider_joining(follower)

    def drop_laggards(self) -> None:
        """Propose an ISR without the members that have lagged for too long."""
        partition, around = self._partition, self._surroundings
        if self.proposal is not None or len(partition.isr) == 1:
            return
        end, now_ms = partition.log.end_offset, around.now_ms()
        kept = [
            member
            for member in partition.isr
            if member == partition.node_id
            or (
                (follower := self.followers.get(member)) is not None
                and follower.is_caught_up(end, now_ms, around.lag_max_ms)
            )
        ]
        if len(kept) < len(partition.isr):
            self._propose(kept)

    def _propose(self, isr: list[int]) -> None:
        partition = self._partition
        members = [(member, self._epoch_of(member)) for member in isr]
        self.proposal = Proposal(members, partition.isr, partition.leader_epoch, partition.partition_epoch)
        self._surroundings.isr_proposed(partition)

    def _epoch_of(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        return UNKNOWN if follower is None else follower.broker_epoch

    def refused(self, proposal: Proposal, code: ErrorCode) -> bool:
        """Handle the controller's error for a proposal. Returns whether to propose again."""
        if self.proposal is not proposal:
            return False
        if code in _TAKEN_BACK:
            self.proposal = None
            return False
        return code not in _NEWS_UNDER_WAY
