"""The connection against a transport in memory: order, corking, back-pressure, and the effects of garbage."""

from __future__ import annotations

import random
import struct
from typing import Any

import pytest

from kraft_node.server.connections.connection import CORKED_MAX, PIPELINED_MAX, UNSENT_MAX
from kraft_node.server.connections.listener import Limits
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.frames import decode_response, encode_request
from kraft_protocol.wire.messages import (
    ApiVersionsRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
    ProduceRequest,
    ProduceResponse,
)
from tests.unit.server.connections.fakes import World, feed


def request(key: ApiKey, version: int, correlation_id: int, message: Any) -> bytes:
    return b"".join(bytes(p) for p in encode_request(correlation_id, key, version, "test", message))  # type: ignore[arg-type]


def heartbeat(correlation_id: int, group: str = "g") -> bytes:
    return request(ApiKey.HEARTBEAT, 4, correlation_id, HeartbeatRequest(group_id=group, member_id="m"))


def produce(correlation_id: int, records: bytes = b"", acks: int = -1) -> bytes:
    data = ProduceRequest.PartitionProduceData(index=0, records=records)
    topic = ProduceRequest.TopicProduceData(name="t", partition_data=[data])
    return request(ApiKey.PRODUCE, 9, correlation_id, ProduceRequest(acks=acks, timeout_ms=1, topic_data=[topic]))


class Later:
    """A handler that answers on command."""

    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __call__(self, ctx: Any, message: Any) -> None:
        self.waiting.append(ctx)


def echo(ctx: Any, message: Any) -> Any:
    return HeartbeatResponse(throttle_time_ms=len(message.group_id))


def test_requests_of_one_read_are_answered_by_one_write() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    feed(connection, b"".join(heartbeat(i) for i in range(100)))
    assert transport.correlation_ids() == list(range(100))
    assert transport.writes == 1


@pytest.mark.parametrize("chunk", [1, 2, 3, 7, 64, 1000])
def test_requests_in_pieces_of_any_size(chunk: int) -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    feed(connection, b"".join(heartbeat(i, "g" * i) for i in range(60)), chunk)
    answers = [decode_response(f, ApiKey.HEARTBEAT, 4) for f in transport.frames()]
    assert [(c, m.throttle_time_ms) for c, m in answers] == [(i, i) for i in range(60)]  # type: ignore[attr-defined]


def test_large_requests_arrive_whole_at_any_split() -> None:
    seen: list[bytes] = []

    def handle(ctx: Any, message: Any) -> Any:
        seen.append(bytes(message.topic_data[0].partition_data[0].records))
        return ProduceResponse()

    rng = random.Random(7)
    for _ in range(10):
        world = World({ApiKey.PRODUCE: handle})
        connection, transport = world.connect()
        sizes = [rng.choice((10, 5_000, 130_000, 200_000, 1_100_000, 5_000_000)) for _ in range(6)]
        bodies = [rng.randbytes(size) for size in sizes]
        stream = b"".join(produce(i, body) for i, body in enumerate(bodies))
        seen.clear()
        position = 0
        while position < len(stream):
            count = rng.choice((1, 100, 60_000, 250_000))
            feed(connection, stream[position : position + count])
            position += count
        assert [len(s) for s in seen] == sizes
        assert seen == bodies
        assert transport.correlation_ids() == list(range(6))
        assert world.pool.lent == 0


def test_answers_keep_the_order_of_the_requests() -> None:
    later = Later()
    world = World({ApiKey.PRODUCE: later})
    connection, transport = world.connect()
    feed(connection, b"".join(produce(i) for i in range(5)))
    contexts = later.waiting
    for at in (3, 1, 4):
        contexts[at].respond(ProduceResponse())
    world.scheduler.run()
    assert transport.correlation_ids() == []
    contexts[0].respond(ProduceResponse())
    world.scheduler.run()
    assert transport.correlation_ids() == [0, 1]
    contexts[2].respond(ProduceResponse())
    world.scheduler.run()
    assert transport.correlation_ids() == [0, 1, 2, 3, 4]
    assert transport.writes == 2


