"""`kraftcluster migrate` on real processes: check, start and finalize; revert from several states."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli.client import NodeClient
from kraft_protocol.configs.properties import parse_properties
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest
from tests.compat.members import wait_for
from tests.compat.targets import Ours, Target, free_ports
from tests.compat.zookeeper_cluster import OldCluster, OldNode, OurController
from tests.golden.migration.content import OVERRIDES, Admin

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]
CLEANER = {"log.cleaner.dedupe.buffer.size": str(8 << 20)}


class Operator:
    """An operator with the commands, a cluster with one broker, and its future controllers."""

    def __init__(self, folder: Path, controllers: int) -> None:
        self.folder = folder
        overrides = {**OVERRIDES, **CLEANER}
        self.cluster = OldCluster(folder, controllers=controllers, overrides=overrides, is_prepared=False)
        self.cluster.start()
        self.http = _row(controllers)
        self.files = folder / "files"
        self.former = dict(self.broker.overrides)

    @property
    def broker(self) -> Target:
        return self.cluster.nodes[1]

    @property
    def pages(self) -> list[str]:
        return [f"127.0.0.1:{self.http + i}" for i in range(len(self.cluster.controller_ports))]

    def run(self, command: str, *args: str, code: int = 0, zookeeper: bool = False) -> Any:
        """The JSON that a command prints, or its message if `code` is that of an error."""
        words = [sys.executable, "-m", "kraft_cli.kraftcluster", "migrate", command, *args]
        if zookeeper:
            words += ["--zookeeper", self.cluster.zookeeper.address]
        done = subprocess.run([*words, "--json"], capture_output=True, check=False, timeout=300)
        out = done.stdout.decode()
        assert done.returncode == code, f"{command}: {done.returncode}\n{out}\n{done.stderr.decode()}"
        return json.loads(out) if out else done.stderr.decode()

    def check(self, code: int = 0) -> dict[str, list[str]]:
        """Kind of finding -> subjects and reasons; `next` -> the next step."""
        found = self.run("check", code=code, zookeeper=True)
        kinds: dict[str, list[str]] = {"next": [found["next"]]}
        for one in found["findings"]:
            kinds.setdefault(one["kind"], []).append(f"{one['subject']}: {one['reason']}")
        return kinds

    def start(self) -> Any:
        voters = [f"{i}@127.0.0.1:{port}" for i, port in self.cluster.controller_ports.items()]
        named = [word for voter in voters for word in ("--controller", voter)]
        more = ["--broker-properties", str(self.broker.properties()), "--http-port", str(self.http)]
        folders = ["--out", str(self.files), "--log-dir", str(self.folder / "quorum")]
        return self.run("start", *named, *more, *folders, zookeeper=True)

    def restart_broker(self, values: dict[str, str], *, ours: bool = False) -> None:
        former = self.broker
        former.stop()
        kind: type[Target] = Ours if ours else OldNode
        self.cluster.nodes[1] = kind(former.name, former.folder, values, former.port, former.port, is_lone=False)
        self.broker.launch()
        self.broker.wait_ready()

    def file(self, name: str) -> dict[str, str]:
        return parse_properties((self.files / f"{name}.properties").read_text())

    def start_controllers(self) -> None:
        cluster = self.cluster
        for index, (node_id, port) in enumerate(cluster.controller_ports.items()):
            node = OurController(
                f"controller-{node_id}",
                self.folder / f"controller-{node_id}",
                self.file(f"controller-{node_id}"),
                port,
                port,
                is_lone=False,
                format_options=("-r", cluster.ibp),
                cluster_id=cluster.cluster_id(),
                http_port=self.http + index,
            )
            cluster.nodes[node_id] = node
            node.launch()

    def migrated(self) -> None:
        """Wait for writes to both worlds without a lag."""

        def is_done() -> bool:
            found = self.cluster.migration()
            return found.get("driver") == "DUAL_WRITE" and not found["waitingBrokers"] and not found["lagRecords"]

        wait_for("the migration", is_done, timeout_s=120)

    def stop_controllers(self) -> None:
        for node_id in self.cluster.controller_ports:
            node = self.cluster.nodes.pop(node_id)
            node.stop()
            shutil.rmtree(node.data)

    def topics(self) -> set[str]:
        with NodeClient("127.0.0.1", self.broker.port) as client:
            topics = client.request(ApiKey.METADATA, MetadataRequest(topics=None)).topics
        return {topic.name for topic in topics if not topic.is_internal}

    def has_topics(self, names: set[str]) -> None:
        """Wait until the broker, which may have just started, knows exactly these topics."""
        wait_for(f"the topics {names}", lambda: self.topics() == names)

    def make(self, name: str) -> None:
        with Admin(self.cluster.bootstrap) as admin:
            admin.topic(name)


def _row(count: int) -> int:
    """The first of that many free ports in a row."""
    while True:
        found = sorted(free_ports(count))
        if found[-1] - found[0] == count - 1:
            return found[0]


@pytest.fixture
def operator(tmp_path: Path, request: pytest.FixtureRequest) -> Iterator[Operator]:
    made = Operator(tmp_path, request.param)
    try:
        yield made
    finally:
        print(made.cluster.tails())
        made.cluster.stop()


@pytest.mark.parametrize("operator", [1], indirect=True)
def test_a_migration_is_reverted_while_all_brokers_use_zookeeper(operator: Operator) -> None:
    operator.make("before")
    operator.start()
    operator.restart_broker(operator.file("broker-1-migrating"))
    operator.start_controllers()
    operator.migrated()
    operator.make("dual")
    operator.migrated()
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "stop"
    operator.stop_controllers()
    done = operator.run("revert", *operator.pages, zookeeper=True)
    assert (done["released"], done["controller"]) == (True, 1)
    operator.restart_broker(operator.former)
    operator.has_topics({"before", "dual"})
    operator.make("reverted")
    assert not operator.run("revert", *operator.pages, zookeeper=True)["released"]


@pytest.mark.parametrize("operator", [1], indirect=True)
def test_a_migration_is_reverted_after_a_broker_was_replaced(operator: Operator) -> None:
    operator.make("before")
    operator.start()
    migrating = operator.file("broker-1-migrating")
    operator.restart_broker(migrating)
    operator.start_controllers()
    operator.migrated()
    operator.restart_broker(operator.file("broker-1-kraft"), ours=True)
    operator.make("ours")
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "brokers"
    former = operator.broker
    former.stop()
    shutil.rmtree(former.data / "__cluster_metadata-0")
    meta = former.data / "meta.properties"
    meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
    operator.restart_broker(migrating)
    operator.migrated()
    assert operator.run("revert", *operator.pages, code=1, zookeeper=True)["step"] == "stop"
    operator.stop_controllers()
    assert operator.run("revert", *operator.pages, zookeeper=True)["controller"] == 1
    operator.restart_broker(operator.former)
    operator.has_topics({"before", "ours"})
    operator.make("again")


@pytest.mark.parametrize("operator", [3], indirect=True)
def test_the_commands_lead_from_zookeeper_to_a_finished_migration(operator: Operator) -> None:
    operator.make("before")
    found = operator.check()
    assert "migrate start" in found["next"][0]
    assert "blocker" not in found
    assert "broker 1: zookeeper.metadata.migration.enable is not true" in found["preparation"]
    assert any("password" in one for one in found["warning"])

    result = operator.start()
    names = [*(f"controller-{i}" for i in (3001, 3002, 3003)), "broker-1-migrating", "broker-1-kraft"]
    assert [Path(one["file"]).name for one in result["files"]] == [f"{name}.properties" for name in names]
    assert [one["todo"] for one in result["files"]] == [[]] * 5
    assert operator.start() == result  # the same again
    operator.restart_broker(operator.file("broker-1-migrating"))
    assert "start the controllers" in operator.check()["next"][0]
    operator.start_controllers()
    operator.migrated()
    status = operator.run("status", *operator.pages)
    assert (status["active"]["state"], status["isFinished"]) == ("MIGRATION_ACTIVE", False)
    assert "migrate status" in operator.check()["next"][0]
    assert "brokers 1 use ZooKeeper" in operator.run("finalize", *operator.pages, code=3)

    operator.restart_broker(operator.file("broker-1-kraft"), ours=True)
    wait_for("no broker with ZooKeeper", lambda: operator.cluster.migration().get("state") == "MIGRATION_FINISHED")
    operator.migrated()
    files = [str(operator.files / f"controller-{i}.properties") for i in operator.cluster.controller_ports]
    named = [word for file in files for word in ("--properties", file)]
    order = operator.run("finalize", *operator.pages, *named, "--no-wait")["order"]
    assert sorted(order) == [3001, 3002, 3003]
    for node_id in order:
        node = operator.cluster.nodes[node_id]
        node.stop()
        assert operator.file(f"controller-{node_id}")["zookeeper.metadata.migration.enable"] == "false"
        node.overrides["zookeeper.metadata.migration.enable"] = "false"
        node.launch()
    assert operator.run("finalize", *operator.pages)["finished"]
    assert operator.run("status", *operator.pages)["isFinished"]
    assert "no way back" in operator.run("revert", *operator.pages, code=3, zookeeper=True)
    operator.has_topics({"before"})
    operator.make("after")
