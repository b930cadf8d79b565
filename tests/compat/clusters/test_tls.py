"""Clusters over TLS: clients, brokers and controllers authenticate with certificates; ours alone and with Apache Kafka.

Each node also has a plain listener, for the questions of the tests only.
"""

from __future__ import annotations

import os
import socket
import ssl
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_protocol.client.blocking import BlockingConnection
from kraft_protocol.client.security import ClientSecurity
from kraft_protocol.client.session import Software
from kraft_protocol.tls.contexts import make_contexts
from kraft_protocol.tls.settings import SslSettings
from kraft_protocol.wire.messages import MetadataRequest
from tests.certificates import Authority
from tests.compat.members import Members, wait_for
from tests.compat.targets import free_ports


def secured(members: Members, authority: Authority) -> dict[int, int]:
    """Move brokers and controllers to mutual TLS. Returns the TLS port of each node."""
    ports = dict(zip(members.nodes, free_ports(len(members.nodes)), strict=True))
    for node_id, node in members.nodes.items():
        node.overrides |= authority.issue(f"CN=node-{node_id},O=Example").stores()
        node.overrides |= {
            "ssl.client.auth": "required",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SECURE:SSL,CONTROLLER:SSL",
            "listeners": node.overrides["listeners"] + f",SECURE://127.0.0.1:{ports[node_id]}",
            "advertised.listeners": f"PLAINTEXT://127.0.0.1:{node.port},SECURE://127.0.0.1:{ports[node_id]}",
            "inter.broker.listener.name": "SECURE",
            "ssl.principal.mapping.rules": "RULE:^CN=(.*?),O=Example$/$1/",
            "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
            "super.users": "User:ANONYMOUS;" + ";".join(f"User:node-{i}" for i in members.nodes) + ";User:client",
        }
    return ports


def librdkafka(authority: Authority, name: str = "client") -> dict[str, Any]:
    issued = authority.issue(f"CN={name},O=Example")
    return {
        "security.protocol": "ssl",
        "ssl.ca.location": str(authority.path),
        "ssl.certificate.location": str(issued.chain),
        "ssl.key.location": str(issued.key),
    }


def bootstrap(ports: dict[int, int]) -> str:
    return ",".join(f"127.0.0.1:{port}" for port in ports.values())


def produced(servers: str, security: dict[str, Any], topic: str, count: int) -> None:
    from confluent_kafka import Producer

    failures: list[Any] = []
    producer = Producer({"bootstrap.servers": servers, "acks": "all", **security})

    def delivered(error: Any, _message: Any) -> None:
        if error is not None:
            failures.append(error)

    for number in range(count):
        producer.produce(topic, str(number).encode(), callback=delivered)
    assert producer.flush(60) == 0 and failures == []


def consumed(servers: str, security: dict[str, Any], topic: str, count: int) -> list[int]:
    from confluent_kafka import Consumer

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "g", "auto.offset.reset": "earliest", **security})
    consumer.subscribe([topic])
    got: list[int] = []
    deadline = time.monotonic() + 60
    while len(got) < count and time.monotonic() < deadline:
        message = consumer.poll(1)
        if message is not None and message.error() is None:
            got.append(int(message.value() or b""))
    consumer.close()
    return got


KINDS = {"ours": ("kraftcluster",) * 3, "mixed": ("kraftcluster", "apache", "kraftcluster")}


@pytest.fixture(params=[pytest.param("ours", marks=pytest.mark.slow), "mixed"])
def cluster(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Members, dict[int, int], Authority]]:
    authority = Authority(tmp_path / "certificates")
    members = Members(tmp_path, controllers=KINDS[request.param], brokers=(), combined=True)
    ports = secured(members, authority)
    try:
        yield members.start(), ports, authority
    finally:
        members.stop()


def test_a_cluster_replicates_and_serves_over_mutual_tls(cluster: Any) -> None:
    members, ports, authority = cluster
    members.create("t", partitions=3, replicas=3)
    client = librdkafka(authority)
    produced(bootstrap(ports), client, "t", 300)
    assert sorted(consumed(bootstrap(ports), client, "t", 300)) == list(range(300))
    # Another leader of the quorum: its peers dial it over TLS as well.
    leader = members.leader()
    members.nodes[leader].kill()
    asked = next(node_id for node_id in members.nodes if node_id != leader)
    found = wait_for("another leader", lambda: (q := members.quorum(asked)) and q.leader_id not in (-1, leader) and q)
    assert found.leader_id in members.nodes
    members.start(leader)
    produced(bootstrap(ports), client, "t", 30)


def test_a_certificate_is_exchanged_without_losing_a_connection(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    members = Members(tmp_path, controllers=("kraftcluster",), brokers=(), combined=True)
    ports = secured(members, authority)
    stores = {k: v for k, v in members.nodes[1].overrides.items() if k.startswith("ssl.")}
    try:
        members.start()
        contexts = make_contexts(SslSettings.parse(stores))

        class Tls:
            client_context = contexts.client

        def connect() -> BlockingConnection:
            return BlockingConnection(
                "127.0.0.1", ports[1], software=Software("t", "test", "1"), versions=None, connect_s=30, request_s=30,
                security=ClientSecurity("SSL", tls=Tls()),
            )  # fmt: skip

        def serial() -> str:
            with (
                socket.create_connection(("127.0.0.1", ports[1])) as raw,
                contexts.client.wrap_socket(raw, server_hostname="127.0.0.1") as tls,
            ):
                return str((tls.getpeercert() or {})["serialNumber"])

        old = connect()
        before = serial()
        renewed = authority.issue("CN=node-1,O=Example", file="renewed")
        path = Path(stores["ssl.keystore.location"])
        path.write_text(renewed.key_text + renewed.chain_text)
        os.utime(path, (time.time() + 5, time.time() + 5))
        wait_for("the new certificate", lambda: serial() != before)
        for connection in (old, connect()):
            assert connection.request(MetadataRequest(topics=[])).brokers
            connection.close()
    finally:
        members.stop()


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # the versions that must be refused
def test_the_listener_refuses_old_protocols_and_weak_suites(tmp_path: Path) -> None:
    authority = Authority(tmp_path / "certificates")
    members = Members(tmp_path, controllers=("kraftcluster",), brokers=(), combined=True)
    ports = secured(members, authority)
    try:
        members.start()

        def agreed(ciphers: str, version: ssl.TLSVersion) -> bool:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            context.set_ciphers(f"{ciphers}:@SECLEVEL=0")
            context.minimum_version = context.maximum_version = version
            with socket.create_connection(("127.0.0.1", ports[1])) as raw:
                try:
                    context.wrap_socket(raw).close()
                except (ssl.SSLError, ConnectionError):
                    return False
            return True

        for version in (ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1):
            assert not agreed("ALL", version)
        names = [c["name"] for c in _all_suites()]
        accepted = {name for name in names if agreed(name, ssl.TLSVersion.TLSv1_2)}
        assert accepted <= {
            "ECDHE-ECDSA-AES256-GCM-SHA384", "ECDHE-ECDSA-AES128-GCM-SHA256", "ECDHE-ECDSA-CHACHA20-POLY1305",
        }  # fmt: skip
    finally:
        members.stop()


def _all_suites() -> list[Any]:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.set_ciphers("ALL:COMPLEMENTOFALL:@SECLEVEL=0")
    return [c for c in context.get_ciphers() if c["protocol"] != "TLSv1.3"]
