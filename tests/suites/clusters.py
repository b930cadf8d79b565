"""The clusters that the suites expect."""

from __future__ import annotations

import json
import subprocess
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from tests.compat.members import Members
from tests.compat.targets import free_ports
from tests.suites.securing import SECURE, Access, secure

COMMON: Final = {
    "offsets.topic.replication.factor": "3",
    "transaction.state.log.replication.factor": "3",
    "group.initial.rebalance.delay.ms": "0",
}
PROXY_PORT: Final = 39090
"""Broker n is reached through the proxy at this port plus n."""
PROXY_API: Final = "http://127.0.0.1:8474"
PROXIED: Final = 5
POLL_S: Final = 0.1


def _three(server: str, folder: Path, overrides: dict[str, str]) -> Members:
    values = COMMON | {"min.insync.replicas": "2"} | {key.replace("_", "."): text for key, text in overrides.items()}
    return Members(folder / "cluster", controllers=(server,), brokers=(server,) * 3, overrides=values)


@contextmanager
def three_brokers(server: str, folder: Path, **overrides: str) -> Iterator[str]:
    """One controller and three brokers, `server` for each ("kraftcluster" or "apache"). Yields the bootstrap servers.

    Underscores in the names of `overrides` mean dots.
    """
    members = _three(server, folder, overrides)
    try:
        yield members.start().bootstrap
    finally:
        members.stop()


@contextmanager
def three_secured(server: str, folder: Path, **overrides: str) -> Iterator[Access]:
    """The same cluster with TLS and SASL. Yields what clients need."""
    members = _three(server, folder, overrides)
    access = secure(members, folder)
    try:
        members.start()
        yield access
    finally:
        members.stop()


@contextmanager
def one_secured(server: str, folder: Path, overrides: dict[str, str]) -> Iterator[tuple[str, Access]]:
    """One combined node, with TLS and SASL, too. Yields the bootstrap server of its plain listener, and the access."""
    members = Members(folder / "cluster", controllers=(server,), brokers=(), combined=True, overrides=overrides)
    access = secure(members, folder)
    try:
        yield members.start().bootstrap, access
    finally:
        members.stop()


@contextmanager
def five_proxied(server: str, folder: Path, toxiproxy: Path, *, secured: bool = False) -> Iterator[Path]:
    """Five combined nodes in five racks, behind a toxiproxy. Yields a folder with a program `docker`, which stops and
    starts them: `docker compose stop kafka-2`.

    `secured`: clients behind the proxy use TLS and SASL; their authority is `certificates/authority.pem` in `folder`.
    """
    overrides = COMMON | {
        "offsets.topic.replication.factor": "2",
        "default.replication.factor": "2",
        "transaction.state.log.replication.factor": "2",
        "transaction.state.log.min.isr": "1",
        "replica.selector.class": "org.apache.kafka.common.replica.RackAwareReplicaSelector",
        "auto.create.topics.enable": "false",
    }
    members = Members(
        folder / "cluster", controllers=(server,) * PROXIED, brokers=(), combined=True, overrides=overrides
    )
    behind = dict(zip(members.nodes, free_ports(PROXIED), strict=True))
    local = SECURE if secured else "LOCAL"
    for node_id, node in members.nodes.items():
        own = f"PLAINTEXT://127.0.0.1:{node.port}"
        node.overrides |= {
            "broker.rack": str(node_id),
            "listeners": f"{own},{local}://127.0.0.1:{behind[node_id]},CONTROLLER://127.0.0.1:{node.controller_port}",
            "advertised.listeners": f"{own},{local}://localhost:{PROXY_PORT + node_id}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOCAL:PLAINTEXT,CONTROLLER:PLAINTEXT",
        }
    if secured:
        secure(members, folder, ports=behind, between="PLAINTEXT")
    ended = threading.Event()
    shim = _shim(folder)
    with (folder / "toxiproxy.log").open("wb") as log:
        proxy = subprocess.Popen([str(toxiproxy), "-host", "127.0.0.1"], stdout=log, stderr=log)
    obeying = threading.Thread(target=_obey, args=(members, shim / "command", ended))
    try:
        members.start()
        for node_id, port in behind.items():
            _make_proxy(node_id, port)
        obeying.start()
        yield shim
    finally:
        ended.set()
        if obeying.ident is not None:
            obeying.join()
        proxy.kill()
        proxy.wait()
        members.stop()


def _make_proxy(node_id: int, port: int) -> None:
    listens, upstream = f"127.0.0.1:{PROXY_PORT + node_id}", f"127.0.0.1:{port}"
    row = {"name": f"kafka{node_id}", "listen": listens, "upstream": upstream, "enabled": True}
    request = urllib.request.Request(
        f"{PROXY_API}/proxies", data=json.dumps(row).encode(), headers={"Content-Type": "application/json"}
    )
    with urllib.request.urlopen(request, timeout=10):
        pass


def _shim(folder: Path) -> Path:
    """A folder with the program `docker`; logs of containers are empty."""
    shim = folder / "shim"
    shim.mkdir()
    program = shim / "docker"
    program.write_text(
        f"""#!/bin/sh
case "$2" in
    stop | start)
        echo "$2 ${{3#kafka-}}" > {shim}/writing && mv {shim}/writing {shim}/command
        while [ -f {shim}/command ]; do sleep 0.1; done
        ;;
esac
"""
    )
    program.chmod(0o755)
    return shim


def _obey(members: Members, command: Path, ended: threading.Event) -> None:
    while not ended.wait(POLL_S):
        if command.exists():
            what, node_id = command.read_text().split()
            node = members.nodes[int(node_id)]
            if what == "stop":
                node.stop()
            elif node.process is None:
                node.start()
            command.unlink()
