"""Clusters with all clients, administrators and faults under some seeds; `make sim-whole SEEDS=n` runs more."""

from __future__ import annotations

import itertools
from collections import Counter
from dataclasses import asdict
from random import Random

import pytest

from kraft_node.testing.checker import Checker
from kraft_node.testing.machine import SimCluster
from kraft_node.testing.whole.growth import GrowthOperator
from kraft_node.testing.whole.operators import Remembered
from kraft_node.testing.whole.parts import parts_of
from kraft_node.testing.world import World
from kraft_protocol.errors import ErrorCode
from tests.sim.seeds import checked

KIND = "whole"
EVERYDAY = (61078, 61271)
"""Cheap seeds: one with groups and all kinds of deaths, one with retention by time and a cooperative group."""
AT_NIGHT = (1, 4, 17, 26, 48, 49, 80)


@pytest.mark.parametrize("seed", [*EVERYDAY, *(pytest.param(seed, marks=pytest.mark.slow) for seed in AT_NIGHT)])
def test_no_law_is_broken(seed: int) -> None:
    result = checked(seed, KIND)
    assert result.acknowledged > 50, "producers got on"
    assert result.read > 200, "consumers read"
    assert len(result.faults) >= 5


def test_every_pair_of_parts_meets_within_a_hundred_seeds() -> None:
    met: Counter[tuple[str, str]] = Counter()
    names: list[str] = []
    for seed in range(100):
        parts = asdict(parts_of(seed))
        names = list(parts)
        met.update(itertools.combinations([name for name, is_there in parts.items() if is_there], 2))
    assert [pair for pair in itertools.combinations(names, 2) if not met[pair]] == []


def test_a_setting_may_have_the_last_acknowledged_value_or_an_unanswered_one() -> None:
    known: Remembered[str, int] = Remembered()
    known.sent("a", 1)
    known.answered("a", 1, None)
    known.sent("a", 2)
    known.answered("a", 2, ErrorCode.NONE)
    assert [value for value in range(4) if known.may_be("a", value, 0)] == [1, 2]
    known.sent("b", 3)
    known.answered("b", 3, ErrorCode.POLICY_VIOLATION)
    assert [value for value in range(4) if known.may_be("b", value, 0)] == [0]


def test_a_topic_with_fewer_partitions_than_were_acknowledged_breaks_the_law() -> None:
    world = World(1)
    checker = Checker(world)
    counts, partitions = {"t": 3}, [("t", 0), ("t", 1), ("t", 2)]
    growth = GrowthOperator(SimCluster(world), checker, "growth", Random(1), counts, partitions)
    growth.settle({"t": 4})
    assert checker.findings == []
    assert partitions[-1] == ("t", 3)
    growth.settle({"t": 3})
    assert [finding.law for finding in checker.findings] == ["grown"]
