"""When connections end: failures without an answer, clients that do not read, stalls of the node."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.server.connections.listener import Limits
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import HeartbeatResponse, MetadataRequest, MetadataResponse, ProduceResponse
from tests.unit.server.connections.fakes import FakeTransport, World, feed
from tests.unit.server.connections.test_connection import heartbeat, produce, request

IDLE_MS = 1000


def metadata(ctx: Any, message: Any) -> Any:
    return MetadataResponse(topics=[MetadataResponse.MetadataResponseTopic(name="t" * 20_000)])


def world_with() -> World:
    world = World(
        {ApiKey.METADATA: metadata, ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()},
        Limits(idle_ms=IDLE_MS),
    )
    world.listener._sweep_later()
    return world


def wait(world: World, ms: int, transport: FakeTransport | None = None, taken: int = 0) -> None:
    """Let time pass with a sweep every 100 ms; the peer of `transport` reads `taken` bytes between two sweeps."""
    for _ in range(ms // 100):
        world.clock.now += 100
        if transport is not None:
            transport.unsent_bytes -= taken
        world.scheduler.fire()


def fill(connection: Any, transport: FakeTransport) -> None:
    """Request more than the peer reads."""
    transport.stuck = True
    feed(connection, b"".join(request(ApiKey.METADATA, 1, i, MetadataRequest()) for i in range(100)))
    assert transport.unsent_bytes > 0


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced"), RuntimeError("a defect")])
def test_a_failed_produce_without_acks_closes_the_connection(error: Exception) -> None:
    def handle(ctx: Any, message: Any) -> Any:
        raise error

    world = World({ApiKey.PRODUCE: handle})
    connection, transport = world.connect()
    feed(connection, produce(1, b"x", acks=0) + produce(2))
    assert transport.frames() == []
    assert transport.closed


def test_answers_before_a_failed_produce_without_acks_are_sent() -> None:
    def handle(ctx: Any, message: Any) -> Any:
        if message.acks == 0:
            raise KafkaError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "fenced")
        return ProduceResponse()

    world = World({ApiKey.PRODUCE: handle})
    connection, transport = world.connect()
    feed(connection, produce(1) + produce(2, acks=0))
    assert transport.correlation_ids() == [1]
    assert transport.closed


def test_a_reader_that_takes_nothing_is_aborted_when_idle() -> None:
    world = world_with()
    connection, transport = world.connect()
    fill(connection, transport)
    wait(world, IDLE_MS)
    assert not transport.aborted
    wait(world, 2 * IDLE_MS // 10 + 100)
    assert transport.aborted, "closing would wait for a drain that never comes"


def test_a_slow_reader_is_kept() -> None:
    world = world_with()
    connection, transport = world.connect()
    fill(connection, transport)
    wait(world, 5 * IDLE_MS, transport, taken=1)
    assert not transport.aborted
    assert not transport.closed


def test_a_closed_connection_whose_peer_reads_nothing_is_aborted() -> None:
    world = world_with()
    connection, transport = world.connect()
    fill(connection, transport)
    connection.close()
    wait(world, 2 * IDLE_MS)
    assert transport.aborted


def test_a_connection_busy_before_a_stall_is_not_idle_after_it() -> None:
    world = world_with()
    connection, transport = world.connect()
    _, idle = world.connect()
    wait(world, IDLE_MS - 200)
    feed(connection, heartbeat(1))
    world.clock.now += 60_000
    world.scheduler.fire()
    assert not transport.closed
    assert not idle.closed, "it had 200 ms left, and the stall is not its fault"
    wait(world, 300)
    assert idle.closed
    assert not transport.closed
    wait(world, IDLE_MS)
    assert transport.closed
