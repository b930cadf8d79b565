"""The requests and responses that are used, each in one version; facts from Apache Kafka's message definitions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from kraft_pipeline.client.buffers import Reader, Writer
from kraft_pipeline.codec.batches import Aborted

PRODUCE: Final = 0
FETCH: Final = 1
LIST_OFFSETS: Final = 2
METADATA: Final = 3
OFFSET_COMMIT: Final = 8
FIND_COORDINATOR: Final = 10
API_VERSIONS: Final = 18
INIT_PRODUCER_ID: Final = 22
OFFSET_FOR_LEADER_EPOCH: Final = 23
DESCRIBE_CONFIGS: Final = 32
VERSIONS: Final = {
    PRODUCE: 9,
    FETCH: 13,
    LIST_OFFSETS: 7,
    METADATA: 12,
    OFFSET_COMMIT: 8,
    FIND_COORDINATOR: 4,
    API_VERSIONS: 3,
    INIT_PRODUCER_ID: 4,
    OFFSET_FOR_LEADER_EPOCH: 4,
    DESCRIBE_CONFIGS: 4,
}
API_NAMES: Final = {
    PRODUCE: "Produce",
    FETCH: "Fetch",
    LIST_OFFSETS: "ListOffsets",
    METADATA: "Metadata",
    OFFSET_COMMIT: "OffsetCommit",
    FIND_COORDINATOR: "FindCoordinator",
    API_VERSIONS: "ApiVersions",
    INIT_PRODUCER_ID: "InitProducerId",
    OFFSET_FOR_LEADER_EPOCH: "OffsetForLeaderEpoch",
    DESCRIBE_CONFIGS: "DescribeConfigs",
}

EARLIEST: Final = -2
LATEST: Final = -1
NO_ID: Final = bytes(16)
THROTTLING_QUOTA_EXCEEDED: Final = 89
_TOPIC_RESOURCE: Final = 2
_CONSUMER: Final = -1
"""Replica id of a client that is no broker."""
SOFTWARE: Final = ("kraft-pipeline", "0.1.0")


class Broker(NamedTuple):
    """Where a broker listens."""

    node: int
    host: str
    port: int


class PartitionInfo(NamedTuple):
    """A partition as Metadata tells it; `leader` -1 for none."""

    error: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    """The nodes that are to have it."""


class TopicInfo(NamedTuple):
    """A topic as Metadata tells it."""

    error: int
    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class MetadataAnswer(NamedTuple):
    brokers: list[Broker]
    cluster_id: str
    topics: list[TopicInfo]


class OffsetAnswer(NamedTuple):
    """`offset` -1 when no record is as late as the time asked for; `epoch`: the leader's for LATEST, -1 if unknown."""

    error: int
    offset: int
    epoch: int = -1


class EpochEnd(NamedTuple):
    """Where the records of a leader epoch end in the leader's log, -1 if the leader does not know the epoch."""

    error: int
    offset: int


