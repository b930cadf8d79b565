"""What a partition asks of the broker it lives in, so that it can be led with others: time, the cluster, proposals."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from kraft_node.partition.followers import FollowerClock

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition


class Surroundings(Protocol):
    """Implemented by the broker's `replication` package; `Alone` is what a replica without a cluster sees."""

    lag_max_ms: int
    """replica.lag.time.max.ms."""

    def now_ms(self) -> int:
        """Monotonic milliseconds."""

    def clock_of(self, broker_id: int) -> FollowerClock:
        """The clock of a follower, the same object each time."""

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        """Whether the broker lives, in the incarnation `broker_epoch` (-1: any), and is not about to stop (KIP-841)."""

    def is_alive(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced."""

    def joins_later(self, partition: Partition, broker_id: int) -> None:
        """A follower could join the ISR but for what is registered of its broker: look again when that changes."""

    def isr_proposed(self, partition: Partition) -> None:
        """The partition has a proposal for the controller; it will be told by `isr_answered`."""


class Alone:
    """No other broker, no controller."""

    lag_max_ms = 30_000

    def now_ms(self) -> int:
        return 0

    def clock_of(self, broker_id: int) -> FollowerClock:  # noqa: ARG002
        return FollowerClock()

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:  # noqa: ARG002
        return False

    def is_alive(self, broker_id: int) -> bool:  # noqa: ARG002
        return True

    def joins_later(self, partition: Partition, broker_id: int) -> None:  # noqa: ARG002
        return

    def isr_proposed(self, partition: Partition) -> None:  # noqa: ARG002
        return
