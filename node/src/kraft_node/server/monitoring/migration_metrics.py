"""The metrics of a controller that migrates from ZooKeeper: Kafka 3.9's, and those of KIP-866 that no release has."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from kraft_node.metadata.kinds.zk_migration import MIGRATION
from kraft_node.migration.states import visible_state

if TYPE_CHECKING:
    from kraft_node.base.histogram import Histogram
    from kraft_node.server.migration import NodeMigration
    from kraft_node.server.monitoring.metrics import Family, Sample


def _one(name: str, value: float, kind: str = "gauge") -> Family:
    return name, kind, (((), float(value)),)


def _quantiles(times: Histogram, now_ms: int) -> list[Sample]:
    times.turn(now_ms)
    return [((("quantile", name),), float(value)) for name, value in times.quantiles()]


def migration_metrics(migration: NodeMigration) -> Iterator[Family]:
    """All families of one controller."""
    driver, image = migration.driver, migration.image
    prefix = "kafka_controller_kafkacontroller_"
    yield _one(prefix + "zkmigrationstate", image.zk_migration_state)
    yield _one(prefix + "migrationstate", visible_state(image))
    yield _one(prefix + "migratingzkbrokercount", sum(one.is_migrating_zk_broker for one in image.brokers.values()))
    if migration.is_active and image.zk_migration_state == MIGRATION:
        yield _one(prefix + "zkwritebehindlag", driver.lag)
        yield _one(prefix + "zookeeperwritebehindlag", driver.lag)
        yield _one(prefix + "zookeeperblockingkraftmillis", driver.blocking_ms)
        now_ms = migration.clock.monotonic_ms()
        yield prefix + "zkwritedeltatimems", "gauge", _quantiles(driver.delta_ms, now_ms)
        yield _one(prefix + "zkwritedeltatimems_count", driver.delta_ms.count, "counter")
        yield prefix + "zkwritesnapshottimems", "gauge", _quantiles(driver.snapshot_ms, now_ms)
        yield _one(prefix + "zkwritesnapshottimems_count", driver.snapshot_ms.count, "counter")
    yield _one("kraft_migration_incompatible_brokers", len(driver.incompatible))
    yield _one("kraft_migration_blockers", len(driver.blockers))
    yield "kraft_migration_driver_state", "gauge", (((("state", driver.state.name.lower()),), 1.0),)
    yield _one("kraft_migration_read_records", driver.read_records)
    yield _one("kraft_migration_steering_failures_total", migration.steering.failures, "counter")
