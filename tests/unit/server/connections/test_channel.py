"""The client side against a server's connection, joined in memory: negotiation, time-outs, disconnects, reconnects."""

from __future__ import annotations

import struct
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from kraft_node.base.request import RequestContext
from kraft_node.server.channels.channel import PAUSE_MAX_MS, UNDER_WAY_MAX, Channel
from kraft_node.server.channels.local_channel import LocalChannel
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.codec import encode
from kraft_protocol.wire.messages import (
    ApiVersionsResponse,
    FetchRequest,
    HeartbeatRequest,
    HeartbeatResponse,
    MetadataRequest,
    MetadataResponse,
)
from tests.unit.server.connections.fakes import World, feed


class Wire:
    """One end of a connection in memory; the other end's receiver gets the bytes in pieces."""

    def __init__(self, net: Net) -> None:
        self.net = net
        self.peer = ("10.0.0.1", 1)
        self.unsent_bytes = self.held_bytes = 0
        self.other: Wire | None = None
        self.receiver: Any = None
        self.closed = False

    def write(self, parts: Any) -> None:
        data = b"".join(bytes(part) for part in parts)
        self.net.scheduler.call_soon(self._deliver, data)

    def _deliver(self, data: bytes) -> None:
        other = self.other
        if other is not None and not other.closed and not self.net.silent:
            feed(other.receiver, data, self.net.chunk)

    def pause_reading(self) -> None: ...

    def resume_reading(self) -> None: ...

    def close(self) -> None:
        for end in (self, self.other):
            if end is not None and not end.closed:
                end.closed = True
                self.net.scheduler.call_soon(end.receiver.connection_lost, None)

    abort = close


class Net:
    """Connects to the world's listener."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.scheduler = world.scheduler
        self.down = False
        self.silent = False
        self.chunk = 100
        self.attempts = 0
        self.last: Wire | None = None

    def listen(self, host: str, port: int, accept: Any) -> Any:
        raise AssertionError("not here")

    def connect(self, host: str, port: int, connected: Callable[[Any], Any], failed: Callable[[OSError], None]) -> None:
        self.attempts += 1
        if self.down:
            self.scheduler.call_soon(failed, ConnectionRefusedError("refused"))
            return
        client, server = Wire(self), Wire(self)
        client.other, server.other = server, client
        server.receiver = self.world.listener.accept(server)
        self.last = server
        client.receiver = connected(client)


class Later:
    def __init__(self) -> None:
        self.waiting: list[Any] = []

    def __call__(self, ctx: Any, message: Any) -> None:
        self.waiting.append(ctx)


def setup(handlers: dict[Any, Any]) -> tuple[World, Net, Channel]:
    world = World(handlers)
    net = Net(world)
    env = replace(world.env, net=net)
    return world, net, Channel(env, "node2", 9093, "broker-1")


def turn(world: World, rounds: int = 1) -> None:
    """Run the due calls, including timers of at most a second."""
    for _ in range(rounds):
        world.scheduler.run()
        due = [entry for entry in world.scheduler.later if entry[0] <= PAUSE_MAX_MS]
        world.scheduler.later = [entry for entry in world.scheduler.later if entry[0] > PAUSE_MAX_MS]
        for _, function, args in due:
            function(*args)
        world.scheduler.run()


def test_the_newest_common_version_and_large_answers() -> None:
    seen: list[int] = []

    def metadata(ctx: Any, message: Any) -> Any:
        seen.append(ctx.api_version)
        return MetadataResponse(cluster_id="c" * 30_000)

    world, _, channel = setup({ApiKey.METADATA: metadata})
    answers: list[Any] = []
    for version in (None, 5, 99):
        channel.send(MetadataRequest(), version, answers.append, 5_000)
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    assert answers == []
    turn(world, 3)
    assert seen == [13, 5]
    by_kind = sorted(type(a).__name__ for a in answers)
    assert by_kind == ["KafkaError", "KafkaError", "MetadataResponse", "MetadataResponse"]
    assert all(a.code == ErrorCode.UNSUPPORTED_VERSION for a in answers if isinstance(a, KafkaError))
    assert len(channel._buffer) <= 64 * 1024


@pytest.mark.parametrize("piece", [1_000, 16_384, 100_003, 5_000_000])
def test_large_answers_are_not_overwritten_by_later_ones(piece: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A large answer is passed on in the buffer that received it, and that buffer is not used again."""
    _, _, channel = setup({})
    taken: list[memoryview] = []
    monkeypatch.setattr(channel, "_answered", taken.append)
    monkeypatch.setattr(channel, "_transport", object())
    sizes = [4, 90_000, 90_000, 16_380, 16_381, 3_000_000, 10, 2_097_148, 2_097_149, 70_000, 4, 5_000_000, 12]
    frames = [bytes([number]) * size for number, size in enumerate(sizes)]
    data = memoryview(b"".join(len(frame).to_bytes(4, "big") + frame for frame in frames))
    while data:
        room = channel.get_buffer()
        count = min(len(room), piece, len(data))
        assert count > 0
        room[:count] = data[:count]
        data = data[count:]
        channel.received(count)
    assert [bytes(frame) for frame in taken] == frames


