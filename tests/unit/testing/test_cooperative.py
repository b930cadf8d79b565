"""Cooperative members of the whole world: what they tell the leader, what it assigns, and the law `handover`."""

from __future__ import annotations

import pytest

from kraft_node.testing.checker import Checker
from kraft_node.testing.groups.ownership import Ownership
from kraft_node.testing.whole.cooperative import NO_GENERATION, OLD_VERSION, VERSION, Claim, Handovers
from kraft_node.testing.whole.cooperative import assigned as assigned_to
from kraft_node.testing.whole.cooperative import read as read_claim
from kraft_node.testing.whole.cooperative import written as written_claim
from kraft_node.testing.world import World

PARTITIONS = [("t", index) for index in range(4)]
NOTHING = Claim(frozenset(), NO_GENERATION)


def _claim(*indexes: int, generation: int = 1) -> Claim:
    return Claim(frozenset(("t", index) for index in indexes), generation)


def _indexes(claims: dict[str, Claim]) -> dict[str, list[int]]:
    return {member: [index for _, index in own] for member, own in assigned_to(claims, PARTITIONS).items()}


@pytest.mark.parametrize("version", [OLD_VERSION, VERSION])
def test_a_leader_reads_what_a_member_owns_and_since_when(version: int) -> None:
    claim = Claim(frozenset({("t", 0), ("t", 2), ("u", 1)}), 7)
    assert read_claim(written_claim(["t", "u"], claim, version)) == claim
    assert read_claim(written_claim(["t", "u"], NOTHING, version)) == NOTHING


def test_partitions_without_an_owner_are_shared_evenly() -> None:
    assert _indexes({"a": NOTHING, "b": NOTHING}) == {"a": [0, 2], "b": [1, 3]}


def test_a_partition_that_must_move_is_with_nobody_at_first() -> None:
    assert _indexes({"a": _claim(0, 1, 2, 3), "b": NOTHING}) == {"a": [0, 1], "b": []}
    assert _indexes({"a": _claim(0, 1, generation=2), "b": _claim(generation=2)}) == {"a": [0, 1], "b": [2, 3]}


def test_members_keep_what_they_own() -> None:
    claims = {"a": _claim(3), "b": _claim(0, 1)}
    assert _indexes(claims) == {"a": [3, 2], "b": [0, 1]}


def test_the_claim_of_the_later_generation_counts() -> None:
    assert _indexes({"a": _claim(0, generation=3), "b": _claim(0, generation=2)})["b"] == [1, 3]


def test_the_larger_share_stays_with_its_owner() -> None:
    claims = {"a": _claim(0), "b": _claim(1, 2), "c": _claim(3)}
    assert _indexes(claims) == {"a": [0], "b": [1, 2], "c": [3]}


def _judged(begins: int) -> list[str]:
    checker = Checker(World(1))
    handovers = Handovers(checker, "g")
    handovers.give("a", {("t", 0): 7}, handovers.takes)
    (partition, former), *_ = handovers.take("b", 2, [("t", 0)]).items()
    handovers.judge("b", partition, former, begins)
    return [finding.law for finding in checker.findings]


@pytest.mark.parametrize(("begins", "broken"), [(7, []), (6, ["handover"]), (8, ["handover"])])
def test_the_next_owner_begins_where_the_former_one_stopped(begins: int, broken: list[str]) -> None:
    assert _judged(begins) == broken


def test_a_member_that_is_late_does_not_tell_where_a_later_owner_begins() -> None:
    handovers = Handovers(Checker(World(1)), "g")
    takes = dict(handovers.takes)
    handovers.take("b", 2, [("t", 0)])
    handovers.give("a", {("t", 0): 7}, takes)
    assert handovers.take("b", 2, [("t", 0)]) == {}


def test_a_paused_member_that_reads_an_old_assignment_is_not_the_owner() -> None:
    """Seed 61067 took it for the owner."""
    handovers = Handovers(Checker(World(1)), "g")
    handovers.take("b", 6, [("t", 0)])
    handovers.take("a", 3, [("t", 0)])
    assert handovers.owners["t", 0].member == "b"


def test_two_owners_in_one_generation_break_the_law() -> None:
    checker = Checker(World(1))
    ownership = Ownership(checker, "g", has_epochs=True)
    ownership.assigned_in(5, "a", PARTITIONS[:2])
    ownership.assigned_in(5, "b", PARTITIONS[1:])
    assert [finding.law for finding in checker.findings] == ["epoch owner"]
