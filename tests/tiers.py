"""Which tests run every day: sizes of random tests, and the budget of processor time. tests/README.md has the rule.

Processor time does not grow with the load of the machine as a duration does. It counts the test's process and the
child processes that ended during the test, without fixtures that tests share. Processes that detach themselves are not
counted.
"""

from __future__ import annotations

import os
import resource
import tomllib
from collections.abc import Generator, Iterable
from pathlib import Path
from typing import Any

import pytest

TIMES = int(os.environ.get("KRAFT_TIMES", "0"))
"""How many times the examples of a property are tried; 0: the everyday part of them. `make test-properties` sets it."""
PART = 3
EXAMPLES_MIN = 10
BUDGET_S = 15.0
"""Of an everyday test without an entry in `costly.toml`."""
FATAL_S = 4 * BUDGET_S
"""In CI a test above this fails the run. The margin is for machines on which waiting costs more."""
COSTLY = tomllib.loads((Path(__file__).parent / "costly.toml").read_text())
PROPERTY = "processor_s"


def seeds(values: Iterable[int], everyday: int) -> list[Any]:
    """Parameters of a test: the first `everyday` values, and the others with the mark `slow`."""
    return [value if at < everyday else pytest.param(value, marks=pytest.mark.slow) for at, value in enumerate(values)]


def examples(count: int) -> int:
    """How many examples Hypothesis tries of a property. Other inputs are tried in each run."""
    return count * TIMES if TIMES else min(count, max(EXAMPLES_MIN, count // PART))


def used_s() -> float:
    """The processor time of this process and of its children that have ended."""
    usages = map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)


class Costs:
    """Adds the processor time of each test to the test's last report."""

    def __init__(self) -> None:
        self._test_s = 0.0
        self._shared_s = 0.0
        self._finishing: list[float] = []

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self, item: pytest.Item) -> Generator[None, object, object]:
        self._test_s = -used_s()
        self._shared_s = 0.0
        return (yield)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self, item: pytest.Item) -> Generator[None, object, object]:
        try:
            return (yield)
        finally:
            cost_s = self._test_s + used_s() - self._shared_s
            item.user_properties[:] = [one for one in item.user_properties if one[0] != PROPERTY]
            item.user_properties.append((PROPERTY, round(cost_s, 2)))

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_fixture_setup(self, fixturedef: pytest.FixtureDef[Any]) -> Generator[None, object, object]:
        if fixturedef.scope == "function":
            return (yield)
        before, inner_s = used_s(), self._shared_s
        try:
            return (yield)
        finally:
            self._shared_s = inner_s + used_s() - before
            fixturedef.addfinalizer(lambda: self._finishing.append(used_s()))  # the first finalizer that runs

    def pytest_fixture_post_finalizer(self, fixturedef: pytest.FixtureDef[Any]) -> None:
        if fixturedef.scope != "function" and self._finishing:
            self._shared_s += used_s() - self._finishing.pop()


def costs_of(reports: Iterable[pytest.TestReport]) -> dict[str, float]:
    """The processor time in seconds by test, from the reports of teardowns."""
    costs: dict[str, float] = {}
    for report in reports:
        for name, value in report.user_properties:
            if name == PROPERTY:
                costs[report.nodeid] = float(str(value))
    return costs


def over_budget(costs: dict[str, float], limit_s: float = BUDGET_S) -> dict[str, float]:
    """The tests above the limit that no entry of `tests/costly.toml` explains, most expensive first."""
    found = {test: cost for test, cost in costs.items() if cost > limit_s and not test.startswith(tuple(COSTLY))}
    return dict(sorted(found.items(), key=lambda pair: -pair[1]))
