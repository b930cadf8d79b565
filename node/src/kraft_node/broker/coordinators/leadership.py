"""Follows the leadership of an internal topic's partitions, for the coordinator that keeps its state in the topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.metadata.delta import MetadataDelta


class LedCoordinator(Protocol):
    """A coordinator that loads and drops the partitions of its topic."""

    def on_leader(self, partition: int, epoch: int) -> None:
        """This broker leads the partition since `epoch`."""

    def on_resign(self, partition: int) -> None:
        """This broker does not lead the partition, or no longer; allowed if it never did."""

    def shutdown(self) -> None:
        """Drop all partitions."""


class TopicLeadership:
    """Reports to `coordinator` the partitions of `topic` that this broker leads, from the committed metadata."""

    __slots__ = ("_coordinator", "_metadata", "_node_id", "_topic")

    def __init__(self, topic: str, node_id: int, metadata: MetadataCache, coordinator: LedCoordinator) -> None:
        self._topic = topic
        self._node_id = node_id
        self._metadata = metadata
        self._coordinator = coordinator

    def apply(self, delta: MetadataDelta) -> None:
        """Follow a run of committed records that the image contains already."""
        if delta.is_snapshot:
            self.reload()
            return
        for change in delta.topics.values():
            if change.name != self._topic:
                continue
            if change.deleted:  # a topic with that name by now is another topic
                for number in range(change.partition_count_before):
                    self._coordinator.on_resign(number)
            else:
                for number in change.partitions:
                    self._follow(number)

    def reload(self) -> None:
        """Load everything again: a snapshot does not show whether the topic is still the same."""
        self._coordinator.shutdown()
        topic = self._metadata.image.topics.by_name(self._topic)
        for number in range(0 if topic is None else len(topic)):
            self._follow(number)

    def _follow(self, number: int) -> None:
        state = self._metadata.partition(self._topic, number)
        if state is not None and state.leader == self._node_id:
            self._coordinator.on_leader(number, state.leader_epoch)
        else:
            self._coordinator.on_resign(number)
