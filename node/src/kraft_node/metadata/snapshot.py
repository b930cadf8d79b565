"""An image as records again, in the order of Apache Kafka's snapshots, in slices (KIP-630, design decision 5).

`SnapshotCursor` is consistent as of its making, however the image changes between slices: what has not been visited yet
is copied when it changes (a topic's rows; other cells are immutable anyway). Its memory is in proportion to the
changes meanwhile plus one pointer a topic. It must be closed, at the end or before; it is its own context manager.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import islice
from typing import Any, Final

from kraft_node.base.ids import Uuid
from kraft_node.metadata import features as levels
from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.bulk import RowWriter
from kraft_node.metadata.features import METADATA_VERSION, record_version
from kraft_node.metadata.image import SECTION_NAMES, MetadataImage
from kraft_node.metadata.partitions import PartitionState
from kraft_node.metadata.records import encode_record
from kraft_node.wire import stored

SLICE_RECORDS: Final = 1000
"""Records a slice, where nobody says otherwise."""

BLOCK_PARTITIONS: Final = 64
"""Partitions encoded at a time."""

_PARTITION: Final = "PartitionRecord"


class SnapshotCursor:
    """The records of one image at one moment. `offset` and `epoch` name the last record that it contains."""

    __slots__ = (
        "_frozen",
        "_image",
        "_iterator",
        "_topics",
        "_values",
        "_writer",
        "epoch",
        "metadata_level",
        "offset",
        "timestamp_ms",
    )

    def __init__(self, image: MetadataImage) -> None:
        self._image: MetadataImage | None = image
        self.offset = image.offset
        self.epoch = image.epoch
        self.timestamp_ms = image.timestamp_ms
        self.metadata_level = image.metadata_level
        self._frozen: dict[str, Any] = {name: getattr(image, name).freeze() for name in SECTION_NAMES}
        self._topics = image.topics.freeze()
        self._iterator = self._records()
        self._values: Iterator[bytes] | None = None
        self._writer: RowWriter | None = None

    def __enter__(self) -> SnapshotCursor:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def next_slice(self, count: int = SLICE_RECORDS) -> list[Any]:
        """The next records, at most `count`; empty at the end."""
        records = []
        for record in self._iterator:
            records.append(record)
            if len(records) >= count:
                break
        return records

    def next_values(self, count: int = SLICE_RECORDS) -> list[bytes]:
        """The next records encoded at the image's metadata.version; empty at the end. Instead of `next_slice`."""
        if self._values is None:
            self._writer = RowWriter(self.metadata_level)
            self._values = self._encoded()
        return list(islice(self._values, count))

    def __iter__(self) -> Iterator[Any]:
        return self._iterator

    def close(self) -> None:
        """Let the image go on without keeping anything for this cursor. Harmless when done already."""
        image, self._image = self._image, None
        if image is None:
            return
        for name, frozen in self._frozen.items():
            getattr(image, name).thaw(frozen)
        image.topics.thaw(self._topics)

    def _section(self, name: str) -> Iterator[tuple[Any, Any]]:
        frozen = self._frozen[name]
        for key in frozen.keys:
            yield key, frozen.value(key)

    def _encoded(self) -> Iterator[bytes]:
        for record in self._iterator:
            if isinstance(record, bytes):
                yield record
            else:
                yield encode_record(record, record_version(type(record).__name__, self.metadata_level))

    def _records(self) -> Iterator[Any]:
        """Records; partitions as bytes when there is a writer for them."""
        yield from self._features()
        for _, broker in self._section("brokers"):
            yield _broker_record(broker, self.metadata_level)
        if self.metadata_level >= levels.CONTROLLER_REGISTRATION_SUPPORTED:
            for _, controller in self._section("controllers"):
                yield _controller_record(controller)
        for index in range(len(self._topics.topics)):
            yield from self._topic(index)
        yield from self._configs()
        yield from self._quotas()
        for name in ("producer_ids", "acls", "scram", "tokens"):
            for _, record in self._section(name):
                yield record
        yield from self._zk_migration()

    def _topic(self, index: int) -> Iterator[Any]:
        topic = self._topics.topic(index)
        yield stored.TopicRecord(name=topic.name, topic_id=topic.id)
        if self._writer is not None:
            for first in range(0, len(topic), BLOCK_PARTITIONS):
                # What was true when frozen stays true: a block may be encoded before it is asked for.
                yield from self._block(index, first, self._writer)
            return
        for number in range(len(topic)):
            # Asked anew each time: the topic may have changed, and a copy been kept, since the last slice.
            state = self._topics.topic(index).partition(number)
            if state is not None:
                yield partition_record(topic.id, number, state, self.metadata_level)

    def _block(self, index: int, first: int, writer: RowWriter) -> list[bytes]:
        topic = self._topics.topic(index)
        level = self.metadata_level

        def unusual(number: int) -> bytes:
            state = topic.partition(number)
            assert state is not None, "law: a row that is there can be read"
            return encode_record(partition_record(topic.id, number, state, level), record_version(_PARTITION, level))

        return writer.values(topic, first, first + BLOCK_PARTITIONS, unusual)

    def _features(self) -> Iterator[Any]:
        finalized = dict(self._section("features"))
        if METADATA_VERSION in finalized:
            yield stored.FeatureLevelRecord(name=METADATA_VERSION, feature_level=finalized.pop(METADATA_VERSION))
        for name, level in sorted(finalized.items()):
            yield stored.FeatureLevelRecord(name=name, feature_level=level)

    def _zk_migration(self) -> Iterator[Any]:
        for _, state in self._section("zk_migration"):
            if state:
                yield stored.ZkMigrationStateRecord(zk_migration_state=state)

    def _configs(self) -> Iterator[Any]:
        for (kind, resource), values in self._section("configs"):
            for name, value in values.items():
                yield stored.ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value)

    def _quotas(self) -> Iterator[Any]:
        for entity, values in self._section("quotas"):
            for key, value in values.items():
                data = [
                    stored.ClientQuotaRecord.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ]
                yield stored.ClientQuotaRecord(entity=data, key=key, value=value, remove=False)


