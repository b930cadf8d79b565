"""The command line of the simulator."""

from __future__ import annotations

import pytest

from kraft_node.testing import sim


def test_zero_seeds_run_without_end(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    counts = []

    def sweep(_first: int, count: int, **_: object) -> list[sim.SeedResult]:
        counts.append(count)
        finding = sim.Violation("law", "topic t, partition 0", "words")
        return [sim.SeedResult(7, 1, "node", [finding], 10, 5.0, "hash", 0, 0, [], ["end"])]

    monkeypatch.setattr(sim, "sweep", sweep)
    assert sim.main(["--seeds", "0", "--jobs", "1"]) == 1
    assert counts == [0]
    assert "1 seeds broke a law" in capsys.readouterr().out


def test_less_than_no_seeds_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim.main(["--seeds", "-1"])
    assert "--seeds: at least 0" in capsys.readouterr().err


def test_one_seed_of_both_scenarios_is_refused(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        sim.main(["--seed", "3", "--scenario", "both"])
    assert "--seed: one seed needs one scenario" in capsys.readouterr().err
