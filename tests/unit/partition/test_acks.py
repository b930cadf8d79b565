"""Waiters for the high watermark: order, removal, and the cost of removal."""

from __future__ import annotations

import random
from pathlib import Path

from kraft_node.partition.acks import Acks
from kraft_protocol.errors import ErrorCode
from tests.unit.partition.test_partition import NOW_MS, Rig

COUNT = 5_000


class Waiter:
    """Counts comparisons."""

    compared = 0

    def __init__(self) -> None:
        self.codes: list[ErrorCode] = []

    def __call__(self, code: ErrorCode) -> None:
        self.codes.append(code)

    def __eq__(self, other: object) -> bool:
        Waiter.compared += 1
        return self is other

    def __hash__(self) -> int:
        return id(self)


def test_each_of_thousands_of_time_outs_has_constant_cost() -> None:
    acks = Acks()
    waiters = [Waiter() for _ in range(COUNT)]
    for offset, waiter in enumerate(waiters):
        acks.add(offset, waiter)
    Waiter.compared = 0
    for waiter in waiters:
        acks.forget(waiter)
    assert Waiter.compared <= 2 * COUNT
    assert len(acks) == 0


def test_the_queue_of_acks_behaves_like_a_list() -> None:
    rng = random.Random(1)
    acks, model = Acks(), [(0, Waiter()) for _ in range(0)]
    for _ in range(3_000):
        action = rng.randrange(4)
        if action < 2:
            waiter = (rng.randrange(100), Waiter())
            acks.add(*waiter)
            model.append(waiter)
        elif action == 2 and model:
            waiter = model.pop(rng.randrange(len(model)))
            acks.forget(waiter[1])
        else:
            mark = rng.randrange(30)
            due = [w for w in sorted(model, key=lambda w: w[0]) if w[0] <= mark]
            model = [w for w in model if w[0] > mark]
            assert [id(done) for done in acks.take(mark)] == [id(w[1]) for w in due]
    assert {id(done) for done in acks.take_all()} == {id(w[1]) for w in model}


def test_a_moved_high_watermark_does_not_copy_those_that_still_wait() -> None:
    acks = Acks()
    for offset in range(10):
        acks.add(offset, Waiter())
    waiting = acks._waiting
    assert len(acks.take(3)) == 4
    assert acks.take(3) == []
    assert acks._waiting is waiting
    assert len(acks) == 6


def test_a_producer_that_has_stopped_waiting_is_not_answered(tmp_path: Path) -> None:
    rig = Rig(tmp_path, isr=(1, 2))
    rig.append(NOW_MS)
    waiters = [Waiter(), Waiter()]
    for waiter in waiters:
        rig.partition.when_replicated(1, waiter)
    rig.partition.forget_ack(waiters[0])
    rig.partition.follower_fetched(2, -1, 1, 0)
    assert [waiter.codes for waiter in waiters] == [[], [ErrorCode.NONE]]
    rig.partition.forget_ack(waiters[1])
