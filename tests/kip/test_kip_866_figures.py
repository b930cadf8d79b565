"""KIP-866, "Metrics": what controllers show of a migration."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.cli import metadata_tree
from kraft_node.migration import driver as driver_module
from tests.kip.migrating import KEY, LEVEL, MIGRATION, PRE_MIGRATION, Migrating, brokers_learn_who_the_controller_is

__all__ = ["brokers_learn_who_the_controller_is"]


def test_the_state_of_the_migration_is_a_metric_of_the_controller() -> None:
    world = Migrating()
    prefix = "kafka_controller_kafkacontroller_"

    def figures() -> tuple[float, float, float]:
        found = world.cluster.metrics(world.cluster.active.name)
        return tuple(found[prefix + name] for name in ("migrationstate", "zkmigrationstate", "migratingzkbrokercount"))  # type: ignore[return-value]

    assert figures() == (3, PRE_MIGRATION, 0)
    world.migrate()
    assert figures() == (4, MIGRATION, 2)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperwritebehindlag"] >= 0
    world.cluster.rest(30_000)
    world.register(1, 2, zookeeper=False, incarnation=2)
    assert figures() == (5, MIGRATION, 0)


def test_the_finalized_features_are_metrics_of_controllers() -> None:
    world = Migrating(controllers=1)
    found = world.cluster.metrics("c1")
    assert found['kafka_controller_kafkacontroller_features{feature="metadata.version"}'] == LEVEL
    assert found["kraft_migration_key_missing"] == 0


def test_writes_to_zookeeper_and_waiting_changes_are_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Migrating()
    world.migrate()
    world.set_retention("1")
    world.cluster.rest(1_000)
    prefix = "kafka_controller_kafkacontroller_"
    found = world.cluster.metrics(world.cluster.active.name)
    assert found[prefix + "zkwritesnapshottimems_count"] == 1
    assert found[prefix + "zkwritedeltatimems_count"] >= 1
    assert found[prefix + "zookeeperblockingkraftmillis"] == 0
    monkeypatch.setattr(driver_module, "LAG_RECORDS_MAX", 1)
    world.servers.down = True
    for value in ("2", "3", "4"):
        world.set_retention(value)
    world.cluster.rest(5_000)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperblockingkraftmillis"] >= 1_000
    world.servers.down = False
    world.cluster.rest(120_000)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperblockingkraftmillis"] == 0


def test_the_metadata_shell_shows_the_migration_and_what_blocks_it() -> None:
    def shown(world: Migrating) -> dict[str, Any]:
        directory: Any = metadata_tree.root(world.cluster.image).child("migration")
        return dict(directory.children())

    world = Migrating(per_machine={"c2": {KEY: "false"}})
    world.register(1)
    world.cluster.until(lambda: len(world.cluster.image.controllers) == 3)
    found = shown(world)
    assert (found["state"], found["recordedState"], found["brokersWithZooKeeper"]) == ("MIGRATION_READY", "2", "[1]")
    assert "controller 3002 is not ready" in found["blockers"]
    assert "broker 1 is fenced" in found["blockers"]
    world = Migrating()
    world.migrate()
    assert (shown(world)["state"], shown(world)["blockers"]) == ("MIGRATION_ACTIVE", "")
