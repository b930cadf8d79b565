"""The whole operator over whole nodes with clients, under seeds: laws of the operator, of the nodes and of the clients.

More seeds: `python -m tests.sim.operator.nodes --seeds 100 --first 1000`, or `make sim-operator SEEDS=n`.
"""

from __future__ import annotations

import pytest

from kraft_node.testing.scenario import SeedResult
from kraft_operator.plan.nodes import leave
from kraft_operator.plan.nodes import replace as replacing
from tests.sim.operator.nodes.life import run


def test_a_cluster_lives_through_requests_faults_and_deaths_of_the_operator() -> None:
    result = run(3)
    assert result.good, result.findings
    assert result.acknowledged > 100
    assert any("gets an empty disk" in line for line in result.story), "the operator has replaced nothing"


def test_a_replacement_that_was_just_requested_counts_as_work() -> None:
    """The scenario took the cluster for settled before the operator had seen the request."""
    assert run(302, ["image", "replace"]).good


@pytest.mark.slow
def test_the_same_seed_is_the_same_run() -> None:
    assert run(8).hash == run(8).hash


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_more_seeds(seed: int) -> None:
    result = run(seed)
    assert result.good, result.findings


# Planted bugs, each with a seed that finds it


def _nothing(*_: object, **__: object) -> None:
    return None


def _broken(result: SeedResult) -> set[str]:
    return {finding.law for finding in result.findings}


@pytest.mark.slow
def test_a_disk_that_is_swapped_without_the_gates_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(replacing, "isr_without", _nothing)
    monkeypatch.setattr(replacing, "node_without", _nothing)
    assert _broken(run(315, ["replace"])) == {"copy"}


@pytest.mark.slow
def test_a_broker_that_leaves_with_its_replicas_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(leave, "drained", lambda *_: True)
    assert any(_broken(run(seed, ["brokers", "new_id"])) for seed in (300, 301, 302))
