"""Whole stories of voters: dynamic quorums, lost voters, roles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.wanted import Pool, ReplacementRequest
from tests.unit.operator.outcomes import blocked, restarts
from tests.unit.operator.world import World, made, wanted

# Dynamic quorums


def _dynamic(**changes: object) -> World:
    world = World(wanted(static_quorum=False, **changes))
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world


def test_a_dynamic_quorum_starts_with_the_first_voters() -> None:
    world = _dynamic()
    assert world.log_voters == {1: 0, 2: 0, 3: 0}
    assert world.pods[1].aspects["bootstrap"] == "1,2,3"


@pytest.mark.parametrize("passes", range(1, 12))
def test_the_first_format_decides_the_initial_voters(passes: int) -> None:
    """If a dynamic quorum was requested between the first job and its end, it had no voters, or wrong ones."""
    world = World(wanted())
    for _ in range(passes):
        world.step()
    world.wanted = wanted(static_quorum=False, controllers=5)
    world.settle()
    assert world.log_voters is not None
    assert world.log_voters.keys() == {1, 2, 3, 4, 5}


@pytest.mark.parametrize(("before", "after"), [(1, 3), (3, 5), (5, 3), (3, 1), (1, 5)])
def test_dynamic_voters_are_added_and_removed_one_at_a_time(before: int, after: int) -> None:
    world = _dynamic(controllers=before)
    world.wanted = wanted(controllers=after, static_quorum=False)
    world.settle()
    assert world.log_voters == dict.fromkeys(range(1, after + 1), 0)
    assert len(world.actions(do.AddVoter)) == max(0, after - before)
    assert len(world.actions(do.RemoveVoter)) == max(0, before - after)


def test_a_dynamic_voter_gets_an_empty_disk() -> None:
    world = _dynamic()
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))
    world.settle()
    assert world.log_voters == {1: 0, 2: 0, 3: 1}
    assert world.record.replacements[0].done


def test_a_dead_dynamic_voter_gets_another_id_without_a_pause() -> None:
    world = _dynamic()
    world.lose_host(3)
    world.wanted = wanted(static_quorum=False, replacements=(ReplacementRequest("r", 3, "NewId"),))
    world.settle()
    assert world.log_voters == {1: 0, 2: 0, 4: 0}
    assert world.record.retired == (3,)
    assert restarts(world) == []


def test_static_voters_become_dynamic_and_are_restarted_once() -> None:
    world = made()
    world.wanted = wanted(static_quorum=False)
    world.settle()
    assert world.record.dynamic
    assert world.log_voters == {1: 0, 2: 0, 3: 0}
    assert sorted(restarts(world)) == [1, 2, 3, 101, 102, 103]
    assert all("voters" not in pod.aspects for pod in world.pods.values())
    world.wanted = wanted(controllers=5, static_quorum=False)
    world.settle()
    assert world.log_voters == dict.fromkeys((1, 2, 3, 4, 5), 0)


def test_static_voters_do_not_become_dynamic_while_one_is_down() -> None:
    world = made()
    world.lose_host(2)
    world.wanted = wanted(static_quorum=False)
    assert "voter 2 is behind or down" in blocked(world)["VoterDown"]
    assert not world.record.dynamic


# Lost voters


def test_a_voter_that_is_down_blocks_the_change_and_is_named() -> None:
    world = made()
    world.lose_host(2)
    world.wanted = wanted(controllers=5)
    said = blocked(world)["VoterDown"]
    assert "voter 2 is behind or down" in said
    assert "spec.replacements" in said
    assert world.record.voters == (1, 2, 3)
    world.wanted = wanted(controllers=5, replacements=(ReplacementRequest("r", 2, "EmptyDisk"),))
    world.settle()
    assert world.record.voters == (1, 2, 3, 4, 5)


def test_a_lost_voter_that_leaves_is_removed_if_it_is_named() -> None:
    world = made(controllers=5)
    world.lose_host(5)
    world.wanted = wanted(controllers=3)
    assert "quorum.giveUp" in blocked(world)["VoterDown"]
    world.wanted = wanted(controllers=3, given_up=frozenset({5}))
    world.settle()
    assert world.record.voters == (1, 2, 3)
    assert world.record.retired == (4, 5)


def test_one_lost_voter_of_three_is_not_removed() -> None:
    world = made()
    world.lose_host(3)
    world.wanted = wanted(controllers=1, given_up=frozenset({3}))
    assert "replace its disk first" in blocked(world)["VoterDown"]
    assert world.record.voters == (1, 2, 3)


# Roles


def test_a_combined_pool_gives_its_controllers_up_under_a_dynamic_quorum() -> None:
    aspects = {"image": "a", "config": "c"}
    both = Pool("both", True, True, 3, 1, aspects)
    world = World(replace(wanted(static_quorum=False), pools=(both,)))
    world.settle()
    world.make_topics()
    world.settle()
    pools = (replace(both, controller=False), Pool("ctl", True, False, 3, 201, aspects))
    world.wanted = replace(wanted(static_quorum=False), pools=pools)
    world.settle()
    assert set(world.log_voters or ()) == {201, 202, 203}
    assert {world.pods[i].aspects["roles"] for i in (1, 2, 3)} == {"broker"}


def test_a_second_voter_counts_only_after_it_has_caught_up() -> None:
    world = made(controllers=1)
    world.wanted = wanted(controllers=3)
    while world.record.joining is None:
        world.step()
    while 2 not in world.pods:
        world.step()
    assert world.record.voters == (1,)
    world.kill(1)
    world.step()
    assert world.pods[1].voters == (1,), "it would need the vote of one that has nothing"
    assert world.pods[2].voters == (1, 2)
    world.settle()
    assert world.record.voters == (1, 2, 3)
