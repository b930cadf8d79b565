"""The interface of a partition to its broker: time, the cluster, proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.partition.followers import FollowerClock

if TYPE_CHECKING:
    from kraft_protocol.ids import Uuid


RECOVERED: Final = 0
"""The recovery state in a leader's proposal (KIP-704): a leader has recovered."""


class Proposal:
    """An ISR that the leader proposes to the controller."""

    __slots__ = ("isr", "leader_epoch", "maximal_isr", "members", "partition_epoch")

    def __init__(
        self, members: list[tuple[int, int]], committed: tuple[int, ...], leader_epoch: int, partition_epoch: int
    ) -> None:
        self.members = members
        """(broker id, broker epoch) of each member; the sender fills in the leader's own epoch."""
        self.isr = tuple(broker_id for broker_id, _ in members)
        self.maximal_isr = (*committed, *(member for member in self.isr if member not in committed))
        self.leader_epoch = leader_epoch
        self.partition_epoch = partition_epoch


class ProposingPartition(Protocol):
    """A led partition, for the exchange of proposals with the controller."""

    topic_id: Uuid
    index: int

    @property
    def proposal(self) -> Proposal | None:
        """The unanswered proposal; None without one, or if this broker does not lead."""
        ...

    def isr_answered(self, proposal: Proposal, row: Any) -> bool:
        """Handle the controller's row of an AlterPartitionResponse for `proposal`. Returns whether to propose again."""

    def look_at_followers(self) -> None:
        """Check which followers leave or join the ISR."""


class Surroundings(Protocol):
    """The `replication` package of the broker implements it; `Alone` is the implementation without a cluster."""

    lag_max_ms: int
    """replica.lag.time.max.ms."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def clock_of(self, broker_id: int) -> FollowerClock:
        """The clock of a follower; always the same object."""

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker is alive in incarnation `broker_epoch` (-1: any), and not about to stop (KIP-841)."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""

    def joins_later(self, partition: ProposingPartition, broker_id: int) -> None:
        """A follower could join the ISR except for its broker's registration: check again when that changes."""

    def isr_proposed(self, partition: ProposingPartition) -> None:
        """The partition has a proposal for the controller; `isr_answered` must be called with the answer."""


class Alone:
    """No other brokers and no controller."""

    lag_max_ms = 30_000

    def now_ms(self) -> int:
        """Always 0: no follower can be late."""
        return 0

    def clock_of(self, broker_id: int) -> FollowerClock:  # noqa: ARG002
        """A new clock for each call: no fetch of a follower ever sets it."""
        return FollowerClock()

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:  # noqa: ARG002
        """Always False: the ISR never grows."""
        return False

    def is_alive(self, broker_id: int) -> bool:  # noqa: ARG002
        """Always True: the low watermark waits for every follower."""
        return True

    def joins_later(self, partition: ProposingPartition, broker_id: int) -> None:  # noqa: ARG002
        """Do nothing: registrations never change."""
        return

    def isr_proposed(self, partition: ProposingPartition) -> None:  # noqa: ARG002
        """Do nothing: no controller answers, so a proposal stays pending."""
        return