def partition_record(topic_id: Uuid, number: int, state: PartitionState, level: int) -> Any:
    """The PartitionRecord that says `state`, as far as a metadata.version level can say it."""
    record = stored.PartitionRecord(
        partition_id=number,
        topic_id=topic_id,
        replicas=list(state.replicas),
        isr=list(state.isr),
        removing_replicas=list(state.removing),
        adding_replicas=list(state.adding),
        leader=state.leader,
        leader_recovery_state=state.leader_recovering,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
    )
    if level >= levels.DIRECTORY_ASSIGNMENT_SUPPORTED:
        record.directories = list(state.directories)
    if level >= levels.ELR_SUPPORTED:
        record.eligible_leader_replicas = list(state.elr) or None
        record.last_known_elr = list(state.last_known_elr) or None
    return record


def _broker_record(broker: BrokerRegistration, level: int) -> Any:
    record = stored.RegisterBrokerRecord(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[stored.RegisterBrokerRecord.BrokerEndpoint(*endpoint) for endpoint in broker.endpoints.values()],
        features=[stored.RegisterBrokerRecord.BrokerFeature(*triple) for triple in _flat(broker.features)],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if broker.is_migrating_zk_broker and level >= levels.MIGRATION_SUPPORTED:
        record.is_migrating_zk_broker = True
    if level >= levels.DIRECTORY_ASSIGNMENT_SUPPORTED:
        record.log_dirs = list(broker.directories)
    if level >= levels.CORDONED_LOG_DIRS_SUPPORTED and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record


def _controller_record(controller: ControllerRegistration) -> Any:
    features = [stored.RegisterControllerRecord.ControllerFeature(*triple) for triple in _flat(controller.features)]
    return stored.RegisterControllerRecord(
        controller_id=controller.id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=[stored.RegisterControllerRecord.ControllerEndpoint(*end) for end in controller.endpoints.values()],
        features=features,
    )


def _flat(features: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    return ((name, low, high) for name, (low, high) in features.items())
