"""Configurations that clients change while the controllers read ZooKeeper: an acknowledged change is not lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeConfigsRequest, IncrementalAlterConfigsRequest
from tests.compat.members import wait_for
from tests.compat.zookeeper_cluster import OldCluster
from tests.golden.migration.content import Admin
from tests.golden.migration.test_whole_migration import migrated

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

BROKERS = (1, 2)
TOPICS = [f"topic-{number}" for number in range(400)]
"""So many that no topic is changed a second time soon after the migration."""
TOPIC, RETENTION = 2, "retention.ms"


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OldCluster]:
    made = OldCluster(tmp_path, brokers=2, overrides={"log.cleaner.dedupe.buffer.size": str(8 << 20)})
    try:
        made.start()
        yield made
    finally:
        print(made.tails())  # pytest shows it for a failed test only
        made.stop()


class Changer:
    """Changes topics of its own through one broker, one after the other, to ever larger values."""

    def __init__(self, port: int, topics: list[str]) -> None:
        self._port = port
        self._topics = topics
        self.acknowledged: dict[str, int] = {}
        """Topic -> the last value that was acknowledged."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 1_000
        while not self._ended.is_set():
            try:
                with NodeClient("127.0.0.1", self._port, timeout_s=90) as client:
                    while not self._ended.is_set():
                        topic = self._topics[number % len(self._topics)]
                        number += 1
                        if self._change(client, topic, number):
                            self.acknowledged[topic] = number
            except ToolError:
                self._ended.wait(0.2)

    @staticmethod
    def _change(client: NodeClient, topic: str, value: int) -> bool:
        of = IncrementalAlterConfigsRequest
        resource = of.AlterConfigsResource(TOPIC, topic, [of.AlterableConfig(RETENTION, 0, str(value))])
        (answer,) = client.request(ApiKey.INCREMENTAL_ALTER_CONFIGS, of([resource])).responses
        return not answer.error_code

    def goes_on(self) -> None:
        """Wait until each topic was changed again."""
        before = dict(self.acknowledged)

        def changed() -> bool:
            return all(self.acknowledged.get(topic, 0) > before.get(topic, 0) for topic in self._topics)

        wait_for("acknowledged changes", changed, timeout_s=120)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def _retentions(port: int) -> dict[str, int]:
    of = DescribeConfigsRequest
    with NodeClient("127.0.0.1", port) as client:
        answer = client.request(
            ApiKey.DESCRIBE_CONFIGS, of([of.DescribeConfigsResource(TOPIC, name, [RETENTION]) for name in TOPICS])
        )
    return {one.resource_name: int(one.configs[0].value) for one in answer.results}


def test_an_acknowledged_change_of_a_configuration_outlives_the_migration(cluster: OldCluster) -> None:
    """Brokers of 3.9.2 write configurations to ZooKeeper themselves until they know of a KRaft controller."""
    with Admin(cluster.bootstrap) as admin:
        for name in TOPICS:
            admin.topic(name)
    changers = [Changer(cluster.nodes[one].port, TOPICS[at :: len(BROKERS)]) for at, one in enumerate(BROKERS)]
    for changer in changers:
        changer.goes_on()
    cluster.start_our_controllers()
    wait_for("the migration", lambda: cluster.migration().get("driver") == "DUAL_WRITE", timeout_s=120)
    for changer in changers:
        changer.stop()
    acknowledged = {topic: value for changer in changers for topic, value in changer.acknowledged.items()}

    def lost() -> dict[str, tuple[int, int]]:
        found = _retentions(cluster.nodes[1].port)
        return {topic: (value, found[topic]) for topic, value in acknowledged.items() if found[topic] < value}

    wait_for("no lag", lambda: migrated(cluster))
    wait_for(f"the acknowledged changes: {lost()} are lost", lambda: not lost(), timeout_s=20)
