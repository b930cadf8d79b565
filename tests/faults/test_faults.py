"""A round on real processes every day, two with the slow tests. Longer runs: `make faults MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.rounds import play

SECONDS = 60.0


@pytest.mark.parametrize("seed", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_no_acknowledged_record_is_lost_and_none_is_duplicated(seed: int, tmp_path: Path) -> None:
    result = play(tmp_path, seed, SECONDS, say=print)
    assert result.good, result.text()
    assert result.verdict.acknowledged > 1000, result.text()
    assert result.verdict.read > 1000, result.text()
    assert result.operations > 50, result.text()
    assert result.transactions > 20, result.text()
    assert result.faults, result.text()
