"""The requests of clients that read and write records, and the content of their responses by topic and partition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final, NamedTuple, TypeVar

from kraft_protocol.client.fetch_session import FINAL_EPOCH
from kraft_protocol.client.session import Versions
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.records.batch import AbortedTransaction
from kraft_protocol.wire import messages as w
from kraft_protocol.wire.api import ApiKey

VERSIONS: Final[Versions] = {
    key: (version, version)
    for key, version in {
        ApiKey.PRODUCE: 9,
        ApiKey.FETCH: 13,
        ApiKey.LIST_OFFSETS: 7,
        ApiKey.METADATA: 12,
        ApiKey.OFFSET_COMMIT: 8,
        ApiKey.FIND_COORDINATOR: 4,
        ApiKey.INIT_PRODUCER_ID: 4,
        ApiKey.OFFSET_FOR_LEADER_EPOCH: 4,
        ApiKey.DESCRIBE_CONFIGS: 4,
        ApiKey.OFFSET_FETCH: 8,
        ApiKey.ADD_PARTITIONS_TO_TXN: 3,
        ApiKey.ADD_OFFSETS_TO_TXN: 3,
        ApiKey.END_TXN: 3,
        ApiKey.TXN_OFFSET_COMMIT: 3,
    }.items()
}
"""Lowest and highest version of each request. Apache Kafka serves all of them since 3.1."""

EARLIEST: Final = -2
LATEST: Final = -1
CONSUMER: Final = -1
DEBUGGING: Final = -2
"""Ids that clients send instead of a replica's. Followers answer the second one, too."""
NO_ID: Final = bytes(16)
_TOPIC_RESOURCE: Final = 2

T = TypeVar("T")
Key = tuple[str, int]
"""Topic and partition."""


class BrokerListener(NamedTuple):
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
    in_sync: tuple[int, ...] = ()
    """Ids of the replicas in the ISR."""


class TopicInfo(NamedTuple):
    """A topic in a Metadata response; `id` has 16 bytes, `partitions` are by number."""

    error: int
    name: str
    id: bytes
    is_internal: bool
    partitions: dict[int, PartitionInfo]


class MetadataAnswer(NamedTuple):
    """A Metadata response: all brokers, the cluster's id, and the requested topics."""

    brokers: list[BrokerListener]
    cluster_id: str
    topics: list[TopicInfo]


class OffsetAnswer(NamedTuple):
    """`offset` is -1 if no record is at or after the time. `epoch`: the leader's epoch for LATEST, -1 if unknown."""

    error: int
    offset: int
    epoch: int = -1


class LeaderEpochEnd(NamedTuple):
    """End offset of a leader epoch in the leader's log; -1 if the leader does not know the epoch."""

    error: int
    offset: int


class FetchAnswer(NamedTuple):
    """A Fetch response for one partition; `records` is a view of the response, not a copy."""

    error: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    aborted: list[AbortedTransaction]
    records: memoryview
    preferred: int = -1
    """The replica to read from instead of this leader (KIP-392); -1: the leader."""


class ProduceAnswer(NamedTuple):
    """Result for a partition's batch: error code, offset of its first record, and the broker's message or ""."""

    error: int
    base_offset: int
    message: str


class CoordinatorAnswer(NamedTuple):
    """A FindCoordinator response for one group; `node` is the broker's id."""

    error: int
    node: int


def _by_topic(rows: Iterable[tuple[Key, T]]) -> dict[str, list[tuple[int, T]]]:
    grouped: dict[str, list[tuple[int, T]]] = {}
    for (topic, partition), value in rows:
        grouped.setdefault(topic, []).append((partition, value))
    return grouped


def metadata(topics: Sequence[str] | None, *, create: bool = False) -> w.MetadataRequest:
    """Request the named topics, or all (None). `create`: allow automatic creation of topics."""
    wanted = None if topics is None else [w.MetadataRequest.MetadataRequestTopic(ZERO_UUID, name) for name in topics]
    return w.MetadataRequest(wanted, create)


