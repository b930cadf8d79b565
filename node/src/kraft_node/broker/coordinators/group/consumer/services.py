"""What all consumer groups of a broker share: the topics with their hashes, settings, and work in turns."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol

from kraft_node.broker.coordinators.group.consumer.rules import Rules
from kraft_node.broker.coordinators.group.consumer.topic_hashes import topic_hash

if TYPE_CHECKING:
    from kraft_node.base.env import Background
    from kraft_node.base.turns import Turns
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_protocol.ids import Uuid


class GroupTimes(NamedTuple):
    """The times of one group, in milliseconds: its own configuration, or the broker's."""

    session_timeout_ms: int
    heartbeat_interval_ms: int
    assignment_interval_ms: int
    least_heartbeat_interval_ms: int = 0
    """group.consumer.min.heartbeat.interval.ms, if it is set: a limit of the interval while a group changes."""


class TopicSource(Protocol):
    """The part of `group.seams.ClusterView` that is used here."""

    def topic_id(self, name: str) -> Uuid | None:
        """The id of a topic; None if it does not exist."""

    def topic_name(self, topic_id: Uuid) -> str | None:
        """The name of a topic; None if no topic has the id."""

    def partition_count(self, name: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""

    def partition_racks(self, name: str) -> Iterable[Sequence[str]]:
        """The racks of the replicas of each partition."""

    def topic_names(self) -> list[str]:
        """The names of all topics."""

    def metadata_offset(self) -> int:
        """The offset of the last record in the metadata image."""


class HashedTopics:
    """The topics, each with the hash of its partitions, which is computed once."""

    __slots__ = ("_hashes", "_source", "created_at", "partition_count", "partition_racks", "topic_id", "topic_name")

    def __init__(self, source: TopicSource) -> None:
        self._source = source
        self._hashes: dict[str, int] = {}
        self.topic_id = source.topic_id
        self.topic_name = source.topic_name
        self.partition_count = source.partition_count
        self.partition_racks = source.partition_racks
        self.created_at: int | None = None
        """The offset of the metadata at which a topic was made the last time; None: unknown since the start."""

    def topic_hash(self, name: str) -> int | None:
        """The hash of a topic's id, name and racks, computed once; None if the topic does not exist."""
        hashed = self._hashes.get(name)
        if hashed is None:
            topic_id = self.topic_id(name)
            if topic_id is None:
                return None
            hashed = self._hashes[name] = topic_hash(topic_id, name, self.partition_racks(name))
        return hashed

    def names(self) -> list[str]:
        """The names of all topics, as of now."""
        return self._source.topic_names()

    def offset(self) -> int:
        """The offset of the metadata that has been applied."""
        return self._source.metadata_offset()

    def changed(self, names: Iterable[str], *, created: bool) -> None:
        """Topics were made, deleted or altered."""
        for name in names:
            self._hashes.pop(name, None)
        if created:
            self.created_at = self.offset()

    def reset(self) -> None:
        """Everything may have changed."""
        self._hashes.clear()
        self.created_at = None


class ConsumerServices:
    """One per broker. `times(group_id)` must be cheap: every heartbeat calls it."""

    __slots__ = ("assignor_failures", "background", "config", "late_runs", "rebalances", "times", "topics", "turns")

    def __init__(
        self,
        config: GroupConfig,
        topics: TopicSource,
        times: Callable[[str], GroupTimes],
        turns: Turns,
        background: Background,
    ) -> None:
        self.config = config
        self.topics = HashedTopics(topics)
        self.times = times
        self.turns = turns
        self.background = background
        self.rebalances = 0
        """How often members have moved a group to its next epoch."""
        self.assignor_failures = 0
        """Runs of own assignors that failed, took too long, or gave an invalid result."""
        self.late_runs = 0
        """Runs that have taken too long and have not returned yet."""

    def rules(self, group_id: str) -> Rules:
        """The settings and topics for an operation on the group."""
        times = self.times(group_id)
        return Rules(
            self.topics,
            self.config.consumer_assignors,
            self.config.own_assignors,
            self.config.consumer_max_size,
            times.session_timeout_ms,
            times.heartbeat_interval_ms,
            times.assignment_interval_ms,
            times.least_heartbeat_interval_ms,
        )
