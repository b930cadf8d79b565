"""Clients reach every broker through a router that knows only names, as behind an Ingress or a Route.

The names, the certificates' names and the advertised addresses are those of the operator.
"""

from __future__ import annotations

import asyncio
import shutil
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_operator.specs import fronts, security
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.properties import advertised
from tests.certificates import Authority
from tests.compat.members import Members
from tests.compat.security.sni_router import SniRouter
from tests.compat.targets import free_ports
from tests.unit.operator.sample import sample

CLIENT = "Every broker through a router by SNI"
BROKERS = (101, 102, 103)
LISTENER = {
    "name": "out",
    "port": 9096,
    "type": "Ingress",
    "hostTemplate": "broker-{node.id}.{cluster.name}.example.com",
    "bootstrap": {"host": "{cluster.name}.example.com"},
    "brokers": [{"node": 102, "host": "two.example.com"}],
}


class Routed:
    """Three brokers, and the router before them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.authority = Authority(folder / "certificates")
        self.client = self.authority.issue("CN=ann", names=(), file="ann")
        inside = dict(zip(BROKERS, free_ports(len(BROKERS)), strict=True))
        self.router = SniRouter({})
        self.cluster = self._cluster(self.router.port)
        (listener,) = self.cluster.external
        self.bootstrap = fronts.bootstrap_host(self.cluster, listener) or ""
        self.hosts = {i: fronts.named_host(self.cluster, listener, i) or "" for i in BROKERS}
        self.router.ports = {host: inside[i] for i, host in self.hosts.items()} | {self.bootstrap: inside[103]}
        self.members = Members(folder / "nodes", ("kraftcluster",), ("kraftcluster",) * 3)
        for node_id in BROKERS:
            self._give_listener(node_id, inside[node_id])
        self.members.start()

    def _cluster(self, port: int) -> NamedCluster:
        return sample(security={}, listeners=[{"name": "tls", "port": 9093}, {**LISTENER, "advertisedPort": port}])

    def _give_listener(self, node_id: int, port: int) -> None:
        names = tuple(sorted(security.names(self.cluster, node_id, True)))
        own = self.authority.issue(f"CN=node-{node_id}", names=names, file=f"node-{node_id}")
        (listener,) = self.cluster.external
        host = fronts.named_host(self.cluster, listener, node_id)
        said = advertised(self.cluster, node_id, {"out": (host or "", self.router.port)})
        (out,) = [one for one in said.split(",") if one.startswith("OUT://")]
        values = self.members.nodes[node_id].overrides
        values["listeners"] += f",OUT://127.0.0.1:{port}"
        values["advertised.listeners"] += f",{out}"
        values["listener.security.protocol.map"] = "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,OUT:SSL"
        values["listener.name.out.ssl.client.auth"] = "required"
        values |= {f"listener.name.out.{key}": value for key, value in own.stores().items()}

    def close(self) -> None:
        self.router.close()
        self.members.stop()


@pytest.fixture(scope="module")
def routed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Routed]:
    found = Routed(tmp_path_factory.mktemp("routed"))
    yield found
    found.close()


def created(routed: Routed, name: str) -> None:
    """A topic with a partition on each broker."""
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]

    admin = AdminClient({"bootstrap.servers": routed.members.bootstrap})
    topic = NewTopic(name, replica_assignment=[[i] for i in BROKERS], num_partitions=3)
    admin.create_topics([topic])[name].result(60)


def test_kcat_reaches_every_broker_by_its_name(routed: Routed) -> None:
    kcat, unshare = shutil.which("kcat"), shutil.which("unshare")
    # Only in a mount namespace of its own can a program see other names.
    apart = [unshare or "", "--mount"]
    if kcat is None or unshare is None or subprocess.run([*apart, "true"], check=False, capture_output=True).returncode:
        pytest.skip("needs kcat, and unshare with the right to mount")
    created(routed, "by-kcat")
    hosts = routed.folder / "hosts"
    hosts.write_text("".join(f"127.0.0.1 {name}\n" for name in ("localhost", *routed.router.ports)))
    routed.router.seen.clear()

    def run(*words: str, given: str = "") -> str:
        options = {
            "security.protocol": "ssl",
            "ssl.ca.location": routed.authority.path,
            "ssl.certificate.location": routed.client.chain,
            "ssl.key.location": routed.client.key,
            "ssl.endpoint.identification.algorithm": "https",
        }
        command = [kcat, "-b", f"{routed.bootstrap}:{routed.router.port}"]
        command += [word for key, value in options.items() for word in ("-X", f"{key}={value}")]
        script = 'mount --bind "$0" /etc/hosts && exec "$@"'
        done = subprocess.run(
            [*apart, "sh", "-c", script, str(hosts), *command, *words],
            input=given, capture_output=True, text=True, timeout=180, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        return done.stdout

    for partition in range(3):
        run("-P", "-t", "by-kcat", "-p", str(partition), given=f"value-{partition}\n")
    assert sorted(run("-C", "-t", "by-kcat", "-e", "-q").split()) == [f"value-{i}" for i in range(3)]
    assert set(routed.router.seen) == {routed.bootstrap, *routed.hosts.values()}


def test_aiokafka_reaches_every_broker_by_its_name(routed: Routed, monkeypatch: pytest.MonkeyPatch) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
    from aiokafka.helpers import create_ssl_context

    created(routed, "by-aiokafka")
    ask = socket.getaddrinfo

    def answer(host: Any, *rest: Any, **named: Any) -> Any:
        text = host.decode() if isinstance(host, bytes) else host
        return ask("127.0.0.1" if text in routed.router.ports else host, *rest, **named)

    monkeypatch.setattr(socket, "getaddrinfo", answer)
    routed.router.seen.clear()
    context = create_ssl_context(
        cafile=str(routed.authority.path), certfile=str(routed.client.chain), keyfile=str(routed.client.key)
    )
    settings: dict[str, Any] = {
        "bootstrap_servers": f"{routed.bootstrap}:{routed.router.port}",
        "security_protocol": "SSL",
        "ssl_context": context,
    }

    async def tour() -> list[bytes]:
        async with AIOKafkaProducer(**settings) as producer:
            for partition in range(3):
                await producer.send_and_wait("by-aiokafka", f"value-{partition}".encode(), partition=partition)
        consumer = AIOKafkaConsumer("by-aiokafka", auto_offset_reset="earliest", **settings)
        async with consumer:
            return [(await asyncio.wait_for(consumer.getone(), 120)).value for _ in range(3)]

    assert sorted(asyncio.run(tour())) == [b"value-0", b"value-1", b"value-2"]
    assert set(routed.router.seen) == {routed.bootstrap, *routed.hosts.values()}


def test_a_name_that_leads_nowhere_is_not_served(routed: Routed) -> None:
    import ssl

    context = ssl.create_default_context(cafile=str(routed.authority.path))
    raw = socket.create_connection(("127.0.0.1", routed.router.port), timeout=60)
    with raw, pytest.raises((ssl.SSLError, ConnectionError)):
        context.wrap_socket(raw, server_hostname="other.example.com")
