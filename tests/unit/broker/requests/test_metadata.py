"""Metadata, DescribeTopicPartitions, DescribeCluster and similar requests, answered from a real image."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.config import NodeConfig
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.turns import Turns
from kraft_node.broker.auto_topics import AutoTopics
from kraft_node.broker.handlers.describe_cluster import describe_cluster
from kraft_node.broker.handlers.describe_topic_partitions import describe_topic_partitions
from kraft_node.broker.handlers.list_config_resources import list_config_resources
from kraft_node.broker.handlers.metadata import MetadataHandler
from kraft_node.broker.metadata_cache import MetadataCache, topic_name_error
from kraft_node.metadata.image import MetadataImage
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import stored
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.messages import (
    CreateTopicsRequest,
    CreateTopicsResponse,
    DescribeClusterRequest,
    DescribeTopicPartitionsRequest,
    ListConfigResourcesRequest,
    MetadataRequest,
    MetadataResponse,
)
from tests.unit.broker.fetching.test_fetching import CONFIG
from tests.unit.broker.world import (
    CLUSTER_ID,
    Client,
    Controller,
    Loop,
    broker_records,
    make_env,
    replay,
    topic_id,
    topic_records,
)

BASE = [*broker_records(1, 2, 3, fenced=[3]), *topic_records("a", 1, 2), *topic_records("b", 2, isr=(2, 3), leader=2)]


class Rig:
    def __init__(self, **config: str) -> None:
        self.client = Client()
        self.controller = Controller()
        self.image = MetadataImage()
        self.config = BrokerConfig(NodeConfig.parse(CONFIG, config))
        self.metadata_cache = MetadataCache(self.image)
        self.turns = Turns(make_env(Loop()))
        replay(self.image, BASE)
        self.handler = MetadataHandler(
            self.turns,
            self.metadata_cache,
            self.config,
            AutoTopics(self.config, self.controller),
            cluster_id=CLUSTER_ID,
            node_id=1,
        )

    def metadata(self, *names: str | bytes | None, version: int = 12, all_topics: bool = False, **fields: Any) -> Any:
        topics = [
            MetadataRequest.MetadataRequestTopic(topic_id=name, name=None)
            if isinstance(name, bytes)
            else MetadataRequest.MetadataRequestTopic(name=name)
            for name in names
        ]
        everything = [] if version == 0 else None
        request = MetadataRequest(topics=everything if all_topics else topics, **fields)
        request = decode(MetadataRequest, encode(request, version), version)
        response = self.handler(self.client.context(3, version), request)
        return decode(MetadataResponse, encode(response, version), version)


@pytest.fixture
def rig() -> Rig:
    return Rig()


@pytest.mark.parametrize("version", range(14))
def test_every_version_describes_the_whole_cluster(rig: Rig, version: int) -> None:
    got = rig.metadata(version=version, all_topics=True)
    assert [(b.node_id, b.host, b.port) for b in got.brokers] == [(1, "host1", 9092), (2, "host2", 9092)]
    assert {t.name: len(t.partitions) for t in got.topics} == {"a": 2, "b": 1}
    if version >= 1:
        assert got.controller_id == 1
    if version >= 2:
        assert got.cluster_id == CLUSTER_ID
    if version >= 10:
        assert [t.topic_id for t in got.topics] == [topic_id(1), topic_id(2)]
    b = next(t for t in got.topics if t.name == "b").partitions[0]
    assert b.leader_id == 2
    if version == 0:
        assert (b.error_code, b.replica_nodes, b.isr_nodes) == (ErrorCode.REPLICA_NOT_AVAILABLE, [2], [2])
    else:
        assert (b.error_code, b.replica_nodes, b.isr_nodes) == (0, [2, 3], [2, 3])
    if version >= 5:
        assert b.offline_replicas == [3]


def test_an_empty_list_of_topics_returns_no_topic(rig: Rig) -> None:
    assert rig.metadata(version=1).topics == []
    assert rig.metadata(version=12).topics == []


def test_topics_are_found_by_id(rig: Rig) -> None:
    got = rig.metadata(topic_id(2), topic_id(99), version=12)
    assert [(t.error_code, t.name, t.topic_id) for t in got.topics] == [
        (0, "b", topic_id(2)),
        (ErrorCode.UNKNOWN_TOPIC_ID, None, topic_id(99)),
    ]


@pytest.mark.parametrize("version", [10, 11])
def test_topics_by_id_are_refused_before_version_12(rig: Rig, version: int) -> None:
    with pytest.raises(KafkaError) as error:
        rig.metadata(topic_id(2), version=version)
    assert error.value.code == ErrorCode.INVALID_REQUEST


def test_a_topic_named_twice_is_answered_once(rig: Rig) -> None:
    assert [t.name for t in rig.metadata("a", "a").topics] == ["a"]


def test_a_missing_leader_is_reported_as_not_available(rig: Rig) -> None:
    replay(rig.image, [stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=-1)])
    replay(rig.image, topic_records("f", 6, leader=3, isr=(3,)))
    for name in ("a", "f"):
        row = rig.metadata(name).topics[0].partitions[0]
        assert (row.error_code, row.leader_id) == (ErrorCode.LEADER_NOT_AVAILABLE, -1)


def test_authorized_operations_are_returned_only_on_request(rig: Rig) -> None:
    got = rig.metadata(
        "a", version=10, include_topic_authorized_operations=True, include_cluster_authorized_operations=True
    )
    assert (got.topics[0].topic_authorized_operations, got.cluster_authorized_operations) == (3576, 8096)
    got = rig.metadata("a", version=10)
    assert (got.topics[0].topic_authorized_operations, got.cluster_authorized_operations) == (-(2**31), -(2**31))


def test_an_unknown_topic_is_created_for_next_time(rig: Rig) -> None:
    got = rig.metadata("new", "a", "bad name")
    assert {t.name: t.error_code for t in got.topics} == {
        "new": ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        "a": 0,
        "bad name": ErrorCode.INVALID_TOPIC_EXCEPTION,
    }
    rig.metadata("new")
    sent = rig.controller.take(CreateTopicsRequest)
    assert rig.controller.sent == []  # one request at a time
    assert [(t.name, t.num_partitions, t.replication_factor) for t in sent.request.topics] == [("new", 1, 1)]
    assert sent.client.client_id == "test"
    result = CreateTopicsResponse.CreatableTopicResult(name="new", error_code=ErrorCode.INVALID_REPLICATION_FACTOR)
    sent.answer(CreateTopicsResponse(topics=[result]))
    rig.metadata("new")
    rig.controller.take(CreateTopicsRequest)


def test_topics_are_not_created_where_that_is_forbidden(rig: Rig) -> None:
    rig.metadata("new", allow_auto_topic_creation=False)
    assert rig.controller.sent == []
    closed = Rig(**{"auto.create.topics.enable": "false"})
    assert closed.metadata("new").topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert closed.controller.sent == []


def test_the_offsets_topic_is_created_with_its_own_settings() -> None:
    rig = Rig(**{"offsets.topic.num.partitions": "7", "offsets.topic.replication.factor": "2"})
    rig.metadata("__consumer_offsets")
    topic = rig.controller.take(CreateTopicsRequest).request.topics[0]
    assert (topic.num_partitions, topic.replication_factor) == (7, 2)
    assert {c.name: c.value for c in topic.configs} == {
        "cleanup.policy": "compact",
        "compression.type": "producer",
        "segment.bytes": "104857600",
    }


def test_topics_of_other_coordinators_are_created_with_kafkas_settings() -> None:
    """With other settings, or fewer partitions, Apache Kafka's coordinators could not use them later."""
    rig = Rig(**{"transaction.state.log.num.partitions": "7", "share.coordinator.state.topic.min.isr": "1"})
    rig.metadata("__transaction_state", "__share_group_state")
    made = {t.name: t for t in rig.controller.take(CreateTopicsRequest).request.topics}
    assert [(t.num_partitions, t.replication_factor) for t in made.values()] == [(7, 3), (50, 3)]
    assert {c.name: c.value for c in made["__transaction_state"].configs} == {
        "cleanup.policy": "compact",
        "compression.type": "uncompressed",
        "min.insync.replicas": "2",
        "segment.bytes": "104857600",
        "unclean.leader.election.enable": "false",
    }
    assert {c.name: c.value for c in made["__share_group_state"].configs} == {
        "cleanup.policy": "delete",
        "compression.type": "producer",
        "min.insync.replicas": "1",
        "retention.ms": "-1",
        "segment.bytes": "104857600",
    }


