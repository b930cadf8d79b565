"""Users of a cluster of local processes with TLS: by the file and by the command line, with real clients."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer

from tests.compat.targets import free_ports
from tests.peer import require_program

pytestmark = [pytest.mark.xdist_group("kraftcluster"), pytest.mark.timeout(300)]

TIMEOUT_S = 120.0
CLUSTER: dict[str, Any] = {
    "security": {"superUsers": ["admin"]},
    "config": {"connections.max.reauth.ms": "2000", "offsets.topic.replication.factor": "1"},
    "nodePools": [
        {
            "name": "nodes",
            "roles": ["controller", "broker"],
            "replicas": 1,
            "firstNodeId": 1,
            "storage": {"volumes": [{"name": "data", "size": "1Gi"}]},
        }
    ],
}
FILED: dict[str, Any] = {
    "cluster": "users",
    "authentication": {"type": "MutualTls"},
    "acls": [{"resource": {"type": "Topic", "name": "orders"}, "operations": ["Read", "Write"]}],
}


class Cluster:
    """The program, with its own folder and file."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.users: dict[str, dict[str, Any]] = {"filed": FILED}
        first, second = free_ports(2)
        scram = {"name": "scram", "port": second, "authentication": "ScramSha512"}
        self.spec = {**CLUSTER, "listeners": [{"name": "certs", "port": first}, scram]}
        self.write()

    def write(self) -> None:
        """Write the file atomically, because it may be read at any time."""
        objects = [("KRaftCluster", "users", self.spec), ("KRaftTopic", "orders", {"cluster": "users"})]
        objects += [("KRaftTopic", "other", {"cluster": "users"})]
        objects += [("KRaftUser", name, spec) for name, spec in self.users.items()]
        documents = [
            {"apiVersion": "kraftcluster.io/v1alpha1", "kind": kind, "metadata": {"name": name}, "spec": spec}
            for kind, name, spec in objects
        ]
        beside = self.folder / "new.yaml"
        beside.write_text(yaml.safe_dump_all(documents))
        beside.replace(self.folder / "kraftcluster.yaml")

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", *words]
        return subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S, cwd=self.folder)

    def must(self, *words: str) -> str:
        done = self.run(*words)
        log = self.folder / ".kraft/users/supervisor.log"
        assert done.returncode == 0, f"{words}: {done.stdout}{done.stderr}{log.read_text() if log.exists() else ''}"
        return done.stdout

    def rows(self) -> dict[str, Any]:
        return {one["name"]: one for one in json.loads(self.must("user", "list", "--json"))}

    def wait_until(self, name: str, reason: str) -> dict[str, Any]:
        for _ in range(100):
            row: dict[str, Any] = self.rows().get(name, {"reason": "none"})
            if row["reason"] == reason:
                return row
            time.sleep(0.5)  # each question starts a process
        raise AssertionError(row)

    def config(self, name: str) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.must("client-config", name, "--json"))
        return found


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    found = Cluster(tmp_path_factory.mktemp("local-users"))
    found.must("up", "--detach", "--timeout", "100")
    yield found
    found.must("down", "--wipe")


def produced(config: dict[str, Any], topic: str) -> str:
    """Produce a record. Returns the name of the error, empty if it was taken."""
    reported: list[str] = []
    errors: list[str] = []

    def delivered(error: Any, _message: Any) -> None:
        reported.append("" if error is None else error.name())

    options = {"message.timeout.ms": 6000, "error_cb": lambda error: errors.append(error.name())}
    producer = Producer({**config, **options})
    producer.produce(topic, b"one", on_delivery=delivered)
    producer.flush(20)
    return "_AUTHENTICATION" if "_AUTHENTICATION" in errors else reported[0]


def wait_until_produced(config: dict[str, Any], topic: str, expected: str = "") -> None:
    for _ in range(20):
        found = produced(config, topic)
        if found == expected:
            return
    raise AssertionError(found)


def test_kcat_produces_with_the_certificate_of_a_user_in_the_file(cluster: Cluster, tmp_path: Path) -> None:
    cluster.wait_until("filed", "InForce")
    file = tmp_path / "kcat.properties"
    file.write_text(cluster.must("client-config", "filed", "--format", "kcat"))
    for topic, allowed in (("orders", True), ("other", False)):
        command = [require_program("kcat"), "-F", str(file), "-P", "-t", topic, "-X", "message.timeout.ms=5000"]
        done = subprocess.run(command, input="one\n", capture_output=True, text=True, check=False, timeout=60)
        assert (done.returncode == 0) is allowed, done.stderr


