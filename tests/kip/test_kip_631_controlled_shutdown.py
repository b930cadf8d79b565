"""KIP-631, "Controlled Shutdown": requested and granted in heartbeats; "Obsoleting the Controlled Shutdown RPC"."""

from __future__ import annotations

from kraft_node.broker.lifecycle import BrokerState
from kraft_protocol.wire.api import ApiKey
from tests.kip.cluster import Cluster
from tests.unit.broker.lifecycle.test_lifecycle import Rig, running
from tests.unit.controller.harness import Quorum


def test_a_broker_requests_its_shutdown_by_want_shut_down_in_its_heartbeats() -> None:
    rig = Rig()
    running(rig)
    rig.lifecycle.begin_shutdown(lambda: None)
    assert rig.heartbeat(is_fenced=False).want_shut_down


def test_the_controller_moves_all_leaders_off_the_broker() -> None:
    quorum = Quorum()
    quorum.start(1, 2, 3)
    quorum.create("foo", [[1, 2], [1, 3], [2, 1]])
    response = quorum.heartbeat(1, want_shut_down=True)
    assert not response.should_shut_down
    assert [quorum.partition("foo", number).leader for number in range(3)] == [2, 3, 2]
    assert all(1 not in quorum.partition("foo", number).isr for number in range(3))


def test_after_all_leaders_have_moved_the_controller_answers_should_shut_down() -> None:
    """ControlledShutdownOk in the draft's prose. The release also waits for all other brokers to see it."""
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    assert not quorum.heartbeat(1, want_shut_down=True).should_shut_down
    quorum.heartbeat(2)
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_without_leaderships_is_cleared_at_once() -> None:
    quorum = Quorum()
    quorum.start(1)
    assert quorum.heartbeat(1, want_shut_down=True).should_shut_down


def test_a_broker_serves_until_it_is_cleared() -> None:
    rig = Rig()
    running(rig)
    done: list[bool] = []
    rig.lifecycle.begin_shutdown(lambda: done.append(True))
    rig.heartbeat(is_fenced=False, should_shut_down=False)
    assert rig.lifecycle.state == BrokerState.PENDING_CONTROLLED_SHUTDOWN
    assert not done
    rig.loop.run(50)
    rig.heartbeat(is_fenced=True, should_shut_down=True)
    assert done == [True]
    assert rig.lifecycle.state == BrokerState.SHUTTING_DOWN


def test_a_stopped_broker_leaves_its_partitions_led_and_is_fenced() -> None:
    cluster = Cluster(3, 3)
    cluster.create("foo", [1, 2, 3], [1, 3, 2])
    topic_id = cluster.create("bar", [1, 2])
    assert cluster.produce("b1", "bar", b"kept").error_code == 0
    cluster["b1"].stop()
    cluster.until(lambda: not cluster["b1"].running, 10_000)
    assert cluster.image.brokers.get(1).fenced
    assert [cluster.partition("foo", number).leader for number in (0, 1)] == [2, 3]
    assert cluster.values("b2", topic_id) == [b"kept"]


def test_the_controlled_shutdown_request_does_not_exist() -> None:
    cluster = Cluster(1, 1)
    assert ApiKey.CONTROLLED_SHUTDOWN not in cluster.served("b1") | cluster.served("c1")


def test_requests_that_push_metadata_to_brokers_do_not_exist() -> None:
    """LeaderAndIsr, StopReplica and UpdateMetadata: brokers fetch the metadata log instead."""
    cluster = Cluster(1, 1)
    gone = {ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA, ApiKey.UPDATE_METADATA}
    assert not gone & (cluster.served("b1") | cluster.served("c1"))
