"""Channels by node: created once, replaced if the node has moved, and reported if the other side closes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from kraft_node.server.channels.channel import Channel
from kraft_node.server.channels.channel_pool import Channels
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import HeartbeatRequest, HeartbeatResponse
from tests.unit.server.connections.fakes import World
from tests.unit.server.connections.test_channel import Later, Net, turn


class Case:
    def __init__(self, handlers: dict[Any, Any], *, patient: bool = False) -> None:
        self.world = World(handlers)
        self.net = Net(self.world)
        self.where: dict[int, tuple[str, int]] = {2: ("node2", 9093)}
        self.lost: list[int] = []
        self.moved: list[int] = []
        self.answers: list[Any] = []
        self.channels = Channels(
            replace(self.world.env, net=self.net),
            "n1",
            self.where.get,
            on_lost=self.lost.append,
            on_moved=self.moved.append,
            patient=patient,
        )

    def ask(self, node_id: int = 2) -> Channel:
        channel = self.channels.find(node_id)
        assert channel is not None
        channel.send(HeartbeatRequest(), None, self.answers.append, 5_000)
        turn(self.world, 3)
        return channel


def test_a_node_keeps_its_channel_until_its_address_changes() -> None:
    case = Case({ApiKey.HEARTBEAT: lambda _ctx, _message: HeartbeatResponse()})
    first = case.ask()
    assert case.ask() is first
    other = case.channels.find(2, 1)
    assert other is not first
    assert other is case.channels.find(2, 1)
    assert case.channels.find(3) is None
    assert case.moved == []
    case.where[2] = ("node2", 9999)
    assert case.ask() is not first
    assert case.moved == [2]
    assert [type(answer).__name__ for answer in case.answers] == ["HeartbeatResponse"] * 3
    del case.where[2]
    assert case.channels.find(2) is None
    assert case.lost == []


def test_a_closed_connection_is_reported_after_its_requests_have_failed() -> None:
    case = Case({ApiKey.HEARTBEAT: Later()})
    case.ask()
    assert case.net.last is not None
    case.net.last.close()
    turn(case.world, 2)
    assert [type(answer) for answer in case.answers] == [ConnectionResetError]
    assert case.lost == [2]


def test_a_refused_connection_is_reported_but_a_dropped_one_is_not() -> None:
    later = Later()
    case = Case({ApiKey.HEARTBEAT: later})
    case.net.down = True
    case.ask()
    assert case.lost == [2]
    case.net.down = False
    turn(case.world, 3)
    case.ask()
    case.channels.drop(2)
    case.ask()
    case.channels.close()
    turn(case.world, 2)
    assert case.lost == [2]
    assert case.channels.find(2) is None


def test_a_request_that_cannot_wait_fails_at_once_during_a_pause() -> None:
    case = Case({ApiKey.HEARTBEAT: lambda _ctx, _message: HeartbeatResponse()})
    case.net.down = True
    channel = case.channels.find(2)
    assert channel is not None
    for _ in range(3):
        channel.send(HeartbeatRequest(), None, case.answers.append, 5_000)
        case.world.scheduler.run()
        for _, function, args in [entry for entry in case.world.scheduler.later if entry[0] == 0]:
            function(*args)
        case.world.scheduler.later = [entry for entry in case.world.scheduler.later if entry[0] > 0]
        case.world.scheduler.run()
    assert case.net.attempts == 1
    assert [type(answer).__name__ for answer in case.answers][:1] == ["ConnectionRefusedError"]
    assert all("refused" in str(answer) for answer in case.answers)
    assert len(case.answers) == 3
