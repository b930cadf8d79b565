"""The compared servers: the node of this checkout, Apache Kafka, and variants of both.

A variant differs from its server only by named settings; the page shows them beside its rows.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat import members
from tests.compat.members import Members
from tests.compat.targets import Apache, Ours, Target
from tools import peers

DEFAULT_HEAP_MIB = 1024
"""The heap that Kafka's start script gives each node (KAFKA_HEAP_OPTS)."""


class TunedApache(Apache):
    """Apache Kafka with the JVM options of its start script (1 GiB heap, G1)."""

    heap_mib = DEFAULT_HEAP_MIB

    def _command(self, program: str, *args: str) -> list[str]:
        main = {"storage": "kafka.tools.StorageTool", "server": "kafka.Kafka"}[program]
        options = (*jvm_options(self.heap_mib), f"-Dlog4j2.configurationFile={self._log4j()}")
        return peers.java_command(main, *args, options=options)


def jvm_options(heap_mib: int) -> tuple[str, ...]:
    """The options of Kafka's start script."""
    return (
        *(f"-Xmx{heap_mib}M", f"-Xms{heap_mib}M", "-server", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20"),
        *("-XX:InitiatingHeapOccupancyPercent=35", "-XX:+ExplicitGCInvokesConcurrent", "-Djava.awt.headless=true"),
    )


@dataclass(frozen=True)
class Server:
    """One of the servers. `kind`: "ours", "kafka", or the name of a program that a scenario starts itself."""

    name: str
    kind: str
    label: str
    settings: dict[str, str] = field(default_factory=dict)
    """Settings added to the settings of the scenario, which are the same for both servers."""
    program: str = ""
    """A program that must be in PATH; without it the server's steps are skipped."""

    def missing(self) -> str:
        """Why the server cannot be started; empty if it can."""
        if self.kind == "kafka" and not peers.installed():
            return "Apache Kafka is not installed: `make peers`"
        return f"{self.program} is not in PATH" if self.program and shutil.which(self.program) is None else ""

    def node(
        self,
        folder: Path,
        overrides: dict[str, str],
        ports: tuple[int, int] = (0, 0),
        *,
        lone: bool = True,
        heap: int = 0,
    ) -> Target:
        """A node that is neither formatted nor started; `heap` in MiB applies to Kafka, 0 is the default."""
        values = {**overrides, **self.settings}
        if self.kind == "ours":
            return Ours("ours", folder, values, *ports, is_lone=lone)
        target = TunedApache("kafka", folder, values, *ports, is_lone=lone)
        target.heap_mib = heap or DEFAULT_HEAP_MIB
        return target

    @contextmanager
    def cluster(self, folder: Path, controllers: int = 3, brokers: int = 3) -> Iterator[Members]:
        """Controllers and brokers, one process each, formatted but not started; they are killed at the end."""
        members.PROGRAMS["tuned-apache"] = TunedApache
        kind = {"ours": "kraftcluster", "kafka": "tuned-apache"}[self.kind]
        replicas = {"default.replication.factor": str(brokers), "min.insync.replicas": str(max(1, brokers - 1))}
        cluster = Members(folder, (kind,) * controllers, (kind,) * brokers, overrides={**replicas, **self.settings})
        for node in cluster.nodes.values():
            node.format()
        try:
            yield cluster
        finally:
            cluster.stop()

    def described(self) -> dict[str, object]:
        """Settings and options, for the samples and the page."""
        options = list(jvm_options(DEFAULT_HEAP_MIB)) if self.kind == "kafka" else []
        return {"label": self.label, "settings": self.settings, "options": options}


LINGER = "controller.quorum.append.linger.ms"
CLOSED = "broker.session.closed.timeout.ms"

SERVERS = {
    server.name: server
    for server in (
        Server("ours", "ours", "ours"),
        Server("kafka", "kafka", f"Kafka {peers.VERSION}"),
        Server("kafka-linger0", "kafka", f"Kafka {peers.VERSION} with `{LINGER}=0`", {LINGER: "0"}),
        Server("ours-lease", "ours", f"ours with `{CLOSED}=0`", {CLOSED: "0"}),
        Server("etcd", "etcd", "etcd, three members", program="etcd"),
        Server("kafka-python", "library", "kafka-python, in the same process"),
    )
}
