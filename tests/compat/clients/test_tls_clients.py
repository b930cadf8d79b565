"""Clients and tools that we did not write, over TLS with certificates of their own, against one node."""

from __future__ import annotations

import asyncio
import socket
import ssl
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from kraft_node.server.tls.handshakes import UNFINISHED_MAX
from tests.certificates import PASSWORD, Authority, Issued
from tests.compat import tools
from tests.compat.clusters.test_tls import bootstrap, consumed, librdkafka, produced, secured
from tests.compat.members import Members, wait_for
from tests.peer import require_peer, require_program

pytestmark = pytest.mark.xdist_group("tls")


class Secure(NamedTuple):
    """A node with a TLS listener that requires certificates."""

    members: Members
    port: int
    authority: Authority
    client: Issued

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.port}"

    @property
    def context(self) -> ssl.SSLContext:
        context = ssl.create_default_context(cafile=str(self.authority.path))
        context.load_cert_chain(self.client.pem)
        return context


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Secure]:
    folder = tmp_path_factory.mktemp("tls")
    authority = Authority(folder / "certificates")
    members = Members(folder, controllers=("kraftcluster",), brokers=(), combined=True)
    ports = secured(members, authority)
    try:
        members.start()
        yield Secure(members, ports[1], authority, authority.issue("CN=client,O=Example"))
    finally:
        members.stop()


def test_librdkafka(secure: Secure) -> None:
    client = librdkafka(secure.authority)
    secure.members.create("rd", 2)
    produced(bootstrap({1: secure.port}), client, "rd", 500)
    assert sorted(consumed(bootstrap({1: secure.port}), client, "rd", 500)) == list(range(500))


def test_kcat(secure: Secure) -> None:
    kcat = require_program("kcat")
    options = [f"-X{key}={value}" for key, value in librdkafka(secure.authority).items()]
    sent = "".join(f"{'x' * 1000}{number}\n" for number in range(2_000))
    command = [kcat, "-b", secure.address, *options, "-t", "cat"]
    subprocess.run([*command, "-P"], input=sent, text=True, check=True, timeout=60)
    done = subprocess.run([*command, "-C", "-e", "-q"], capture_output=True, text=True, check=True, timeout=60)
    assert sorted(done.stdout.split()) == sorted(sent.split())


def test_kafka_python(secure: Secure) -> None:
    from kafka import KafkaConsumer, KafkaProducer  # type: ignore[import-untyped]

    options: dict[str, Any] = {
        "bootstrap_servers": secure.address,
        "security_protocol": "SSL",
        "ssl_cafile": str(secure.authority.path),
        "ssl_certfile": str(secure.client.chain),
        "ssl_keyfile": str(secure.client.key),
    }
    producer = KafkaProducer(**options)
    for number in range(50):
        producer.send("kp", str(number).encode())
    producer.flush(30)
    producer.close()
    consumer = KafkaConsumer("kp", auto_offset_reset="earliest", consumer_timeout_ms=30_000, **options)
    assert [int(next(consumer).value) for _ in range(50)] == list(range(50))
    consumer.close()


def test_aiokafka(secure: Secure) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer  # type: ignore[import-untyped]

    options = {"bootstrap_servers": secure.address, "security_protocol": "SSL", "ssl_context": secure.context}

    async def run() -> list[int]:
        async with AIOKafkaProducer(**options) as producer:
            for number in range(50):
                await producer.send_and_wait("aio", str(number).encode())
        async with AIOKafkaConsumer("aio", auto_offset_reset="earliest", **options) as consumer:
            return [int((await consumer.getone()).value) for _ in range(50)]

    assert asyncio.run(asyncio.wait_for(run(), 60)) == list(range(50))


