"""A cluster with `spec.security` on one machine: foreign clients get in by certificate or password, and nobody else."""

from __future__ import annotations

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, KafkaError, Producer

from kraft_operator.security.authorities import authority_of
from kraft_operator.security.certificates import issue, key_of
from tests.compat.members import wait_for
from tests.compat.targets import free_ports
from tests.compat.tools import run_tool
from tests.peer import require_program

pytestmark = pytest.mark.xdist_group("quorum")

ROOT = Path(__file__).parents[3]
TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
ACLS = "org.apache.kafka.tools.AclCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
PATIENCE_S = 120.0


class Secured:
    """The cluster of `deploy/samples/secure.yaml`, and files of its users."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.file = folder, folder / "kraft.yaml"
        self.document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/samples/secure.yaml").read_text())
        self.document["spec"]["security"]["clusterAuthority"] = {"overlapMinutes": 0}
        self._program("up", "--detach", "--port", str(free_ports(1)[0]), "--timeout", str(PATIENCE_S))

    def _program(self, *words: str) -> None:
        self.file.write_text(yaml.safe_dump(self.document))
        command = [sys.executable, "-m", "kraft_cli.kraftcluster", words[0], "--file", str(self.file)]
        done = subprocess.run(
            [*command, "--data", str(self.folder / "data"), *words[1:]], capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout + done.stderr

    def stop(self) -> None:
        self._program("down")

    def ask_for_another_authority(self) -> None:
        self.document["metadata"]["annotations"] = {"kraftcluster.io/replace-authority": "cluster=one"}
        self.file.write_text(yaml.safe_dump(self.document))

    def stored(self, name: str) -> dict[str, str]:
        return {path.name: path.read_text() for path in (self.folder / "data/secure/security" / name).iterdir()}

    @property
    def trust(self) -> str:
        return str(self.folder / "data/secure/security/trust/ca.crt")

    def bootstrap(self, listener: str = "tls") -> str:
        ports = json.loads((self.folder / "data/secure/status.json").read_text())["local"]["ports"]
        return ",".join(f"localhost:{ports[f'{node}/{listener}']}" for node in (101, 102, 103))

    def librdkafka(self, user: str) -> dict[str, str]:
        """Options of a user with a certificate, for librdkafka."""
        leaf = issue(authority_of(self.stored("clients-ca")), {"CN": user}, datetime.now(UTC), 2)
        chain, key = self.folder / f"{user}.crt", self.folder / f"{user}.key"
        chain.write_text(leaf.chain)
        key.write_text(leaf.key)
        files = {"ssl.ca.location": self.trust, "ssl.certificate.location": str(chain), "ssl.key.location": str(key)}
        return {"bootstrap.servers": self.bootstrap(), "security.protocol": "ssl", **files}

    def java(self, user: str) -> list[str]:
        """Arguments of Kafka's tools for a user with a certificate."""
        leaf = issue(authority_of(self.stored("clients-ca")), {"CN": user}, datetime.now(UTC), 2)
        keys = self.folder / f"{user}.pem"
        keys.write_text(leaf.pem)
        store = f"ssl.keystore.type=PEM\nssl.keystore.location={keys}\n"
        return ["--bootstrap-server", self.bootstrap(), "--command-config", self._properties(user, "SSL", store)]

    def _properties(self, name: str, protocol: str, more: str) -> str:
        file = self.folder / f"{name}.properties"
        trust = f"ssl.truststore.type=PEM\nssl.truststore.location={self.trust}\n"
        file.write_text(f"security.protocol={protocol}\n{trust}{more}")
        return str(file)

    def password(self, user: str, password: str) -> str:
        """A file of client properties of a user with a password."""
        entry = "org.apache.kafka.common.security.scram.ScramLoginModule"
        login = f'sasl.jaas.config={entry} required username="{user}" password="{password}";\n'
        return self._properties(f"{user}-password", "SASL_SSL", f"sasl.mechanism=SCRAM-SHA-512\n{login}")


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secured]:
    made = Secured(tmp_path_factory.mktemp("secured"))
    try:
        yield made
    finally:
        made.stop()