def test_an_unanswered_request_mutes_the_connection_like_kafka() -> None:
    later = Later()
    world = World({ApiKey.HEARTBEAT: later, ApiKey.PRODUCE: later})
    connection, transport = world.connect()
    feed(connection, produce(0) + heartbeat(1) + heartbeat(2) + produce(3))
    assert [c.correlation_id for c in later.waiting] == [0]
    later.waiting[0].respond(ProduceResponse())
    world.scheduler.run()
    assert [c.correlation_id for c in later.waiting] == [0, 1]
    assert not transport.reading
    later.waiting[1].respond(HeartbeatResponse())
    world.scheduler.run()
    later.waiting[2].respond(HeartbeatResponse())
    world.scheduler.run()
    later.waiting[3].respond(ProduceResponse())
    world.scheduler.run()
    assert transport.correlation_ids() == [0, 1, 2, 3]
    assert transport.reading


def test_waiting_produces_are_bounded() -> None:
    later = Later()
    world = World({ApiKey.PRODUCE: later})
    connection, transport = world.connect()
    feed(connection, b"".join(produce(i) for i in range(2 * PIPELINED_MAX)))
    assert len(later.waiting) == PIPELINED_MAX
    assert not transport.reading
    answered = 0
    while answered < len(later.waiting):
        later.waiting[answered].respond(ProduceResponse())
        answered += 1
        world.scheduler.run()
    assert transport.correlation_ids() == list(range(2 * PIPELINED_MAX))
    assert transport.reading


def test_a_client_that_does_not_read_is_not_served_further() -> None:
    topic = MetadataResponse.MetadataResponseTopic(name="t" * 20_000)
    world = World({ApiKey.METADATA: lambda ctx, m: MetadataResponse(topics=[topic])})
    connection, transport = world.connect()
    transport.stuck = True
    feed(connection, b"".join(request(ApiKey.METADATA, 1, i, MetadataRequest()) for i in range(1000)))
    assert not transport.reading
    assert UNSENT_MAX < transport.unsent_bytes < UNSENT_MAX + CORKED_MAX + 100_000
    transport.stuck = False
    transport.unsent_bytes = 0
    connection.drained()
    world.scheduler.run()
    assert transport.correlation_ids() == list(range(1000))
    assert transport.reading


def test_requests_without_an_answer_get_none() -> None:
    def handle(ctx: Any, message: Any) -> Any:
        if message.acks == 0:
            ctx.respond(None)
            return None
        return ProduceResponse()

    world = World({ApiKey.PRODUCE: handle})
    connection, transport = world.connect()
    feed(connection, produce(1, acks=0) + produce(2) + produce(3, acks=0) + produce(4))
    assert transport.correlation_ids() == [2, 4]


def test_a_second_answer_is_a_defect() -> None:
    later = Later()
    world = World({ApiKey.HEARTBEAT: later})
    connection, _ = world.connect()
    feed(connection, heartbeat(1))
    later.waiting[0].respond(HeartbeatResponse())
    with pytest.raises(AssertionError):
        later.waiting[0].respond(HeartbeatResponse())


def test_a_defect_under_a_request_without_answer_closes_the_connection() -> None:
    """The client would match the answer to its next request."""

    def handle(ctx: Any, message: Any) -> Any:
        raise RuntimeError("a defect")

    world = World({ApiKey.PRODUCE: handle, ApiKey.HEARTBEAT: lambda ctx, message: HeartbeatResponse()})
    connection, transport = world.connect()
    feed(connection, produce(1, b"x", acks=0) + heartbeat(2))
    assert transport.frames() == []
    assert transport.closed


