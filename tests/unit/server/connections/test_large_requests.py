"""Requests and answers of very many items take turns of the loop, one for each listener at a time."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base import long_answers
from kraft_node.base.turns import STEPS_A_TURN
from kraft_node.server.connections import large_requests
from kraft_node.server.connections.connection import COSTLY_BYTES
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.error_response import ITEMS_A_STEP
from kraft_protocol.wire.messages import HeartbeatResponse, MetadataRequest, MetadataResponse, ProduceRequest
from kraft_protocol.wire.messages import ProduceResponse as Produced
from kraft_protocol.wire.runtime import COUNTED_ITEMS, STEP_ITEMS
from kraft_protocol.wire.sizes import LONG
from tests.unit.server.connections.fakes import World, feed
from tests.unit.server.connections.test_connection import heartbeat, request
from tests.unit.server.connections.test_turns import one_turn

COUNT = 5 * STEPS_A_TURN * STEP_ITEMS


def metadata(count: int, correlation_id: int = 5) -> bytes:
    topics = [MetadataRequest.MetadataRequestTopic(name=f"topic-{i}") for i in range(count)]
    return request(ApiKey.METADATA, 1, correlation_id, MetadataRequest(topics=topics))


def produce(count: int, correlation_id: int = 6) -> bytes:
    rows = [ProduceRequest.PartitionProduceData(index, b"r%d" % index) for index in range(count)]
    topic = ProduceRequest.TopicProduceData("t", partition_data=rows)
    return request(ApiKey.PRODUCE, 9, correlation_id, ProduceRequest(acks=1, topic_data=[topic]))


def test_a_large_request_is_decoded_in_turns() -> None:
    found: list[int] = []

    def handle(ctx: Any, message: Any) -> Any:
        found.append(len(message.topics))
        return MetadataResponse()

    world = World({ApiKey.METADATA: handle, ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()})
    connection, transport = world.connect()
    feed(connection, metadata(COUNT))
    turns = 0
    while not found:
        assert not transport.reading
        one_turn(world)
        turns += 1
    assert turns >= COUNT // STEP_ITEMS // STEPS_A_TURN
    assert found == [COUNT]
    feed(connection, heartbeat(7))
    world.scheduler.run()
    assert transport.correlation_ids() == [5, 7]
    assert transport.reading
    assert world.listener.large.held == 0


def test_large_requests_of_a_listener_are_decoded_one_after_the_other() -> None:
    order: list[int] = []

    def handle(ctx: Any, message: Any) -> Any:
        order.append(ctx.correlation_id)
        return MetadataResponse()

    world = World({ApiKey.METADATA: handle})
    connections = [world.connect() for _ in range(3)]
    for number, (connection, _) in enumerate(connections):
        feed(connection, metadata(COUNT, number))
    connections[1][0].connection_lost(None)
    world.scheduler.run()
    assert order == [0, 2]
    assert world.listener.large.held == 0


def test_a_request_with_too_many_items_closes_its_connection(monkeypatch: Any) -> None:
    monkeypatch.setattr(large_requests, "ITEMS_MAX", COUNT // 2)
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse()})
    connection, transport = world.connect()
    feed(connection, metadata(COUNT))
    world.scheduler.run()
    assert transport.closed
    assert not transport.frames()


def test_items_of_unanswered_requests_are_bounded(monkeypatch: Any) -> None:
    monkeypatch.setattr(large_requests, "HELD_MAX", COUNT + COUNT // 2)
    waiting: list[Any] = []
    world = World({ApiKey.METADATA: lambda ctx, m: waiting.append(ctx)})
    connections = [world.connect() for _ in range(3)]
    for connection, _ in connections[:2]:
        feed(connection, metadata(COUNT))
    world.scheduler.run()
    assert [transport.closed for _, transport in connections] == [False, True, False]
    feed(connections[2][0], metadata(STEP_ITEMS * 10))
    world.scheduler.run()
    assert len(waiting) == 2, "small requests go on"
    waiting[0].respond(MetadataResponse())
    world.scheduler.run()
    other, transport = world.connect()
    feed(other, metadata(COUNT))
    world.scheduler.run()
    assert len(waiting) == 3
    assert not transport.closed


def test_an_undecodable_request_closes_its_connection() -> None:
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse()})
    connection, transport = world.connect()
    data = metadata(COUNT)
    size = (len(data) - 100).to_bytes(4)
    feed(connection, size + data[4 : 4 + len(data) - 100])
    world.scheduler.run()
    assert transport.closed


def test_a_produce_of_very_many_partitions_is_decoded_in_turns() -> None:
    records: list[bytes] = []

    def handle(ctx: Any, message: Any) -> Any:
        records.extend(bytes(row.records) for topic in message.topic_data for row in topic.partition_data)
        return Produced()

    world = World({ApiKey.PRODUCE: handle})
    connection, transport = world.connect()
    few, many = produce(COUNTED_ITEMS - 2, 1), produce(2 * COUNTED_ITEMS, 2)
    assert len(few) > COSTLY_BYTES
    feed(connection, few)
    assert transport.correlation_ids() == [1], "batches for a few partitions wait for nothing"
    feed(connection, many + produce(1, 3))
    assert transport.correlation_ids() == [1]
    world.scheduler.run()
    assert transport.correlation_ids() == [1, 2, 3]
    assert records[-2:-1] == [b"r%d" % (2 * COUNTED_ITEMS - 1)]


def test_a_produce_to_too_many_partitions_closes_its_connection() -> None:
    world = World({ApiKey.PRODUCE: lambda ctx, m: Produced()})
    connection, transport = world.connect()
    feed(connection, produce(large_requests.PRODUCE_ITEMS_MAX + 2 * STEP_ITEMS))
    world.scheduler.run()
    assert transport.closed
    assert not transport.frames()


def test_a_long_answer_is_encoded_in_turns_and_keeps_its_place() -> None:
    topic = MetadataResponse.MetadataResponseTopic(
        name="t",
        partitions=[MetadataResponse.MetadataResponsePartition(0, i, 1, 0, [1], [1], []) for i in range(COUNT)],
    )
    waiting: list[Any] = []
    answers = [MetadataResponse(topics=[topic])]

    def handle(ctx: Any, message: Any) -> Any:
        if ctx.correlation_id == 2:
            waiting.append(ctx)
            return None
        return answers[0]

    world = World({ApiKey.METADATA: handle, ApiKey.HEARTBEAT: lambda ctx, m: HeartbeatResponse()})
    connection, transport = world.connect()
    feed(connection, metadata(1, 1) + heartbeat(3) + metadata(1, 2) + heartbeat(4))
    assert not transport.frames()
    turns = 0
    while not transport.frames():
        one_turn(world)
        turns += 1
    assert turns >= COUNT // STEP_ITEMS // STEPS_A_TURN
    world.scheduler.run()
    assert transport.correlation_ids() == [1, 3]
    waiting[0].respond(answers[0])
    world.scheduler.run()
    assert transport.correlation_ids() == [1, 3, 2, 4]
    frames = transport.frames()
    assert bytes(frames[0][4:]) == bytes(frames[2][4:])


def test_a_long_answer_to_a_closed_connection_is_dropped() -> None:
    rows = [MetadataResponse.MetadataResponseTopic(name=f"t{i}") for i in range(10 * LONG)]
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=rows)})
    connection, transport = world.connect()
    other, others = world.connect()
    for each in (connection, other):
        feed(each, metadata(1))
    one_turn(world)
    connection.connection_lost(None)
    world.scheduler.run()
    assert not transport.frames()
    assert others.correlation_ids() == [5]


def test_an_unencodable_answer_closes_only_its_connection() -> None:
    rows = [MetadataResponse.MetadataResponseTopic(name=i) for i in range(2 * LONG)]
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=rows)})
    connection, transport = world.connect()
    other, others = world.connect()
    feed(connection, metadata(1))
    feed(other, metadata(1))
    world.scheduler.run()
    assert transport.aborted
    assert others.aborted
    assert not len(world.listener.encoding)


class Item:
    """Counts the present objects."""

    _fields = ("name", "items")
    present = 0

    def __init__(self, items: list[Any] | None = None) -> None:
        self.name = "an item"
        self.items = items or []
        Item.present += 1

    def __del__(self) -> None:
        Item.present -= 1


def test_a_large_message_is_freed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """The objects of 300,000 items took 50 ms at once."""
    monkeypatch.setattr(large_requests, "FREED_A_STEP", 10)
    world = World({})
    message: Any = Item([Item([Item() for _ in range(100)]) for _ in range(30)])
    world.listener.large.release(message)
    del message
    before = Item.present
    assert before == 1 + 30 + 3000
    while Item.present:
        one_turn(world)
        assert before - Item.present <= (10 + 1) * STEPS_A_TURN
        before = Item.present


def test_an_answered_request_is_freed_before_others_are_decoded() -> None:
    """Behind them in one line, the answered requests of many connections would fill the memory."""
    decoded: list[Any] = []
    world = World({ApiKey.METADATA: lambda ctx, m: decoded.append(ctx)})
    for _ in range(3):
        feed(world.connect()[0], metadata(COUNT))
    message: Any = Item([Item([Item() for _ in range(20)]) for _ in range(100)])
    world.listener.large.release(message)
    del message
    while Item.present:
        one_turn(world)
    assert not decoded


def test_a_message_that_others_use_stays_as_it_is() -> None:
    world = World({})
    message: Any = Item([Item() for _ in range(1000)])
    world.listener.large.release(message)
    world.scheduler.run()
    assert len(message.items) == 1000
    assert Item.present == 1001


def test_an_answered_large_request_is_freed_in_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    held: list[Any] = []
    monkeypatch.setattr(large_requests.LargeRequests, "release", lambda _, message: held.append(message))
    world = World({ApiKey.METADATA: lambda ctx, m: held.append((ctx, m))})
    connection, _ = world.connect()
    feed(connection, metadata(COUNT))
    world.scheduler.run()
    (ctx, message), *others = held
    assert not others
    ctx.respond(MetadataResponse())
    assert held[1] is message


def test_the_refusal_of_a_large_request_is_built_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, the response to a Fetch of 300,000 partitions took three seconds."""
    turns_left: list[int] = []

    def refuse(_ctx: Any, _request: Any) -> Any:
        turns_left.append(COUNT // ITEMS_A_STEP // STEPS_A_TURN)
        raise KafkaError(ErrorCode.INVALID_REQUEST, "too long")

    world = World({ApiKey.METADATA: refuse})
    encoding = SimpleNamespace(add=lambda *_: turns_left.append(0))
    monkeypatch.setattr(world.listener, "encoding", encoding)
    connection, _ = world.connect()
    feed(connection, metadata(COUNT))
    while not turns_left:
        one_turn(world)
    for _ in range(turns_left.pop()):
        assert not turns_left
        one_turn(world)
    one_turn(world)
    assert turns_left == [0]


def test_a_refusal_that_cannot_be_built_is_not_tried_again(monkeypatch: pytest.MonkeyPatch) -> None:
    tries: list[Any] = []

    def build(*_: Any) -> Any:
        tries.append(None)
        yield
        raise RuntimeError("a defect")

    def refuse(_ctx: Any, _request: Any) -> Any:
        raise KafkaError(ErrorCode.INVALID_REQUEST, "too long")

    monkeypatch.setattr(long_answers, "error_response_in_steps", build)
    world = World({ApiKey.METADATA: refuse})
    connection, _ = world.connect()
    feed(connection, metadata(COUNT))
    with pytest.raises(RuntimeError, match="a defect"):
        world.scheduler.run()
    world.scheduler.run()
    assert len(tries) == 1
