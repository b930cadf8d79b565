"""The processes of a cluster: three controllers and three brokers of ours, all connections through the proxy."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Collection
from dataclasses import dataclass, field
from pathlib import Path

from tests.compat.targets import free_ports
from tests.faults.proxy import CLIENT, Proxy
from tests.peer import QUICK_JVM, require_peer
from tools import peers

CLUSTER_ID = "kraftclusterFaults000A"
CONTROLLERS = (1, 2, 3)
BROKERS = (11, 12, 13)
STOP_TIMEOUT_S = 30.0

COMMON = {
    "controller.listener.names": "CONTROLLER",
    "offsets.topic.replication.factor": "3",
    "offsets.topic.num.partitions": "4",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.num.partitions": "4",
    "transaction.state.log.min.isr": "2",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "2000",
    "default.replication.factor": "3",
    "min.insync.replicas": "2",
    "group.initial.rebalance.delay.ms": "0",
    "replica.lag.time.max.ms": "4000",
    "unclean.leader.election.enable": "false",
    "log.segment.bytes": str(2 << 20),
    "metadata.log.max.record.bytes.between.snapshots": "4000",
    "metadata.max.retention.bytes": "200000",
}


LOG4J = """rootLogger.level=INFO
rootLogger.appenderRef.c.ref=c
appender.c.type=Console
appender.c.name=c
appender.c.layout.type=PatternLayout
appender.c.layout.pattern=[%d] %p %m (%c)%n
"""
"""How Apache Kafka's members log."""


@dataclass
class Member:
    """One process: its name, id, role and folder, the port it listens on and its advertised port."""

    name: str
    node_id: int
    role: str
    folder: Path
    port: int
    known_port: int = 0
    settings: dict[str, str] = field(default_factory=dict)
    process: subprocess.Popen[bytes] | None = None
    apache: bool = False
    preload: dict[str, str] = field(default_factory=dict)
    """Environment variables for the process, for instance a shifted clock's."""

    def __post_init__(self) -> None:
        if self.apache:
            require_peer()

    @property
    def data(self) -> Path:
        return self.folder / "data"

    @property
    def log(self) -> Path:
        return self.folder / "server.log"

    @property
    def pid(self) -> int:
        assert self.process is not None, f"{self.name} does not run"
        return self.process.pid

    @property
    def running(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def format(self) -> None:
        """Format the data directory, as an init container would: at first and after a replacement of the disk."""
        properties = self.folder / "server.properties"
        properties.write_text("".join(f"{key}={value}\n" for key, value in self.settings.items()))
        command = self._command("storage", "format", "-t", CLUSTER_ID, "-c", str(properties))
        done = subprocess.run(command, capture_output=True, timeout=60, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def start(self) -> None:
        environment = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"} | self.preload
        command = self._command("server", str(self.folder / "server.properties"))
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log, env=environment)

    def _command(self, program: str, *arguments: str) -> list[str]:
        if not self.apache:
            module = {"storage": "kraft_node.cli.storage", "server": "kraft_node.cli.server_start"}[program]
            return [sys.executable, "-m", module, *arguments]
        main = {"storage": "kafka.tools.StorageTool", "server": "kafka.Kafka"}[program]
        logging = self.folder / "log4j2.properties"
        logging.write_text(LOG4J)
        options = (*QUICK_JVM, "-Xmx256m", f"-Dlog4j2.configurationFile={logging}")
        return peers.java_command(main, *arguments, options=options)

    def signal(self, number: int) -> None:
        if self.running:
            assert self.process is not None
            self.process.send_signal(number)

    def kill(self) -> None:
        """SIGKILL, and wait until the process has ended."""
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGKILL)
        if self.process is not None:
            self.process.wait(STOP_TIMEOUT_S)
        self.process = None

    def stop(self) -> int | None:
        """SIGTERM; returns the exit code. Raises AssertionError if the process does not end."""
        if self.process is None:
            return None
        self.signal(signal.SIGCONT)
        self.signal(signal.SIGTERM)
        try:
            code = self.process.wait(STOP_TIMEOUT_S)
        except subprocess.TimeoutExpired:
            self.kill()
            raise AssertionError(f"{self.name} did not stop within {STOP_TIMEOUT_S} s:\n{self.tail()}") from None
        self.process = None
        return code

    def wipe(self) -> None:
        """Replace the disk by an empty one."""
        assert not self.running
        shutil.rmtree(self.data)
        self.format()

    def tail(self, lines: int = 40) -> str:
        """The last lines of its output."""
        if not self.log.exists():
            return ""
        return "\n".join(self.log.read_text(errors="replace").split("\n")[-lines:])


