"""The partitions of a broker by topic and number; a topic is found by its name and by its id.

The partitions of a topic are in one dict by number, which its name and its id share. Separate keys for each partition
would use more memory than most partitions.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kraft_node.partition.partition import Partition

TopicKey: TypeAlias = str | bytes
"""A topic's name or its id."""
PartitionKey: TypeAlias = tuple[TopicKey, int]


class PartitionTable:
    """All partitions that were made."""

    __slots__ = ("_count", "_topics")

    def __init__(self) -> None:
        self._topics: dict[TopicKey, dict[int, Partition]] = {}
        self._count = 0

    def __len__(self) -> int:
        return self._count

    def __iter__(self) -> Iterator[Partition]:
        for key, of_topic in self._topics.items():
            if isinstance(key, str):
                yield from of_topic.values()

    def get(self, topic: TopicKey, index: int) -> Partition | None:
        """The partition; None if it has not been made."""
        of_topic = self._topics.get(topic)
        return None if of_topic is None else of_topic.get(index)

    def add(self, partition: Partition) -> None:
        """Add a partition that is not there yet."""
        of_topic = self._topics.get(partition.topic_id)
        if of_topic is None:
            of_topic = self._topics[partition.topic_id] = self._topics[partition.topic] = {}
        of_topic[partition.index] = partition
        self._count += 1

    def remove(self, topic: TopicKey, index: int) -> Partition | None:
        """Remove and return a partition; None if it is not there."""
        of_topic = self._topics.get(topic)
        partition = None if of_topic is None else of_topic.pop(index, None)
        if partition is not None:
            self._count -= 1
            if not of_topic:
                del self._topics[partition.topic_id]
                if self._topics.get(partition.topic) is of_topic:
                    del self._topics[partition.topic]
        return partition
