"""The planner and real Raft cores under one seed.

The operator never breaks the quorum. No committed record is lost, no ISR falls below min.insync.replicas through the
operator, and every request is carried out.

More seeds: `make sim-operator SEEDS=n`.
"""

from __future__ import annotations

import pytest

from kraft_operator.plan import gates
from kraft_operator.plan.model import situation
from tests.sim.operator.stories import BY_NAME, STORIES, Story, begun, ended, with_chaos, with_crash_after


@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_no_law_is_broken_in_chaos_and_the_story_completes(story: Story) -> None:
    with_chaos(story, seed=7)


def test_a_lone_voter_that_dies_during_an_addition_is_elected_again() -> None:
    """It restarted with both as voters, and waited without end for the vote of the node with an empty disk."""
    with_chaos(BY_NAME["one to three"], seed=46)


@pytest.mark.parametrize("name", ["other id", "three to five"])
def test_a_voter_that_pauses_for_a_moment_breaks_no_law(name: str) -> None:
    """The law counted it as dead at once. No look can tell before the leader counts it as behind."""
    with_chaos(BY_NAME[name], seed=5009)


def test_a_voter_is_not_stopped_while_its_removal_may_be_lost() -> None:
    """It was stopped as soon as the leader's log lacked it: the former voters could count again, without it."""
    with_chaos(BY_NAME["dynamic five to three"], seed=7000)


def test_unknown_voters_of_a_dynamic_quorum_are_waited_for() -> None:
    """The third voter had not joined when the controllers lost their leader: the plan had nothing left to do."""
    with_chaos(BY_NAME["dynamic one to three"], seed=5078)


@pytest.mark.parametrize("writes", [2, 5, 8])
@pytest.mark.parametrize("name", ["empty disk", "other id", "dynamic empty disk"])
def test_a_replacement_survives_the_operators_death(name: str, writes: int) -> None:
    assert with_crash_after(BY_NAME[name], seed=3, writes=writes)


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 105))
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_more_seeds(story: Story, seed: int) -> None:
    with_chaos(story, seed)


@pytest.mark.slow
@pytest.mark.parametrize("story", STORIES, ids=lambda story: story.name)
def test_the_operator_may_die_after_any_write(story: Story) -> None:
    writes = 1
    while with_crash_after(story, 5, writes):
        writes += 1
    assert writes > 3


# The simulation notices planted bugs: a planner without a gate breaks a law, or an assertion of the world.


def _breaks(name: str, seeds: int = 4) -> bool:
    for seed in range(seeds):
        try:
            with_chaos(BY_NAME[name], seed)
        except AssertionError:
            return True
    return False


def test_a_planner_that_takes_all_voters_for_live_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    def everybody(self: situation.Situation) -> frozenset[int]:
        return frozenset() if self.quorum is None else frozenset({*self.quorum.voters, *self.quorum.observers})

    monkeypatch.setattr(situation.Situation, "live_voters", everybody)
    assert _breaks("five to three")


def test_a_planner_without_the_gate_of_the_quorum_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gates, "quorum_without", lambda *_, **__: None)
    monkeypatch.setattr(situation.Situation, "unsettled", lambda _: [])  # it would wait for a node that is not ready
    assert _breaks("roll")


def test_a_story_without_chaos_completes() -> None:
    story = BY_NAME["other id"]
    ended(story, begun(story, 11))
