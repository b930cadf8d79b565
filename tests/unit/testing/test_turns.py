"""Long work in a simulation: the cost of its steps ends a turn, because the clock stands still in an event."""

from __future__ import annotations

from typing import Any, cast

from kraft_node.base.turns import STEPS_A_TURN, Turns
from kraft_node.testing.disk import SimDisk
from kraft_node.testing.world import OPERATIONS_A_MS, SimHost, World


def steps_a_turn(operations: int) -> list[int]:
    """How many of 20 steps each event takes, if a step needs so many disk operations."""
    world = World(1)
    host = SimHost(world, "n1", SimDisk(world.rng))
    turns = Turns(host.env(cast("Any", None)))
    events: list[int] = []
    left = 20

    def step() -> bool:
        nonlocal left
        left -= 1
        events.append(world.events)
        for number in range(operations):
            host.disk.exists(f"{left}-{number}")
        return left > 0

    turns.add(step)
    world.rest(1000)
    return [events.count(event) for event in sorted(set(events))]


def test_steps_that_take_long_end_a_turn() -> None:
    """A turn took 16 steps whatever they cost: seed 60064 of `whole` with `--rare` opened replicas with 1,691
    operations in one event, which no turn of a real node does."""
    assert steps_a_turn(OPERATIONS_A_MS) == [1] * 20
    assert steps_a_turn(OPERATIONS_A_MS // 2 - 10) == [3] * 6 + [2]


def test_short_steps_share_a_turn() -> None:
    assert steps_a_turn(1) == [STEPS_A_TURN, 20 - STEPS_A_TURN]