class FetchAnswer(NamedTuple):
    """Of one partition; `records` lies in the response, uncopied."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[Aborted]
    records: memoryview


class ProduceAnswer(NamedTuple):
    error: int
    base_offset: int
    message: str


class CoordinatorAnswer(NamedTuple):
    error: int
    node: int


def api_versions() -> Writer:
    return Writer().string(SOFTWARE[0]).string(SOFTWARE[1]).no_tags()


def read_api_versions(reader: Reader) -> tuple[int, dict[int, tuple[int, int]]]:
    """The error and the versions served of each request. The body may also be of version 0, if 3 is not known."""
    error = reader.i16()
    if error:
        return error, {}
    served = {}
    for _ in range(reader.length()):
        key, least, most = reader.i16(), reader.i16(), reader.i16()
        reader.tags()
        served[key] = (least, most)
    return error, served


def metadata(topics: Sequence[str] | None, *, create: bool = False) -> Writer:
    """Of the topics named, or of all; `create`: those that are not there are to be made, where brokers do that."""
    writer = Writer().length(-1 if topics is None else len(topics))
    for topic in topics or ():
        writer.uuid(NO_ID).string(topic).no_tags()
    return writer.i8(create).i8(0).no_tags()


def read_metadata(reader: Reader) -> MetadataAnswer:
    reader.i32()
    brokers = []
    for _ in range(reader.length()):
        brokers.append(Broker(reader.i32(), reader.string(), reader.i32()))
        reader.string()
        reader.tags()
    cluster_id = reader.string()
    reader.i32()
    topics = [_topic(reader) for _ in range(reader.length())]
    return MetadataAnswer(brokers, cluster_id, topics)


def _topic(reader: Reader) -> TopicInfo:
    error, name, topic_id, internal = reader.i16(), reader.string(), reader.uuid(), reader.i8()
    partitions = {}
    for _ in range(reader.length()):
        partition_error, index = reader.i16(), reader.i32()
        leader, epoch = reader.i32(), reader.i32()
        replicas = tuple(reader.i32() for _ in range(reader.length()))
        partitions[index] = PartitionInfo(partition_error, leader, epoch, replicas)
        for _ in range(2):
            reader.view(4 * reader.length())
        reader.tags()
    reader.i32()
    reader.tags()
    return TopicInfo(error, name, topic_id, bool(internal), partitions)


def list_offsets(wanted: Mapping[tuple[str, int], int], *, committed: bool) -> Writer:
    """The offsets of times in ms, or EARLIEST or LATEST, by topic and partition."""
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), when in wanted.items():
        by_topic.setdefault(topic, []).append((partition, when))
    writer = Writer().i32(-1).i8(int(committed)).length(len(by_topic))
    for topic, partitions in by_topic.items():
        writer.string(topic).length(len(partitions))
        for partition, when in partitions:
            writer.i32(partition).i32(-1).i64(when).no_tags()
        writer.no_tags()
    return writer.no_tags()


def read_list_offsets(reader: Reader) -> dict[tuple[str, int], OffsetAnswer]:
    reader.i32()
    found = {}
    for _ in range(reader.length()):
        topic = reader.string()
        for _ in range(reader.length()):
            partition, error = reader.i32(), reader.i16()
            reader.i64()
            found[topic, partition] = OffsetAnswer(error, reader.i64(), reader.i32())
            reader.tags()
        reader.tags()
    return found


def offset_for_leader_epoch(wanted: Mapping[tuple[str, int], tuple[int, int]]) -> Writer:
    """By topic and partition the epoch of the leader that is asked, and the epoch whose end is wanted."""
    by_topic: dict[str, list[tuple[int, int, int]]] = {}
    for (topic, partition), (current, epoch) in wanted.items():
        by_topic.setdefault(topic, []).append((partition, current, epoch))
    writer = Writer().i32(_CONSUMER).length(len(by_topic))
    for topic, partitions in by_topic.items():
        writer.string(topic).length(len(partitions))
        for row in partitions:
            for number in row:
                writer.i32(number)
            writer.no_tags()
        writer.no_tags()
    return writer.no_tags()


def read_offset_for_leader_epoch(reader: Reader) -> dict[tuple[str, int], EpochEnd]:
    reader.i32()
    found = {}
    for _ in range(reader.length()):
        topic = reader.string()
        for _ in range(reader.length()):
            error, partition = reader.i16(), reader.i32()
            reader.i32()
            found[topic, partition] = EpochEnd(error, reader.i64())
            reader.tags()
        reader.tags()
    return found


def fetch(
    topic_id: bytes,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    epoch: int = -1,
    max_wait_ms: int,
    committed: bool,
) -> Writer:
    """One partition, without a fetch session. A leader of another `epoch` than this refuses (-1: of any)."""
    writer = Writer().i32(-1).i32(max_wait_ms).i32(1).i32(max_bytes).i8(int(committed)).i32(0).i32(-1)
    writer.length(1).uuid(topic_id).length(1)
    writer.i32(partition).i32(epoch).i64(offset).i32(-1).i64(-1).i32(max_bytes).no_tags()
    return writer.no_tags().length(0).string("").no_tags()


def read_fetch(reader: Reader) -> FetchAnswer:
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or not reader.length():  # without an error it is what a client gets that is beyond its quota
        return FetchAnswer(error or THROTTLING_QUOTA_EXCEEDED, -1, -1, -1, [], memoryview(b""))
    reader.uuid()
    reader.length()
    reader.i32()
    error, high, stable, start = reader.i16(), reader.i64(), reader.i64(), reader.i64()
    aborted = []
    for _ in range(reader.length()):
        aborted.append(Aborted(reader.i64(), reader.i64()))
        reader.tags()
    reader.i32()
    return FetchAnswer(error, high, stable, start, aborted, reader.view(reader.length()))


def init_producer_id() -> Writer:
    """Of an idempotent producer without transactions."""
    return Writer().string(None).i32(0x7FFFFFFF).i64(-1).i16(-1).no_tags()


def read_init_producer_id(reader: Reader) -> tuple[int, int, int]:
    """Error, producer id, epoch."""
    reader.i32()
    return reader.i16(), reader.i64(), reader.i16()


def produce(parts: Mapping[tuple[str, int], bytes | bytearray], *, acks: int, timeout_ms: int) -> Writer:
    """Batches by topic and partition."""
    by_topic: dict[str, list[tuple[int, bytes | bytearray]]] = {}
    for (topic, partition), batch in parts.items():
        by_topic.setdefault(topic, []).append((partition, batch))
    writer = Writer().string(None).i16(acks).i32(timeout_ms).length(len(by_topic))
    for topic, partitions in by_topic.items():
        writer.string(topic).length(len(partitions))
        for partition, batch in partitions:
            writer.i32(partition).length(len(batch)).out.extend(batch)
            writer.no_tags()
        writer.no_tags()
    return writer.no_tags()


def read_produce(reader: Reader) -> dict[tuple[str, int], ProduceAnswer]:
    found = {}
    for _ in range(reader.length()):
        topic = reader.string()
        for _ in range(reader.length()):
            partition, error, base = reader.i32(), reader.i16(), reader.i64()
            reader.i64()
            reader.i64()
            for _ in range(reader.length()):
                reader.i32()
                reader.string()
                reader.tags()
            found[topic, partition] = ProduceAnswer(error, base, reader.string())
            reader.tags()
        reader.tags()
    return found


def find_coordinator(group: str) -> Writer:
    """Of one consumer group."""
    return Writer().i8(0).length(1).string(group).no_tags()


def read_find_coordinator(reader: Reader) -> CoordinatorAnswer:
    reader.i32()
    reader.length()
    reader.string()
    node = reader.i32()
    reader.string()
    reader.i32()
    return CoordinatorAnswer(reader.i16(), node)


def offset_commit(group: str, offsets: Mapping[tuple[str, int], int]) -> Writer:
    """Of somebody who is no member."""
    by_topic: dict[str, list[tuple[int, int]]] = {}
    for (topic, partition), offset in offsets.items():
        by_topic.setdefault(topic, []).append((partition, offset))
    writer = Writer().string(group).i32(-1).string("").string(None).length(len(by_topic))
    for topic, partitions in by_topic.items():
        writer.string(topic).length(len(partitions))
        for partition, offset in partitions:
            writer.i32(partition).i64(offset).i32(-1).string("").no_tags()
        writer.no_tags()
    return writer.no_tags()


def read_offset_commit(reader: Reader) -> dict[tuple[str, int], int]:
    """The error of each partition."""
    reader.i32()
    found = {}
    for _ in range(reader.length()):
        topic = reader.string()
        for _ in range(reader.length()):
            partition = reader.i32()
            found[topic, partition] = reader.i16()
            reader.tags()
        reader.tags()
    return found


def describe_configs(topics: Sequence[str], key: str) -> Writer:
    """One configuration of some topics."""
    writer = Writer().length(len(topics))
    for topic in topics:
        writer.i8(_TOPIC_RESOURCE).string(topic).length(1).string(key).no_tags()
    return writer.i8(0).i8(0).no_tags()


def read_describe_configs(reader: Reader) -> dict[str, tuple[int, str]]:
    """By topic the error and the value, "" where there is none."""
    reader.i32()
    found = {}
    for _ in range(reader.length()):
        error = reader.i16()
        reader.string()
        reader.i8()
        topic, value = reader.string(), ""
        for _ in range(reader.length()):
            reader.string()
            value = reader.string()
            for _ in range(3):
                reader.i8()
            for _ in range(reader.length()):
                reader.string()
                reader.string()
                reader.i8()
                reader.tags()
            reader.i8()
            reader.string()
            reader.tags()
        reader.tags()
        found[topic] = (error, value)
    return found