def test_a_time_out_closes_the_connection_and_the_next_request_reconnects() -> None:
    later = Later()
    world, net, channel = setup({ApiKey.HEARTBEAT: later})
    answers: list[Any] = []
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 2)
    assert len(later.waiting) == 1
    timers = [entry for entry in world.scheduler.later if entry[0] == 5_000]
    timers[0][1](*timers[0][2])
    turn(world)
    assert isinstance(answers[0], TimeoutError)
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 3)
    later.waiting[-1].respond(HeartbeatResponse(throttle_time_ms=9))
    turn(world)
    assert answers[1].throttle_time_ms == 9
    assert net.attempts == 2


def test_pending_requests_fail_with_the_connection() -> None:
    later = Later()
    world, net, channel = setup({ApiKey.HEARTBEAT: later})
    answers: list[Any] = []
    for _ in range(5):
        channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 2)
    assert net.last is not None
    net.last.close()
    turn(world)
    assert [type(a) for a in answers] == [ConnectionResetError] * 5


def test_pauses_between_attempts_grow() -> None:
    world, net, channel = setup({ApiKey.HEARTBEAT: lambda c, m: HeartbeatResponse()})
    net.down = True
    pauses = []
    answers: list[Any] = []
    for _ in range(10):
        channel.send(HeartbeatRequest(), None, answers.append, 5_000)
        pauses.append(min(entry[0] for entry in world.scheduler.later))
        turn(world)
        world.scheduler.later = [entry for entry in world.scheduler.later if entry[0] > PAUSE_MAX_MS]
    assert pauses[0] == 0
    assert pauses[1:] == [min(PAUSE_MAX_MS, 20 * 2**i) for i in range(9)]
    assert all(isinstance(a, ConnectionRefusedError) for a in answers)
    net.down = False
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 3)
    assert isinstance(answers[-1], HeartbeatResponse)


def test_the_number_of_pending_requests_is_bounded() -> None:
    later = Later()
    world, _, channel = setup({ApiKey.HEARTBEAT: later})
    answers: list[Any] = []
    for _ in range(UNDER_WAY_MAX + 3):
        channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world)
    assert [type(a) for a in answers] == [ConnectionAbortedError] * 3


@pytest.mark.parametrize(
    "garbage", [b"\x7f\xff\xff\xff", b"\x00\x00\x00\x02ab", b"\x00\x00\x00\x08\x00\x00\x03\xe7abcd"]
)
def test_garbage_answers_break_the_connection(garbage: bytes) -> None:
    later = Later()
    world, net, channel = setup({ApiKey.HEARTBEAT: later})
    answers: list[Any] = []
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 2)
    assert net.last is not None
    assert net.last.other is not None
    feed(net.last.other.receiver, garbage)
    turn(world)
    assert isinstance(answers[0], ConnectionAbortedError)


