"""ACLs that clients create while the controllers read ZooKeeper: no acknowledged ACL is lost."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_node.cli.client import NodeClient
from kraft_node.cli.common import ToolError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateAclsRequest, DescribeAclsRequest
from tests.compat.members import wait_for
from tests.compat.zookeeper_cluster import OldCluster
from tests.golden.migration.content import OVERRIDES
from tests.golden.migration.test_whole_migration import migrated

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

BROKERS = (1, 2)
WRITERS = 3
"""For each broker."""
ANY = 1
"""In a filter of ACLs."""
TOPIC, LITERAL, READ, ALLOW = 2, 3, 3, 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OldCluster]:
    made = OldCluster(tmp_path, brokers=2, overrides={**OVERRIDES, "log.cleaner.dedupe.buffer.size": str(8 << 20)})
    try:
        made.start()
        yield made
    finally:
        print(made.tails())  # pytest shows it for a failed test only
        made.stop()


class AclWriter:
    """Creates ACLs of ever new topics through one broker, until it is stopped."""

    def __init__(self, port: int, name: str) -> None:
        self._port = port
        self._name = name
        self.acknowledged: list[str] = []
        """The topics."""
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._ended.is_set():
            try:
                with NodeClient("127.0.0.1", self._port, timeout_s=90) as client:
                    while not self._ended.is_set():
                        number += 1
                        topic = f"{self._name}-{number}"
                        if self._create(client, topic):
                            self.acknowledged.append(topic)
            except ToolError:
                self._ended.wait(0.2)

    @staticmethod
    def _create(client: NodeClient, topic: str) -> bool:
        creation = CreateAclsRequest.AclCreation(TOPIC, topic, LITERAL, "User:alice", "*", READ, ALLOW)
        (answer,) = client.request(ApiKey.CREATE_ACLS, CreateAclsRequest([creation])).results
        return not answer.error_code

    def goes_on(self) -> None:
        """Wait for some more ACLs."""
        target = len(self.acknowledged) + 30
        wait_for("acknowledged ACLs", lambda: len(self.acknowledged) >= target, timeout_s=120)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join()


def _topics_with_acls(port: int) -> set[str]:
    with NodeClient("127.0.0.1", port) as client:
        request = DescribeAclsRequest(TOPIC, None, ANY, None, None, ANY, ANY)
        return {one.resource_name for one in client.request(ApiKey.DESCRIBE_ACLS, request).resources}


def test_an_acknowledged_acl_outlives_the_migration(cluster: OldCluster) -> None:
    """Brokers of 3.9.2 send it to ZooKeeper's controller, which writes it even after it has lost that role."""
    places = [(one, number) for one in BROKERS for number in range(WRITERS)]
    writers = [AclWriter(cluster.nodes[one].port, f"t{one}{number}") for one, number in places]
    for writer in writers:
        writer.goes_on()
    cluster.start_our_controllers()
    wait_for("the migration", lambda: migrated(cluster), timeout_s=120)
    for writer in writers:
        writer.goes_on()
    for writer in writers:
        writer.stop()
    acknowledged = {topic for writer in writers for topic in writer.acknowledged}
    wait_for("no lag", lambda: migrated(cluster))
    for broker in BROKERS:
        port = cluster.nodes[broker].port
        wait_for(f"ACLs at {broker}", lambda: acknowledged <= _topics_with_acls(port), timeout_s=30)  # noqa: B023
