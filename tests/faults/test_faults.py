"""Half a minute on real processes every day, minutes with the slow tests. Longer runs: `make faults MINUTES=…`."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.faults.rounds import play


@pytest.mark.parametrize(
    ("seed", "seconds"),
    [(1, 30.0), pytest.param(1, 60.0, marks=pytest.mark.slow), pytest.param(2, 60.0, marks=pytest.mark.slow)],
)
def test_no_acknowledged_record_is_lost_and_none_is_duplicated(seed: int, seconds: float, tmp_path: Path) -> None:
    result = play(tmp_path, seed, seconds, say=print)
    assert result.good, result.text()
    assert result.verdict.acknowledged > 1000, result.text()
    assert result.verdict.read > 1000, result.text()
    assert result.operations > 50, result.text()
    assert result.transactions > 20, result.text()
    assert result.faults, result.text()