def test_errors_of_handlers_become_answers(caplog: pytest.LogCaptureFixture) -> None:
    def handle(ctx: Any, message: Any) -> Any:
        if message.group_id == "known":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no such group")
        raise RuntimeError("a defect")

    world = World({ApiKey.HEARTBEAT: handle})
    connection, transport = world.connect()
    feed(connection, heartbeat(1, "known") + heartbeat(2, "defect"))
    answers = [decode_response(f, ApiKey.HEARTBEAT, 4)[1] for f in transport.frames()]
    assert [m.error_code for m in answers] == [  # type: ignore[attr-defined]
        ErrorCode.GROUP_ID_NOT_FOUND,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    ]
    assert "a defect" in caplog.text


def test_close_connection_closes_after_earlier_answers() -> None:
    def handle(ctx: Any, message: Any) -> Any:
        if message.acks == 0:
            ctx.close_connection()
            return None
        return ProduceResponse()

    world = World({ApiKey.PRODUCE: handle})
    connection, transport = world.connect()
    feed(connection, produce(1) + produce(2, acks=0) + produce(3))
    assert transport.correlation_ids() == [1]
    assert transport.closed


@pytest.mark.parametrize(
    "garbage",
    [
        struct.pack(">i", 2**31 - 1) + b"rest",
        struct.pack(">i", -1),
        struct.pack(">i", 3) + b"abc",
        struct.pack(">i", 101 << 20),
        b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
        struct.pack(">ihhih", 10, 999, 0, 1, -1),
        struct.pack(">ihhih", 10, 12, 99, 1, -1),
        struct.pack(">ihhih", 10, 12, 4, 1, 500),
        struct.pack(">ihhih", 14, 12, 0, 1, 2) + b"\xff\xfe\x00\x00",
        heartbeat(1)[:-1] + b"\x7f",
    ],
    ids=range(11),
)
def test_garbage_closes_the_connection_with_a_line(garbage: bytes, caplog: pytest.LogCaptureFixture) -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    honest, good = world.connect("10.0.0.2")
    connection, transport = world.connect()
    feed(connection, heartbeat(0))
    feed(connection, garbage)
    assert transport.closed
    assert transport.correlation_ids() == [0]
    assert caplog.text.count("refused") == 1
    feed(honest, heartbeat(5))
    assert good.correlation_ids() == [5]


def test_random_bytes_never_do_more_than_close(caplog: pytest.LogCaptureFixture) -> None:
    rng = random.Random(3)
    world = World({ApiKey.HEARTBEAT: echo, ApiKey.PRODUCE: lambda c, m: ProduceResponse()})
    for _ in range(500):
        connection, _ = world.connect()
        frame = bytearray(rng.choice((heartbeat(1), produce(2, b"x" * 50))))
        for _ in range(rng.randrange(1, 4)):
            frame[rng.randrange(4, len(frame))] = rng.randrange(256)
        feed(connection, bytes(frame), 16)
        connection.connection_lost(None)
    assert world.pool.lent == 0
    assert world.listener.gate.count == 0
    assert "Traceback" not in caplog.text


def test_a_claimed_length_allocates_nothing_before_bytes_arrive() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connections = [world.connect(f"10.0.{i >> 8}.{i & 255}") for i in range(300)]
    for connection, _ in connections:
        feed(connection, struct.pack(">i", 90 << 20) + b"ten bytes.")
    assert world.pool.lent == 0
    for connection, _ in connections:
        feed(connection, bytes(100_000))
    assert world.pool.lent <= 300 * 256 * 1024


def test_half_a_small_request_keeps_only_its_bytes() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    frame = heartbeat(1)
    feed(connection, frame[:10])
    assert world.pool.lent == 0
    assert connection._rest == frame[:10]
    feed(connection, frame[10:] + heartbeat(2))
    assert transport.correlation_ids() == [1, 2]
    assert connection._rest is None


