"""Partitions over three brokers under seeded schedules: kills, cuts and elections lose no acknowledged record."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from tests.property.partition.cluster import Cluster

SEEDS = int(os.environ.get("REPLICATION_SEEDS", "30"))
STEPS = 60


@pytest.mark.parametrize("seed", range(SEEDS))
def test_acknowledged_records_survive_and_replicas_agree(tmp_path: Path, seed: int) -> None:
    cluster = Cluster(tmp_path, seed)
    random, controller = cluster.random, cluster.controller
    cluster.run(500)
    for step in range(STEPS):
        victim = random.randrange(3) + 1
        match random.randrange(12):
            case 0:
                cluster.kill(victim)
                if random.randrange(2):
                    cluster.run(random.randrange(1500))
                if victim in controller.alive:
                    controller.fence(victim)
            case 1:
                cluster.restart(victim)
            case 2:
                cluster.cut.add(victim)
            case 3:
                cluster.cut.discard(victim)
            case 4:
                controller.elect(victim)
            case 5 if victim in cluster.cut and victim in controller.alive:
                controller.fence(victim)
            case 6:
                if victim not in controller.alive and cluster.nodes[victim].broker is not None:
                    controller.unfence(victim)
            case _:
                cluster.produce(step)
        cluster.run(random.choice((50, 50, 50, 100, 300, 1000)))
    cluster.heal()
    cluster.check_all()
    before = len(cluster.acked)
    for number in range(10):
        cluster.produce(1000 + number, controller.state.leader)
        cluster.run(200)
    assert len(cluster.acked) == before + 10, "a healed cluster takes records"
    cluster.heal()
    cluster.check_all()
    cluster.close()
