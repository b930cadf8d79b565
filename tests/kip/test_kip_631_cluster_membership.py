"""KIP-631, "The Three Cluster Membership States": unregistered, registered but fenced, registered and active."""

from __future__ import annotations

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum


def test_an_unregistered_broker_is_not_part_of_the_cluster() -> None:
    quorum = Quorum()
    quorum.start(1)
    assert quorum.image.brokers.get(2) is None
    assert quorum.create("foo", [[1, 2]]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_a_crashed_broker_that_is_not_restarted_ends_up_registered_but_fenced() -> None:
    cluster = Cluster(1, 2)
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    registration = cluster.image.brokers.get(2)
    assert registration.endpoint("PLAINTEXT").host == "b2", "contact information stays, valid or not"


def test_only_active_brokers_appear_in_metadata_responses() -> None:
    cluster = Cluster(1, 2)
    assert cluster.brokers_shown("b1") == {1, 2}
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    cluster.rest(1_000)
    assert cluster.brokers_shown("b1") == {1}
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    assert cluster.brokers_shown("b1") == {1, 2}


def test_a_fenced_broker_is_described_on_request() -> None:
    """DescribeCluster v2 of the release: the registration survives the fencing and is visible."""
    cluster = Cluster(1, 2)
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    cluster.rest(1_000)
    shown = cluster.ask("b1", m.DescribeClusterRequest(include_fenced_brokers=True)).brokers
    assert {(one.broker_id, one.is_fenced) for one in shown} == {(1, False), (2, True)}


def test_three_replicas_can_be_created_while_one_of_three_brokers_is_down() -> None:
    cluster = Cluster(1, 3)
    cluster["b3"].kill()
    cluster.until(lambda: cluster.image.brokers.get(3).fenced)
    topic = m.CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=1, replication_factor=3)
    answer = cluster.ask("b1", m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000)).topics[0]
    assert answer.error_code == 0
    state = cluster.partition("foo")
    assert sorted(state.replicas) == [1, 2, 3]
    assert sorted(state.isr) == [1, 2]
    cluster["b3"].start()
    cluster.until(lambda: sorted(cluster.partition("foo").isr) == [1, 2, 3])


def test_the_racks_of_fenced_brokers_are_still_known() -> None:
    quorum = Quorum()
    quorum.start(1, rack="a")
    quorum.start(2, rack="b")
    quorum.pass_time(8_000)
    quorum.heartbeat(1)
    quorum.pass_time(8_000)
    registration = quorum.image.brokers.get(2)
    assert registration is not None
    assert (registration.fenced, registration.rack) == (True, "b")


def test_a_registration_survives_a_failover_and_a_snapshot_while_fencing_may_change() -> None:
    cluster = Cluster(3, 2)
    cluster["b2"].kill()
    cluster.until(lambda: cluster.image.brokers.get(2).fenced)
    was = cluster.active
    was.kill()
    assert cluster.active is not was
    assert cluster.image.brokers.get(2).fenced
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    assert not cluster.image.brokers.get(2).fenced