def read_metadata(answer: w.MetadataResponse) -> MetadataAnswer:
    """Brokers and topics of a response."""
    brokers = [BrokerListener(one.node_id, one.host, one.port) for one in answer.brokers]
    topics = [
        TopicInfo(
            topic.error_code,
            topic.name or "",
            topic.topic_id,
            topic.is_internal,
            {
                one.partition_index: PartitionInfo(
                    one.error_code, one.leader_id, one.leader_epoch, tuple(one.replica_nodes), tuple(one.isr_nodes)
                )
                for one in topic.partitions
            },
        )
        for topic in answer.topics
    ]
    return MetadataAnswer(brokers, answer.cluster_id or "", topics)


def list_offsets(wanted: Mapping[Key, int], *, committed: bool, from_follower: bool = False) -> w.ListOffsetsRequest:
    """Request offsets. `wanted`: by topic and partition a Unix time in ms, EARLIEST or LATEST.

    `committed`: LATEST is the last stable offset (read_committed). `from_follower`: a follower answers, too, for its
    own log.
    """
    partition = w.ListOffsetsRequest.ListOffsetsPartition
    topics = [
        w.ListOffsetsRequest.ListOffsetsTopic(topic, [partition(number, -1, when) for number, when in rows])
        for topic, rows in _by_topic(wanted.items()).items()
    ]
    return w.ListOffsetsRequest(DEBUGGING if from_follower else CONSUMER, int(committed), topics)


def read_list_offsets(answer: w.ListOffsetsResponse) -> dict[Key, OffsetAnswer]:
    """Offsets by topic and partition."""
    return {
        (topic.name, one.partition_index): OffsetAnswer(one.error_code, one.offset, one.leader_epoch)
        for topic in answer.topics
        for one in topic.partitions
    }


def offset_for_leader_epoch(wanted: Mapping[Key, tuple[int, int]]) -> w.OffsetForLeaderEpochRequest:
    """Request the ends of epochs. `wanted`: by topic and partition the current epoch and the epoch to look up."""
    partition = w.OffsetForLeaderEpochRequest.OffsetForLeaderPartition
    topics = [
        w.OffsetForLeaderEpochRequest.OffsetForLeaderTopic(
            topic, [partition(number, *epochs) for number, epochs in rows]
        )
        for topic, rows in _by_topic(wanted.items()).items()
    ]
    return w.OffsetForLeaderEpochRequest(-1, topics)


def read_offset_for_leader_epoch(answer: w.OffsetForLeaderEpochResponse) -> dict[Key, LeaderEpochEnd]:
    """Ends of epochs by topic and partition."""
    return {
        (topic.topic, one.partition): LeaderEpochEnd(one.error_code, one.end_offset)
        for topic in answer.topics
        for one in topic.partitions
    }


def fetch(
    topic_id: bytes,
    partition: int,
    offset: int,
    max_bytes: int,
    *,
    epoch: int = -1,
    max_wait_ms: int,
    committed: bool,
    rack: str = "",
) -> w.FetchRequest:
    """Fetch one partition, without a fetch session (KIP-227), at least 1 byte.

    A leader with another epoch than `epoch` refuses; -1 skips the check. `committed`: isolation read_committed.
    `rack`: the client's rack; a leader may name a replica in it.
    """
    wanted = w.FetchRequest.FetchPartition(partition, epoch, offset, partition_max_bytes=max_bytes)
    return w.FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=1,
        max_bytes=max_bytes,
        isolation_level=int(committed),
        session_epoch=FINAL_EPOCH,
        topics=[w.FetchRequest.FetchTopic(topic_id=Uuid(topic_id), partitions=[wanted])],
        rack_id=rack,
    )


