"""A defect in one callback blocks nothing else: the broker's queues continue after any exception."""

from __future__ import annotations

from collections import deque
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base.calls import call_each
from kraft_node.base.turns import OneByOne, Turns
from kraft_node.broker.log_dir_moves import LogDirMoves
from kraft_node.broker.producer_ids import ProducerIds
from kraft_node.broker.replication.fetcher import Fetcher
from kraft_node.broker.replication.isr_changes import IsrChanges
from kraft_protocol.wire.messages import AllocateProducerIdsRequest, AllocateProducerIdsResponse, AlterPartitionResponse
from tests.unit.broker.world import Controller, Loop, make_env, topic_id
from tests.unit.server.connections.fakes import World


def fail(*_: Any) -> Any:
    raise ZeroDivisionError


def test_all_callbacks_run_and_the_first_failure_is_raised() -> None:
    got: list[int] = []
    with pytest.raises(ZeroDivisionError):
        call_each([got.append, fail, got.append], 1)
    assert got == [1, 1]


def test_jobs_after_a_failed_job_run() -> None:
    world = World({})
    line = OneByOne(Turns(world.env))
    got: list[Any] = []

    def steps(value: int) -> Any:
        yield
        return 1 // value

    line.add(steps(0), got.append)
    line.add(steps(1), fail)
    line.add(steps(1), got.append)
    with pytest.raises(ZeroDivisionError):
        world.scheduler.run()
    world.scheduler.run()
    assert isinstance(got[0], ZeroDivisionError)
    assert got[1:] == [1]


@pytest.mark.parametrize("error", [0, 77])
def test_producers_after_a_failed_callback_get_their_id(error: int) -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    for taker in (fail, got.append, fail, got.append):
        ids.take(taker)
    sent = controller.take(AllocateProducerIdsRequest)
    with pytest.raises(ZeroDivisionError):
        sent.answer(AllocateProducerIdsResponse(error_code=error, producer_id_start=10, producer_id_len=10))
    assert len(got) == 2


class Partition:
    """The parts of a partition that ISR changes use."""

    index = 0

    def __init__(self, proposal: Any) -> None:
        self.topic_id = topic_id(1)
        self.proposal: Any = proposal
        self.isr_answered = fail


def isr_changes(controller: Controller, loop: Loop) -> tuple[IsrChanges, Any]:
    changes = IsrChanges(1, lambda: 5, controller, loop)  # type: ignore[arg-type]
    proposal = SimpleNamespace(members=[(1, 5)], leader_epoch=0, partition_epoch=0)
    return changes, Partition(proposal)


def test_isr_changes_are_proposed_again_after_a_failure() -> None:
    controller, loop = Controller(), Loop()
    changes, partition = isr_changes(controller, loop)
    members = partition.proposal.members
    partition.proposal.members = 7
    changes.propose(partition)
    with pytest.raises(TypeError):
        loop.run()
    assert not controller.sent
    partition.proposal.members = members
    loop.run(60_000)
    assert len(controller.sent) == 1
    row = AlterPartitionResponse.PartitionData(partition_index=0)
    topic = AlterPartitionResponse.TopicData(topic_id=topic_id(1), partitions=[row])
    with pytest.raises(ZeroDivisionError):
        controller.sent.pop().answer(AlterPartitionResponse(topics=[topic]))
    changes.propose(partition)
    loop.run(60_000)
    assert len(controller.sent) == 1


def test_isr_changes_behind_many_outdated_ones_are_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """They waited until another change was proposed, and the high watermark with them."""
    monkeypatch.setattr("kraft_node.broker.replication.isr_changes.REQUEST_MAX", 2)
    controller, loop = Controller(), Loop()
    changes, partition = isr_changes(controller, loop)
    outdated = [Partition(partition.proposal) for _ in range(4)]
    for each in (*outdated, partition):
        changes.propose(each)  # type: ignore[arg-type]
    for each in outdated:
        each.proposal = None
    loop.run(60_000)
    assert len(controller.sent) == 1


def test_a_fetcher_fetches_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    controller, loop = Controller(), Loop()
    names = ("wait_ms", "min_bytes", "max_bytes", "response_max_bytes", "timeout_ms", "backoff_ms")
    settings: Any = SimpleNamespace(**dict.fromkeys(names, 1))
    none: Any = None
    fetcher = Fetcher(make_env(loop), 1, 2, settings, lambda: 5, lambda: controller, none)
    followed = SimpleNamespace(paused=False, key=(topic_id(1), 0), row=fail)
    fetcher._followed[followed.key] = followed  # type: ignore[assignment,index]
    fetcher._soon()
    with pytest.raises(ZeroDivisionError):
        loop.run()
    followed.row = lambda _: SimpleNamespace()
    loop.run(60_000)
    assert len(controller.sent) == 1
    monkeypatch.setattr(Fetcher, "_take_all", lambda *_: (fail() for _ in range(1)))
    with pytest.raises(ZeroDivisionError):
        controller.sent.pop().answer(SimpleNamespace(error_code=0))
    loop.run(60_000)
    assert len(controller.sent) == 1


def test_moves_after_a_failed_move_continue(monkeypatch: pytest.MonkeyPatch) -> None:
    loop = Loop()
    moves = LogDirMoves.__new__(LogDirMoves)
    moves._env = make_env(loop)
    moves._closed = moves._scheduled = False
    moves._ready = deque()
    got: list[int] = []
    moves._moves = {}
    for index in range(3):
        move: Any = SimpleNamespace(partition=SimpleNamespace(topic="t", index=index))
        moves._moves["t", index] = move
        moves._soon(move)

    def advance(_: LogDirMoves, move: Any) -> bool:
        if not move.partition.index:
            fail()
        got.append(move.partition.index)
        return False

    monkeypatch.setattr(LogDirMoves, "_advance", advance)
    with pytest.raises(ZeroDivisionError):
        loop.run()
    loop.run()
    assert got == [1, 2]
