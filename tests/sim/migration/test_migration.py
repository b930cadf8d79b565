"""Seeds of the simulated migration: every law holds, and the runs see what they are for.

`make planted-migration` plants bugs, each of which this file must find.
"""

from __future__ import annotations

import logging

import pytest

from kraft_node.testing.migration.scenario import MigrationScenario
from tests.tiers import seeds

SEEDS = 40
BLOCK = 20


@pytest.fixture(autouse=True)
def _quiet() -> None:
    logging.getLogger("kraft_node.migration").setLevel(logging.CRITICAL)


@pytest.mark.parametrize("first", seeds(range(1, SEEDS, BLOCK), everyday=1))
def test_migrations_keep_every_law_under_faults(first: int) -> None:
    outcomes = [MigrationScenario(seed).run() for seed in range(first, first + BLOCK)]
    assert [(one.seed, one.broken) for one in outcomes if one.broken] == []
    assert all(one.migrations == 1 for one in outcomes)
    assert sum(one.moves for one in outcomes) > 20 * BLOCK, "changes reach ZooKeeper"
    assert sum(one.undone for one in outcomes) > 0, "some migrations fail half-way"