def test_a_user_of_the_command_line_lives_from_add_to_remove(cluster: Cluster) -> None:
    cluster.must("user", "add", "app", "--type", "scram-sha-512", "--produce", "orders", "--consume", "ord*")
    first = cluster.config("app")
    wait_until_produced(first, "orders")
    assert produced(first, "other") == "TOPIC_AUTHORIZATION_FAILED"
    consumer = Consumer({**first, "group.id": "app-1", "auto.offset.reset": "earliest"})
    consumer.subscribe(["orders"])
    message = consumer.poll(30)
    consumer.close()
    assert message is not None and message.value() == b"one"
    cluster.must("user", "add", "app", "--type", "scram-sha-512", "--produce", "orders", "--produce", "other")
    wait_until_produced(first, "other")
    assert cluster.config("app") == first, "other rights need no other password"
    cluster.must("user", "rotate", "app")
    second = cluster.config("app")
    assert second["sasl.password"] != first["sasl.password"]
    wait_until_produced(second, "orders")
    assert produced(first, "orders") == "_AUTHENTICATION"
    refused: list[str] = []
    open_connection = Producer({**second, "error_cb": lambda error: refused.append(error.name())})
    open_connection.produce("orders", b"kept")
    assert open_connection.flush(20) == 0
    cluster.must("user", "remove", "app")
    for _ in range(100):  # until connections.max.reauth.ms is over
        open_connection.poll(0.2)
        if "_AUTHENTICATION" in refused:
            break
    assert "_AUTHENTICATION" in refused
    assert set(cluster.rows()) == {"filed"}
    assert not (cluster.folder / ".kraft/users/users/app").exists()
    assert cluster.run("client-config", "app").returncode == 4


def test_a_user_leaves_with_the_file(cluster: Cluster) -> None:
    reader = {**FILED, "authentication": {"type": "ScramSha512"}}
    cluster.users = {"filed": FILED, "reader": reader}
    cluster.write()
    cluster.wait_until("reader", "InForce")
    config = cluster.config("reader")
    wait_until_produced(config, "orders")
    refused = cluster.run("user", "remove", "reader")
    assert (refused.returncode, "remove it there" in refused.stderr) == (3, True)
    cluster.users = {"filed": FILED}
    cluster.write()
    cluster.wait_until("reader", "none")
    wait_until_produced(config, "orders", "_AUTHENTICATION")


def test_a_super_user_is_refused_and_passwords_stay_in_their_folder(cluster: Cluster) -> None:
    cluster.must("user", "add", "admin", "--type", "scram-sha-512", "--no-wait")
    row = cluster.wait_until("admin", "InternalUser")
    assert "is a super user or a user of the cluster itself" in row["message"]
    cluster.must("user", "remove", "admin")
    cluster.must("user", "add", "quiet", "--type", "scram-sha-512", "--produce", "orders")
    password = cluster.config("quiet")["sasl.password"]
    root = cluster.folder / ".kraft/users"
    found = [path for path in root.rglob("*") if path.is_file() and password.encode() in path.read_bytes()]
    assert {path.parent for path in found} == {root / "users/quiet"}
    assert {path.stat().st_mode & 0o777 for path in found} == {0o600}


@pytest.mark.parametrize("words", [("--produce", ""), ("--producer-byte-rate", "0"), ("--type", "kerberos")])
def test_a_wrong_option_of_a_user_is_refused(cluster: Cluster, words: tuple[str, ...]) -> None:
    assert cluster.run("user", "add", "wrong", *words).returncode == 2


def test_who_may_produce_to_a_topic_may_create_it(cluster: Cluster) -> None:
    """As `kafka-acls --producer`: without Create, a first record to a new topic is refused."""
    cluster.must("user", "add", "maker", "--type", "tls", "--produce", "made*")
    wait_until_produced(cluster.config("maker"), "made-by-the-first-record")
    assert produced(cluster.config("maker"), "new-by-nobody") == "TOPIC_AUTHORIZATION_FAILED"


def test_a_removed_user_without_rights_leaves_no_key(cluster: Cluster) -> None:
    cluster.must("user", "add", "bare", "--type", "tls")
    folder = cluster.folder / ".kraft/users/users/bare"
    first = (folder / "user.key").read_text()
    cluster.must("user", "remove", "bare")
    assert not folder.exists()
    cluster.must("user", "add", "bare", "--type", "tls")
    assert (folder / "user.key").read_text() != first


def test_an_archive_reads_from_the_controllers_as_a_user(cluster: Cluster, tmp_path: Path) -> None:
    """Controllers admit no certificate of the clients' authority. Without ClusterAction, the user may read nothing."""
    rights = {"resource": {"type": "Cluster"}, "operations": ["ClusterAction", "Describe"]}
    archive = {"cluster": "users", "controllers": True}
    folder = cluster.folder / ".kraft/users/users/archive"
    files = {"propertiesFile": "client.properties", "controllerPropertiesFile": "controllers.properties"}
    for acls, expected in (([{**rights, "operations": ["Describe"]}], 1), ([rights], 0)):
        cluster.users = {"filed": FILED, "archive": {**archive, "acls": acls}}
        cluster.write()
        cluster.wait_until("archive", "InForce")
        spec = {
            "bootstrapServers": cluster.config("archive")["bootstrap.servers"],
            "table": {"path": str(tmp_path / "metadata")},
            "security": {field: str(folder / name) for field, name in files.items()},
        }
        head = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KafkaMetadataArchive", "metadata": {"name": "all"}}
        (tmp_path / "archive.yaml").write_text(yaml.safe_dump({**head, "spec": spec}))
        command = [
            sys.executable,
            "-m",
            "kraft_pipeline.cli.main",
            "meta",
            "archive",
            "-f",
            str(tmp_path / "archive.yaml"),
        ]
        for _ in range(5):  # the ACLs may have changed just now
            done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=TIMEOUT_S)
            if bool(done.returncode) == bool(expected):
                break
        assert bool(done.returncode) == bool(expected), done.stdout + done.stderr
    assert (tmp_path / "metadata" / "state.json").exists()
