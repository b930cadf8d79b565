"""DescribeProducers, by the leader of a partition and by its followers."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft_node.broker.handlers.describe_producers import describe_producers
from kraft_node.broker.metadata_cache import MetadataCache
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import DescribeProducersRequest
from tests.unit.broker.fetching.test_fetching import Rig
from tests.unit.broker.world import topic_records


def test_producers_are_described_by_leaders_and_followers() -> None:
    """As by Apache Kafka 4.3.1, whose `kafka-transactions describe-producers --broker-id` may name a follower."""
    rig = Rig()
    rig.commit(topic_records("a", 1))
    rig.commit(topic_records("c", 3, leader=2, isr=(2, 1)) + topic_records("d", 4, leader=2, isr=(2,)))
    producer = SimpleNamespace(
        producer_id=5, producer_epoch=1, last_sequence=3, last_timestamp_ms=7, coordinator_epoch=-1,
        current_txn_first_offset=-1,
    )  # fmt: skip
    for topic in ("a", "c"):
        log: Any = rig.replicas.hosted(topic, 0).log
        log.producers = SimpleNamespace(active=lambda: [producer])
    asked = [DescribeProducersRequest.TopicRequest(topic, [0]) for topic in ("a", "c", "d")]
    metadata = MetadataCache(rig.image)
    answer = describe_producers(rig.replicas, metadata, rig.client.context(61, 0), DescribeProducersRequest(asked))
    found = [topic.partitions[0] for topic in answer.topics]
    assert [row.error_code for row in found] == [0, 0, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert [row.active_producers[0].producer_id for row in found[:2]] == [5, 5]
