"""All scenarios, found in the files of `bench.scenarios`, and the rows that still lack a scenario."""

from __future__ import annotations

import functools
import importlib
import pkgutil

from bench import scenarios
from bench.runs.row import Row, Scenario

SECTIONS = (
    "One node",
    "One node, by librdkafka",
    "Transactions and consumer groups",
    "Hostile input",
    "A cluster",
    "A million partitions",
    "Parts of the node alone",
)
"""The page's headings, in order."""

SLOTS: dict[str, str] = {}
"""Planned rows without a scenario -> their aims. A scenario file removes its row from here."""


@functools.cache
def scenarios_by_name() -> dict[str, Scenario]:
    """Every scenario of every file in `bench.scenarios`. Raises ValueError if names are not unique."""
    found: dict[str, Scenario] = {}
    rows: set[str] = set()
    for module in sorted(pkgutil.iter_modules(scenarios.__path__), key=lambda m: m.name):
        for scenario in importlib.import_module(f"bench.scenarios.{module.name}").SCENARIOS:
            names = {row.name for row in scenario.rows}
            if scenario.name in found or names & rows:
                raise ValueError(f"bench/scenarios/{module.name}.py: {scenario.name} or a row of it is there already")
            if scenario.section not in SECTIONS:
                raise ValueError(f"bench/scenarios/{module.name}.py: {scenario.name} has no section of the page")
            scenario.check()
            found[scenario.name] = scenario
            rows |= names
    return found


def rows() -> dict[str, Row]:
    """All rows by name."""
    return {row.name: row for scenario in scenarios_by_name().values() for row in scenario.rows}
