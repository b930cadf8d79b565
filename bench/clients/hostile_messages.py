"""Requests that name very many items, or one very large item; each is a frame to be sent repeatedly."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import encode_request

MANY: Final = 300_000
ADMIN: Final = 100_000
"""Items of requests that the controller handles."""


class Asked(NamedTuple):
    """A request, which is sent `times` times in a row."""

    key: ApiKey
    version: int
    message: Any
    times: int = 1

    @property
    def data(self) -> bytes:
        """The bytes to send: the request's frame, repeated."""
        parts = encode_request(1, self.key, self.version, "hostile", self.message)
        return b"".join(bytes(part) for part in parts) * self.times  # type: ignore[arg-type]


def list_offsets() -> Asked:
    """The end offsets of 300,000 partitions, of which one exists."""
    rows = [m.ListOffsetsRequest.ListOffsetsPartition(i, timestamp=-1) for i in range(MANY)]
    topics = [m.ListOffsetsRequest.ListOffsetsTopic("victim", rows)]
    return Asked(ApiKey.LIST_OFFSETS, 7, m.ListOffsetsRequest(topics=topics))


def offset_commit() -> Asked:
    """Offsets of 300,000 partitions, by a group without members."""
    rows = [m.OffsetCommitRequest.OffsetCommitRequestPartition(i, committed_metadata="m") for i in range(MANY)]
    topics = [m.OffsetCommitRequest.OffsetCommitRequestTopic("victim", partitions=rows)]
    return Asked(ApiKey.OFFSET_COMMIT, 8, m.OffsetCommitRequest(group_id="hostile", topics=topics))


def fetch() -> Asked:
    """300,000 partitions without a session; does not wait for records."""
    rows = [m.FetchRequest.FetchPartition(i, partition_max_bytes=1) for i in range(MANY)]
    request = m.FetchRequest(
        max_wait_ms=0, max_bytes=1 << 20, topics=[m.FetchRequest.FetchTopic("victim", partitions=rows)]
    )
    return Asked(ApiKey.FETCH, 12, request)


def fetch_that_waits() -> Asked:
    """A fetch of the victim's partition and of very many that do not exist: each record wakes it."""
    rows = [m.FetchRequest.FetchPartition(i, fetch_offset=0, partition_max_bytes=1) for i in range(MANY)]
    request = m.FetchRequest(
        max_wait_ms=2000,
        min_bytes=1 << 20,
        max_bytes=1 << 20,
        session_epoch=0,
        topics=[m.FetchRequest.FetchTopic("honest", partitions=rows)],
    )
    return Asked(ApiKey.FETCH, 12, request)


def forgotten() -> Asked:
    """300,000 partitions to remove from a fetch session that does not exist."""
    topics = [m.FetchRequest.ForgottenTopic("victim", partitions=list(range(MANY)))]
    request = m.FetchRequest(session_id=7, session_epoch=1, forgotten_topics_data=topics)
    return Asked(ApiKey.FETCH, 12, request)


def produce() -> Asked:
    """Empty records for 300,000 partitions."""
    rows = [m.ProduceRequest.PartitionProduceData(i, b"") for i in range(MANY)]
    request = m.ProduceRequest(
        acks=1, timeout_ms=1000, topic_data=[m.ProduceRequest.TopicProduceData("victim", partition_data=rows)]
    )
    return Asked(ApiKey.PRODUCE, 9, request)


def tagged_fields() -> Asked:
    """A request with 300,000 unknown tagged fields."""
    message = m.MetadataRequest(topics=[], unknown_tags=dict.fromkeys(range(MANY), b""))
    return Asked(ApiKey.METADATA, 12, message)


def long_software_name() -> Asked:
    """20 requests, each with a software name and a version of 32,000 characters."""
    message = m.ApiVersionsRequest(client_software_name="x" * 32_000, client_software_version="y" * 32_000)
    return Asked(ApiKey.API_VERSIONS, 3, message, 20)


def join_group() -> Asked:
    """A member with 100,000 protocols of 100 bytes."""
    protocols = [m.JoinGroupRequest.JoinGroupRequestProtocol(f"p{i}", b"x" * 100) for i in range(ADMIN)]
    message = m.JoinGroupRequest(
        group_id="hostile",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=protocols,
    )
    return Asked(ApiKey.JOIN_GROUP, 3, message)


def create_topics() -> Asked:
    """100,000 topics, to be checked but not created."""
    topics = [
        m.CreateTopicsRequest.CreatableTopic(f"t{i}", num_partitions=1, replication_factor=1) for i in range(ADMIN)
    ]
    return Asked(ApiKey.CREATE_TOPICS, 5, m.CreateTopicsRequest(topics=topics, timeout_ms=1000, validate_only=True))