@pytest.mark.parametrize("kind", ["PEM", "PKCS12"])
def test_java_tools(secure: Secure, tmp_path: Path, kind: str) -> None:
    require_peer()
    stores = secure.client.stores()
    if kind == "PKCS12":
        stores["ssl.keystore.type"], stores["ssl.keystore.location"] = kind, str(secure.client.p12)
        stores["ssl.keystore.password"] = stores["ssl.key.password"] = PASSWORD
    config = tmp_path / "client.properties"
    config.write_text("".join(f"{key}={value}\n" for key, value in {"security.protocol": "SSL", **stores}.items()))
    topic = f"java-{kind.lower()}"
    common = ("--bootstrap-server", secure.address, "--command-config", str(config))
    server = tools.ToolServer()
    try:
        done = server.run("org.apache.kafka.tools.TopicCommand", *common, "--create", "--topic", topic)
        assert done.code == 0, done.text
        done = server.run(
            "org.apache.kafka.tools.ConsoleProducer", "--bootstrap-server", secure.address, "--command-config",
            str(config), "--topic", topic, stdin="a\nb\nc\n",
        )  # fmt: skip
        assert done.code == 0, done.text
        done = server.run(
            "org.apache.kafka.tools.consumer.ConsoleConsumer", "--bootstrap-server", secure.address,
            "--command-config", str(config), "--topic", topic, "--from-beginning", "--max-messages", "3",
        )  # fmt: skip
        assert done.out.split() == ["a", "b", "c"], done.text
        done = server.run("org.apache.kafka.tools.AclCommand", *common, "--list")
        assert done.code == 0, done.text
    finally:
        server.close()


def test_a_principal_without_rights_is_refused(secure: Secure) -> None:
    """The mapping rules give `CN=stranger` a name, and the authorizer judges it."""
    from confluent_kafka import KafkaException
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": secure.address, **librdkafka(secure.authority, "stranger")})
    with pytest.raises(KafkaException, match="TOPIC_AUTHORIZATION_FAILED"):
        admin.create_topics([NewTopic("forbidden", 1, 1)])["forbidden"].result(30)


def test_a_name_that_no_rule_matches_is_refused(secure: Secure) -> None:
    outsider = secure.authority.issue("CN=outsider,O=Elsewhere")
    context = ssl.create_default_context(cafile=str(secure.authority.path))
    context.load_cert_chain(outsider.pem)
    with socket.create_connection(("127.0.0.1", secure.port), 30) as raw:
        tls = context.wrap_socket(raw, server_hostname="127.0.0.1")
        assert tls.recv(1) == b""
        tls.close()


def test_plaintext_at_the_tls_port_and_tls_at_the_plain_port_are_closed(secure: Secure) -> None:
    with socket.create_connection(("127.0.0.1", secure.port), 30) as plain:
        plain.sendall(b"\x00\x00\x00\x0e\x00\x12\x00\x00\x00\x00\x00\x01\x00\x04test")
        answer = b""
        with suppress(ConnectionResetError):
            while data := plain.recv(100):
                answer += data
        assert answer[:1] in (b"", b"\x15")  # nothing, or an alert of TLS
    with (
        socket.create_connection(("127.0.0.1", secure.members.nodes[1].port), 30) as raw,
        pytest.raises((ssl.SSLError, ConnectionError)),
    ):
        secure.context.wrap_socket(raw, server_hostname="127.0.0.1")


def test_an_honest_client_is_served_beside_many_half_handshakes(secure: Secure) -> None:
    """1,500 connections send a ClientHello and nothing more: the limit closes some, the honest client is served."""
    hello = _client_hello()
    half: list[socket.socket] = []
    try:
        for _ in range(1_500):
            one = socket.create_connection(("127.0.0.1", secure.port), 30)
            one.sendall(hello)
            half.append(one)
        produced(secure.address, librdkafka(secure.authority), "honest", 50)
        wait_for("the limit to close handshakes", lambda: sum(map(_is_closed, half)) >= 1_500 - UNFINISHED_MAX)
    finally:
        for one in half:
            one.close()


def _is_closed(one: socket.socket) -> bool:
    """Whether the node has closed a connection; what it sent before is read."""
    one.setblocking(False)
    try:
        while one.recv(65_536):
            pass
    except BlockingIOError:
        return False
    except ConnectionError:
        pass
    return True


def _client_hello() -> bytes:
    outgoing = ssl.MemoryBIO()
    context = ssl.create_default_context()
    tls = context.wrap_bio(ssl.MemoryBIO(), outgoing, server_hostname="localhost")
    with pytest.raises(ssl.SSLWantReadError):
        tls.do_handshake()
    return outgoing.read()
