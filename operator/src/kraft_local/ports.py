"""Assignment of a port to every listener of every node.

A port is assigned once, recorded and never changed, so that clients find their cluster again. Ports of a listener are
a hundred apart from broker to broker, unless another program listens there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from kraft_local.folder import Ports
from kraft_operator.api.security import NODES_LISTENER
from kraft_operator.plan.model.record import Node
from kraft_operator.specs.cluster import NamedCluster

APART: Final = 100
CONTROLLER: Final = "controller"
HTTP: Final = "http"
HOST: Final = "localhost"
PORT_MAX: Final = 65_535


class NoPortError(Exception):
    """No free port is left for a listener."""


def is_free(port: int) -> bool:
    """Whether no program listens at a port now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def key(node_id: int, listener: str) -> str:
    """The key of a listener in the table of ports."""
    return f"{node_id}/{listener}"


def given(
    cluster: NamedCluster,
    nodes: Iterable[Node],
    ports: Ports,
    offset: int,
    free: Callable[[int], bool] = is_free,
    warn: Callable[[str], None] = lambda _text: None,
) -> Ports:
    """Return `ports` with all missing ports added. Calls `warn` for ports in use by others. Raises NoPortError."""
    found, warned = dict(ports), set[str]()

    def once(text: str) -> None:
        if text not in warned:
            warn(text)
        warned.add(text)

    first = cluster.spec.listeners[0].port
    for node in nodes:
        wanted = {one.name: one.port for one in cluster.spec.listeners} if node.broker else {}
        if node.broker and cluster.secure:
            wanted[NODES_LISTENER] = first - 1
        if node.controller:
            wanted[CONTROLLER] = first + 1
        wanted[HTTP] = cluster.spec.metrics.port
        for listener, port in wanted.items():
            if key(node.id, listener) not in found:
                apart = 1 if listener == HTTP else APART
                found[key(node.id, listener)] = _next(found, port + offset, apart, free, once)
    return found


def _next(taken: Ports, first: int, apart: int, free: Callable[[int], bool], warn: Callable[[str], None]) -> int:
    used = set(taken.values())
    for port in range(first, PORT_MAX + 1, apart):
        if port not in used:
            if free(port):
                return port
            warn(f"port {port} is used by another program: the node gets the next port, permanently")
    raise NoPortError(f"no port from {first} on is free, in steps of {apart}")
