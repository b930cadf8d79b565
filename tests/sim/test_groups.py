"""Consumer groups of a cluster under some seeds of faults; `make sim-groups SEEDS=n` runs more."""

from __future__ import annotations

import pytest

from kraft_node.testing.checker import Checker
from kraft_node.testing.groups.ownership import Ownership
from kraft_node.testing.world import World
from tests.sim.seeds import checked

KIND = "groups"
SEEDS = 6
PARTITION = ("t", 0)


def test_no_law_is_broken() -> None:
    acknowledged = read = 0
    for seed in range(SEEDS):
        result = checked(seed, KIND)
        acknowledged += result.acknowledged
        read += result.read
    assert acknowledged > 250, "producers got on"
    assert read > 1500, "members read"


@pytest.mark.slow
@pytest.mark.parametrize("seed", [63, 4300002])
def test_seeds_that_failed_once(seed: int) -> None:
    """The leader removed a voter that the rest needed; a controller found no leader because all voters had moved."""
    checked(seed, KIND)


def owners() -> Ownership:
    return Ownership(Checker(World(1)), "g", has_epochs=True)


def test_overlapping_tenures_of_two_members_break_the_law() -> None:
    own = owners()
    own.assigned_to("a", [PARTITION], 100)
    own.confirmed("a", 300)
    own.assigned_to("b", [PARTITION], 200)
    own.confirmed("b", 400)
    own.judge()
    assert [finding.law for finding in own.checker.findings] == ["owners"]


def test_a_tenure_ends_with_the_last_confirmation() -> None:
    own = owners()
    own.assigned_to("a", [PARTITION], 100)
    own.confirmed("a", 150)
    own.assigned_to("b", [PARTITION], 200)
    own.confirmed("b", 400)
    own.assigned_to("a", [], 500)
    own.judge()
    assert own.checker.findings == []
    assert own.tenures == 2


def test_two_owners_in_one_epoch_break_the_law() -> None:
    own = owners()
    own.assigned_in(5, "a", [PARTITION])
    own.assigned_in(6, "b", [PARTITION])
    assert own.checker.findings == []
    own.assigned_in(5, "b", [PARTITION])
    assert [finding.law for finding in own.checker.findings] == ["epoch owner"]