def test_unknown_api_versions_version_falls_back_to_zero() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    feed(connection, struct.pack(">ihhih", 12, ApiKey.API_VERSIONS, 99, 7, -1) + b"\x00\x01")
    correlation_id, answer = decode_response(transport.frames()[0], ApiKey.API_VERSIONS, 0)
    assert correlation_id == 7
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION  # type: ignore[attr-defined]
    assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]  # type: ignore[attr-defined]
    feed(connection, heartbeat(8))
    assert transport.correlation_ids() == [7, 8]


def test_api_versions_lists_the_served_apis() -> None:
    world = World({ApiKey.HEARTBEAT: echo, ApiKey.PRODUCE: echo})
    connection, transport = world.connect()
    ask = ApiVersionsRequest(client_software_name="test-client", client_software_version="1.0")
    feed(connection, request(ApiKey.API_VERSIONS, 3, 1, ask))
    _, answer = decode_response(transport.frames()[0], ApiKey.API_VERSIONS, 3)
    ranges = {k.api_key: (k.min_version, k.max_version) for k in answer.api_keys}  # type: ignore[attr-defined]
    assert ranges == {0: (0, 13), 12: (0, 4), 17: (0, 1), 18: (0, 4), 36: (0, 2)}
    assert connection.client_software == ("test-client", "1.0")
    bad = ApiVersionsRequest(client_software_name="-", client_software_version="1.0")
    feed(connection, request(ApiKey.API_VERSIONS, 3, 2, bad))
    _, answer = decode_response(transport.frames()[1], ApiKey.API_VERSIONS, 3)
    assert answer.error_code == ErrorCode.INVALID_REQUEST  # type: ignore[attr-defined]


@pytest.mark.parametrize("version", range(5))
def test_api_versions_has_every_version(version: int) -> None:
    world = World({})
    connection, transport = world.connect()
    ask = ApiVersionsRequest(client_software_name="c", client_software_version="1") if version >= 3 else None
    feed(connection, request(ApiKey.API_VERSIONS, version, 1, ask or ApiVersionsRequest()))
    _, answer = decode_response(transport.frames()[0], ApiKey.API_VERSIONS, version)
    assert answer.error_code == 0  # type: ignore[attr-defined]
    supported = {f.name: (f.min_version, f.max_version) for f in answer.supported_features}  # type: ignore[attr-defined]
    if version < 3:
        assert supported == {}
    else:
        assert supported["metadata.version"] == (7, 30)
        assert ("kraft.version" in supported) == (version >= 4)


def test_the_number_of_connections_is_limited() -> None:
    world = World({}, Limits(connections_max=3, connections_max_per_ip=2, per_ip_overrides={"10.9.9.9": 0}))
    opened = [world.connect("10.0.0.1") for _ in range(3)]
    assert [t.aborted for _, t in opened] == [False, False, True]
    _, other = world.connect("10.0.0.2")
    _, one_too_many = world.connect("10.0.0.3")
    _, barred = world.connect("10.9.9.9")
    assert [other.aborted, one_too_many.aborted, barred.aborted] == [False, True, True]
    opened[0][0].connection_lost(None)
    _, again = world.connect("10.0.0.1")
    assert not again.aborted


def test_idle_connections_are_closed_unless_a_request_is_pending() -> None:
    later = Later()
    world = World({ApiKey.HEARTBEAT: later}, Limits(idle_ms=1000))
    _, idle_transport = world.connect()
    waiting, waiting_transport = world.connect()
    feed(waiting, heartbeat(1))
    world.listener._sweep_later()
    for _ in range(9):
        world.clock.now += 100
        world.scheduler.fire()
    assert not idle_transport.closed
    for _ in range(2):
        world.clock.now += 100
        world.scheduler.fire()
    assert idle_transport.closed
    assert not waiting_transport.closed
    later.waiting[0].respond(HeartbeatResponse())
    world.scheduler.run()
    assert waiting_transport.correlation_ids() == [1]


