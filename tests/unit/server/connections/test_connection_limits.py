"""Admission of connections: limits of the node, a listener, an address; listeners that clients cannot crowd out."""

from __future__ import annotations

from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.server.connections.listener import ConnectionLimiter, Limits, ServerListener
from kraft_node.server.node_settings import limits_of
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import HeartbeatResponse, ProduceResponse
from tests.unit.broker.fetching.test_fetching import CONFIG
from tests.unit.server.connections.fakes import FakeTransport, World, feed
from tests.unit.server.connections.test_connection import heartbeat, produce


class Node:
    """Three listeners that share limits: for clients, brokers and controllers."""

    def __init__(self, limits: Limits) -> None:
        self.world = world = World({ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()})
        self.gate = ConnectionLimiter(limits, inter_broker="BROKERS", controllers=("CONTROLLER",))
        handlers: Any = {ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()}
        self.listeners = {
            name: ServerListener(world.env, name, handlers, gate=self.gate, pool=world.pool, metrics=world.metrics)
            for name in ("CLIENTS", "OTHERS", "BROKERS", "CONTROLLER")
        }

    def connect(self, listener: str, host: str = "10.0.0.1") -> FakeTransport:
        transport = FakeTransport(host)
        transport.connection = self.listeners[listener].accept(transport)  # type: ignore[attr-defined]
        return transport

    def lose(self, *transports: FakeTransport) -> None:
        for transport in transports:
            transport.connection.connection_lost(None)  # type: ignore[attr-defined]


def test_a_listener_has_a_connection_limit() -> None:
    node = Node(Limits(connections_max=10, connections_max_by_listener={"CLIENTS": 2}))
    first = [node.connect("CLIENTS") for _ in range(3)]
    assert [transport.aborted for transport in first] == [False, False, True]
    assert not node.connect("OTHERS").aborted
    node.lose(first[0])
    assert not node.connect("CLIENTS").aborted


def test_clients_cannot_displace_controllers() -> None:
    node = Node(Limits(connections_max=2))
    clients = [node.connect("CLIENTS") for _ in range(3)]
    assert [transport.aborted for transport in clients] == [False, False, True]
    controllers = [node.connect("CONTROLLER") for _ in range(5)]
    assert not any(transport.aborted for transport in controllers)
    node.lose(clients[0])
    assert not node.connect("CLIENTS").aborted, "controllers' connections do not count"


def test_a_broker_displaces_the_client_that_was_idle_for_longest() -> None:
    node = Node(Limits(connections_max=3))
    clients = [node.connect("CLIENTS"), node.connect("OTHERS"), node.connect("CLIENTS")]
    for transport in (clients[0], clients[2]):
        node.world.clock.now += 10
        feed(transport.connection, heartbeat(1))  # type: ignore[attr-defined]
    broker = node.connect("BROKERS")
    assert not broker.aborted
    assert [transport.aborted for transport in clients] == [False, True, False]
    node.lose(clients[1])
    assert node.connect("CLIENTS").aborted, "the broker's counts"
    assert not node.connect("BROKERS").aborted
    assert [transport.aborted for transport in clients] == [True, True, False]


def test_brokers_beyond_the_limit_close_no_broker() -> None:
    node = Node(Limits(connections_max=2))
    brokers = [node.connect("BROKERS") for _ in range(4)]
    assert not any(transport.aborted for transport in brokers)


def test_a_single_listener_gets_no_protection() -> None:
    gate = ConnectionLimiter(Limits(connections_max=1), inter_broker=None)
    assert gate.enter("10.0.0.1", "PLAINTEXT") is None
    assert gate.enter("10.0.0.1", "PLAINTEXT") is not None


def test_limits_are_read_with_the_listeners_prefix() -> None:
    config = NodeConfig.parse(CONFIG, {"listener.name.plaintext.max.connections": "7", "max.connections": "9"})
    limits = limits_of(config, config)
    assert (limits.connections_max, limits.connections_max_by_listener) == (9, {"PLAINTEXT": 7})


def large(correlation_id: int) -> bytes:
    return produce(correlation_id, b"x" * 300_000)


def test_large_requests_wait_for_memory() -> None:
    world = World({ApiKey.PRODUCE: lambda ctx, m: ProduceResponse()})
    world.pool._lent_max = 600_000
    data = large(1)
    connections = [world.connect() for _ in range(5)]
    for connection, transport in connections:
        for start in range(0, 150_000, 50_000):
            if transport.reading:
                feed(connection, data[start : start + 50_000])
    receiving = [transport.reading for _, transport in connections]
    assert receiving == [True, True, False, False, False]
    assert world.pool.lent <= 600_000 + 400_000
    for number, (connection, transport) in enumerate(connections):
        at = 150_000 if number < 2 else 100_000
        assert transport.reading, f"connection {number} may go on once another is done"
        feed(connection, data[at:])
        world.scheduler.run()
        assert transport.correlation_ids() == [1]
    assert world.pool.lent == 0


def test_a_small_request_does_not_wait_for_memory() -> None:
    world = World({ApiKey.PRODUCE: lambda ctx, m: ProduceResponse()})
    world.pool._lent_max = 0
    connection, transport = world.connect()
    feed(connection, produce(1, b"x" * 50_000))
    assert transport.correlation_ids() == [1]
