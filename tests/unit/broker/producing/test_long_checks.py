"""Batches that are checked in turns of the loop: in order, one at a time, and no failure blocks the next ones."""

from __future__ import annotations

from collections.abc import Generator

import pytest

from kraft_node.base.turns import STEPS_A_TURN, Turns
from kraft_node.broker.handlers import long_checks
from kraft_node.broker.handlers.long_checks import LongChecks
from kraft_protocol.errors import ErrorCode, KafkaError
from tests.unit.server.connections.fakes import World


class Rig:
    def __init__(self) -> None:
        self.world = World({})
        self.checks = LongChecks(Turns(self.world.env))
        self.steps = 0
        self.results: list[int | ErrorCode] = []

    def check(self, steps: int, outcome: int | Exception) -> Generator[int, None, int]:
        for _ in range(steps):
            self.steps += 1
            yield 1
        if isinstance(outcome, Exception):
            raise outcome
        return outcome

    def add(self, steps: int, outcome: int | Exception) -> None:
        self.checks.add(self.check(steps, outcome), self.done)

    def done(self, result: int | KafkaError) -> None:
        self.results.append(result.code if isinstance(result, KafkaError) else result)

    def turn(self) -> None:
        soon, self.world.scheduler.soon = self.world.scheduler.soon, []
        for function, args in soon:
            function(*args)


def test_a_long_check_shares_the_loop() -> None:
    rig = Rig()
    rig.add(5 * STEPS_A_TURN, 7)
    assert rig.steps == 0
    for turn in range(1, 6):
        rig.turn()
        assert rig.steps == turn * STEPS_A_TURN
    rig.turn()
    assert rig.results == [7]
    assert not rig.world.scheduler.soon, "nothing is asked of the loop any more"


def test_a_turn_ends_after_its_time() -> None:
    rig = Rig()

    def slow() -> Generator[int, None, int]:
        for _ in range(3):
            rig.world.clock.now += 2
            rig.steps += 1
            yield 1
        return 1

    rig.checks.add(slow(), rig.done)
    rig.turn()
    assert rig.steps == 1


def test_checks_end_in_order_and_a_failure_blocks_no_other() -> None:
    rig = Rig()
    rig.add(30, 1)
    rig.add(1, RuntimeError("a defect"))
    rig.add(1, KafkaError(ErrorCode.INVALID_RECORD, "bad"))
    rig.checks.add(rig.check(1, 3), lambda result: 1 // 0)
    rig.add(1, 4)
    with pytest.raises(ZeroDivisionError):
        rig.world.scheduler.run()
    rig.world.scheduler.run()
    assert rig.results == [1, ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INVALID_RECORD, 4]
    rig.add(1, 5)
    rig.world.scheduler.run()
    assert rig.results[-1] == 5


def test_the_number_of_waiting_checks_is_bounded() -> None:
    rig = Rig()
    for number in range(long_checks.WAITING_MAX):
        rig.add(1, number)
    rig.add(1, -5)
    assert rig.results == [ErrorCode.REQUEST_TIMED_OUT]