def test_bytes_after_a_request_are_ignored_like_in_kafka() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    frame = heartbeat(1) + b"\x00\x01\x02"
    feed(connection, struct.pack(">i", len(frame) - 4) + frame[4:] + heartbeat(2))
    assert transport.correlation_ids() == [1, 2]


def throttling(ctx: Any, message: Any) -> Any:
    ctx.connection.mute(700)
    return HeartbeatResponse(throttle_time_ms=len(message.group_id))


def test_a_muted_connection_answers_at_once_and_continues_after_its_throttle() -> None:
    world = World({ApiKey.HEARTBEAT: throttling})
    connection, transport = world.connect()
    feed(connection, heartbeat(1) + heartbeat(2) + heartbeat(3)[:-1])
    assert transport.correlation_ids() == [1]
    assert transport.reading is False
    feed(connection, heartbeat(3)[-1:])  # bytes that the transport held before the close
    assert transport.correlation_ids() == [1]
    for answered in ([1, 2], [1, 2, 3]):
        assert [delay for delay, _, _ in world.scheduler.later if delay == 700] == [700]
        world.scheduler.fire()
        world.scheduler.run()
        assert transport.correlation_ids() == answered
    world.scheduler.fire()
    assert transport.reading is True


def test_a_connection_lost_while_muted_is_forgotten() -> None:
    world = World({ApiKey.HEARTBEAT: throttling})
    connection, transport = world.connect()
    feed(connection, heartbeat(1))
    connection.connection_lost(None)
    assert [delay for delay, _, _ in world.scheduler.later if delay == 700] == [], "the timer would hold the connection"
    world.scheduler.fire()
    assert transport.correlation_ids() == [1]


def test_a_longer_mute_replaces_the_shorter_one() -> None:
    world = World({ApiKey.HEARTBEAT: echo})
    connection, transport = world.connect()
    for delay_ms in (700, 900, 800):
        connection.mute(delay_ms)
    assert [delay for delay, _, _ in world.scheduler.later if delay in (700, 800, 900)] == [900]
    feed(connection, heartbeat(1))
    assert transport.correlation_ids() == []
    world.scheduler.fire()
    world.scheduler.run()
    assert transport.correlation_ids() == [1]


def test_a_late_answer_mutes_the_connection() -> None:
    later = Later()
    world = World({ApiKey.HEARTBEAT: later})
    connection, transport = world.connect()
    feed(connection, heartbeat(1) + heartbeat(2))
    connection.mute(700)
    later.waiting[0].respond(HeartbeatResponse(throttle_time_ms=700))
    world.scheduler.run()
    assert transport.correlation_ids() == [1]
    assert len(later.waiting) == 1
    world.scheduler.fire()
    world.scheduler.run()
    assert len(later.waiting) == 2


class Charging:
    """Quotas that every client has used up."""

    is_active = True

    def __init__(self) -> None:
        self.charged: list[tuple[int, bool, int]] = []

    def charge(self, ctx: Any, response: Any) -> int:
        self.charged.append((ctx.received_bytes, response is None, ctx.spent_ms))
        return 700


@pytest.mark.parametrize("answers", [True, False])
def test_every_request_is_charged_with_and_without_an_answer(answers: bool) -> None:
    later = Later()
    world = World({ApiKey.HEARTBEAT: later})
    world.listener.quotas = quotas = Charging()
    connection, transport = world.connect()
    feed(connection, heartbeat(1) + heartbeat(2))
    assert quotas.charged == []
    later.waiting[0].respond(HeartbeatResponse() if answers else None)
    world.scheduler.run()
    assert quotas.charged == [(len(heartbeat(1)) - 4, not answers, 0)]
    assert transport.correlation_ids() == [1] * answers
    assert len(later.waiting) == 1
    world.scheduler.fire()
    world.scheduler.run()
    assert len(later.waiting) == 2