@pytest.mark.parametrize(("name", "good"), [("a.b_c-9", True), ("", False), (".", False), ("..", False), ("é", False)])
def test_invalid_topic_names_are_refused(name: str, good: bool) -> None:
    assert (topic_name_error(name) is None) is good
    assert topic_name_error("x" * 249) is None
    assert topic_name_error("x" * 250) is not None


def pages(rig: Rig, names: list[str], limit: int) -> list[list[tuple[str, list[int]]]]:
    cursor = None
    got = []
    for _ in range(20):
        request = DescribeTopicPartitionsRequest(
            topics=[DescribeTopicPartitionsRequest.TopicRequest(name=n) for n in names],
            response_partition_limit=limit,
            cursor=cursor,
        )
        answer = describe_topic_partitions(
            rig.turns, rig.metadata_cache, rig.config, rig.client.context(75, 0), request
        )
        got.append([(t.name, [p.partition_index for p in t.partitions]) for t in answer.topics])
        if answer.next_cursor is None:
            return got
        cursor = DescribeTopicPartitionsRequest.Cursor(
            topic_name=answer.next_cursor.topic_name, partition_index=answer.next_cursor.partition_index
        )
    raise AssertionError("pages do not end")


def test_partitions_are_returned_in_pages(rig: Rig) -> None:
    replay(rig.image, topic_records("ab", 5, 5))
    assert pages(rig, [], 3) == [[("a", [0, 1]), ("ab", [0])], [("ab", [1, 2, 3])], [("ab", [4]), ("b", [0])]]
    assert pages(rig, ["b", "ab"], 4) == [[("ab", [0, 1, 2, 3])], [("ab", [4]), ("b", [0])]]
    assert pages(rig, ["b"], 1) == [[("b", [0])]]
    assert pages(rig, ["nope"], 1) == [[("nope", [])]]


