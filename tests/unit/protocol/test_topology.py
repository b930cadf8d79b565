"""Brokers, leaders and coordinators of a cluster, from Metadata responses."""

from __future__ import annotations

import pytest

from kraft_protocol.client.errors import RETRIABLE, BrokerError
from kraft_protocol.client.requests import BrokerListener, CoordinatorAnswer, MetadataAnswer, PartitionInfo, TopicInfo
from kraft_protocol.client.topology import Topology, by_leader, epoch_of, leader_of

ONE, TWO = BrokerListener(1, "a", 1), BrokerListener(2, "b", 2)


def _topic(name: str, *leaders: int, error: int = 0) -> TopicInfo:
    partitions = {number: PartitionInfo(0, leader, 7) for number, leader in enumerate(leaders)}
    return TopicInfo(error, name, bytes(16), False, partitions)


def _answer(*topics: TopicInfo, brokers: tuple[BrokerListener, ...] = (ONE, TWO)) -> MetadataAnswer:
    return MetadataAnswer(list(brokers), "c", list(topics))


def test_a_response_without_brokers_is_ignored() -> None:
    topology = Topology()
    assert topology.learn_brokers(_answer())
    assert not topology.learn_brokers(MetadataAnswer([], "", []))
    assert (topology.cluster_id, topology.addresses()) == ("c", [("a", 1), ("b", 2)])
    assert topology.broker(2) == TWO
    with pytest.raises(BrokerError, match="node 3") as refused:
        topology.broker(3)
    assert refused.value.code in RETRIABLE


def test_requested_topics_that_a_response_lacks_are_forgotten() -> None:
    topology = Topology()
    topology.learn_topics(_answer(_topic("s", 1), _topic("t", 1)), None)
    assert set(topology.learn_topics(_answer(_topic("u", 2), _topic("s", error=3)), ["s", "u"])) == {"u"}
    assert set(topology.topics) == {"t", "u"}
    topology.learn_topics(_answer(_topic("u", 2)), None)
    assert set(topology.topics) == {"u"}


def test_an_unauthorized_topic_is_an_error_with_its_name() -> None:
    with pytest.raises(BrokerError, match=r"topic t: TOPIC_AUTHORIZATION_FAILED \(29\)"):
        Topology().learn_topics(_answer(_topic("t", error=29)), ["t"])


def test_partitions_have_leaders_and_epochs_or_a_retriable_error() -> None:
    topic = _topic("t", 1, -1)
    assert (leader_of(topic, 0), epoch_of(topic, 0), epoch_of(topic, 9)) == (1, 7, -1)
    for partition in (1, 9):
        with pytest.raises(BrokerError, match=f"partition t-{partition}") as refused:
            leader_of(topic, partition)
        assert refused.value.code in RETRIABLE
    assert by_leader({("t", 0): 1, ("t", 1): 2, ("t", 2): 1}) == {1: [("t", 0), ("t", 2)], 2: [("t", 1)]}


def test_a_coordinator_is_a_broker_of_the_last_metadata() -> None:
    topology = Topology()
    topology.learn_brokers(_answer())
    assert topology.coordinator(CoordinatorAnswer(0, 2), "group g") == TWO
    for answer in (CoordinatorAnswer(15, -1), CoordinatorAnswer(0, 3)):
        with pytest.raises(BrokerError) as refused:
            topology.coordinator(answer, "group g")
        assert refused.value.code in RETRIABLE
