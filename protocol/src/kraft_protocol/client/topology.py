"""The content of Metadata responses, without I/O: the brokers, topics and leaders of partitions of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final

from kraft_protocol.client.errors import RETRIABLE, BrokerError
from kraft_protocol.client.requests import (
    BrokerListener,
    CoordinatorAnswer,
    Key,
    MetadataAnswer,
    PartitionInfo,
    TopicInfo,
)
from kraft_protocol.errors import ErrorCode

UNKNOWN_TOPIC: Final = int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
LEADER_NOT_AVAILABLE: Final = int(ErrorCode.LEADER_NOT_AVAILABLE)


class Topology:
    """The brokers of the last response, and each topic as it was last described."""

    __slots__ = ("brokers", "cluster_id", "topics")

    def __init__(self) -> None:
        self.cluster_id = ""
        self.brokers: dict[int, BrokerListener] = {}
        """By node id."""
        self.topics: dict[str, TopicInfo] = {}

    def learn_brokers(self, answer: MetadataAnswer) -> bool:
        """Take the brokers of a response. Returns False for a response without brokers, from a broker that starts."""
        if not answer.brokers:
            return False
        self.brokers = {broker.node: broker for broker in answer.brokers}
        self.cluster_id = answer.cluster_id
        return True

    def learn_topics(self, answer: MetadataAnswer, names: Collection[str] | None) -> dict[str, TopicInfo]:
        """Take the topics of a response to a request for `names` (None: all), and return them.

        Topics that are missing are forgotten. Raises BrokerError if a topic must not be read.
        """
        found = {}
        for topic in answer.topics:
            if topic.error and topic.error not in RETRIABLE:
                raise BrokerError(topic.error, f"topic {topic.name}")
            if topic.partitions and topic.error == 0:
                found[topic.name] = self.topics[topic.name] = topic
        for missing in set(self.topics if names is None else names) - set(found):
            self.topics.pop(missing, None)
        return found

    def broker(self, node: int) -> BrokerListener:
        """A broker by its id. Raises BrokerError, which is retriable, if it is unknown."""
        broker = self.brokers.get(node)
        if broker is None:
            raise BrokerError(LEADER_NOT_AVAILABLE, f"node {node}")
        return broker

    def addresses(self) -> list[tuple[str, int]]:
        """Hosts and ports of the brokers."""
        return [(broker.host, broker.port) for broker in self.brokers.values()]

    def coordinator(self, answer: CoordinatorAnswer, what: str) -> BrokerListener:
        """The coordinator of `what` that a FindCoordinator response names. Raises BrokerError."""
        if answer.error:
            raise BrokerError(answer.error, f"coordinator of {what}")
        return self.broker(answer.node)


def leader_of(topic: TopicInfo, partition: int) -> int:
    """The leader's node id. Raises BrokerError if the partition does not exist or has no leader."""
    info: PartitionInfo | None = topic.partitions.get(partition)
    if info is None:
        raise BrokerError(UNKNOWN_TOPIC, f"partition {topic.name}-{partition}")
    if info.leader < 0:
        raise BrokerError(info.error or LEADER_NOT_AVAILABLE, f"partition {topic.name}-{partition}")
    return info.leader


def epoch_of(topic: TopicInfo, partition: int) -> int:
    """The leader epoch, -1 if it is unknown."""
    info = topic.partitions.get(partition)
    return -1 if info is None else info.leader_epoch


def by_leader(leaders: Mapping[Key, int]) -> dict[int, list[Key]]:
    """The partitions of each leader, in their order."""
    grouped: dict[int, list[Key]] = {}
    for key, leader in leaders.items():
        grouped.setdefault(leader, []).append(key)
    return grouped
