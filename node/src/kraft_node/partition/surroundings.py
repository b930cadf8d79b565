"""The interface of a partition to its broker: time, the cluster, proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kraft_node.partition.followers import FollowerClock

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition


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

    def joins_later(self, partition: Partition, broker_id: int) -> None:
        """A follower could join the ISR except for its broker's registration: check again when that changes."""

    def isr_proposed(self, partition: Partition) -> None:
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

    def joins_later(self, partition: Partition, broker_id: int) -> None:  # noqa: ARG002
        """Do nothing: registrations never change."""
        return

    def isr_proposed(self, partition: Partition) -> None:  # noqa: ARG002
        """Do nothing: no controller answers, so a proposal stays pending."""
        return
