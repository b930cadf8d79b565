"""The group coordinator's seams, implemented on the broker: logs through the replica manager, topics through the image.

Internal topics are written like any other (one batch per append, acks=all). Only their settings differ; they are set
when the topic is created.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.locate import OFFSETS_TOPIC
from kraft_node.broker.coordinators.group.seams import Endpoint, StoredRecord
from kraft_node.partition.manager import whole_batches
from kraft_node.partition.partition import READ_LOG_END
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.batch import build_batch

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
_REPLICATED: Final = frozenset((ErrorCode.NONE, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND))
"""The high watermark has passed the records. With other codes leadership is lost, and the shard gets a resignation."""


class ReplicaStore:
    """`GroupStore` on the replica manager; `compression` is offsets.topic.compression.codec."""

    __slots__ = ("_compression", "_replicas")

    def __init__(self, replicas: ReplicaManager, compression: int = COMPRESSION_NONE) -> None:
        self._replicas = replicas
        self._compression = compression

    def _leader(self, partition: int) -> Partition:
        return self._replicas.leader(OFFSETS_TOPIC, partition)

    def append(self, partition: int, leader_epoch: int, records: Sequence[StoredRecord], now_ms: int) -> int:
        leader = self._leader(partition)
        if leader.leader_epoch != leader_epoch:
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER,
                f"{OFFSETS_TOPIC}-{partition} is at leader epoch {leader.leader_epoch}, not {leader_epoch}",
            )
        batch = build_batch(records, timestamp=now_ms, compression=self._compression)
        return self._replicas.append_internal(OFFSETS_TOPIC, partition, batch)

    def start_offset(self, partition: int) -> int:
        return int(self._leader(partition).log.start_offset)

    def end_offset(self, partition: int) -> int:
        return int(self._leader(partition).log.end_offset)

    def high_watermark(self, partition: int) -> int:
        return int(self._leader(partition).log.high_watermark)

    def read(self, partition: int, offset: int, max_bytes: int) -> Buffer:
        found = self._leader(partition).read(offset, max_bytes, READ_LOG_END, min_one=True).records
        data = found if isinstance(found, bytes | bytearray | memoryview) else found.read()
        return whole_batches(bytes(data))[0]

    def when_committed(self, partition: int, offset: int, done: Callable[[], None]) -> None:
        leader = self._leader(partition)
        if leader.is_replicated(offset):
            done()
            return

        def settled(code: ErrorCode) -> None:
            if code in _REPLICATED:
                done()

        leader.when_replicated(offset, settled)


class ImageView:
    """`ClusterView` on the metadata image that the broker replays into."""

    __slots__ = ("_create", "_image")

    def __init__(self, image: MetadataImage, create: CreateTopic) -> None:
        self._image = image
        self._create = create

    def topic_id(self, name: str) -> Uuid | None:
        topic = self._image.topics.by_name(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: Uuid) -> str | None:
        topic = self._image.topics.by_id(topic_id)
        return None if topic is None else topic.name

    def has_partition(self, name: str, partition: int) -> bool:
        topic = self._image.topics.by_name(name)
        return topic is not None and 0 <= partition < len(topic)

    def partition_count(self, name: str) -> int | None:
        topic = self._image.topics.by_name(name)
        return None if topic is None else len(topic)

    def leader_endpoint(self, name: str, partition: int, listener: str) -> Endpoint | None:
        topic = self._image.topics.by_name(name)
        if topic is None or partition >= len(topic):
            return None
        broker = self._image.brokers.get(topic.leader(partition))
        if broker is None or not broker.active:
            return None
        endpoint = broker.endpoint(listener)
        return None if endpoint is None else Endpoint(broker.id, endpoint.host, endpoint.port)

    def create_internal_topic(self, name: str, context: RequestContext) -> None:
        self._create(name, context)