def read_fetch(answer: w.FetchResponse) -> FetchAnswer:
    """Read a Fetch response for one partition.

    A top-level error is the answer's error. A response without topics and error means that the client exceeds its quota
    (KIP-219): the answer has THROTTLING_QUOTA_EXCEEDED.
    """
    if answer.error_code or not answer.responses or not answer.responses[0].partitions:
        return FetchAnswer(answer.error_code or ErrorCode.THROTTLING_QUOTA_EXCEEDED, -1, -1, -1, [], memoryview(b""))
    one = answer.responses[0].partitions[0]
    return FetchAnswer(
        one.error_code,
        one.high_watermark,
        one.last_stable_offset,
        one.log_start_offset,
        [AbortedTransaction(each.producer_id, each.first_offset) for each in one.aborted_transactions or ()],
        memoryview(one.records or b""),  # type: ignore[arg-type]  # a response that was read has bytes
        one.preferred_read_replica,
    )


def init_producer_id() -> w.InitProducerIdRequest:
    """Request an id of an idempotent producer without transactions."""
    return w.InitProducerIdRequest(None, 0x7FFFFFFF, -1, -1)


def read_init_producer_id(answer: w.InitProducerIdResponse) -> tuple[int, int, int]:
    """The error, the producer id and the producer epoch."""
    return answer.error_code, answer.producer_id, answer.producer_epoch


def produce(
    parts: Mapping[Key, bytes | bytearray], *, acks: int, timeout_ms: int, transactional_id: str | None = None
) -> w.ProduceRequest:
    """Store batches. `parts`: one encoded record batch by topic and partition."""
    data = w.ProduceRequest.PartitionProduceData
    topics = [
        w.ProduceRequest.TopicProduceData(topic, partition_data=[data(number, batch) for number, batch in rows])
        for topic, rows in _by_topic(parts.items()).items()
    ]
    return w.ProduceRequest(transactional_id, acks, timeout_ms, topics)


def read_produce(answer: w.ProduceResponse) -> dict[Key, ProduceAnswer]:
    """Results by topic and partition."""
    return {
        (topic.name, one.index): ProduceAnswer(one.error_code, one.base_offset, one.error_message or "")
        for topic in answer.responses
        for one in topic.partition_responses
    }


def find_coordinator(name: str, *, transactional: bool = False) -> w.FindCoordinatorRequest:
    """Request the coordinator of a consumer group, or of a transactional id."""
    return w.FindCoordinatorRequest(key_type=int(transactional), coordinator_keys=[name])


def read_find_coordinator(answer: w.FindCoordinatorResponse) -> CoordinatorAnswer:
    """The coordinator of the group."""
    one = answer.coordinators[0]
    return CoordinatorAnswer(one.error_code, one.node_id)


def offset_commit(group: str, offsets: Mapping[Key, int]) -> w.OffsetCommitRequest:
    """Commit offsets from a client that is not a member: generation -1, empty member id."""
    partition = w.OffsetCommitRequest.OffsetCommitRequestPartition
    topics = [
        w.OffsetCommitRequest.OffsetCommitRequestTopic(
            topic, partitions=[partition(number, offset, committed_metadata="") for number, offset in rows]
        )
        for topic, rows in _by_topic(offsets.items()).items()
    ]
    return w.OffsetCommitRequest(group, -1, "", None, topics=topics)


def read_offset_commit(answer: w.OffsetCommitResponse) -> dict[Key, int]:
    """The error code of each partition."""
    return {(topic.name, one.partition_index): one.error_code for topic in answer.topics for one in topic.partitions}


def describe_configs(topics: Sequence[str], key: str) -> w.DescribeConfigsRequest:
    """Request one configuration key of the topics."""
    resource = w.DescribeConfigsRequest.DescribeConfigsResource
    return w.DescribeConfigsRequest([resource(_TOPIC_RESOURCE, topic, [key]) for topic in topics])


def read_describe_configs(answer: w.DescribeConfigsResponse) -> dict[str, tuple[int, str]]:
    """The error code and the value by topic; the value is "" if it is null or missing."""
    return {
        one.resource_name: (one.error_code, (one.configs[-1].value or "") if one.configs else "")
        for one in answer.results
    }
