"""Quotas of bytes and requests, tested on a whole simulated broker over its protocol."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster

BATCH_BYTES = 20_000
RATE = 1000.0
BROKER_CONFIG = 4
USER = (("user", "ANONYMOUS"),)


def limit(cluster: Cluster, key: str, value: float | None, entity: tuple[tuple[str, str | None], ...] = USER) -> None:
    entry = m.AlterClientQuotasRequest.EntryData
    request = m.AlterClientQuotasRequest(
        entries=[
            entry(
                entity=[
                    m.AlterClientQuotasRequest.EntityData(entity_type=kind, entity_name=name) for kind, name in entity
                ],
                ops=[m.AlterClientQuotasRequest.OpData(key=key, value=value or 0.0, remove=value is None)],
            )
        ]
    )
    answer = cluster.ask("k1", request)
    assert [row.error_code for row in answer.entries] == [0]
    quotas = cluster.node("k1").broker.quotas
    cluster.until(lambda: quotas.is_active is (value is not None))


def produce(cluster: Cluster, topic_id: Any) -> Any:
    data = m.ProduceRequest.PartitionProduceData(index=0, records=cluster.batch(b"x" * BATCH_BYTES))
    topic = m.ProduceRequest.TopicProduceData(topic_id=topic_id, partition_data=[data])
    return cluster.ask("k1", m.ProduceRequest(acks=-1, timeout_ms=5_000, topic_data=[topic]))


def fetch(cluster: Cluster, topic_id: Any) -> Any:
    wanted = m.FetchRequest.FetchPartition(partition=0, partition_max_bytes=1 << 20)
    topic = m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[wanted])
    return cluster.ask("k1", m.FetchRequest(max_wait_ms=0, min_bytes=0, max_bytes=1 << 20, topics=[topic]))


@pytest.fixture
def cluster() -> Cluster:
    return Cluster(combined=1)


def now_ms(cluster: Cluster) -> float:
    return float(cluster.world.now_ms)


def test_a_producer_over_quota_is_answered_at_once_and_then_muted(
    cluster: Cluster,
) -> None:
    topic_id = cluster.create("t", [1], broker="k1")
    assert produce(cluster, topic_id).throttle_time_ms == 0
    limit(cluster, "producer_byte_rate", RATE)
    began = now_ms(cluster)
    answer = produce(cluster, topic_id)
    assert answer.responses[0].partition_responses[0].error_code == 0
    assert 10_000 <= answer.throttle_time_ms <= 10_500, "20 KB at 1 KB/s, of which ten seconds' worth is free"
    assert now_ms(cluster) - began < 100
    assert cluster.metadata("k1") is not None
    assert now_ms(cluster) - began >= answer.throttle_time_ms
    limit(cluster, "producer_byte_rate", None)
    assert produce(cluster, topic_id).throttle_time_ms == 0


def test_a_consumer_over_quota_gets_its_records_after_the_throttle(cluster: Cluster) -> None:
    topic_id = cluster.create("t", [1], broker="k1")
    produce(cluster, topic_id)
    limit(cluster, "consumer_byte_rate", RATE)
    answers = [fetch(cluster, topic_id) for _ in range(4)]
    reported = [answer.throttle_time_ms for answer in answers]
    assert reported[0] > 10_000
    assert [bool(answer.responses) for answer in answers] == [throttle_ms == 0 for throttle_ms in reported]


def test_a_quota_of_a_client_id_applies_to_that_client_only(cluster: Cluster) -> None:
    topic_id = cluster.create("t", [1], broker="k1")
    limit(cluster, "producer_byte_rate", RATE, (("client-id", "another"),))
    assert produce(cluster, topic_id).throttle_time_ms == 0


def test_the_time_of_requests_counts_against_request_percentage(cluster: Cluster) -> None:
    """Simulated handlers take no time, so the test checks that the rate is asked."""
    limit(cluster, "request_percentage", 1.0)
    quotas = cluster.node("k1").broker.quotas
    spent = 5_000.0
    key: Any = ("ANONYMOUS", "")
    cluster.metadata("k1")
    quotas._requested._rates[key].record(spent, int(now_ms(cluster)))
    answer = cluster.metadata("k1")
    assert answer.throttle_time_ms == 1_000, "a window at most"


def test_connections_beyond_the_rate_of_their_address_are_closed_a_while_later(cluster: Cluster) -> None:
    limit_ip(cluster, 1.0)
    began = now_ms(cluster)
    outcomes = []
    for _ in range(14):
        cluster._clients.clear()
        outcomes.append(cluster.metadata("k1") is not None)
    assert outcomes[:10] == [True] * 10, "ten seconds' worth"
    assert not all(outcomes)
    assert now_ms(cluster) - began >= 1_000


def limit_ip(cluster: Cluster, value: float) -> None:
    entry = m.AlterClientQuotasRequest.EntryData(
        entity=[m.AlterClientQuotasRequest.EntityData(entity_type="ip", entity_name=None)],
        ops=[m.AlterClientQuotasRequest.OpData(key="connection_creation_rate", value=value)],
    )
    assert cluster.ask("k1", m.AlterClientQuotasRequest(entries=[entry])).entries[0].error_code == 0
    rates = cluster.node("k1")._gate.rates
    cluster.until(lambda: rates.is_limited)


def fourteen_connections_ms(cluster: Cluster) -> float:
    """The time that fourteen connections take one after the other."""
    began = now_ms(cluster)
    for _ in range(14):
        cluster._clients.clear()
        assert cluster.metadata("k1") is not None
    return now_ms(cluster) - began


def test_connections_beyond_the_rate_of_the_node_wait_for_their_turn() -> None:
    assert fourteen_connections_ms(Cluster(combined=1, overrides={"max.connection.creation.rate": "1"})) >= 2_000


def test_a_changed_connection_rate_applies_at_once(cluster: Cluster) -> None:
    assert fourteen_connections_ms(cluster) < 2_000
    request = m.IncrementalAlterConfigsRequest
    config = request.AlterableConfig("max.connection.creation.rate", 0, "1")
    resource = request.AlterConfigsResource(BROKER_CONFIG, "", [config])
    assert cluster.ask("k1", request(resources=[resource])).responses[0].error_code == 0
    rates = cluster.node("k1")._gate.rates
    cluster.until(lambda: rates.is_limited)
    assert fourteen_connections_ms(cluster) >= 2_000
