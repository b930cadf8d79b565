"""ZooKeeper, and Apache Kafka 3.9.2 (the last release with ZooKeeper) as processes on free loopback ports.

`ZooKeeperServer` is one server. `OldNode` is a broker or controller of Apache Kafka 3.9.2. `OldCluster` can restart its
brokers without ZooKeeper (`restart_in_kraft`), and has controllers of Apache Kafka, the reference, or of ours
(`OurController`). The jars come by `python tools/peers.py install 3.9.2`.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

from tests.compat.members import wait_for
from tests.compat.security.secured import STANDARD_AUTHORIZER
from tests.compat.targets import Ours, Target, free_ports
from tests.peer import missing
from tools import peers

VERSION = peers.LAST_WITH_ZOOKEEPER
JVM = ("-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-Xmx384m")
LOG4J = (
    "log4j.rootLogger=WARN, out\n"
    "log4j.logger.org.apache.kafka.metadata.migration=INFO\n"
    "log4j.appender.out=org.apache.log4j.ConsoleAppender\n"
    "log4j.appender.out.layout=org.apache.log4j.PatternLayout\n"
    "log4j.appender.out.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
)


def require_old_peer() -> Path:
    """The folder of the jars of Apache Kafka 3.9.2 and ZooKeeper."""
    if not peers.installed(VERSION):
        missing(f"Apache Kafka {VERSION}", f"run `python tools/peers.py install {VERSION}` (needs Java and Maven)")
    return peers.lib(VERSION)


def old_java(folder: Path, main_class: str, *args: str, jvm_options: Sequence[str] = ()) -> list[str]:
    """The command line of a class of these jars; its log goes to its output."""
    require_old_peer()
    log4j = folder / "log4j.properties"
    log4j.write_text(LOG4J)
    options = (*JVM, f"-Dlog4j.configuration=file:{log4j}", "-Dzookeeper.admin.enableServer=false", *jvm_options)
    return peers.java_command(main_class, *args, version=VERSION, options=options)


def run_old_tool(
    folder: Path, main_class: str, *args: str, timeout_s: float = 120, jvm_options: Sequence[str] = ()
) -> str:
    """The output of one of Kafka 3.9.2's tools. Raises AssertionError if it fails."""
    command = old_java(folder, main_class, *args, jvm_options=jvm_options)
    done = subprocess.run(command, capture_output=True, timeout=timeout_s, check=False)
    out = done.stdout.decode()
    assert done.returncode == 0, f"{main_class} {' '.join(args)}: {done.returncode}\n{out}\n{done.stderr.decode()}"
    return out


@dataclass
class ZooKeeperServer:
    """One ZooKeeper server with its files below `folder`."""

    folder: Path
    port: int = 0
    process: subprocess.Popen[bytes] | None = None
    settings: str = ""
    """More lines of its configuration."""
    jvm_options: tuple[str, ...] = ()

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    def start(self) -> ZooKeeperServer:
        """Start the server. Returns when it answers."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self.port = self.port or free_ports(1)[0]
        config = self.folder / "zoo.cfg"
        config.write_text(
            f"tickTime=500\ndataDir={self.folder}/data\nclientPortAddress=127.0.0.1\nclientPort={self.port}\n"
            f"maxClientCnxns=0\n4lw.commands.whitelist=*\n{self.settings}"
        )
        main = "org.apache.zookeeper.server.quorum.QuorumPeerMain"
        command = old_java(self.folder, main, str(config), jvm_options=self.jvm_options)
        with (self.folder / "zookeeper.log").open("ab") as log:
            self.process = subprocess.Popen(command, stdout=log, stderr=log)
        wait_for("ZooKeeper answers", self._answers)
        return self

    def _answers(self) -> bool:
        import socket

        assert self.process is not None and self.process.poll() is None, self.tail()
        try:
            with socket.create_connection(("127.0.0.1", self.port), timeout=2) as s:
                s.sendall(b"ruok")
                return s.recv(4) == b"imok"
        except OSError:
            return False

    def tail(self) -> str:
        """The last lines it printed."""
        return "\n".join((self.folder / "zookeeper.log").read_text(errors="replace").split("\n")[-40:])

    def stop(self) -> None:
        """SIGKILL; the files stay."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None