class Cluster:
    """The members, and the proxy between them."""

    def __init__(self, folder: Path, overrides: dict[str, str] | None = None, apache: Collection[str] = ()) -> None:
        """Prepare the members; `apache` names those that are Apache Kafka."""
        self.folder = folder
        self.proxy = Proxy(self._pids)
        ids = [("c", node_id, "controller") for node_id in CONTROLLERS]
        ids += [("b", node_id, "broker") for node_id in BROKERS]
        self.members: dict[str, Member] = {}
        for (letter, node_id, role), port in zip(ids, free_ports(len(ids)), strict=True):
            name = f"{letter}{node_id}"
            member = Member(name, node_id, role, folder / name, port, apache=name in apache)
            member.folder.mkdir(parents=True)
            member.known_port = self.proxy.route(name, port)
            self.members[name] = member
        voters = ",".join(f"{m.node_id}@127.0.0.1:{m.known_port}" for m in self.controllers)
        for member in self.members.values():
            listener = "CONTROLLER" if member.role == "controller" else "PLAINTEXT"
            member.settings = {
                **COMMON,
                "process.roles": member.role,
                "node.id": str(member.node_id),
                "controller.quorum.voters": voters,
                "listeners": f"{listener}://127.0.0.1:{member.port}",
                "log.dirs": str(member.data),
                **(overrides or {}),
            }
            if member.role == "broker":
                member.settings["advertised.listeners"] = f"PLAINTEXT://127.0.0.1:{member.known_port}"
                member.settings["inter.broker.listener.name"] = "PLAINTEXT"

    def _pids(self) -> dict[int, str]:
        pids = {m.process.pid: m.name for m in self.members.values() if m.process is not None}
        return {**pids, os.getpid(): CLIENT}

    @property
    def controllers(self) -> list[Member]:
        return [m for m in self.members.values() if m.role == "controller"]

    @property
    def brokers(self) -> list[Member]:
        return [m for m in self.members.values() if m.role == "broker"]

    @property
    def bootstrap(self) -> str:
        """The bootstrap servers of clients: all brokers."""
        return ",".join(f"127.0.0.1:{m.known_port}" for m in self.brokers)

    def start(self) -> None:
        for member in self.members.values():
            member.format()
            member.start()

    def check_running(self) -> None:
        """Raises AssertionError with the name of a member that ended by itself."""
        for member in self.members.values():
            if member.process is not None and member.process.poll() is not None:
                raise AssertionError(f"{member.name} ended with {member.process.returncode}:\n{member.tail()}")

    def close(self) -> None:
        """Stop all members, in any state."""
        for member in self.members.values():
            member.kill()
        self.proxy.close()


def wait_until(what: str, question: Callable[[], bool], timeout_s: float, pause_s: float = 0.1) -> float:
    """Repeat until the answer is true. Returns the seconds. Raises AssertionError with the missing condition."""
    begun = time.monotonic()
    while not question():
        if time.monotonic() - begun > timeout_s:
            raise AssertionError(f"not within {timeout_s} s: {what}")
        time.sleep(pause_s)
    return time.monotonic() - begun
