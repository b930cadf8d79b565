"""A broker whose connection to the controller closes: it lives on unfenced, or is dead and fenced soon (KIP-631)."""

from __future__ import annotations

import pytest

from kraft_node.testing.machine import SimCluster
from kraft_node.testing.world import World

HEARTBEAT_MS, SESSION_MS = 2_000, 9_000


def _cluster(seed: int) -> SimCluster:
    """One controller and two brokers, which serve."""
    world = World(seed)
    overrides = {
        "broker.heartbeat.interval.ms": str(HEARTBEAT_MS),
        "broker.session.timeout.ms": str(SESSION_MS),
    }
    cluster = SimCluster(world, 0, overrides, controllers=1, brokers=2)
    for machine in cluster.machines:
        machine.start()
    assert world.run(lambda: all(machine.serving for machine in cluster.brokers), 60_000)
    world.rest(3 * HEARTBEAT_MS)
    return cluster


def _timed_out(cluster: SimCluster) -> int:
    """The sessions that the controller ended."""
    node = cluster.machines[0].node
    assert node is not None
    assert node.controller is not None
    return node.controller.cluster.sessions.timed_out


@pytest.mark.parametrize("seed", range(5))
def test_broken_connections_fence_nobody(seed: int) -> None:
    cluster = _cluster(seed)
    for _ in range(10):
        assert cluster.network.break_some(2.0) > 0, "all connections"
        cluster.world.rest(200 + cluster.world.rng.random() * HEARTBEAT_MS)
    assert _timed_out(cluster) == 0


def test_a_killed_broker_is_fenced_long_before_its_lease_ends() -> None:
    cluster = _cluster(1)
    cluster.brokers[0].kill()
    begun = cluster.world.now_ms
    assert cluster.world.run(lambda: _timed_out(cluster) == 1, SESSION_MS)
    assert cluster.world.now_ms - begun < HEARTBEAT_MS / 2


def test_a_silent_broker_keeps_its_whole_lease() -> None:
    cluster = _cluster(1)
    cluster.network.cut(cluster.brokers[0].name, cluster.machines[0].name)
    begun = cluster.world.now_ms
    assert cluster.world.run(lambda: _timed_out(cluster) == 1, 2 * SESSION_MS)
    assert cluster.world.now_ms - begun > SESSION_MS - HEARTBEAT_MS - 100
