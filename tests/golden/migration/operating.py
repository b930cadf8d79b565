"""An operator of a cluster with ZooKeeper who has `kraftcluster migrate`, on real processes."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from kraft_node.cli.client import NodeClient
from kraft_protocol.configs.properties import parse_properties
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest, UnregisterBrokerRequest
from tests.compat.members import wait_for
from tests.compat.targets import Ours, Target, free_ports
from tests.compat.zookeeper_cluster import OldCluster, OldNode, OurController
from tests.golden.migration.content import OVERRIDES, Admin

CLEANER = {"log.cleaner.dedupe.buffer.size": str(8 << 20)}


class Operator:
    """An operator with the commands, a cluster with one broker, and its future controllers."""

    def __init__(self, folder: Path, controllers: int) -> None:
        self.folder = folder
        overrides = {**OVERRIDES, **CLEANER}
        self.cluster = OldCluster(folder, controllers=controllers, overrides=overrides, is_prepared=False)
        try:
            self.cluster.start()
        except BaseException:
            self.cluster.stop()
            raise
        self.http = _row(controllers)
        self.files = folder / "files"
        self.former = dict(self.broker.overrides)

    @property
    def broker(self) -> Target:
        return self.cluster.nodes[1]

    @property
    def pages(self) -> list[str]:
        return [f"127.0.0.1:{self.http + i}" for i in range(len(self.cluster.controller_ports))]

    def words(self, command: str, *args: str, zookeeper: bool = False) -> list[str]:
        """The command line."""
        words = [sys.executable, "-m", "kraft_cli.kraftcluster", "migrate", command, *args]
        return [*words, *(("--zookeeper", self.cluster.zookeeper.address) if zookeeper else ()), "--json"]

    def run(self, command: str, *args: str, code: int = 0, zookeeper: bool = False) -> Any:
        """The JSON that a command prints, or its message if `code` is that of an error."""
        words = self.words(command, *args, zookeeper=zookeeper)
        done = subprocess.run(words, capture_output=True, check=False, timeout=300)
        out = done.stdout.decode()
        assert done.returncode == code, f"{command}: {done.returncode}\n{out}\n{done.stderr.decode()}"
        return json.loads(out) if out else done.stderr.decode()

    def check(self, *args: str, code: int = 0) -> dict[str, list[str]]:
        """Kind of finding -> subjects and reasons; `next` -> the next step."""
        found = self.run("check", *args, code=code, zookeeper=True)
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

    def unregister_broker(self) -> None:
        """Stop the broker, and unregister it at the active controller."""
        self.broker.stop()
        active = next(one for one in self.cluster.nodes.values() if isinstance(one, OurController) and _is_active(one))
        with NodeClient("127.0.0.1", active.port) as client:
            assert not client.request(ApiKey.UNREGISTER_BROKER, UnregisterBrokerRequest(1)).error_code

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

    def stop_controllers(self) -> list[Path]:
        """Stop all controllers. Returns the folders of their metadata logs."""
        nodes = [self.cluster.nodes.pop(node_id) for node_id in self.cluster.controller_ports]
        for node in nodes:
            node.stop()
        return [node.data / "__cluster_metadata-0" for node in nodes]

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


def _is_active(controller: OurController) -> bool:
    return bool(controller.status().get("migration", {}).get("isActive"))


def _row(count: int) -> int:
    """The first of that many free ports in a row."""
    while True:
        found = sorted(free_ports(count))
        if found[-1] - found[0] == count - 1:
            return found[0]


@contextmanager
def operating(folder: Path, controllers: int) -> Iterator[Operator]:
    """An operator with a running cluster of one broker, which stops at the end."""
    made = Operator(folder, controllers)
    try:
        yield made
    finally:
        print(made.cluster.tails())  # pytest shows it for a failed test only
        made.cluster.stop()