def test_a_cursor_on_a_deleted_topic_continues_at_the_next(rig: Rig) -> None:
    request = DescribeTopicPartitionsRequest(
        topics=[], cursor=DescribeTopicPartitionsRequest.Cursor(topic_name="aa", partition_index=7)
    )
    answer = describe_topic_partitions(rig.turns, rig.metadata_cache, rig.config, rig.client.context(75, 0), request)
    assert [(t.name, len(t.partitions)) for t in answer.topics] == [("b", 1)]


def test_a_described_partition_without_a_leader_has_no_error(rig: Rig) -> None:
    """As from Apache Kafka 4.3.1: its brokers answered 0 for a partition whose only replica was stopped."""
    replay(rig.image, [stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), leader=-1)])
    request = DescribeTopicPartitionsRequest(topics=[DescribeTopicPartitionsRequest.TopicRequest("a")])
    answer = describe_topic_partitions(rig.turns, rig.metadata_cache, rig.config, rig.client.context(75, 0), request)
    row = answer.topics[0].partitions[0]
    assert (row.error_code, row.leader_id) == (ErrorCode.NONE, -1)


def test_the_cluster_is_described(rig: Rig) -> None:
    ctx = rig.client.context(60, 2)
    got = describe_cluster(rig.metadata_cache, CLUSTER_ID, 1, ctx, DescribeClusterRequest())
    assert (got.cluster_id, got.controller_id, [b.broker_id for b in got.brokers]) == (CLUSTER_ID, 1, [1, 2])
    got = describe_cluster(rig.metadata_cache, CLUSTER_ID, 1, ctx, DescribeClusterRequest(include_fenced_brokers=True))
    assert [(b.broker_id, b.is_fenced) for b in got.brokers] == [(1, False), (2, False), (3, True)]
    for kind, code in ((2, ErrorCode.MISMATCHED_ENDPOINT_TYPE), (9, ErrorCode.UNSUPPORTED_ENDPOINT_TYPE)):
        with pytest.raises(KafkaError) as error:
            describe_cluster(rig.metadata_cache, CLUSTER_ID, 1, ctx, DescribeClusterRequest(endpoint_type=kind))
        assert error.value.code == code


def test_resources_with_configurations_are_listed(rig: Rig) -> None:
    replay(
        rig.image,
        [
            stored.ConfigRecord(resource_type=16, resource_name="metrics", name="interval.ms", value="1000"),
            stored.ConfigRecord(resource_type=32, resource_name="group", name="x", value="1"),
        ],
    )

    def names(version: int, *kinds: int) -> list[tuple[int, str]]:
        request = ListConfigResourcesRequest(resource_types=list(kinds))
        answer = list_config_resources(rig.turns, rig.metadata_cache, rig.client.context(74, version), request)
        return [(r.resource_type, r.resource_name) for r in answer.config_resources]

    assert names(0) == [(16, "metrics")]
    assert names(1, 2, 32) == [(2, "a"), (2, "b"), (32, "group")]
    assert set(names(1)) == {
        (2, "a"), (2, "b"), (4, "1"), (4, "2"), (8, "1"), (8, "2"), (16, "metrics"), (32, "group")
    }  # fmt: skip
    with pytest.raises(KafkaError):
        names(1, 5)