def test_a_node_with_an_older_apiversions_is_asked_in_its_version() -> None:
    world, net, channel = setup({ApiKey.HEARTBEAT: lambda _ctx, _message: HeartbeatResponse()})
    asked: list[int] = []
    deliver = Wire._deliver

    def old(wire: Wire, data: bytes) -> None:
        """Deliver, but answer ApiVersions as a node that has versions 0 to 2."""
        if wire is net.last or data[4:6] != b"\x00\x12":
            deliver(wire, data)
            return
        asked.append(data[7])
        if data[7] > 2:
            refusal = bytes(encode(ApiVersionsResponse(35, [ApiVersionsResponse.ApiVersion(18, 0, 2)]), 0))
            feed(wire.receiver, struct.pack(">i", 4 + len(refusal)) + data[8:12] + refusal)
        else:
            deliver(wire, data)

    answers: list[Any] = []
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Wire, "_deliver", old)
        channel.send(HeartbeatRequest(), None, answers.append, 5_000)
        turn(world, 4)
    assert asked == [4, 2]
    assert isinstance(answers[0], HeartbeatResponse)
    assert net.attempts == 1


def test_close_fails_pending_and_later_requests() -> None:
    later = Later()
    world, _, channel = setup({ApiKey.HEARTBEAT: later})
    answers: list[Any] = []
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world, 2)
    channel.close()
    channel.send(HeartbeatRequest(), None, answers.append, 5_000)
    turn(world)
    assert [type(a) for a in answers] == [ConnectionAbortedError] * 2


def test_the_local_channel_passes_on_version_and_client() -> None:
    later = Later()
    contexts: list[Any] = []

    def heartbeat(ctx: Any, message: Any) -> Any:
        contexts.append(ctx)
        if message.group_id == "bad":
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "no")
        return HeartbeatResponse(throttle_time_ms=1)

    world = World({})
    channel = LocalChannel(world.env, "CONTROLLER", "broker-1", {ApiKey.HEARTBEAT: heartbeat, ApiKey.METADATA: later})
    answers: list[Any] = []
    channel.send(HeartbeatRequest(), None, answers.append, 100)
    channel.send(HeartbeatRequest(group_id="bad"), 3, answers.append, 100)
    channel.send(FetchRequest(), None, answers.append, 100)
    channel.send(MetadataRequest(), None, answers.append, 100)
    assert answers == []
    world.scheduler.run()
    assert answers[0].throttle_time_ms == 1
    assert answers[1].error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert isinstance(answers[2], KafkaError)
    assert [c.api_version for c in contexts] == [4, 3]
    assert contexts[0].listener == "CONTROLLER"
    world.scheduler.fire()
    world.scheduler.run()
    assert isinstance(answers[3], TimeoutError)
    later.waiting[0].respond(MetadataResponse())  # too late, so ignored
    world.scheduler.run()
    assert len(answers) == 4
    assert channel.unanswered == 0
    channel.send(HeartbeatRequest(), 2, answers.append, 100, on_behalf_of=contexts[0])
    world.scheduler.run()
    assert contexts[-1].api_version == 2
    assert contexts[-1].client_id == contexts[0].client_id


def test_requests_of_clients_to_the_own_controller_share_the_turns_of_the_loop() -> None:
    """The pieces of 24 clients' large requests were handled in one turn, some two milliseconds each."""
    world = World({})
    handled: list[str] = []

    def heartbeat(ctx: Any, request: HeartbeatRequest) -> HeartbeatResponse:
        handled.append(request.group_id)
        world.clock.now += 2
        return HeartbeatResponse()

    channel = LocalChannel(world.env, "CONTROLLER", "broker-1", {ApiKey.HEARTBEAT: heartbeat})
    client = RequestContext(12, 4, 1, "client", "10.0.0.1", "PLAINTEXT", "User:a", None, 0, lambda *_: None)
    for number in range(24):
        channel.send(HeartbeatRequest(group_id=f"c{number}"), None, lambda _: None, 1000, on_behalf_of=client)
    channel.send(HeartbeatRequest(group_id="own"), None, lambda _: None, 1000)
    turn, world.scheduler.soon = world.scheduler.soon, []
    for function, args in turn:
        function(*args)
    assert handled == ["c0", "own"]
    world.scheduler.run()
    assert sorted(handled) == sorted([*(f"c{number}" for number in range(24)), "own"])
