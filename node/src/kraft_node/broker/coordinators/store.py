"""The coordinators' seams, implemented on the broker: logs through the replica manager, topics through the image.

Internal topics are written like any other (one batch per append, acks=all). Only their settings differ; they are set
when the topic is created.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.seams import ClientEndpoint
from kraft_node.broker.coordinators.runtime.machine import (
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    StoredRecord,
    TransactionalProducer,
)
from kraft_node.broker.coordinators.transaction.seams import NO_LEADER, NO_PARTITION
from kraft_node.log.producers.verification import VERIFIED
from kraft_node.partition.acks import ACKS_ALL
from kraft_node.partition.isolation import READ_LOG_END
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import NO_SEQUENCE, build_batch, whole_batches
from kraft_protocol.records.control import build_marker
from kraft_protocol.records.pairs import pair_batch

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition
    from kraft_protocol.buffers import Buffer
    from kraft_protocol.ids import Uuid

CreateTopic = Callable[[str, "RequestContext"], None]
"""Has the controller create an internal topic with Kafka's settings; returns at once."""

COMPRESSION_NONE: Final = 0
FIRST_SEQUENCE: Final = 0
"""The sequence number of every transactional batch of a coordinator, as in Apache Kafka."""
_REPLICATED: Final = frozenset((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
"""The high watermark has passed the records. With other codes, except KAFKA_STORAGE_ERROR, leadership is lost, and the
shard gets a resignation."""


class ReplicaStore:
    """`PartitionLogs` of an internal topic on the replica manager; `compression` is its batches' codec."""

    __slots__ = ("_compression", "_replicas", "_topic")

    def __init__(self, replicas: ReplicaManager, topic: str, compression: int = COMPRESSION_NONE) -> None:
        self._replicas = replicas
        self._topic = topic
        self._compression = compression

    def _leader(self, partition: int) -> Partition:
        return self._replicas.leader(self._topic, partition)

    def _leader_in(self, partition: int, leader_epoch: int) -> Partition:
        """The partition that this broker leads. Raises KafkaError if its leader epoch is another."""
        leader = self._replicas.leader(self._topic, partition)
        if leader.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{self._topic}-{partition} is at leader epoch {leader.leader_epoch}, not {leader_epoch}",
            )
        return leader

    def room(self, partition: int, leader_epoch: int) -> int:
        """The smaller of max.message.bytes and segment.bytes. Raises KafkaError, like `append`."""
        leader = self._leader_in(partition, leader_epoch)
        if len(leader.isr) < leader.min_isr:
            raise KafkaError(
                ErrorCode.NOT_ENOUGH_REPLICAS,
                f"{self._topic}-{partition} has {len(leader.isr)} in-sync replicas, needs {leader.min_isr}",
            )
        config = leader.log.config
        return int(min(config.max_message_bytes, config.segment_size))

    def append(
        self,
        partition: int,
        leader_epoch: int,
        records: Sequence[StoredRecord],
        now_ms: int,
        producer: TransactionalProducer | None = None,
    ) -> int:
        """Build one batch and append it as the leader; `when_committed` reports its replication."""
        leader = self._leader_in(partition, leader_epoch)
        if producer is None and not self._compression:
            batch = pair_batch(records, now_ms)
        else:
            batch = build_batch(
                records,
                timestamp=now_ms,
                compression=self._compression,
                producer_id=NO_PRODUCER_ID if producer is None else producer.producer_id,
                producer_epoch=NO_PRODUCER_EPOCH if producer is None else producer.epoch,
                base_sequence=NO_SEQUENCE if producer is None else FIRST_SEQUENCE,
                transactional=producer is not None,
            )
        guard = VERIFIED if producer is None else producer.guard
        return leader.append(batch, ACKS_ALL, now_ms, internal=True, guard=guard).base_offset

    def append_marker(
        self,
        partition: int,
        leader_epoch: int,
        producer: TransactionalProducer,
        now_ms: int,
        *,
        commit: bool,
        coordinator_epoch: int,
    ) -> int:
        """Append a control batch with one marker; `when_committed` reports its replication."""
        leader = self._leader_in(partition, leader_epoch)
        marker = build_marker(
            commit=commit,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            coordinator_epoch=coordinator_epoch,
            timestamp=now_ms,
        )
        return leader.append(marker, ACKS_ALL, now_ms, internal=True).base_offset

    def start_offset(self, partition: int) -> int:
        """The log start offset, from memory."""
        return int(self._leader(partition).log.start_offset)

    def end_offset(self, partition: int) -> int:
        """The log end offset, from memory; records below it may not be committed yet."""
        return int(self._leader(partition).log.end_offset)

    def high_watermark(self, partition: int) -> int:
        """The leader's high watermark, from memory; it never passes the end."""
        return int(self._leader(partition).log.high_watermark)

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        """Read up to the end of the log, also beyond the high watermark. May wait for the disk."""
        found = self._leader(partition).read(offset, max_bytes, READ_LOG_END, min_one=True).records
        data = found if isinstance(found, bytes | bytearray | memoryview) else found.read()
        return whole_batches(data, with_junk=True)

    def when_committed(self, partition: int, offset: int, done: Callable[[], None], closed: Callable[[], None]) -> None:
        """Wait as acks=all; `done` is called before this returns if the offset is committed."""
        leader = self._leader(partition)
        if leader.is_replicated(offset):
            done()
            return

        def settled(code: ErrorCode) -> None:
            if code in _REPLICATED:
                done()
            elif code == ErrorCode.KAFKA_STORAGE_ERROR:
                closed()

        leader.when_replicated(offset, settled)


class ImageView:
    """`ClusterView` of the coordinators on the metadata image that the broker replays into."""

    __slots__ = ("_create", "_image")

    def __init__(self, image: MetadataImage, create: CreateTopic) -> None:
        self._image = image
        self._create = create

    def topic_id(self, name: str) -> Uuid | None:
        """From the image's index of names; None if the topic does not exist."""
        topic = self._image.topics.by_name(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        """From the image's index of ids; None if no topic has the id."""
        topic = self._image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def has_partition(self, name: str, partition: int) -> bool:
        """Whether the image has the partition; False for negative numbers."""
        topic = self._image.topics.by_name(name)
        return topic is not None and 0 <= partition < len(topic)

    def partition_count(self, name: str) -> int | None:
        """The topic's length in the image; None if the topic does not exist."""
        topic = self._image.topics.by_name(name)
        return None if topic is None else len(topic)

    def partition_racks(self, name: str) -> Iterator[list[str]]:
        """From the registrations of the brokers; empty if the topic does not exist."""
        brokers, topic = self._image.brokers, self._image.topics.by_name(name)
        for _, state in () if topic is None else topic.partitions():
            registrations = [brokers.get(broker_id) for broker_id in state.replicas]
            yield [broker.rack for broker in registrations if broker is not None and broker.rack]

    def topic_names(self) -> list[str]:
        """A new list; the cost is proportional to the number of topics."""
        return [topic.name for topic in self._image.topics]

    def metadata_offset(self) -> int:
        """The offset of the image; -1 before the first record."""
        return self._image.offset

    def leader_endpoint(self, name: str, partition: int, listener: str) -> ClientEndpoint | None:
        """The leader's address on a listener; None without a leader, or if the broker is not active or lacks the
        listener.
        """
        topic = self._image.topics.by_name(name)
        if topic is None or partition >= len(topic):
            return None
        broker = self._image.brokers.get(topic.leader(partition))
        if broker is None or not broker.active:
            return None
        endpoint = broker.endpoint(listener)
        return None if endpoint is None else ClientEndpoint(broker.id, endpoint.host, endpoint.port)

    def marker_leader(self, name: str, partition: int) -> int:
        """NO_LEADER also if the leader is fenced or shutting down; NO_PARTITION if the image lacks it."""
        topic = self._image.topics.by_name(name)
        if topic is None or partition >= len(topic):
            return NO_PARTITION
        broker = self._image.brokers.get(topic.leader(partition))
        return NO_LEADER if broker is None or not broker.active else broker.id

    def create_internal_topic(self, name: str, context: RequestContext) -> None:
        """Have the controller create the topic for the request of `context`; returns at once."""
        self._create(name, context)
