"""The budget of everyday tests, by runs of their own."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.tiers import COSTLY, over_budget, seeds
from tests.unit.tools.test_last_lines import run

BURNS = """
import time
import pytest

def burn(s):
    until = time.process_time() + s
    while time.process_time() < until:
        pass

@pytest.fixture(scope="module")
def shared():
    burn(1)
    yield
    burn(1)

@pytest.fixture
def own():
    burn(0.2)
    yield
    burn(0.2)

def test_it(shared, own):
    burn(0.2)
"""


def test_shared_fixtures_do_not_count_for_a_test(tmp_path: Path) -> None:
    assert run(tmp_path, BURNS, "--junit-xml", "report.xml", ci=False).returncode == 0
    found = re.search(r'name="processor_s" value="([\d.]+)"', (tmp_path / "report.xml").read_text())
    assert found
    assert 0.6 <= float(found[1]) < 1.6


@pytest.mark.parametrize(("ci", "options", "code"), [(True, "not slow", 1), (False, "not slow", 0), (True, "", 0)])
def test_an_everyday_test_far_above_the_budget_fails_a_run_in_ci(
    tmp_path: Path, ci: bool, options: str, code: int
) -> None:
    done = run(tmp_path, BURNS, "-m", options, ci=ci, budget_s=0.1)
    assert done.returncode == code, done.stdout
    assert ("tests/test_it.py::test_it: " in done.stdout) == bool(options)


def test_costs_with_a_reason_are_within_the_budget() -> None:
    (known, *_) = COSTLY
    found = {f"{known}::test_x[1]": 40.0, "tests/a.py::test_a": 16.0, "tests/a.py::test_b": 20.0, "tests/c.py::c": 1.0}
    assert list(over_budget(found)) == ["tests/a.py::test_b", "tests/a.py::test_a"]


def test_later_seeds_are_slow() -> None:
    first, second, third = seeds(range(7, 10), everyday=2)
    assert (first, second) == (7, 8)
    assert [mark.name for mark in third.marks] == ["slow"]