def delete_topics() -> Asked:
    """The deletion of 100,000 topics that do not exist."""
    return Asked(
        ApiKey.DELETE_TOPICS, 5, m.DeleteTopicsRequest(topic_names=[f"t{i}" for i in range(ADMIN)], timeout_ms=1000)
    )


def alter_configs() -> Asked:
    """A configuration for each of 100,000 topics that do not exist, to be checked only."""
    config = m.IncrementalAlterConfigsRequest.AlterableConfig("retention.ms", 0, "1000")
    resource = m.IncrementalAlterConfigsRequest.AlterConfigsResource
    resources = [resource(2, f"t{i}", [config]) for i in range(ADMIN)]
    message = m.IncrementalAlterConfigsRequest(resources=resources, validate_only=True)
    return Asked(ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, message)


def create_acls() -> Asked:
    """100,000 ACLs, each for another topic."""
    acl = m.CreateAclsRequest.AclCreation
    creations = [acl(2, f"t{i}", 3, "User:x", "*", 3, 3) for i in range(ADMIN)]
    return Asked(ApiKey.CREATE_ACLS, 2, m.CreateAclsRequest(creations=creations))


def delete_acls() -> Asked:
    """100,000 filters that match at most one ACL each."""
    wanted = m.DeleteAclsRequest.DeleteAclsFilter
    filters = [wanted(2, f"t{i}", 3, "User:x", "*", 3, 3) for i in range(ADMIN)]
    return Asked(ApiKey.DELETE_ACLS, 2, m.DeleteAclsRequest(filters=filters))


def scram() -> Asked:
    """The deletion of 100,000 missing credentials, and a credential with the largest possible number of iterations."""
    deletion = m.AlterUserScramCredentialsRequest.ScramCredentialDeletion
    upsertion = m.AlterUserScramCredentialsRequest.ScramCredentialUpsertion
    message = m.AlterUserScramCredentialsRequest(
        deletions=[deletion(f"u{i}", 1) for i in range(ADMIN)],
        upsertions=[upsertion("u", 1, 2**31 - 1, b"salt", b"password")],
    )
    return Asked(ApiKey.ALTER_USER_SCRAM_CREDENTIALS, 0, message)


def describe_topic_partitions() -> Asked:
    """100,000 topics that do not exist."""
    topics = [m.DescribeTopicPartitionsRequest.TopicRequest(f"t{i}") for i in range(ADMIN)]
    return Asked(ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0, m.DescribeTopicPartitionsRequest(topics=topics))


def describe_log_dirs() -> Asked:
    """The replicas of 300,000 partitions, of which one exists."""
    topics = [m.DescribeLogDirsRequest.DescribableLogDirTopic("victim", list(range(MANY)))]
    return Asked(ApiKey.DESCRIBE_LOG_DIRS, 2, m.DescribeLogDirsRequest(topics=topics))


def elect_leaders() -> Asked:
    """Elections of preferred leaders for 300,000 partitions, of which one exists."""
    topics = [m.ElectLeadersRequest.TopicPartitions("victim", list(range(MANY)))]
    return Asked(ApiKey.ELECT_LEADERS, 2, m.ElectLeadersRequest(topic_partitions=topics, timeout_ms=1000))


def reassign() -> Asked:
    """New replicas for 100,000 partitions, of which one exists."""
    row = m.AlterPartitionReassignmentsRequest.ReassignablePartition
    topic = m.AlterPartitionReassignmentsRequest.ReassignableTopic("victim", [row(i, [1]) for i in range(ADMIN)])
    return Asked(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, m.AlterPartitionReassignmentsRequest(timeout_ms=1000, topics=[topic])
    )


def describe_quotas() -> Asked:
    """A filter with 100,000 kinds of entities that do not exist."""
    component = m.DescribeClientQuotasRequest.ComponentData
    components = [component(f"kind{i}", 0, "x") for i in range(ADMIN)]
    return Asked(ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, m.DescribeClientQuotasRequest(components=components))


MESSAGES: Final[dict[str, Callable[[], Asked]]] = {
    make.__name__.replace("_", "-"): make
    for make in (
        list_offsets, offset_commit, fetch, fetch_that_waits, forgotten, produce, tagged_fields, long_software_name,
        join_group,
        create_topics, delete_topics, alter_configs, create_acls, delete_acls, scram, describe_topic_partitions,
        describe_log_dirs, elect_leaders, reassign, describe_quotas,
    )
}  # fmt: skip

TO_CONTROLLERS: Final = ("create-topics", "alter-configs", "scram", "elect-leaders", "reassign", "fetch")
"""Requests that are also sent directly to a controller's listener."""
