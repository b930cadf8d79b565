"""The whole operator over whole nodes with clients, under seeds: laws of the operator, of the nodes and of the clients.

More seeds: `python -m tests.sim.operator.nodes --seeds 100 --first 1000`, or `make sim-operator SEEDS=n`.
"""

from __future__ import annotations

import pytest

from kraft_operator.apply import fence
from kraft_operator.plan import gates
from tests.sim.operator.nodes.life import run


def test_a_cluster_lives_through_replacements_faults_and_deaths_of_the_operator() -> None:
    result = run(3)
    assert result.good, result.findings
    assert result.acknowledged > 100
    assert {"replace", "operator_dies", "controllers"} <= {*result.faults}


def test_the_same_seed_is_the_same_run() -> None:
    assert run(8).hash == run(8).hash


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(100, 110))
def test_more_seeds(seed: int) -> None:
    result = run(seed)
    assert result.good, result.findings
