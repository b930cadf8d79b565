"""Leading a partition that has followers: who is in sync, who may join, how far all of them are (KIP-497, KIP-966).

Made when a broker begins to lead a partition with other replicas; its partition asks it for the high watermark and
sends its proposals on. The rules, as Kafka's `Partition` has them:

1. While the controller has not answered, the larger of committed and proposed ISR counts (`maximal_isr`): records are
   acknowledged only when those are on all of them, whichever way the controller decides.
2. A follower joins when it has reached the high watermark and the start of the leader's epoch, and its broker lives in
   the incarnation that fetched (KIP-903). Before, while it lags by less than replica.lag.time.max.ms, the high
   watermark waits for it, so that it can catch up under load.
3. A member that has not had everything for replica.lag.time.max.ms is proposed to leave; until the controller agrees it
   is waited for.
4. Below min.insync.replicas the high watermark stands still (KIP-966).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.base.errors import ErrorCode
from kraft_node.partition.followers import UNKNOWN, Follower

if TYPE_CHECKING:
    from kraft_node.metadata.partitions import PartitionState
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.surroundings import Surroundings

RECOVERED: Final = 0
"""What a leader says of its recovery state (KIP-704): by leading it has recovered."""

_TAKEN_BACK: Final = frozenset((ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA))
"""The controller has not done it and will not: what was committed before counts again."""
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
"""The controller knows more than this broker: committed metadata will say what holds. Until then rule 1 goes on."""


class Proposal:
    """An ISR that the controller is asked for."""

    __slots__ = ("isr", "leader_epoch", "maximal_isr", "members", "partition_epoch")

    def __init__(self, members: list[tuple[int, int]], committed: tuple[int, ...], partition: Partition) -> None:
        self.members = members
        """(broker id, broker epoch) of each; the leader's own epoch is filled in by who sends."""
        self.isr = tuple(broker_id for broker_id, _ in members)
        self.maximal_isr = (*committed, *(member for member in self.isr if member not in committed))
        self.leader_epoch = partition.leader_epoch
        self.partition_epoch = partition.partition_epoch


class Leadership:
    """The followers of one led partition."""

    __slots__ = ("_partition", "_surroundings", "any_at_end", "followers", "proposal")

    def __init__(self, partition: Partition, surroundings: Surroundings) -> None:
        self._partition = partition
        self._surroundings = surroundings
        self.followers: dict[int, Follower] = {}
        self.proposal: Proposal | None = None
        self.any_at_end = False
        """Whether some follower must hear of the next append (`left_behind`)."""

    def begin_epoch(self, state: PartitionState) -> None:
        """A new leader epoch: everything is to be learnt anew."""
        self.end()
        self.assigned(state)
        self.any_at_end = False

    def end(self) -> None:
        """Lead no more, or in another epoch."""
        for follower in self.followers.values():
            follower.forget()
        self.followers.clear()

    def assigned(self, state: PartitionState) -> None:
        """Replicas or ISR as committed; what was proposed is decided by that, one way or the other."""
        self.proposal = None
        now_ms = self._surroundings.now_ms()
        own = self._partition.node_id
        for broker_id in [member for member in self.followers if member not in state.replicas]:
            self.followers.pop(broker_id).forget()
        for broker_id in state.replicas:
            if broker_id != own and broker_id not in self.followers:
                follower = Follower(broker_id, self._surroundings.clock_of(broker_id))
                self.followers[broker_id] = follower
                follower.begin(now_ms, in_sync=broker_id in state.isr)

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        return self._partition.isr if self.proposal is None else self.proposal.maximal_isr

    # --- how far everybody is ---

    def left_behind(self) -> None:
        """The leader is about to append."""
        self.any_at_end = False
        for follower in self.followers.values():
            if follower.at_end:
                follower.left_behind()

    def replicated_end(self) -> int:
        """The offset below which all that count have every record; -1 when that is not known."""
        partition = self._partition
        if len(partition.isr) < partition.min_isr:
            return UNKNOWN
        leader_end = end = partition.log.end_offset
        maximal = self.maximal_isr
        for follower in self.followers.values():
            if follower.end_offset < end and (
                follower.broker_id in maximal or self._is_about_to_join(follower, leader_end)
            ):
                end = follower.end_offset
        return end

    def _is_about_to_join(self, follower: Follower, leader_end: int) -> bool:
        around = self._surroundings
        return follower.is_caught_up(leader_end, around.now_ms(), around.lag_max_ms) and self._may_join(follower)

    def low_watermark(self) -> int:
        """The largest start of a log among the replicas that live; -1 while one of them has not said."""
        low = self._partition.log.start_offset
        for follower in self.followers.values():
            if follower.start_offset < low and self._surroundings.is_alive(follower.broker_id):
                low = follower.start_offset
        return low

    # --- who is in sync ---

    def _may_join(self, follower: Follower) -> bool:
        return self._surroundings.may_join_isr(follower.broker_id, follower.broker_epoch)

    def consider_joining(self, follower: Follower) -> None:
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
        """Brokers may have been unfenced: look at every follower that is not in sync."""
        for follower in self.followers.values():
            if follower.end_offset >= 0:
                self.consider_joining(follower)

    def drop_laggards(self) -> None:
        """Propose an ISR without those that have lagged for too long."""
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
        self.proposal = Proposal(members, partition.isr, partition)
        self._surroundings.isr_proposed(partition)

    def _epoch_of(self, broker_id: int) -> int:
        follower = self.followers.get(broker_id)
        return UNKNOWN if follower is None else follower.broker_epoch

    def refused(self, proposal: Proposal, code: ErrorCode) -> bool:
        """The controller's error for a proposal; whether to ask again."""
        if self.proposal is not proposal:
            return False
        if code in _TAKEN_BACK:
            self.proposal = None
            return False
        return code not in _NEWS_UNDER_WAY
