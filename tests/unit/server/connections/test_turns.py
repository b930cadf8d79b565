"""A connection's share of a turn of the loop: requests, time, and expensive requests."""

from __future__ import annotations

from typing import Any

from kraft_node.server.connections.connection import CLOCK_COSTS, COSTLY_BYTES, COSTS_OF_OTHERS, TURN_COSTS, TURN_MS
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ApiVersionsRequest, HeartbeatResponse, MetadataRequest, MetadataResponse
from tests.unit.server.connections.fakes import World, feed
from tests.unit.server.connections.test_connection import heartbeat, request

TURN_REQUESTS = TURN_COSTS // COSTS_OF_OTHERS
CLOCK_REQUESTS = CLOCK_COSTS // COSTS_OF_OTHERS


def one_turn(world: World) -> None:
    """Run the calls scheduled so far, but not the calls that they schedule."""
    now, world.scheduler.soon = world.scheduler.soon, []
    for function, args in now:
        function(*args)


def api_versions(count: int) -> bytes:
    return b"".join(request(ApiKey.API_VERSIONS, 0, i, ApiVersionsRequest()) for i in range(count))


def test_one_read_of_many_requests_is_handled_in_turns() -> None:
    world = World({ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()})
    connection, transport = world.connect()
    count = 10_000
    data = api_versions(count)
    assert len(data) < len(connection.get_buffer(-1))
    feed(connection, data)
    assert len(transport.frames()) == TURN_REQUESTS
    assert not transport.reading, "nothing more is read while requests wait for their turn"
    other, others = world.connect()
    feed(other, heartbeat(1))
    assert others.correlation_ids() == [1]
    world.scheduler.run()
    assert transport.correlation_ids() == list(range(count))
    assert transport.reading


def test_requests_that_wait_are_copied_once_and_not_once_a_turn() -> None:
    def slow(ctx: Any, message: Any) -> Any:
        world.clock.now += 1
        return HeartbeatResponse()

    world = World({ApiKey.HEARTBEAT: slow})
    connection, transport = world.connect()
    count = 5 * CLOCK_REQUESTS
    feed(connection, b"".join(heartbeat(i) for i in range(count)))
    copies = [connection._rest]
    while len(transport.frames()) < count - CLOCK_REQUESTS:
        one_turn(world)
        copies.append(connection._rest)
    assert len(copies) == 4
    assert all(isinstance(rest, memoryview) and rest.obj is copies[0] for rest in copies[1:])
    world.scheduler.run()
    assert transport.correlation_ids() == list(range(count))
    assert connection._rest is None


def test_the_start_of_a_request_does_not_keep_earlier_requests_in_memory() -> None:
    world = World({})
    connection, transport = world.connect()
    data = api_versions(3 * TURN_REQUESTS + 1)
    feed(connection, data[:-3])
    world.scheduler.run()
    assert isinstance(connection._rest, bytes)
    feed(connection, data[-3:])
    assert transport.correlation_ids() == list(range(3 * TURN_REQUESTS + 1))


def test_a_turn_of_a_connection_ends_after_its_time() -> None:
    handled = 0

    def slow(ctx: Any, message: Any) -> Any:
        nonlocal handled
        handled += 1
        world.clock.now += 1
        return HeartbeatResponse()

    world = World({ApiKey.HEARTBEAT: slow})
    connections = [world.connect() for _ in range(50)]
    for connection, _ in connections:
        feed(connection, b"".join(heartbeat(i) for i in range(100)))
    assert handled == 50 * CLOCK_REQUESTS
    before = handled
    one_turn(world)
    assert handled - before <= max(TURN_MS, CLOCK_REQUESTS), "all connections together have a turn"
    world.scheduler.run()
    assert all(transport.correlation_ids() == list(range(100)) for _, transport in connections)


def test_expensive_requests_are_decoded_one_a_turn() -> None:
    handled = 0

    def metadata(ctx: Any, message: Any) -> Any:
        nonlocal handled
        handled += 1
        world.clock.now += 100
        return MetadataResponse()

    world = World({ApiKey.METADATA: metadata})
    topics = [MetadataRequest.MetadataRequestTopic(name=f"topic-{i}") for i in range(1_500)]
    data = request(ApiKey.METADATA, 1, 5, MetadataRequest(topics=topics))
    assert len(data) > COSTLY_BYTES
    connections = [world.connect() for _ in range(10)]
    for connection, _ in connections:
        feed(connection, data * 2)
    assert handled == 0
    for turn in range(1, 21):
        one_turn(world)
        assert handled == turn
    assert all(transport.correlation_ids() == [5, 5] for _, transport in connections)


def test_a_connection_lost_while_waiting_for_its_turn_is_forgotten() -> None:
    world = World({})
    connection, transport = world.connect()
    feed(connection, api_versions(3 * TURN_REQUESTS))
    connection.connection_lost(None)
    world.scheduler.run()
    assert len(transport.frames()) == TURN_REQUESTS


def test_answers_that_are_not_read_stop_the_turns() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="t" * 30_000)
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=[topic] * 100)})
    connection, transport = world.connect()
    transport.stuck = True
    feed(connection, b"".join(request(ApiKey.METADATA, 1, i, MetadataRequest()) for i in range(60)))
    world.scheduler.run()
    assert len(transport.frames()) == 1
    assert not transport.reading
