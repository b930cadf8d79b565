"""KIP-631, "Deployment", "Nodes", "Node IDs", "Networking": the roles of nodes and their addresses."""

from __future__ import annotations

import pytest

from kraft_node.base.config import ConfigError, NodeConfig
from kraft_node.testing.machine import CLIENT_PORT, CONTROLLER_PORT
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import ApiKey
from tests.kip.cluster import Cluster


def test_storage_directories_must_be_formatted_before_a_node_starts() -> None:
    cluster = Cluster(1, 1, start=False, unformatted=["b1"])
    cluster["c1"].start()
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].broken is not None)
    assert "kafka-storage" in str(cluster["b1"].broken)
    assert cluster.active.name == "c1"


def test_controllers_are_a_separate_pool_and_only_they_become_active() -> None:
    cluster = Cluster(3, 2)
    assert cluster.active.name in {"c1", "c2", "c3"}
    for name in ("b1", "b2"):
        assert cluster.node(name).controller is None
        assert not cluster.node(name).raft.node.is_voter


def test_controllers_may_be_co_located_with_brokers_in_one_process() -> None:
    cluster = Cluster(combined=3)
    topic_id = cluster.create("foo", [1, 2, 3], broker="k1")
    assert cluster.produce("k1", "foo", b"x").error_code == 0
    assert cluster.values("k1", topic_id) == [b"x"]
    node = cluster.node("k1")
    assert node.broker is not None
    assert node.controller is not None


def test_a_co_located_process_is_two_nodes_with_separate_listeners_and_apis() -> None:
    cluster = Cluster(combined=1)

    clients, controllers = cluster.served("k1"), cluster.served("k1", controller=True)
    assert {ApiKey.PRODUCE, ApiKey.METADATA, ApiKey.JOIN_GROUP} <= clients - controllers
    assert {ApiKey.VOTE, ApiKey.BROKER_HEARTBEAT, ApiKey.ALTER_PARTITION} <= controllers - clients
    assert CLIENT_PORT != CONTROLLER_PORT


def test_a_broker_starts_if_one_configured_controller_address_works() -> None:
    wrong = f"3003@nowhere:9,3002@c2:9,3001@c1:{CONTROLLER_PORT}"
    cluster = Cluster(1, 1, per_machine={"b1": {"controller.quorum.voters": wrong}}, start=False)
    cluster["c1"].start()
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    assert cluster.brokers_shown("b1") == {1}


def test_one_working_bootstrap_server_suffices() -> None:
    bootstrap = {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"nowhere:9,c3:{CONTROLLER_PORT}",
    }
    cluster = Cluster(3, 1, per_machine={"b1": bootstrap})
    assert cluster.brokers_shown("b1") == {1}


def test_after_the_first_contact_a_broker_no_longer_needs_the_configured_addresses() -> None:
    """It learns the leader's endpoint from the quorum: here the only configured controller ends."""
    bootstrap = {
        "controller.quorum.voters": "",
        "controller.quorum.bootstrap.servers": f"c1:{CONTROLLER_PORT}",
    }
    cluster = Cluster(3, 1, per_machine={"b1": bootstrap})
    if cluster.active.name == "c1":
        cluster["c1"].stop()
        cluster.until(lambda: not cluster["c1"].running)
    else:
        cluster["c1"].kill()
    assert cluster.active.name != "c1"
    cluster.create("after", [1])
    cluster.rest(20_000)
    assert cluster.brokers_shown("b1") == {1}


def test_a_broker_gives_up_after_the_registration_timeout_and_names_the_addresses() -> None:
    cluster = Cluster(1, 1, start=False, overrides={"initial.broker.registration.timeout.ms": "5000"})
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].broken is not None)
    assert 5_000 <= cluster.world.now_ms < 7_000
    assert "c1:9093" in str(cluster["b1"].broken)


def test_node_ids_must_be_configured() -> None:
    with pytest.raises(ConfigError, match=r"node\.id"):
        NodeConfig.parse(
            {
                "process.roles": "controller",
                "controller.quorum.voters": "1@h:9093",
                "listeners": "CONTROLLER://h:9093",
                "controller.listener.names": "CONTROLLER",
            }
        )


def test_one_node_id_serves_both_roles_of_a_process() -> None:
    cluster = Cluster(combined=1)
    node = cluster.node("k1")
    assert (node.broker.node_id, node.raft.local.id) == (1, 1)


def test_controllers_do_not_appear_in_the_metadata_given_to_clients() -> None:
    cluster = Cluster(3, 2)
    answer = cluster.metadata("b1")
    assert {(one.node_id, one.host, one.port) for one in answer.brokers} == {(1, "b1", 9092), (2, "b2", 9092)}
    assert answer.controller_id in {1, 2}, "clients are sent to a broker, which forwards"


def test_administrative_requests_are_forwarded_to_the_active_controller() -> None:
    cluster = Cluster(3, 1)
    cluster.create("foo", [1])
    assert cluster.partition("foo").leader == 1
    assert cluster.delete("foo") == 0
    assert cluster.delete("foo") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
