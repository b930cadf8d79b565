"""A cluster of Apache Kafka 3.9.2 where every connection needs a login: to ZooKeeper, brokers and controllers.

ZooKeeper demands SASL by DIGEST-MD5, and all znodes have ACLs (`zookeeper.set.acl`). Brokers demand SCRAM-SHA-512 from
clients and from each other. `kraftcluster migrate` writes the files of the migration.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from kazoo.client import KazooClient

from kraft_node.cli.client import NodeClient, security_in
from kraft_node.cli.common import ToolError
from kraft_protocol.configs.properties import parse_properties
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataRequest
from tests.compat.members import wait_for
from tests.compat.targets import Ours, Target, free_ports
from tests.compat.zookeeper_cluster import OldNode, OurController, ZooKeeperServer, run_old_tool
from tests.golden.migration.content import Admin

DIGEST: Final = "org.apache.zookeeper.server.auth.DigestLoginModule required"
SCRAM: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required"
PLAIN: Final = "org.apache.kafka.common.security.plain.PlainLoginModule required"
OWNER: Final = "kafka"
"""The user of brokers and controllers at ZooKeeper."""
OWNER_PASSWORD: Final = "secret of the brokers"
PASSWORDS: Final = {"admin": "secret of nodes", "alice": "secret of alice"}
"""Users of Kafka. `admin` is the user of all nodes."""
CONTROLLER: Final = 3001
AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"


def _login(user: str) -> str:
    return f'username="{user}" password="{PASSWORDS[user]}"'


@dataclass
class SecuredOldNode(OldNode):
    """A broker of Apache Kafka 3.9.2 whose listener needs a login."""

    login: str = ""
    """A file with client properties."""

    def wait_ready(self) -> None:
        """Wait until the answer to a Metadata request names a broker."""
        wait_ready(self, self.login)


@dataclass
class SecuredOurs(Ours):
    """A broker of ours whose listener needs a login."""

    login: str = ""
    """A file with client properties."""

    def wait_ready(self) -> None:
        """Wait until the answer to a Metadata request names a broker."""
        wait_ready(self, self.login)


def wait_ready(node: Target, login: str) -> None:
    """Wait until a node answers a client that logs in."""

    def answers() -> bool:
        assert node.process is not None and node.process.poll() is None, node.tail()
        try:
            with NodeClient("127.0.0.1", node.port, 5, security_in(login)) as client:
                return bool(client.request(ApiKey.METADATA, MetadataRequest(topics=[])).brokers)
        except ToolError:
            return False

    wait_for(f"{node.name} answers", answers, timeout_s=120)


class SecuredOldCluster:
    """The cluster, the files of its operator, and its future controller."""

    def __init__(self, folder: Path, brokers: int) -> None:
        self.folder = folder
        folder.mkdir(parents=True, exist_ok=True)
        self.files = folder / "files"
        self.nodes: dict[int, Target] = {}
        ports = free_ports(brokers + 2)
        self._controller_port, self.http_port = ports.pop(), ports.pop()
        self._ports = dict(enumerate(ports, 1))
        jaas, self.zookeeper_file = folder / "jaas.conf", folder / "zookeeper.properties"
        client = f'{DIGEST} username="{OWNER}" password="{OWNER_PASSWORD}";'
        jaas.write_text(f'Server {{ {DIGEST} user_{OWNER}="{OWNER_PASSWORD}"; }};\nClient {{ {client} }};\n')
        self.zookeeper_file.write_text(f"zookeeper.sasl.jaas.config={client}\n")
        self._jvm = (f"-Djava.security.auth.login.config={jaas}",)
        demands = (
            "authProvider.sasl=org.apache.zookeeper.server.auth.SASLAuthenticationProvider\n"
            "enforce.auth.enabled=true\nenforce.auth.schemes=sasl\n"
        )
        self.zookeeper = ZooKeeperServer(folder / "zookeeper", settings=demands, jvm_options=self._jvm)
        for user in PASSWORDS:
            Path(self.login(user)).write_text(
                "security.protocol=SASL_PLAINTEXT\nsasl.mechanism=SCRAM-SHA-512\n"
                f"sasl.jaas.config={SCRAM} {_login(user)};\n"
            )

    def login(self, user: str) -> str:
        """The file with the properties of a client."""
        return str(self.folder / f"{user}.properties")

    @staticmethod
    def options(user: str) -> dict[str, str]:
        """The same for librdkafka."""
        return {
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.username": user,
            "sasl.password": PASSWORDS[user],
        }

    @property
    def bootstrap(self) -> str:
        return ",".join(f"127.0.0.1:{port}" for port in self._ports.values())

    def admin(self, broker: int = 1) -> Admin:
        """A client of one broker, as the super user."""
        return Admin(f"127.0.0.1:{self._ports[broker]}", security_in(self.login("admin")))

    def topics(self, broker: int) -> dict[str, Any]:
        """The topics that a broker knows."""
        with self.admin(broker) as admin:
            return {one.name: one for one in admin.ask(ApiKey.METADATA, MetadataRequest(topics=None)).topics}

    def tool(self, main_class: str, *args: str, user: str = "admin") -> str:
        """The output of one of Kafka 3.9.2's tools."""
        given = ("--bootstrap-server", self.bootstrap, "--command-config", self.login(user))
        return run_old_tool(self.folder, main_class, *given, *args)

    # Before the migration

    def start(self) -> SecuredOldCluster:
        """Start ZooKeeper, create the users there, and start the brokers."""
        self.zookeeper.start()
        for user, password in PASSWORDS.items():
            given = ("--zookeeper", self.zookeeper.address, "--alter", "--entity-type", "users", "--entity-name", user)
            credential = ("--add-config", f"SCRAM-SHA-512=[password={password}]")
            run_old_tool(self.folder, "kafka.admin.ConfigCommand", *given, *credential, jvm_options=self._jvm)
        for broker, port in self._ports.items():
            folder = self.folder / f"broker-{broker}"
            first = SecuredOldNode(folder.name, folder, self._of_broker(broker), port, port, login=self.login("admin"))
            first.jvm_options = self._jvm
            self.nodes[broker] = first
            first.launch()
        for node in self.nodes.values():
            node.wait_ready()
        return self

    def _of_broker(self, broker: int) -> dict[str, str]:
        listener = "listener.name.sasl_plaintext.scram-sha-512.sasl.jaas.config"
        controllers = f'{PLAIN} {_login("admin")} user_admin="{PASSWORDS["admin"]}";'
        return {
            "broker.id": str(broker),
            "zookeeper.connect": self.zookeeper.address,
            "zookeeper.set.acl": "true",
            "inter.broker.protocol.version": "3.9",
            "listeners": f"SASL_PLAINTEXT://127.0.0.1:{self._ports[broker]}",
            "security.inter.broker.protocol": "SASL_PLAINTEXT",
            "sasl.enabled.mechanisms": "SCRAM-SHA-512",
            "sasl.mechanism.inter.broker.protocol": "SCRAM-SHA-512",
            listener: f"{SCRAM} {_login('admin')};",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "listener.name.controller.plain.sasl.jaas.config": controllers,
            "authorizer.class.name": AUTHORIZER,
            "super.users": "User:admin",
            "log.cleaner.dedupe.buffer.size": str(8 << 20),
            "offsets.topic.replication.factor": str(len(self._ports)),
            "offsets.topic.num.partitions": "4",
            "group.initial.rebalance.delay.ms": "0",
        }

    # The migration

    def migrate(self, command: str, *args: str, zookeeper: bool = False, brokers: bool = False) -> Any:
        """The JSON that `kraftcluster migrate` prints."""
        words = [sys.executable, "-m", "kraft_cli.kraftcluster", "migrate", command, *args, "--json"]
        if zookeeper:
            words += ["--zookeeper", self.zookeeper.address, "--zk-tls-config-file", str(self.zookeeper_file)]
        if brokers:
            words += ["--command-config", self.login("admin")]
        done = subprocess.run(words, capture_output=True, check=False, timeout=300)
        assert done.returncode == 0, f"{command}: {done.returncode}\n{done.stdout.decode()}\n{done.stderr.decode()}"
        return json.loads(done.stdout)

    def write_files(self) -> Any:
        """`kraftcluster migrate start`."""
        voter = f"{CONTROLLER}@127.0.0.1:{self._controller_port}"
        named = [word for node in self.nodes.values() for word in ("--broker-properties", str(node.properties()))]
        where = ["--out", str(self.files), "--log-dir", str(self.folder / "quorum"), "--http-port", str(self.http_port)]
        quorum = ["--controller", voter, "--protocol", "SASL_PLAINTEXT"]
        return self.migrate("start", *quorum, *named, *where, zookeeper=True, brokers=True)

    def file(self, name: str) -> dict[str, str]:
        """What `kraftcluster migrate start` has written."""
        return parse_properties((self.files / f"{name}.properties").read_text())

    def restart_broker(self, broker: int, name: str, *, ours: bool = False) -> None:
        """Restart a broker with one of these files, as Apache's or as ours."""
        former = self.nodes[broker]
        former.stop()
        values, port, login = self.file(name), former.port, self.login("admin")
        node: Target
        if ours:
            node = SecuredOurs(former.name, former.folder, values, port, port, is_lone=False, login=login)
        else:
            node = SecuredOldNode(former.name, former.folder, values, port, port, login=login)
            node.jvm_options = self._jvm
        self.nodes[broker] = node
        node.launch()
        node.wait_ready()

    def start_controller(self, cluster_id: str) -> None:
        """Start our controller. A restart reads the file again."""
        former = self.nodes.pop(CONTROLLER, None)
        if former is not None:
            former.stop()
        node = OurController(
            f"controller-{CONTROLLER}",
            self.folder / f"controller-{CONTROLLER}",
            self.file(f"controller-{CONTROLLER}"),
            self._controller_port,
            self._controller_port,
            is_lone=False,
            format_options=("-r", "3.9"),
            cluster_id=cluster_id,
            http_port=self.http_port,
        )
        self.nodes[CONTROLLER] = node
        node.launch()

    @property
    def page(self) -> str:
        """The `http.listener` of the controller."""
        return f"127.0.0.1:{self.http_port}"

    def migration(self) -> dict[str, Any]:
        """What the controller says about the migration."""
        node = self.nodes[CONTROLLER]
        assert isinstance(node, OurController)
        return dict(node.status().get("migration", {}))

    def znodes(self) -> dict[str, tuple[bytes, set[tuple[str, str, int]]]]:
        """Path -> data and ACL (scheme, id, permissions) of all znodes of Kafka."""
        login = {"mechanism": "DIGEST-MD5", "username": OWNER, "password": OWNER_PASSWORD}
        client = KazooClient(self.zookeeper.address, sasl_options=login)
        client.start(timeout=60)
        found = {}
        try:
            paths = ["/"]
            while paths:
                path = paths.pop()
                acls, _ = client.get_acls(path)
                data, _ = client.get(path)
                found[path] = data or b"", {(one.id.scheme, one.id.id, one.perms) for one in acls}
                children = [f"{path.rstrip('/')}/{name}" for name in client.get_children(path)]
                paths += [child for child in children if child != "/zookeeper"]
        finally:
            client.stop()
            client.close()
        return found

    def stop(self) -> None:
        """SIGKILL of everything, ZooKeeper last."""
        for node in self.nodes.values():
            node.kill()
        self.zookeeper.stop()

    def tails(self) -> str:
        """The end of all logs, for a failed test."""
        return "\n".join(f"--- {name}\n{node.tail()}" for name, node in self.nodes.items())