def _kcat(options: dict[str, str], *words: str, text: str = "") -> subprocess.CompletedProcess[str]:
    given = [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
    return subprocess.run(
        [require_program("kcat"), *given, *words], input=text, capture_output=True, text=True, check=False, timeout=60
    )


def test_a_user_with_a_certificate_and_acls_writes_and_reads(cluster: Secured) -> None:
    run_tool(TOPICS, *cluster.java("admin"), "--create", "--topic", "orders", "--partitions", "3")
    ann = cluster.librdkafka("ann")

    refused = _kcat(ann, "-P", "-t", "orders", text="one\n")
    assert refused.returncode != 0 and "uthorization" in refused.stderr
    for operation in ("Read", "Write"):
        words = ("--add", "--allow-principal", "User:ann", "--operation", operation, "--topic", "orders")
        run_tool(ACLS, *cluster.java("admin"), *words)
    assert _kcat(ann, "-P", "-t", "orders", "-X", "acks=all", text="one\ntwo\n").returncode == 0
    read = _kcat(ann, "-C", "-t", "orders", "-o", "beginning", "-e", "-q")
    assert sorted(read.stdout.split()) == ["one", "two"]


@pytest.mark.parametrize("how", ["plaintext", "no certificate", "certificate of another authority"])
def test_nobody_else_gets_in(cluster: Secured, how: str) -> None:
    options = cluster.librdkafka("ann")
    if how == "plaintext":
        options = {"bootstrap.servers": options["bootstrap.servers"]}
    elif how == "no certificate":
        options = {key: value for key, value in options.items() if key not in _OWN}
    else:
        leaf = issue(authority_of(cluster.stored("cluster-ca")), {"CN": "admin"}, datetime.now(UTC), 2)
        for key, text in zip(_OWN, (leaf.chain, leaf.key), strict=True):
            Path(options[key]).write_text(text)

    answer = _kcat(options, "-L", "-m", "3")
    assert answer.returncode != 0 and "orders" not in answer.stdout


_OWN = ("ssl.certificate.location", "ssl.key.location")


def test_a_certificate_of_a_client_does_not_open_the_listener_of_the_nodes(cluster: Secured) -> None:
    options = {**cluster.librdkafka("admin"), "bootstrap.servers": cluster.bootstrap("replication")}

    answer = _kcat(options, "-L", "-m", "3")
    assert answer.returncode != 0 and "unknown ca" in answer.stderr


def test_a_user_with_a_password_writes(cluster: Secured) -> None:
    words = (
        "--alter",
        "--entity-type",
        "users",
        "--entity-name",
        "bob",
        "--add-config",
        "SCRAM-SHA-512=[password=s3cret]",
    )
    run_tool(CONFIGS, *cluster.java("admin"), *words)
    grant = ("--add", "--allow-principal", "User:bob", "--operation", "Write", "--topic", "letters")
    run_tool(TOPICS, *cluster.java("admin"), "--create", "--topic", "letters")
    run_tool(ACLS, *cluster.java("admin"), *grant)
    with_password = ["--bootstrap-server", cluster.bootstrap("passwords"), "--topic", "letters"]
    run_tool(PRODUCER, *with_password, "--command-config", cluster.password("bob", "s3cret"), stdin="dear\n")

    read = _kcat(cluster.librdkafka("admin"), "-C", "-t", "letters", "-o", "beginning", "-e", "-q")
    assert read.stdout == "dear\n"
    wrong = cluster.password("bob", "guessed")
    done = run_tool(
        TOPICS, "--bootstrap-server", cluster.bootstrap("passwords"), "--command-config", wrong, "--list", check=False
    )
    assert "letters" not in done.out


def test_an_authority_is_replaced_under_load_without_a_lost_record(cluster: Secured) -> None:
    run_tool(TOPICS, *cluster.java("admin"), "--create", "--topic", "load", "--partitions", "3")
    options, before = cluster.librdkafka("admin"), key_of(cluster.stored("cluster-ca")["ca.crt"])
    acknowledged: set[bytes] = set()
    failed: list[str] = []
    ends = threading.Event()

    def delivered(error: KafkaError | None, record: Any) -> None:
        if error is not None:
            failed.append(str(error))
        else:
            acknowledged.add(record.value())

    def produce() -> None:
        producer, number = Producer({**options, "enable.idempotence": True}), 0
        while not ends.is_set():
            producer.produce("load", str(number).encode(), on_delivery=delivered)
            number += 1
            producer.poll(0.005)
        producer.flush(30)

    producing = threading.Thread(target=produce)
    producing.start()
    try:
        cluster.ask_for_another_authority()

        def is_replaced() -> bool:
            stored = cluster.stored("cluster-ca")
            return key_of(stored["ca.crt"]) != before and "former.crt" not in stored

        wait_for("the authority is replaced", is_replaced, PATIENCE_S)
    finally:
        ends.set()
        producing.join()
    assert failed == [] and acknowledged
    assert acknowledged <= _all_of(cluster.librdkafka("admin"), "load")


def _all_of(options: dict[str, str], topic: str) -> set[bytes]:
    consumer = Consumer({**options, "group.id": "judge", "auto.offset.reset": "earliest", "enable.partition.eof": True})
    consumer.subscribe([topic])
    found: set[bytes] = set()
    ended: set[int] = set()
    try:
        while len(ended) < 3:
            record = consumer.poll(PATIENCE_S)
            assert record is not None, f"{len(found)} records, and no end"
            error = record.error()
            if error is None:
                found.add(record.value() or b"")
            else:
                assert error.code() == KafkaError._PARTITION_EOF, error
                ended.add(record.partition() or 0)
        return found
    finally:
        consumer.close()