@dataclass
class OldNode(Target):
    """A process of Apache Kafka 3.9.2; `overrides` are its whole configuration but for `log.dirs`."""

    is_lone: bool = False
    cluster_id: str = ""

    def properties(self) -> Path:
        """Write the configuration file."""
        path = self.folder / "server.properties"
        values = {"log.dirs": str(self.data), **self.overrides}
        path.write_text("".join(f"{k}={v}\n" for k, v in values.items()))
        return path

    def format(self) -> None:
        """Format the log directory of a controller. A broker of a ZooKeeper cluster writes its own meta.properties."""
        if "process.roles" not in self.overrides or (self.data / "meta.properties").exists():
            return
        command = self._command(
            "storage", "format", "-t", self.cluster_id, "-c", str(self.properties()), *self.format_options
        )
        done = subprocess.run(command, capture_output=True, timeout=120, check=False)
        assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def _command(self, program: str, *args: str) -> list[str]:
        main = {"storage": "kafka.tools.StorageTool", "server": "kafka.Kafka"}[program]
        return old_java(self.folder, main, *args, jvm_options=self.jvm_options)


@dataclass
class OurController(Ours):
    """A controller of ours for a cluster that exists already."""

    cluster_id: str = ""
    http_port: int = 0

    def format(self) -> None:
        """Format the log directory for that cluster unless it is formatted."""
        if not (self.data / "meta.properties").exists():
            command = self._command(
                "storage",
                "format",
                f"--cluster-id={self.cluster_id}",
                "-c",
                str(self.properties()),
                *self.format_options,
            )
            done = subprocess.run(command, capture_output=True, timeout=120, check=False, env=self._env())
            assert done.returncode == 0, done.stdout.decode() + done.stderr.decode()

    def page(self, path: str) -> str:
        """A page of its http.listener; empty if it does not answer."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.http_port}/{path}", timeout=5) as answer:
                return str(answer.read().decode())
        except OSError:
            return ""

    def status(self) -> dict[str, Any]:
        """`/status`; empty if it does not answer."""
        return dict(json.loads(self.page("status") or "{}"))


def _knows_a_leader(node: Target) -> bool:
    assert isinstance(node, OurController)
    return "kafka_server_raftmetrics_current_leader 3" in node.page("metrics")


@dataclass
class OldCluster:
    """A ZooKeeper cluster of Apache Kafka 3.9.2 that may migrate.

    Brokers have the ids from 1, controllers of the reference have the ids from 3001. The brokers know the ports of the
    controllers from the beginning, so that they need no restart before the migration.
    """

    folder: Path
    brokers: int = 1
    controllers: int = 1
    ibp: str = "3.9"
    overrides: dict[str, str] = field(default_factory=dict)
    is_prepared: bool = True
    """Whether the brokers have the keys of a migration from the beginning."""

    def __post_init__(self) -> None:
        require_old_peer()
        self.zookeeper = ZooKeeperServer(self.folder / "zookeeper")
        ports = free_ports(2 * self.brokers + self.controllers)
        self.sasl_ports = {i: ports.pop() for i in range(1, self.brokers + 1)}
        """Of the brokers: SASL_PLAINTEXT with SCRAM-SHA-256, where delegation tokens are made."""
        self.controller_ports = {3001 + i: ports[self.brokers + i] for i in range(self.controllers)}
        self.voters = ",".join(f"{i}@127.0.0.1:{port}" for i, port in self.controller_ports.items())
        self.nodes: dict[int, Target] = {}
        self._former: dict[int, Target] = {}
        """Brokers that were restarted without ZooKeeper, as they were before."""
        self._stopped_controllers: dict[int, Target] = {}
        self._broker_ports = dict(enumerate(ports[: self.brokers], 1))

    @property
    def migrating(self) -> dict[str, str]:
        """The keys that brokers and controllers of a migration share."""
        return {
            "zookeeper.metadata.migration.enable": "true",
            "zookeeper.connect": self.zookeeper.address,
            "controller.quorum.voters": self.voters,
            "controller.listener.names": "CONTROLLER",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:PLAINTEXT",
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._broker_ports.values())

    def start(self) -> OldCluster:
        """Start ZooKeeper and the brokers."""
        self.zookeeper.start()
        for broker_id, port in self._broker_ports.items():
            values = {
                **(self.migrating if self.is_prepared else {"zookeeper.connect": self.zookeeper.address}),
                "listener.security.protocol.map": self.migrating["listener.security.protocol.map"],
                "broker.id": str(broker_id),
                "listeners": f"PLAINTEXT://127.0.0.1:{port}",
                "inter.broker.protocol.version": self.ibp,
                "offsets.topic.replication.factor": "1",
                "offsets.topic.num.partitions": "4",
                "transaction.state.log.replication.factor": "1",
                "transaction.state.log.min.isr": "1",
                "transaction.state.log.num.partitions": "2",
                "group.initial.rebalance.delay.ms": "0",
                **self.overrides,
            }
            if not self.is_prepared:
                values["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
            values["listeners"] += f",SASL_PLAINTEXT://127.0.0.1:{self.sasl_ports[broker_id]}"
            values["sasl.enabled.mechanisms"] = "SCRAM-SHA-256"
            values["listener.name.sasl_plaintext.scram-sha-256.sasl.jaas.config"] = (
                "org.apache.kafka.common.security.scram.ScramLoginModule required;"
            )
            node = OldNode(f"broker-{broker_id}", self.folder / f"broker-{broker_id}", values, port, port)
            self.nodes[broker_id] = node
            node.launch()
        for broker_id in self._broker_ports:
            self.nodes[broker_id].wait_ready()
        return self

    def cluster_id(self) -> str:
        """As a broker has written it down."""
        lines = (self.nodes[1].data / "meta.properties").read_text().split("\n")
        return next(line.partition("=")[2] for line in lines if line.startswith("cluster.id="))

    def _of_controller(self, node_id: int, overrides: dict[str, str]) -> dict[str, str]:
        """The configuration of a controller, Apache's or ours."""
        values = {
            **self.migrating,
            "process.roles": "controller",
            "node.id": str(node_id),
            "listeners": f"CONTROLLER://127.0.0.1:{self.controller_ports[node_id]}",
            **{name.replace("_", "."): value for name, value in overrides.items()},
        }
        for name in ("super.users", "password.encoder.secret", "delegation.token.secret.key"):
            if name in self.overrides:
                values.setdefault(name, self.overrides[name])
        if "authorizer.class.name" in self.overrides:
            values["authorizer.class.name"] = STANDARD_AUTHORIZER
        return values

    def start_controllers(self, **overrides: str) -> None:
        """Start the controllers of Apache Kafka 3.9.2; they migrate the cluster."""
        for node_id, port in self.controller_ports.items():
            values = self._of_controller(node_id, overrides)
            node = OldNode(
                f"controller-{node_id}",
                self.folder / f"controller-{node_id}",
                values,
                port,
                port,
                cluster_id=self.cluster_id(),
            )
            node.format_options = ("-r", self.ibp)
            self.nodes[node_id] = node
            node.launch()

    def start_our_controllers(self, **overrides: str) -> None:
        """Start our controllers in their place; they migrate the cluster."""
        http = free_ports(len(self.controller_ports))
        for (node_id, port), http_port in zip(self.controller_ports.items(), http, strict=True):
            values = {"http.listener": f"127.0.0.1:{http_port}", **self._of_controller(node_id, overrides)}
            node = OurController(
                f"controller-{node_id}",
                self.folder / f"controller-{node_id}",
                values,
                port,
                port,
                is_lone=False,
                format_options=("-r", self.ibp),
                cluster_id=self.cluster_id(),
                http_port=http_port,
            )
            self.nodes[node_id] = node
            node.launch()

    def finalise(self) -> None:
        """Restart our controllers without ZooKeeper, one after the other: that ends the migration."""
        for node_id in self.controller_ports:
            node = self.nodes[node_id]
            node.stop()
            node.overrides["zookeeper.metadata.migration.enable"] = "false"
            node.launch()
            wait_for("the controller follows", partial(_knows_a_leader, node))

    def restart_in_kraft(self, broker_id: int, *, ours: bool) -> None:
        """Stop a broker, and start the same directory without ZooKeeper: Apache's broker of 3.9.2, or ours."""
        former = self.nodes[broker_id]
        former.stop()
        self._former.setdefault(broker_id, former)
        zookeeper = ("zookeeper.connect", "zookeeper.metadata.migration.enable", "inter.broker.protocol.version")
        values = {key: value for key, value in former.overrides.items() if key not in zookeeper}
        values |= {"process.roles": "broker", "node.id": str(broker_id)}
        if "authorizer.class.name" in values:
            values["authorizer.class.name"] = STANDARD_AUTHORIZER
        if ours:
            values.pop("password.encoder.secret", None)
        kind: type[Target] = Ours if ours else OldNode
        node = kind(former.name, former.folder, values, former.port, former.port, is_lone=False)
        self.nodes[broker_id] = node
        node.launch()
        node.wait_ready()

    def restart_with_zookeeper(self, broker_id: int) -> None:
        """Stop a broker that was restarted without ZooKeeper, and start its directories as before, in the migration."""
        self.nodes[broker_id].stop()
        node = self._former.pop(broker_id)
        shutil.rmtree(node.data / "__cluster_metadata-0")
        meta = node.data / "meta.properties"
        meta.write_text(meta.read_text().replace("version=1", "version=0").replace("node.id", "broker.id"))
        self._restarted(broker_id, node)

    def leave_migration(self, broker_id: int) -> None:
        """Restart a broker that uses ZooKeeper without the keys of the migration."""
        node = self.nodes[broker_id]
        node.stop()
        for key in ("zookeeper.metadata.migration.enable", "controller.quorum.voters", "controller.listener.names"):
            node.overrides.pop(key, None)
        node.overrides["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,SASL_PLAINTEXT:SASL_PLAINTEXT"
        self._restarted(broker_id, node)

    def _restarted(self, broker_id: int, node: Target) -> None:
        self.nodes[broker_id] = node
        node.launch()
        node.wait_ready()

    def stop_our_controllers(self, *, killed: bool = False, active_id: int | None = None) -> Path:
        """Stop our controllers, the active one last, or kill them. Returns the folder of its metadata log.

        `active_id`: the active controller; None: they are asked.
        """
        ours = {node_id: self.nodes[node_id] for node_id in self.controller_ports}

        def active() -> int | None:
            found = {i: one.status().get("migration", {}) for i, one in ours.items() if isinstance(one, OurController)}
            return next((i for i, one in found.items() if one.get("isActive")), None)

        last = active_id or wait_for("an active controller", active)
        for node_id in sorted(ours, key=lambda number: number == last):
            node = self._stopped_controllers[node_id] = self.nodes.pop(node_id)
            if killed:
                node.kill()
            else:
                node.stop()
        return ours[last].data / "__cluster_metadata-0"

    def launch_our_controllers(self) -> None:
        """Start the controllers again that were stopped."""
        self.nodes |= self._stopped_controllers
        self._stopped_controllers = {}
        for node_id in self.controller_ports:
            self.nodes[node_id].launch()

    def migration(self) -> dict[str, Any]:
        """What the active controller of ours says about the migration; empty while there is none."""
        for node in self.nodes.values():
            if isinstance(node, OurController) and node.process is not None:
                found = node.status().get("migration", {})
                if found.get("isActive"):
                    return dict(found)
        return {}

    def metadata_log(self, node_id: int) -> bytes:
        """The bytes of a controller's metadata log (its first segment)."""
        return (self.nodes[node_id].data / "__cluster_metadata-0" / "00000000000000000000.log").read_bytes()

    def stop(self) -> None:
        """SIGKILL of everything, ZooKeeper last."""
        for node in self.nodes.values():
            node.kill()
        self.zookeeper.stop()

    def tails(self) -> str:
        """The end of all logs, for a failed test."""
        return "\n".join(f"--- {n}\n{node.tail()}" for n, node in self.nodes.items())
