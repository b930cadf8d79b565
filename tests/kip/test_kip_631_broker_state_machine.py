"""KIP-631, "The Broker State Machine": its states, their order, and their numbers in the metric."""

from __future__ import annotations

from kraft_node.broker.lifecycle import BrokerState
from kraft_node.log.names import parse_partition_dir
from kraft_node.testing.machine import SimMachine
from tests.kip.cluster import Cluster

METRIC = "kafka_server_kafkaserver_brokerstate"


def watch(cluster: Cluster, machine: SimMachine) -> list[str]:
    """Record the states of a machine's broker from now on, by name."""
    seen: list[str] = []

    def look() -> None:
        state = cluster.state(machine.name).name
        if not seen or seen[-1] != state:
            seen.append(state)

    cluster.looks.append(look)
    return seen


def test_the_numbers_of_the_states_are_those_of_kafka() -> None:
    assert {state.name: int(state) for state in BrokerState} == {
        "NOT_RUNNING": 0,
        "STARTING": 1,
        "RECOVERY": 2,
        "RUNNING": 3,
        "PENDING_CONTROLLED_SHUTDOWN": 6,
        "SHUTTING_DOWN": 7,
    }


def test_a_broker_passes_through_all_states_in_order() -> None:
    cluster = Cluster(1, 2, start=False)
    seen = watch(cluster, cluster["b1"])
    for name in ("c1", "b1", "b2"):
        cluster[name].start()
    cluster.until(lambda: cluster["b1"].serving and cluster["b2"].serving)
    cluster.create("foo", [1, 2])
    cluster["b1"].stop()
    cluster.until(lambda: not cluster["b1"].running)
    assert seen[:4] == ["NOT_RUNNING", "STARTING", "RECOVERY", "RUNNING"]
    assert seen[4] == "PENDING_CONTROLLED_SHUTDOWN"
    assert set(seen[5:]) <= {"SHUTTING_DOWN", "NOT_RUNNING"}


def test_the_state_is_a_metric() -> None:
    cluster = Cluster(1, 1, start=False)
    cluster["b1"].start()
    cluster.rest(100)
    assert cluster.metrics("b1")[METRIC] == 1
    cluster["c1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    assert cluster.metrics("b1")[METRIC] == 3


def test_a_broker_is_starting_until_it_has_read_the_metadata() -> None:
    cluster = Cluster(1, 1, start=False)
    cluster["b1"].start()
    cluster.rest(20_000)
    assert cluster.state("b1") is BrokerState.STARTING
    cluster["c1"].start()
    cluster.until(lambda: cluster.state("b1") is not BrokerState.STARTING)
    lifecycle = cluster.node("b1").broker.lifecycle
    assert cluster.node("b1").raft.image.offset >= lifecycle.broker_epoch


def test_a_broker_always_passes_through_recovery_also_after_a_clean_shutdown() -> None:
    cluster = Cluster(1, 1)
    cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    cluster["b1"].stop()
    cluster.until(lambda: not cluster["b1"].running)
    seen = watch(cluster, cluster["b1"])
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    assert "RECOVERY" in seen


def test_clients_are_served_only_once_the_broker_runs() -> None:
    """Its sockets are bound earlier than in the draft; connections wait."""
    cluster = Cluster(1, 1, start=False)
    cluster["b1"].start()
    cluster.rest(1_000)
    node = cluster.node("b1")
    assert not node.serving
    assert node.not_ready() == "broker is STARTING"
    cluster["c1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    assert cluster.state("b1") is BrokerState.RUNNING


def test_log_directories_are_compared_with_the_metadata_at_the_start_of_recovery() -> None:
    cluster = Cluster(1, 2)
    cluster.create("gone", [1])
    cluster.create("kept", [1])
    for topic in ("gone", "kept"):
        assert cluster.produce("b1", topic, b"x").error_code == 0
    cluster["b1"].kill()
    assert cluster.delete("gone", "b2") == 0
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    partitions = {name for name in cluster.files("b1") if parse_partition_dir(name) is not None}
    assert "kept-0" in partitions
    assert "gone-0" not in partitions
