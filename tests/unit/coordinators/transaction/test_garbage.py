"""Transactions leave nothing for the garbage collector: its pauses would be the slowest commits."""

from __future__ import annotations

import pytest

from kraft_protocol.errors import ErrorCode
from tests.cyclic_garbage import found_garbage
from tests.unit.coordinators.transaction.world import World


@pytest.mark.parametrize("commit", [True, False])
def test_transactions_leave_no_cycles(commit: bool) -> None:
    world = World().elect()
    with found_garbage() as garbage:
        for _ in range(3):
            producer = world.producer()
            assert world.add(producer, ("a", 0), ("a", 1)) == {("a", 0): ErrorCode.NONE, ("a", 1): ErrorCode.NONE}
            assert world.end(producer, commit=commit, version=4) == ErrorCode.NONE
            world.links[1].answer()
            world.links[2].answer()
            world.time.advance()
    assert garbage == []
