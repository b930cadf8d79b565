"""The facts about other brokers that partitions need (`partition.surroundings`), from the committed image."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING

from kraft_node.partition.followers import FollowerClock

if TYPE_CHECKING:
    from kraft_node.base.env import Clock
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.partition.surroundings import ProposingPartition


class FollowerStates:
    """One broker's view of the other brokers."""

    def __init__(
        self, clock: Clock, image: MetadataImage, lag_max_ms: int, propose: Callable[[ProposingPartition], None]
    ) -> None:
        self.lag_max_ms = lag_max_ms
        self._clock = clock
        self._image = image
        self._propose = propose
        self._clocks: dict[int, FollowerClock] = {}
        self._joining: dict[int, dict[ProposingPartition, None]] = {}
        """By broker id: partitions with a follower there that is caught up, but may not join the ISR while its
        registration forbids it."""

    def now_ms(self) -> int:
        """Monotonic milliseconds, the time base of all follower clocks."""
        return self._clock.monotonic_ms()

    def clock_of(self, broker_id: int) -> FollowerClock:
        """The times of the fetches of that follower."""
        clock = self._clocks.get(broker_id)
        if clock is None:
            clock = self._clocks[broker_id] = FollowerClock()
        return clock

    def may_join_isr(self, broker_id: int, broker_epoch: int) -> bool:
        """Judge by the image, which may be behind: the controller checks again (KIP-841, KIP-903)."""
        broker = self._image.brokers.get(broker_id)
        return broker is not None and broker.active and broker_epoch in (-1, broker.epoch)

    def is_alive(self, broker_id: int) -> bool:
        """Judge by the registration in the image."""
        broker = self._image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def isr_proposed(self, partition: ProposingPartition) -> None:
        """Hand the partition over for the next AlterPartition request (`IsrChanges.propose`)."""
        self._propose(partition)

    def joins_later(self, partition: ProposingPartition, broker_id: int) -> None:
        """Remember the pair until `brokers_changed` names the broker."""
        self._joining.setdefault(broker_id, {})[partition] = None

    def brokers_changed(self, broker_ids: Iterable[int]) -> None:
        """The registrations of these brokers have changed: followers that wait to join an ISR may do so now."""
        for broker_id in broker_ids:
            for partition in self._joining.pop(broker_id, ()):
                partition.look_at_followers()
