"""Operations on a cluster: leaders, replicas, creation, reassignment.

They go through `kraft_node.cli.client` over a loopback connection each, at the same cost for both servers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

from bench.clients import asking, frames
from kraft_node.cli.client import NodeClient
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    CreateTopicsRequest,
    IncrementalAlterConfigsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from tests.compat.members import Members

TOPIC_RESOURCE = 2


def leader_port(cluster: Members, topic: str, *, create: bool) -> int:
    """The port of the leader of the topic's first partition; 0 while not all brokers are in sync."""
    request = MetadataRequest(
        topics=[MetadataRequest.MetadataRequestTopic(name=topic)], allow_auto_topic_creation=create
    )
    found = cluster.ask(cluster.broker_ids[-1], ApiKey.METADATA, request, timeout_s=5).topics[0]
    if found.error_code or not found.partitions:
        return 0
    first = found.partitions[0]
    if first.error_code or len(first.isr_nodes) < len(cluster.broker_ids):
        return 0
    return cluster.nodes[first.leader_id].port


def produced(cluster: Members, topic: str, record: bytes) -> bool:
    """Whether a record reached all replicas of a topic, which is created if missing."""
    port = leader_port(cluster, topic, create=True)
    return bool(port) and accepted(port, frames.produce(topic, 0, record))


def accepted(port: int, request: bytes) -> bool:
    """Whether a produce request is acknowledged."""
    wire = frames.Wire(port, 10)
    try:
        return frames.produce_error(wire.ask(request)) == 0
    finally:
        wire.close()


def start(cluster: Members) -> None:
    """Start all nodes, and wait until all brokers have a record in the topic "ready"."""
    for node in cluster.nodes.values():
        node.launch()
    asking.until("a topic on all brokers", lambda: produced(cluster, "ready", frames.batch(1, 10)), 0.05)
    cluster._wait_until_all_may_vote()


def create(client: NodeClient, topics: list[Any]) -> None:
    """Create topics. Raises AssertionError if one is refused."""
    answer = client.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest(topics, timeout_ms=60_000))
    codes = {ErrorCode(t.error_code) for t in answer.topics}
    assert codes == {ErrorCode.NONE}, f"CreateTopics: {codes}"


def assigned(name: str, replicas: list[int], count: int) -> Any:
    """A topic to create with these replicas for all partitions."""
    kind = CreateTopicsRequest.CreatableTopic
    assignments = [CreateTopicsRequest.CreatableReplicaAssignment(p, replicas) for p in range(count)]
    return kind(name, -1, -1, assignments)


def created(port: int, topic: str, timeout_ms: int = 2_000) -> bool:
    """Whether the topic is created now, or was created by an earlier unanswered request."""
    with NodeClient("127.0.0.1", port, 10) as client:
        wanted = CreateTopicsRequest.CreatableTopic(topic, 1, 3)
        answer = client.request(ApiKey.CREATE_TOPICS, CreateTopicsRequest([wanted], timeout_ms=timeout_ms))
        return answer.topics[0].error_code in (ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS)


def all_are(cluster: Members, node_id: int, topic: str, count: int, law: Callable[[Any], bool]) -> bool:
    """Whether a node shows `count` partitions of the topic and `law` holds for each."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=topic)])
    partitions = cluster.ask(node_id, ApiKey.METADATA, request).topics[0].partitions
    return len(partitions) == count and all(law(p) for p in partitions)


def reassigned(client: NodeClient, topic: str, replicas: list[int], count: int) -> float:
    """Seconds until the topic's partitions have exactly these replicas."""
    kind = AlterPartitionReassignmentsRequest
    partitions = [kind.ReassignablePartition(p, replicas) for p in range(count)]
    begun = time.monotonic()
    answer = client.request(
        ApiKey.ALTER_PARTITION_REASSIGNMENTS, kind(topics=[kind.ReassignableTopic(topic, partitions)])
    )
    assert answer.error_code == 0, answer
    listing = ListPartitionReassignmentsRequest(topics=None)
    asking.until(
        "no reassignment", lambda: not client.request(ApiKey.LIST_PARTITION_REASSIGNMENTS, listing).topics, 0.01
    )
    return time.monotonic() - begun


def config_change(topic: str, number: int) -> Any:
    """A change of a topic's configuration: one record of metadata."""
    kind = IncrementalAlterConfigsRequest
    config = kind.AlterableConfig("retention.ms", 0, str(1_000_000 + number))
    return kind(resources=[kind.AlterConfigsResource(TOPIC_RESOURCE, topic, [config])])
