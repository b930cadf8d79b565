"""Metadata for clients, from the image: endpoints, live brokers, leaders (Kafka's MetadataCache).

Read-only. The cost is per query, and proportional to the cluster only for queries about the whole cluster.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.partition.table import TopicKey
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from collections.abc import Iterator

    from kraft_node.metadata.brokers import BrokerRegistration, Endpoint
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.metadata.partitions import PartitionState, TopicView

CONSUMER_OFFSETS: Final = "__consumer_offsets"
TRANSACTION_STATE: Final = "__transaction_state"
SHARE_GROUP_STATE: Final = "__share_group_state"
INTERNAL_TOPICS: Final = frozenset((CONSUMER_OFFSETS, TRANSACTION_STATE, SHARE_GROUP_STATE))

TOPIC_NAME_LENGTH_MAX: Final = 249
_TOPIC_NAME_CHARACTERS: Final = frozenset("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-")

NO_CONFIGS: Final[dict[str, str]] = {}


def topic_name_error(name: str) -> str | None:
    """Why `name` is not a valid topic name; None if it is (org.apache.kafka.common.internals.Topic)."""
    if not name:
        return "the empty string is not allowed"
    if name in (".", ".."):
        return f"'{name}' is not allowed"
    if len(name) > TOPIC_NAME_LENGTH_MAX:
        return f"the length of '{name}' is longer than the max allowed length {TOPIC_NAME_LENGTH_MAX}"
    if not _TOPIC_NAME_CHARACTERS.issuperset(name):
        return f"'{name}' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'"
    return None


def is_internal(name: str) -> bool:
    """Whether clients may read but not write the topic."""
    return name in INTERNAL_TOPICS


class MetadataCache:
    """Queries to the image from the point of view of a listener."""

    __slots__ = ("image",)

    def __init__(self, image: MetadataImage) -> None:
        self.image = image

    def live_brokers(self) -> Iterator[BrokerRegistration]:
        """The unfenced brokers."""
        return (broker for broker in self.image.brokers.values() if not broker.fenced)

    def is_live(self, broker_id: int) -> bool:
        """Whether the broker is registered and not fenced; True also in a controlled shutdown."""
        broker = self.image.brokers.get(broker_id)
        return broker is not None and not broker.fenced

    def endpoint(self, broker_id: int, listener: str) -> Endpoint | None:
        """The address of a live broker for clients of `listener`."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None or broker.fenced else broker.endpoint(listener)

    def rack(self, broker_id: int) -> str | None:
        """The broker's rack, also while it is fenced; None if the broker is not registered or has no rack."""
        broker = self.image.brokers.get(broker_id)
        return None if broker is None else broker.rack

    def any_live_broker(self, preferred: int) -> int:
        """The broker that clients see as the controller: any live broker, `preferred` if live; -1 without a live
        broker."""
        if self.is_live(preferred):
            return preferred
        return next((broker.id for broker in self.live_brokers()), -1)

    def topic(self, key: TopicKey) -> TopicView | None:
        """The topic with a name (str) or an id (bytes); None if it does not exist."""
        topics = self.image.topics
        return topics.by_name(key) if isinstance(key, str) else topics.by_id(Uuid(key))

    def partition(self, key: TopicKey, index: int) -> PartitionState | None:
        """The state of a partition; None if the topic or the partition does not exist."""
        topic = self.topic(key)
        return None if topic is None else topic.partition(index)

    def offline_replicas(self, state: PartitionState, listener: str) -> list[int]:
        """Replicas on brokers that are fenced, removed, unreachable by `listener`, or without that directory."""
        offline = []
        for replica, directory in zip(state.replicas, state.directories, strict=True):
            broker = self.image.brokers.get(replica)
            if (
                broker is None
                or broker.fenced
                or listener not in broker.endpoints
                or not broker.has_online_directory(directory)
            ):
                offline.append(replica)
        return offline

    def configs(self, resource_type: int, name: str) -> dict[str, str]:
        """A copy of the dynamic configuration of a resource; may be empty."""
        return dict(self.image.configs.get((resource_type, name)) or NO_CONFIGS)
