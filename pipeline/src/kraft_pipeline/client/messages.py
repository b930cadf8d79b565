"""Bodies of the requests and responses that the client uses, each in one version (`VERSIONS`).

Source: Apache Kafka's message definitions. Writers append a body without its header; readers start after the header.
"""

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
"""Replica id of a client."""
SOFTWARE: Final = ("kraft-pipeline", "0.1.0")


class Broker(NamedTuple):
    """A broker's id and its listener."""

    node: int
    host: str
    port: int


class PartitionInfo(NamedTuple):
    """A partition in a Metadata response; `leader` is -1 if it has no leader."""

    error: int
    leader: int
    leader_epoch: int
    replicas: tuple[int, ...] = ()
    """Ids of the assigned replicas."""


class TopicInfo(NamedTuple):
    """A topic in a Metadata response; `id` has 16 bytes, `partitions` are by number."""

    error: int
    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class MetadataAnswer(NamedTuple):
    """A Metadata response: all brokers, the cluster's id, and the requested topics."""

    brokers: list[Broker]
    cluster_id: str
    topics: list[TopicInfo]


class OffsetAnswer(NamedTuple):
    """`offset` is -1 if no record is at or after the time. `epoch`: the leader's epoch for LATEST, -1 if unknown."""

    error: int
    offset: int
    epoch: int = -1


class EpochEnd(NamedTuple):
    """End offset of a leader epoch in the leader's log; -1 if the leader does not know the epoch."""

    error: int
    offset: int


class FetchAnswer(NamedTuple):
    """A Fetch response for one partition; `records` is a view of the response, not a copy."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[Aborted]
    records: memoryview


class ProduceAnswer(NamedTuple):
    """Result for a partition's batch: error code, offset of its first record, and the broker's message or ""."""

    error: int
    base_offset: int
    message: str


class CoordinatorAnswer(NamedTuple):
    """A FindCoordinator response for one group; `node` is the broker's id."""

    error: int
    node: int


def api_versions() -> Writer:
    """Body of ApiVersions v3, with the client's software name and version (KIP-511)."""
    return Writer().string(SOFTWARE[0]).string(SOFTWARE[1]).no_tags()


def read_api_versions(reader: Reader) -> tuple[int, dict[int, tuple[int, int]]]:
    """Read the error and the range of versions for each request.

    A broker that does not know version 3 answers with the error UNSUPPORTED_VERSION in a body of version 0 (KIP-511).
    """
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
    """Body of Metadata v12 for the named topics, or for all (None). `create`: allow automatic creation of topics."""
    writer = Writer().length(-1 if topics is None else len(topics))
    for topic in topics or ():
        writer.uuid(NO_ID).string(topic).no_tags()
    return writer.i8(create).i8(0).no_tags()


def read_metadata(reader: Reader) -> MetadataAnswer:
    """Read the body of a Metadata v12 response."""
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
    """Body of ListOffsets v7. `wanted`: by topic and partition a Unix time in ms, EARLIEST or LATEST.

    `committed`: LATEST is the last stable offset (read_committed).
    """
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
    """Read the body of a ListOffsets v7 response, by topic and partition."""
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
    """Body of OffsetForLeaderEpoch v4. `wanted`: by topic and partition the current epoch and the epoch to look up."""
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
    """Read the body of an OffsetForLeaderEpoch v4 response, by topic and partition."""
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
    """Body of Fetch v13 for one partition, without a fetch session (KIP-227), for at least 1 byte.

    A leader with another epoch than `epoch` refuses; -1 skips the check. `committed`: isolation read_committed.
    """
    writer = Writer().i32(-1).i32(max_wait_ms).i32(1).i32(max_bytes).i8(int(committed)).i32(0).i32(-1)
    writer.length(1).uuid(topic_id).length(1)
    writer.i32(partition).i32(epoch).i64(offset).i32(-1).i64(-1).i32(max_bytes).no_tags()
    return writer.no_tags().length(0).string("").no_tags()


def read_fetch(reader: Reader) -> FetchAnswer:
    """Read a Fetch v13 response for one partition.

    A top-level error is the answer's error. A response without topics and error means that the client exceeds its quota
    (KIP-219): the answer has THROTTLING_QUOTA_EXCEEDED.
    """
    reader.i32()
    error = reader.i16()
    reader.i32()
    if error or not reader.length():  # a response without topics and error: the client exceeds its quota
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
    """Body of InitProducerId v4 for an idempotent producer without transactions."""
    return Writer().string(None).i32(0x7FFFFFFF).i64(-1).i16(-1).no_tags()


def read_init_producer_id(reader: Reader) -> tuple[int, int, int]:
    """Read the error, the producer id and the producer epoch."""
    reader.i32()
    return reader.i16(), reader.i64(), reader.i16()


def produce(parts: Mapping[tuple[str, int], bytes | bytearray], *, acks: int, timeout_ms: int) -> Writer:
    """Body of Produce v9. `parts`: one encoded record batch by topic and partition."""
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
    """Read the body of a Produce v9 response, by topic and partition."""
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
    """Body of FindCoordinator v4 for one consumer group."""
    return Writer().i8(0).length(1).string(group).no_tags()


def read_find_coordinator(reader: Reader) -> CoordinatorAnswer:
    """Read a FindCoordinator v4 response, which must have exactly one coordinator."""
    reader.i32()
    reader.length()
    reader.string()
    node = reader.i32()
    reader.string()
    reader.i32()
    return CoordinatorAnswer(reader.i16(), node)


def offset_commit(group: str, offsets: Mapping[tuple[str, int], int]) -> Writer:
    """Body of OffsetCommit v8 from a client that is not a member: generation -1, empty member id."""
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
    """Read the error code of each partition."""
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
    """Body of DescribeConfigs v4 for one configuration key of the topics."""
    writer = Writer().length(len(topics))
    for topic in topics:
        writer.i8(_TOPIC_RESOURCE).string(topic).length(1).string(key).no_tags()
    return writer.i8(0).i8(0).no_tags()


def read_describe_configs(reader: Reader) -> dict[str, tuple[int, str]]:
    """Read the error code and the value by topic; the value is "" if it is null or missing."""
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
