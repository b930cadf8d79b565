"""Topics and their partitions (KIP-516, KIP-631, KIP-858, KIP-966).

A snapshot interleaves both kinds: a topic, then its partitions. If bytes are requested, partitions are encoded in
blocks.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.metadata import features as levels
from kraft_node.metadata.kinds.kind import (
    TOPICS,
    VERSION_0,
    AnyKind,
    FrozenImage,
    NameFollower,
    PartitionFollower,
    RecordKind,
    Stale,
    VersionSteps,
)
from kraft_node.metadata.partitions import MetadataError, PartitionState
from kraft_node.metadata.records import encode_record
from kraft_protocol.ids import Uuid, uuid_text
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.bulk import RowWriter
    from kraft_node.metadata.store import MetadataStore
    from kraft_node.metadata.topics import TopicsView
    from kraft_protocol.wire.classes import Message

BLOCK_PARTITIONS: Final = 64
"""Partitions that are encoded at once."""

PARTITION_VERSIONS: Final[VersionSteps] = ((7, 0), (17, 1), (23, 2))


# Topics


def _create(store: MetadataStore, record: stored.TopicRecord) -> None:
    store.topics.create(record.topic_id, record.name)


def _create_name(names: NameFollower, record: stored.TopicRecord, _: TopicsView) -> None:
    names.add(record.name)


def _create_stale(record: stored.TopicRecord) -> Stale:
    return Stale(record.topic_id, record.name)


def _remove(store: MetadataStore, record: stored.RemoveTopicRecord) -> None:
    name = store.topics.remove(record.topic_id)
    store.configs.remove((TOPIC_RESOURCE, name))


def _remove_index(index: PartitionFollower, record: stored.RemoveTopicRecord, topics: TopicsView) -> None:
    index.topic_removed(record.topic_id, topics)


def _remove_name(names: NameFollower, record: stored.RemoveTopicRecord, topics: TopicsView) -> None:
    topic = topics.by_id(record.topic_id)
    if topic is not None:
        names.remove(topic.name)


def _of_topic(
    record: stored.RemoveTopicRecord | stored.PartitionRecord | stored.PartitionChangeRecord,
) -> Stale:
    return Stale(record.topic_id)


# Partitions


def _partition(store: MetadataStore, record: stored.PartitionRecord) -> None:
    store.topics.put_partition(record.topic_id, record.partition_id, PartitionState.of_record(record))


def _partition_index(index: PartitionFollower, record: stored.PartitionRecord, _: TopicsView) -> None:
    index.partition_created(record)


def _change(store: MetadataStore, record: stored.PartitionChangeRecord) -> None:
    before = store.topics.partition(record.topic_id, record.partition_id)
    if before is None:
        where = f"{uuid_text(record.topic_id)}-{record.partition_id}"
        raise MetadataError(f"changing a partition that does not exist: {where}")
    store.topics.put_partition(record.topic_id, record.partition_id, before.changed_by(record))


def _change_index(index: PartitionFollower, record: stored.PartitionChangeRecord, topics: TopicsView) -> None:
    index.partition_changed(record, topics)


def _clear_elr(store: MetadataStore, record: stored.ClearElrRecord) -> None:
    if record.topic_name:
        topic = store.topics.by_name(record.topic_name)
        if topic is None:
            raise MetadataError(f"clearing the eligible leaders of a topic that does not exist: {record.topic_name}")
        topics = [topic]
    else:
        topics = list(store.topics)
    for topic in topics:
        for number, state in list(topic.partitions()):
            if state.elr or state.last_known_elr:
                store.topics.put_partition(topic.id, number, state.without_elr())


def _clear_elr_index(index: PartitionFollower, record: stored.ClearElrRecord, topics: TopicsView) -> None:
    index.elr_cleared(record.topic_name, topics)


def _clear_elr_stale(record: stored.ClearElrRecord) -> Stale:
    """A record for one topic counts as a record for all, too: a cluster has few of either."""
    del record
    return Stale(None)


# Snapshots


def _snapshot(image: FrozenImage) -> Iterator[Message | bytes]:
    for index in range(len(image.topics.topics)):
        yield from _one_topic(image, index)


def _one_topic(image: FrozenImage, index: int) -> Iterator[Message | bytes]:
    topic = image.topics.topic(index)
    yield stored.TopicRecord(name=topic.name, topic_id=topic.id)
    if image.writer is not None:
        for first in range(0, len(topic), BLOCK_PARTITIONS):
            # The frozen state does not change, so a block may be encoded before it is needed.
            yield from _block(image, index, first, image.writer)
        return
    for number in range(len(topic)):
        # Look the topic up each time: it may have changed since the last slice, and then a copy was kept.
        state = image.topics.topic(index).partition(number)
        if state is not None:
            yield partition_record(topic.id, number, state, image.metadata_level)


def _block(image: FrozenImage, index: int, first: int, writer: RowWriter) -> list[bytes]:
    topic = image.topics.topic(index)
    level = image.metadata_level

    def unusual(number: int) -> bytes:
        state = topic.partition(number)
        assert state is not None, "law: an existing row can be read"
        return encode_record(partition_record(topic.id, number, state, level), PARTITION.version(level))

    return writer.values(topic, first, first + BLOCK_PARTITIONS, unusual)


def partition_record(topic_id: Uuid, number: int, state: PartitionState, level: int) -> stored.PartitionRecord:
    """The PartitionRecord for `state`, as far as a metadata.version level can express it."""
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


PARTITION: Final = RecordKind(
    name="PartitionRecord",
    versions=PARTITION_VERSIONS,
    mark=None,
    changes=(TOPICS,),
    replay=_partition,
    index=_partition_index,
    names=None,
    entries=None,
    stale=_of_topic,
    appended=None,
    snapshot=None,
)

KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="TopicRecord",
        versions=VERSION_0,
        mark=None,
        changes=(TOPICS,),
        replay=_create,
        index=None,
        names=_create_name,
        entries=None,
        stale=_create_stale,
        appended=None,
        snapshot=_snapshot,
    ),
    RecordKind(
        name="RemoveTopicRecord",
        versions=VERSION_0,
        mark=None,
        changes=(TOPICS, "configs"),
        replay=_remove,
        index=_remove_index,
        names=_remove_name,
        entries=None,
        stale=_of_topic,
        appended=None,
        snapshot=None,
    ),
    PARTITION,
    RecordKind(
        name="PartitionChangeRecord",
        versions=PARTITION_VERSIONS,
        mark=None,
        changes=(TOPICS,),
        replay=_change,
        index=_change_index,
        names=None,
        entries=None,
        stale=_of_topic,
        appended=None,
        snapshot=None,
    ),
    RecordKind(
        name="ClearElrRecord",
        versions=VERSION_0,
        mark=None,
        changes=(TOPICS,),
        replay=_clear_elr,
        index=_clear_elr_index,
        names=None,
        entries=None,
        stale=_clear_elr_stale,
        appended=None,
        snapshot=None,
    ),
)
