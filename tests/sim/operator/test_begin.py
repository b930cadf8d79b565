"""From apply to Ready, and through a roll, in simulated seconds: the operator adds little to the world's time."""

from __future__ import annotations

from functools import cache

from tests.sim.operator.begin import ROLL_S, WORLD_S, Begin


@cache
def _life() -> Begin:
    life = Begin()
    life.run()
    return life


def test_from_apply_to_ready_the_operator_never_waits_in_vain() -> None:
    assert _life().took_s["apply to ready"] < WORLD_S + 2.0


def test_during_a_roll_the_operator_never_waits_in_vain() -> None:
    assert _life().took_s["roll"] < ROLL_S + 6 * 2.5


def test_requests_keep_to_the_number_of_changes() -> None:
    life = _life()
    assert sum(life.cost["apply to ready"].values()) <= 9 * life.changes["apply to ready"]
    assert sum(life.cost["roll"].values()) <= 16 * life.changes["roll"]
