"""`spec.migration` on real processes: a cluster of Apache Kafka 3.9.2 with ZooKeeper moves into a KRaftCluster."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, TopicPartition

from kraft_node.cli.client import NodeClient
from kraft_protocol.configs.properties import parse_properties
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest, UnregisterBrokerRequest
from tests.compat.members import wait_for
from tests.compat.ports import first_of_a_cluster
from tests.compat.targets import Target
from tests.compat.zookeeper_cluster import OldCluster, OldNode
from tests.golden.migration.content import Admin
from tests.golden.migration.traffic import PARTITIONS, TOPIC, Writer, read_all

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

NAME = "taken-over"
CONTROLLER = 3001
OURS = (101, 102)
OLD = (1, 2)
PATIENCE_S = 240.0


class Local:
    """`kraftcluster up` in the foreground, with its file."""

    def __init__(self, folder: Path, cluster_id: str, zookeeper: str) -> None:
        self.folder = folder
        self.port = first_of_a_cluster()
        pool = {"storage": {"volumes": [{"name": "data"}]}}
        self.spec: dict[str, Any] = {
            "clusterId": cluster_id,
            "metadataVersion": "3.9",
            "security": {"tls": "Disabled"},
            "listeners": [{"name": "plaintext", "port": 9092}],
            "config": {"offsets.topic.replication.factor": "2"},
            "nodePools": [
                {**pool, "name": "controllers", "roles": ["controller"], "replicas": 1, "firstNodeId": CONTROLLER},
                {**pool, "name": "brokers", "roles": ["broker"], "replicas": len(OURS), "firstNodeId": OURS[0]},
            ],
            "migration": {"zookeeper": {"connect": zookeeper}, "brokers": list(OLD)},
        }
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def file(self) -> Path:
        return self.folder / "kraftcluster.yaml"

    def write(self) -> None:
        document = {
            "apiVersion": "kraftcluster.io/v1alpha1",
            "kind": "KRaftCluster",
            "metadata": {"name": NAME},
            "spec": self.spec,
        }
        beside = self.file.with_suffix(".new")
        beside.write_text(yaml.safe_dump(document))
        beside.replace(self.file)

    def start(self) -> None:
        self.write()
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", "up", "--file", str(self.file)]
        command += ["--data", str(self.folder / "data"), "--port", str(self.port)]
        with (self.folder / "up.log").open("wb") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, cwd=self.folder)

    def stop(self) -> None:
        if self.process is not None:
            self.process.terminate()
            self.process.wait(120)

    def resource(self) -> dict[str, Any]:
        try:
            found: dict[str, Any] = json.loads((self.folder / "data" / NAME / "status.json").read_text())
        except FileNotFoundError:
            return {"status": {}, "local": {"pids": {}, "ports": {}}}
        return found

    def migration(self) -> dict[str, Any]:
        return dict(self.resource()["status"].get("migration") or {})

    def condition(self, kind: str) -> dict[str, Any]:
        conditions = self.resource()["status"].get("conditions", ())
        return next((one for one in conditions if one["type"] == kind), {"status": "", "reason": "", "message": ""})

    def address(self, node: int, listener: str = "plaintext") -> str:
        return f"localhost:{self.resource()['local']['ports'][f'{node}/{listener}']}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, OURS))

    def properties(self, node: int) -> dict[str, str]:
        return parse_properties((self.folder / "data" / NAME / "nodes" / str(node) / "server.properties").read_text())

    def log(self) -> str:
        return (self.folder / "up.log").read_text()


@pytest.fixture
def old(tmp_path: Path) -> Iterator[OldCluster]:
    more = {"log.cleaner.dedupe.buffer.size": str(8 << 20), "offsets.topic.replication.factor": "2"}
    cluster = OldCluster(tmp_path / "old", brokers=len(OLD), overrides=more, is_prepared=False)
    try:
        yield cluster.start()
    finally:
        print(cluster.tails())  # pytest shows it for a failed test only
        cluster.stop()


@pytest.fixture
def local(tmp_path: Path, old: OldCluster) -> Iterator[Local]:
    folder = tmp_path / "ours"
    folder.mkdir()
    cluster = Local(folder, old.cluster_id(), old.zookeeper.address)
    cluster.start()
    try:
        yield cluster
    finally:
        cluster.stop()
        print(cluster.log())


def _makes_topic(old: OldCluster, broker: int) -> bool:
    """Whether the broker has made the topic; only the controller can, in a cluster without KRaft."""
    try:
        with Admin(f"127.0.0.1:{old.nodes[broker].port}") as admin:
            admin.topic(TOPIC, PARTITIONS, 2)
    except AssertionError as error:
        assert "error_code=41" in str(error), error
        return False
    return True


def _prepare(old: OldCluster, broker: int, controller: str) -> None:
    """Restart a broker of Apache Kafka with the keys of the migration."""
    former = old.nodes[broker]
    former.stop()
    values = {**former.overrides, **old.migrating, "controller.quorum.voters": f"{CONTROLLER}@{controller}"}
    node: Target = OldNode(former.name, former.folder, values, former.port, former.port, is_lone=False)
    old.nodes[broker] = node
    node.launch()
    node.wait_ready()


def _replicas(address: str) -> set[int]:
    """All brokers with a replica."""
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        topics = client.request(ApiKey.METADATA, MetadataRequest(topics=None)).topics
    return {broker for topic in topics for one in topic.partitions for broker in one.replica_nodes}


def _group(bootstrap: str) -> Consumer:
    """A member of a group that commits before the migration."""
    return Consumer({"bootstrap.servers": bootstrap, "group.id": "before", "enable.auto.commit": False})


def _in_sync(address: str, topic: str, count: int) -> bool:
    host, _, port = address.partition(":")
    with NodeClient(host, int(port)) as client:
        found = client.request(ApiKey.METADATA, MetadataRequest(topics=None)).topics
    return any(one.name == topic and all(len(p.isr_nodes) == count for p in one.partitions) for one in found)


def test_a_cluster_with_zookeeper_moves_into_a_kraftcluster_under_a_producer(old: OldCluster, local: Local) -> None:
    wait_for("the topic", lambda: any(_makes_topic(old, broker) for broker in OLD))
    writer = Writer(old.bootstrap)
    writer.goes_on()
    _group(old.bootstrap).commit(offsets=[TopicPartition(TOPIC, 0, 7)], asynchronous=False)

    # Before the brokers are prepared, each of them blocks the migration, and no broker of ours starts.
    def blocked() -> bool:
        found = local.condition("Degraded")
        return found["reason"] == "MigrationBlocked" and "broker 2 has not registered" in found["message"]

    wait_for("blockers by name", blocked, timeout_s=PATIENCE_S)
    assert set(local.resource()["local"]["pids"]) == {str(CONTROLLER)}
    for broker in OLD:
        _prepare(old, broker, local.address(CONTROLLER, "controller"))
        wait_for(
            "all replicas in sync", lambda: _in_sync(f"127.0.0.1:{old.nodes[1].port}", TOPIC, 2), timeout_s=PATIENCE_S
        )

    wait_for("the phase Migrated", lambda: local.migration().get("phase") == "Migrated", timeout_s=PATIENCE_S)
    wait_for("brokers of ours", lambda: local.condition("Ready")["status"] == "True", timeout_s=PATIENCE_S)
    assert local.migration()["brokersOnZookeeper"] == list(OLD)
    assert local.condition("Migrated")["reason"] == "BrokersOnZooKeeper"
    writer.goes_on()

    # An end that is requested too early waits, and names the brokers.
    local.spec["migration"] |= {"phase": "Finalized", "moveReplicas": True}
    local.write()
    wait_for(
        "a refused end",
        lambda: local.condition("Degraded")["reason"] == "MigrationNotFinalized",
        timeout_s=PATIENCE_S,
    )
    wait_for("no replicas outside", lambda: _replicas(local.address(101)) <= set(OURS), timeout_s=PATIENCE_S)
    assert "broker 1, 2 uses ZooKeeper" in local.condition("Degraded")["message"]
    assert local.properties(CONTROLLER)["zookeeper.metadata.migration.enable"] == "true"
    writer.goes_on()

    for broker in OLD:
        old.nodes[broker].stop()
        with Admin(local.bootstrap) as admin:
            admin.ask(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(broker))
    wait_for("the end", lambda: local.condition("Migrated")["status"] == "True", timeout_s=PATIENCE_S)
    assert "zookeeper.connect" not in local.properties(CONTROLLER)
    assert local.migration()["phase"] == "Finalized"
    writer.goes_on()

    del local.spec["migration"]
    local.spec["metadataVersion"] = "4.0"
    local.write()
    wait_for("another version", lambda: local.resource()["status"]["version"].startswith("4.0"), timeout_s=PATIENCE_S)
    assert [one.offset for one in _group(local.bootstrap).committed([TopicPartition(TOPIC, 0)], 60)] == [7]
    writer.stop()
    assert writer.failures == []
    assert read_all(local.bootstrap, sum(writer.acknowledged.values())) == writer.acknowledged
