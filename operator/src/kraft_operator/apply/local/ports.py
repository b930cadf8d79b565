"""A port for every listener of every node: given once, remembered, never moved, so that clients find their cluster
again. Brokers' are a hundred apart, as far as nothing else listens there.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from typing import Final

from kraft_operator.apply.local.folder import Ports
from kraft_operator.plan.record import Node
from kraft_operator.specs.cluster import Cluster

APART: Final = 100
CONTROLLER: Final = "controller"
HTTP: Final = "http"
HOST: Final = "localhost"
PORT_MAX: Final = 65_535


class NoPortError(Exception):
    """No free port is left for a listener."""


def is_free(port: int) -> bool:
    """Whether nobody listens there now."""
    try:
        socket.create_server((HOST, port)).close()
    except OSError:
        return False
    return True


def key(node_id: int, listener: str) -> str:
    """Of a listener in the table of ports."""
    return f"{node_id}/{listener}"


def given(
    cluster: Cluster,
    nodes: Iterable[Node],
    ports: Ports,
    offset: int,
    free: Callable[[int], bool] = is_free,
    say: Callable[[str], None] = lambda _text: None,
) -> Ports:
    """`ports` with all that is missing; says which another program has. Raises NoPortError."""
    found, told = dict(ports), set[str]()

    def once(text: str) -> None:
        if text not in told:
            say(text)
        told.add(text)

    first = cluster.spec.listeners[0].port
    for node in nodes:
        wanted = {one.name: one.port for one in cluster.spec.listeners} if node.broker else {}
        if node.controller:
            wanted[CONTROLLER] = first + 1
        wanted[HTTP] = cluster.spec.metrics.port
        for listener, port in wanted.items():
            if key(node.id, listener) not in found:
                apart = 1 if listener == HTTP else APART
                found[key(node.id, listener)] = _next(found, port + offset, apart, free, once)
    return found


def _next(taken: Ports, first: int, apart: int, free: Callable[[int], bool], say: Callable[[str], None]) -> int:
    used = set(taken.values())
    for port in range(first, PORT_MAX + 1, apart):
        if port not in used:
            if free(port):
                return port
            say(f"port {port} is taken by another program: the next one is given, for good")
    raise NoPortError(f"no port from {first} on is free, in steps of {apart}")
