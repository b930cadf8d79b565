"""The simulation finds planted bugs; `make planted` prints which law found which bug, and how many were found."""

from __future__ import annotations

import pytest

from tests.sim.planted_bugs import NODE, Bug, all_bugs, hunt

BUGS = all_bugs()


@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_a_planted_bug_changes_its_source(bug: Bug) -> None:
    assert bug.plant((NODE / bug.file).read_text()) != (NODE / bug.file).read_text()
    assert bug.what


def test_there_are_enough_planted_bugs_in_each_scenario() -> None:
    assert sum(bug.scenario == "node" for bug in BUGS) >= 12
    assert sum(bug.scenario == "cluster" for bug in BUGS) >= 20
    assert sum(bug.scenario == "transactions" for bug in BUGS) >= 15


@pytest.mark.slow
@pytest.mark.parametrize("bug", BUGS, ids=lambda bug: bug.name)
def test_planted_bugs_are_found(bug: Bug) -> None:
    _, law, _ = hunt(bug)
    assert law, f"{bug.name} broke no law"
