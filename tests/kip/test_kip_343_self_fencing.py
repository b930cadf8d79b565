"""KIP-343, "Broker-Side Heartbeat Timeout" and "Controller-Side Heartbeat Timeout": when a broker or controller fences.

Apache Kafka has released only the controller's side.
"""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.broker.self_fencing import timeout_of
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster

CONTROLLER_MS = 9_000
BROKER_MS = 18_000


def cut_off(cluster: Cluster, broker: str) -> float:
    """Cut the broker off from all controllers; returns the time."""
    for name in cluster.machines:
        if name.startswith("c"):
            cluster.network.cut(broker, name)
    return cluster.world.now_ms


def test_a_broker_that_cannot_contact_the_controller_for_long_enough_fences_itself() -> None:
    cluster = Cluster(1, 1)
    cluster.create("foo", [1])
    cut_off(cluster, "b1")
    cluster.rest(BROKER_MS - 3_000)
    assert cluster.produce("b1", "foo", b"x", acks=1).error_code == 0
    cluster.rest(3_500)
    assert cluster.produce("b1", "foo", b"y", acks=1).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_a_fenced_broker_refuses_new_requests_with_an_error_that_redirects_clients() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    cut_off(cluster, "b1")
    cluster.rest(BROKER_MS + 500)
    assert cluster.fetch("b1", topic_id).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.produce("b1", "foo", b"y").error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_existing_requests_are_completed() -> None:
    """A produce that was accepted before still gets its answer: followers may fetch its records."""
    cluster = Cluster(1, 2)
    topic_id = cluster.create("foo", [1, 2])
    cluster.rest(5_000)
    cluster.network.cut("b1", "b2")
    node = cluster.node("b1")
    answers: list[Any] = []
    batch = cluster.batch(b"x")
    data = m.ProduceRequest.TopicProduceData(
        topic_id=topic_id, partition_data=[m.ProduceRequest.PartitionProduceData(index=0, records=batch)]
    )
    cluster.client("b1").request(0, 13, m.ProduceRequest(acks=-1, timeout_ms=60_000, topic_data=[data]), answers.append)
    cluster.rest(100)
    node.broker.fence.fenced = True
    assert not answers
    cluster.network.heal()
    cluster.until(lambda: bool(answers))
    assert answers[0].responses[0].partition_responses[0].error_code == 0


def test_brokers_move_back_and_forth_between_fenced_and_unfenced_by_themselves() -> None:
    cluster = Cluster(1, 1)
    cluster.create("foo", [1])
    for _ in range(3):
        cut_off(cluster, "b1")
        cluster.until(lambda: cluster.node("b1").broker.fence.fenced)
        cluster.network.heal()
        cluster.until(lambda: not cluster.node("b1").broker.fence.fenced)
        cluster.until(lambda: cluster.node("b1").broker.ready)
        cluster.until(lambda: cluster.produce("b1", "foo", b"x").error_code == 0)
    assert cluster.node("b1").broker.fence.times == 3


def test_the_controller_declares_a_broker_inactive_that_does_not_heartbeat() -> None:
    cluster = Cluster(1, 2)
    cluster.rest(5_000)
    since = cut_off(cluster, "b1")
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    assert CONTROLLER_MS - 2_500 <= cluster.world.now_ms - since <= CONTROLLER_MS + 1_500


def test_an_inactive_broker_that_heartbeats_again_is_active_again() -> None:
    cluster = Cluster(1, 2)
    cut_off(cluster, "b1")
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    cluster.network.heal()
    cluster.until(lambda: not cluster.image.brokers.get(1).fenced)


def test_a_broker_fences_itself_only_after_the_controller_has_declared_it_inactive() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cut_off(cluster, "b1")
    cluster.until(lambda: cluster.image.brokers.get(1).fenced)
    assert not cluster.node("b1").broker.fence.fenced
    assert cluster.partition("foo").leader == 2
    cluster.until(lambda: cluster.node("b1").broker.fence.fenced)


def test_the_timeout_of_the_broker_must_exceed_that_of_the_controller() -> None:
    assert timeout_of("", CONTROLLER_MS) == BROKER_MS
    with pytest.raises(ValueError, match="longer"):
        timeout_of(str(CONTROLLER_MS), CONTROLLER_MS)


def test_a_broker_without_a_controller_does_not_serve_arbitrarily_old_data() -> None:
    """The KIP's motivation: a fenced broker cannot know later changes by other brokers."""
    cluster = Cluster(1, 2)
    topic_id = cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"before")
    cut_off(cluster, "b1")
    cluster.network.cut("b1", "b2")
    cluster.until(lambda: cluster.partition("foo").leader == 2)
    cluster.until(lambda: cluster.produce("b2", "foo", b"after").error_code == 0)
    cluster.until(lambda: cluster.node("b1").broker.fence.fenced)
    assert cluster.fetch("b1", topic_id).error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert cluster.values("b2", topic_id) == [b"before", b"after"]


def test_self_fencing_can_be_turned_off() -> None:
    cluster = Cluster(1, 1, overrides={"broker.heartbeat.timeout.ms": "0"})
    cluster.create("foo", [1])
    cut_off(cluster, "b1")
    cluster.rest(5 * BROKER_MS)
    assert cluster.produce("b1", "foo", b"x", acks=1).error_code == 0


def test_self_fencing_is_shown_in_metrics_and_readiness() -> None:
    cluster = Cluster(1, 1)
    assert cluster.metrics("b1")["kraft_broker_self_fenced"] == 0
    cut_off(cluster, "b1")
    cluster.until(lambda: cluster.node("b1").broker.fence.fenced)
    assert cluster.metrics("b1")["kraft_broker_self_fenced"] == 1
    assert cluster.metrics("b1")["kraft_broker_self_fencings_total"] == 1
    assert cluster.node("b1").not_ready() == "broker is fenced"
