"""The bytes of unread responses are bounded for the whole node, however many connections exist."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.server.connections.connection import Connection
from kraft_node.server.connections.unread import PATIENCE_MS
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import HeartbeatResponse, MetadataRequest, MetadataResponse
from tests.unit.server.connections.fakes import FakeTransport, World, feed
from tests.unit.server.connections.test_connection import heartbeat, request

ANSWER = 20_000
LIMIT = 10 * ANSWER + 5_000
"""Ten readers that take nothing are too few to reach it."""


@pytest.fixture
def world() -> World:
    topic = MetadataResponse.MetadataResponseTopic(name="t" * ANSWER)
    world = World(
        {
            ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=[topic]),
            ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse(),
        }
    )
    world.listener.gate.unread.limit = LIMIT
    return world


def reader(world: World) -> tuple[Connection, FakeTransport]:
    """A client that sends requests and reads nothing."""
    connection, transport = world.connect()
    transport.stuck = True
    feed(connection, request(ApiKey.METADATA, 1, 1, MetadataRequest()))
    return connection, transport


def patience(world: World) -> None:
    assert [delay for delay, *_ in world.scheduler.later] == [PATIENCE_MS]
    world.scheduler.fire()


def test_readers_that_take_nothing_are_aborted_down_to_the_limit(world: World) -> None:
    readers = [reader(world) for _ in range(15)]
    assert not any(transport.aborted for _, transport in readers), "nobody is aborted before its time"
    patience(world)
    left = [transport for _, transport in readers if not transport.aborted]
    assert len(left) == 10
    assert world.listener.gate.unread.total == sum(transport.held_bytes for transport in left) <= LIMIT
    assert world.scheduler.later == []
    assert world.listener.refusals == 5


def test_a_reader_that_makes_progress_is_kept(world: World) -> None:
    slow, taken = reader(world)
    others = [reader(world)[1] for _ in range(14)]
    taken.unsent_bytes -= 1
    patience(world)
    assert not taken.aborted
    assert sum(transport.aborted for transport in others) == 5
    assert not slow.closed


def test_connections_with_the_most_unread_bytes_are_aborted_first(world: World) -> None:
    large, transport = world.connect()
    transport.stuck = True
    feed(large, b"".join(request(ApiKey.METADATA, 1, i, MetadataRequest()) for i in range(6)))
    others = [reader(world)[1] for _ in range(6)]
    patience(world)
    assert transport.aborted
    assert not any(other.aborted for other in others)


def test_an_honest_client_is_served_beside_unread_answers(world: World) -> None:
    for _ in range(15):
        reader(world)
    connection, transport = world.connect()
    feed(connection, heartbeat(7))
    assert transport.correlation_ids() == [7]


def test_over_the_limit_a_connection_with_unread_answers_handles_nothing(world: World) -> None:
    connection, transport = reader(world)
    others = [reader(world) for _ in range(10)]
    before = len(transport.frames())
    feed(connection, heartbeat(2))
    assert len(transport.frames()) == before
    assert not transport.reading
    for other, lost in others[:5]:
        lost.unsent_bytes = 0
        other.connection_lost(None)
    transport.unsent_bytes = 0
    connection.drained()
    assert transport.correlation_ids() == [1, 2]


def test_twice_the_bound_is_never_exceeded(world: World) -> None:
    for _ in range(60):
        reader(world)
    unread = world.listener.gate.unread
    assert unread.total <= 2 * LIMIT
    assert world.listener.refusals > 0
    patience(world)
    patience(world)  # some arrived after the first check
    assert unread.total <= LIMIT


def test_sent_and_lost_bytes_are_no_longer_counted(world: World) -> None:
    readers = [reader(world) for _ in range(3)]
    unread = world.listener.gate.unread
    assert unread.total == sum(transport.held_bytes for _, transport in readers) > 0
    connection, transport = readers[0]
    transport.unsent_bytes = 0
    connection.drained()
    readers[1][0].connection_lost(None)
    assert unread.total == readers[2][1].held_bytes
    readers[2][0].connection_lost(None)
    assert unread.total == 0


def test_all_listeners_share_the_bound(world: World) -> None:
    from kraft_node.server.connections.listener import ServerListener

    topic = MetadataResponse.MetadataResponseTopic(name="t" * ANSWER)
    handlers: Any = {ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=[topic])}
    other = ServerListener(
        world.env, "OTHER", handlers, gate=world.listener.gate, pool=world.pool, metrics=world.metrics
    )
    transports = []
    for listener in (world.listener, other) * 6:
        transport = FakeTransport()
        transport.stuck = True
        connection = listener.accept(transport)
        feed(connection, request(ApiKey.METADATA, 1, 1, MetadataRequest()))
        transports.append(transport)
    patience(world)
    assert sum(transport.aborted for transport in transports) == 2
