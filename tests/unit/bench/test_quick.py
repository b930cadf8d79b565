"""Every scenario works against every server at a tiny scale. Slow: run it alone, or use `make bench-quick`."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import failures
from bench.runs import runner
from bench.runs.journal import Journal
from bench.runs.registry import scenarios_by_name
from tests.peer import require_peer


@pytest.mark.slow
@pytest.mark.peer
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", sorted(scenarios_by_name()))
def test_a_scenario_works_against_each_server(name: str, tmp_path: Path) -> None:
    require_peer()
    scenario = scenarios_by_name()[name]
    head = runner.header([scenario], 1, 1, quick=True, whole=False, folder=tmp_path)
    journal = Journal.create(tmp_path / "run.jsonl", head)
    runner.go_on(journal, {name: scenario}, tmp_path, 1e9, lambda _text: None)
    assert failures(journal.run) == []
    measured = {row for end in journal.run.ends.values() for row in end.get("figures", {})}
    assert measured == {row.name for row in scenario.rows}
