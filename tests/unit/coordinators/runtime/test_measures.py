"""The metrics of a runtime: partitions by phase, times of loads, batches and commits."""

from __future__ import annotations

from kraft_node.server.monitoring.coordinator_metrics import runtime_metrics
from tests.unit.coordinators.runtime.ledger import Broker, alone, three

PREFIX = "kafka_server_group_coordinator_metrics_"


def metrics(broker: Broker) -> dict[str, float]:
    """Each sample by its name without the prefix, and its label's value."""
    found = {}
    for name, _, samples in runtime_metrics("group", broker.runtime, broker.time.monotonic_ms()):
        assert name.startswith(PREFIX)
        for labels, value in samples:
            found[" ".join([name.removeprefix(PREFIX), *(text for _, text in labels)])] = value
    return found


def test_partitions_are_counted_by_phase() -> None:
    broker = alone()
    phases = [f"num_partitions {phase}" for phase in ("loading", "active", "failed")]
    assert [metrics(broker)[name] for name in phases] == [0, 1, 0]
    broker.runtime.on_resign(0)
    broker.runtime.on_leader(0, broker.log.replicas.elect(1))
    assert [metrics(broker)[name] for name in phases] == [1, 0, 0]
    broker.log.batches.append(b"damage")
    broker.log.end = 1
    broker.settle()
    assert [metrics(broker)[name] for name in phases] == [0, 0, 1]


def test_load_times_are_those_of_the_last_half_minute() -> None:
    broker = alone()
    broker.runtime.measures.loaded(10, broker.time.monotonic_ms())
    broker.time.advance(20_000)
    broker.runtime.measures.loaded(50, broker.time.monotonic_ms())
    found = metrics(broker)
    assert found["partition_load_time_max"] == 50
    assert found["partition_load_time_avg"] == 20, "with the load at the start, which took no time"
    broker.time.advance(10_000)
    assert metrics(broker)["partition_load_time_avg"] == 50
    broker.time.advance(20_000)
    assert "partition_load_time_max" not in metrics(broker)


def test_purgatory_time_lasts_from_the_operation_to_the_answer() -> None:
    replicas, first, _, _ = three()
    assert "event_purgatory_time_ms_max" not in metrics(first)
    first.put(("a", 1))
    first.time.advance(100)
    replicas.replicate()
    assert metrics(first)["event_purgatory_time_ms_max"] == 100


def test_batches_are_counted_with_their_linger() -> None:
    broker = alone(linger_ms=20)
    for name in "abc":
        broker.put((name, 1))
        broker.time.advance(5)
    broker.time.advance(20)
    found = metrics(broker)
    assert found["batch_flush_rate_total"] == 1
    assert found["batch_linger_time_ms_p50"] == found["batch_linger_time_ms_max"] == 20
    assert found["event_purgatory_time_ms_max"] == 20
