"""From apply to Ready, and through a roll, in simulated seconds: the operator adds little to the world's time."""

from __future__ import annotations

from functools import cache

import pytest

from tests.sim.operator.begin import ROLL_S, WORLD_S, Begin
from tests.sim.operator.cluster import BROKERS, VOTERS

both = pytest.mark.parametrize("tls", [False, True], ids=["plaintext", "tls"])


@cache
def _life(tls: bool) -> Begin:
    life = Begin(tls=tls)
    life.run()
    return life


@both
def test_from_apply_to_ready_takes_little_longer_than_the_steps_themselves(tls: bool) -> None:
    issuing_s = 1.0 if tls else 0.0  # authorities and certificates, before the first volume
    assert _life(tls).took_s["apply to ready"] < WORLD_S + 2.0 + issuing_s


@both
def test_a_roll_takes_little_longer_than_its_restarts(tls: bool) -> None:
    assert _life(tls).took_s["roll"] < ROLL_S + 6 * 2.5


@both
def test_requests_keep_to_the_number_of_changes_and_restarts(tls: bool) -> None:
    life = _life(tls)
    secrets = 17 if tls else 0  # a pass also reads the Secrets and the bundle of the authorities
    assert sum(life.cost["apply to ready"].values()) <= 9 * life.changes["apply to ready"]
    assert sum(life.cost["roll"].values()) <= (80 + secrets) * len([*VOTERS, *BROKERS])
