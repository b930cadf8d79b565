"""The two servers, started once for all tests."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.compat.targets import Apache, Ours
from tests.golden.broker.pair import Pair, Side

SETTINGS = {
    "num.partitions": "3",
    "auto.leader.rebalance.enable": "false",
    "log.cleaner.enable": "false",
    "log.initial.task.delay.ms": "3600000",
    "group.min.session.timeout.ms": "1000",
    "group.consumer.min.heartbeat.interval.ms": "5000",  # the default; set, it turns `frequent-heartbeats` off
    "message.max.bytes": "200000",
}


@pytest.fixture(scope="session")
def servers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Side, Side]]:
    """Apache Kafka and ours under the same configuration."""
    folder = tmp_path_factory.mktemp("broker-parity")
    targets = Apache("apache", folder / "apache", SETTINGS), Ours("kraftcluster", folder / "ours", SETTINGS)
    try:
        sides = Side("Kafka", targets[0].start()), Side("ours", targets[1].start())
        yield sides
        for side in sides:
            side.close()
    finally:
        for target in targets:
            target.kill()


@pytest.fixture
def pair(servers: tuple[Side, Side]) -> Iterator[Pair]:
    """Both servers with empty notes; at its end a test fails with the differences noted."""
    made = Pair(*servers)
    yield made
    made.verdict()
