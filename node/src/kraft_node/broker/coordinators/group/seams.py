"""The interface of the group coordinator to its broker: the log of a partition and the topics of the cluster.

`coordinators.store` implements both on the replica manager and the metadata image; tests implement them in memory.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeAlias

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.ids import Uuid

StoredRecord: TypeAlias = tuple[bytes, bytes | None]
"""Key and value of a record; value None is a tombstone."""


class GroupStore(Protocol):
    """The logs of the partitions of `__consumer_offsets` that this broker leads."""

    def append(self, partition: int, leader_epoch: int, records: Sequence[StoredRecord], now_ms: int) -> int:
        """Append `records` as one batch, all or nothing. Returns the offset of the first one.

        Raises KafkaError: NOT_LEADER_OR_FOLLOWER, NOT_ENOUGH_REPLICAS, MESSAGE_TOO_LARGE, KAFKA_STORAGE_ERROR.
        """

    def start_offset(self, partition: int) -> int:
        """The start offset of the log. Raises KafkaError NOT_LEADER_OR_FOLLOWER if this broker does not lead it."""

    def end_offset(self, partition: int) -> int:
        """The offset of the next record. Raises KafkaError NOT_LEADER_OR_FOLLOWER if this broker does not lead it."""

    def high_watermark(self, partition: int) -> int:
        """Everything below it is committed.

        Raises KafkaError NOT_LEADER_OR_FOLLOWER if this broker does not lead it.
        """

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Whole batches from the one that holds `offset`, at least one; empty at the end. Raises KafkaError."""

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        """Call `done` once when everything below `offset` is committed; never if leadership is lost before."""


class Endpoint(NamedTuple):
    """The address of a broker for clients."""

    node_id: int
    host: str
    port: int


class ClusterView(Protocol):
    """The topics and brokers of the metadata image; every call costs O(1)."""

    def topic_id(self, name: str) -> Uuid | None: ...

    def topic_name(self, topic_id: Uuid) -> str | None: ...

    def has_partition(self, name: str, partition: int) -> bool: ...

    def partition_count(self, name: str) -> int | None:
        """The number of partitions; None if the topic does not exist."""

    def leader_endpoint(self, name: str, partition: int, listener: str) -> Endpoint | None:
        """The partition's leader on the listener; None while it has no live leader."""

    def create_internal_topic(self, name: str, context: RequestContext) -> None:
        """Start creating the topic; returns at once. Errors are logged, and repeated calls are harmless."""
