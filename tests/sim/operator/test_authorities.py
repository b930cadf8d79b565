"""The replacement of authorities, while nodes read files late, restart, join and leave, and the operator dies.

Each planted bug must break a law. More seeds: `make sim-operator SEEDS=n`.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.security import authorities, keeper
from kraft_operator.security.authorities import Decision, Proof, State
from kraft_operator.security.certificates import key_of
from kraft_operator.security.names import CLIENTS, CLUSTER
from tests.sim.operator.authorities import LawError, World, run, run_with_crash_after
from tests.tiers import seeds


@pytest.mark.parametrize("seed", seeds(range(6), everyday=2))
def test_nodes_can_always_connect_to_each_other(seed: int) -> None:
    run(seed)


@pytest.mark.parametrize("writes", [1, 4, 7, 11, 15])
def test_a_replacement_survives_the_death_of_the_operator(writes: int) -> None:
    assert run_with_crash_after(3, writes)


@pytest.mark.slow
def test_the_operator_may_die_after_any_write_of_a_replacement() -> None:
    writes = 1
    while run_with_crash_after(5, writes):
        writes += 1
    assert writes > 15


def test_the_world_replaces_authorities_and_listeners_have_certificates() -> None:
    worlds = [run(seed) for seed in range(4)]
    assert sum(one.replaced[CLUSTER] for one in worlds) >= 4
    assert sum(one.replaced[CLIENTS] for one in worlds) >= 1
    assert any(one.good for one in worlds)


def _at_once(decision: Decision) -> Decision:
    """Issue by the new authority without the phase in which nodes learn to trust it."""
    state = decision.state
    if state is None or state.next is None:
        return decision
    return replace(decision, state=replace(state, current=state.next, next=None, former=state.current.certificate))


def _forgets_at_once(decision: Decision) -> Decision:
    """Drop the former authority when the new one begins to issue."""
    state = decision.state
    if state is None or not state.former:
        return decision
    return replace(decision, state=replace(state, former="", since=None))


@pytest.mark.parametrize("bug", [_at_once, _forgets_at_once])
def test_a_planted_bug_in_a_decision_breaks_a_law(bug: object, monkeypatch: pytest.MonkeyPatch) -> None:
    right = authorities.decide
    monkeypatch.setattr(keeper, "decide", lambda *words: bug(right(*words)))  # type: ignore[operator]
    _some_law_breaks()


@pytest.mark.parametrize("phase", ["trusts_next", "presents_current"])
def test_a_phase_that_ends_without_its_proof_breaks_a_law(phase: str, monkeypatch: pytest.MonkeyPatch) -> None:
    right = World.prove

    async def wrong(self: World, name: str, state: State) -> Proof:
        return replace(await right(self, name, state), **{phase: ""})

    monkeypatch.setattr(World, "prove", wrong)
    _some_law_breaks()


def test_an_authority_that_is_made_again_breaks_a_law(monkeypatch: pytest.MonkeyPatch) -> None:
    right = authorities.decide

    def wrong(name: str, state: State | None, known: str, *rest: object) -> Decision:
        lost = key_of(state.current.certificate) < "8" if state is not None else False
        return right(name, None if lost else state, "", *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(keeper, "decide", wrong)
    _some_law_breaks()


def _some_law_breaks() -> None:
    for seed in range(12):
        try:
            run(seed)
        except LawError:
            return
    raise AssertionError("no seed breaks a law")
