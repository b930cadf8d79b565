"""The protocol: scenarios and rows are sound, the order follows from the seed, every step ends in the journal."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from bench import environment, runner, steady
from bench.journal import Journal
from bench.registry import SECTIONS, SLOTS, rows, scenarios_by_name
from bench.row import Measured, Row, Scenario, Step
from bench.server import SERVERS

ROW = Row("row", "s", False, 1.0)


def scenario(measure: Any, name: str = "one", pairs: tuple[tuple[str, str], ...] = (("ours", ""),)) -> Scenario:
    return Scenario(name, SECTIONS[0], (ROW,), measure, 1, pairs)


def measured(tmp_path: Path, one: Scenario, rounds: int = 1, budget_s: float = 1e9) -> Journal:
    head = runner.header([one], rounds, 1, quick=True, whole=False, folder=tmp_path)
    journal = Journal.create(tmp_path / "run.jsonl", head)
    runner.go_on(journal, {one.name: one}, tmp_path, budget_s, lambda _text: None)
    return journal


def test_every_row_has_a_unit_and_no_slot_has_a_scenario() -> None:
    assert all(row.unit for row in rows().values())
    assert not set(SLOTS) & set(rows())
    assert {scenario.section for scenario in scenarios_by_name().values()} <= set(SECTIONS)


def test_every_row_where_records_are_looked_into_less_has_one_where_they_are_not() -> None:
    names = rows()
    for name, row in names.items():
        if "log.validate" in row.differs and "replication" not in name:
            twin = (
                name.replace(":", ", every record read:")
                if name.startswith("produce")
                else f"{name}, every record read"
            )
            assert twin in names or "idempotent" in name, name


def test_the_order_follows_from_the_seed_and_interleaves_servers() -> None:
    chosen = list(scenarios_by_name().values())
    order = runner.plan(chosen, 5, 1)
    assert order == runner.plan(list(reversed(chosen)), 5, 1)
    assert order != runner.plan(chosen, 5, 2)
    assert [key[0] for key in order] == sorted(key[0] for key in order)
    assert len(set(order)) == len(order) == 5 * sum(len(s.servers) for s in chosen)
    firsts = {
        [key[2] for key in order if key[:2] == (at, "starts")][0]  # noqa: RUF015
        for at in range(1, 6)
    }
    assert firsts == {"ours", "kafka"}


def test_a_sample_and_its_detail_end_in_the_journal(tmp_path: Path) -> None:
    journal = measured(tmp_path, scenario(lambda _step: Measured({"row": 2.0}, {"series": [1, 2]})))
    (end,) = journal.run.ends.values()
    assert (end["kind"], end["figures"], end["detail"]) == ("sample", {"row": 2.0}, {"series": [1, 2]})
    assert journal.run.finished


@pytest.mark.parametrize("kind", [AssertionError, ConnectionError, AttributeError])
def test_a_step_that_fails_is_kept_without_paths_and_the_run_goes_on(tmp_path: Path, kind: type[Exception]) -> None:
    def fail(step: Step) -> Measured:
        raise kind(f"no answer, see {step.folder}/server.log")

    journal = measured(tmp_path, scenario(fail), rounds=2)
    assert [end["kind"] for end in journal.run.ends.values()] == ["failed", "failed"]
    assert str(tmp_path) not in journal.path.read_text()
    assert journal.run.finished


def test_figures_of_unknown_rows_fail_the_step(tmp_path: Path) -> None:
    journal = measured(tmp_path, scenario(lambda _step: Measured({"other": 2.0})))
    (end,) = journal.run.ends.values()
    assert end["kind"] == "failed"
    assert "unknown rows: other" in end["error"]


def test_a_step_that_hangs_ends(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STEP_LIMIT_S", 1)

    def hang(_step: Step) -> Measured:
        time.sleep(60)
        return Measured({"row": 1.0})

    journal = measured(tmp_path, scenario(hang))
    (end,) = journal.run.ends.values()
    assert "took longer than 1 s" in end["error"]


def test_a_server_that_is_missing_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    one = scenario(lambda _step: Measured({"row": 1.0}), pairs=(("etcd", ""),))
    head = {"plan": runner.plan([one], 1, 1), "quick": True, "begun_at": ""}
    journal = Journal.create(tmp_path / "run.jsonl", head)
    runner.go_on(journal, {one.name: one}, tmp_path, 1e9, lambda _text: None)
    (end,) = journal.run.ends.values()
    assert (end["kind"], end["why"]) == ("skipped", "etcd is not in PATH")


def test_a_budget_ends_the_run_between_steps_and_the_rest_goes_on_later(tmp_path: Path) -> None:
    one = scenario(lambda _step: Measured({"row": time.monotonic()}))
    journal = measured(tmp_path, one, rounds=3, budget_s=-1)
    assert len(journal.run.left()) == 3
    assert not journal.run.finished
    again = Journal.resume(journal.path)
    assert runner.go_on(again, {one.name: one}, tmp_path, 1e9, lambda _text: None)
    assert again.run.left() == []


def test_later_steps_get_what_the_first_found_out(tmp_path: Path) -> None:
    seen = []

    def prepare(step: Step) -> Measured:
        seen.append(dict(step.prepared))
        return Measured({"row": 1.0}, {"prepared": {"heap": 100 + len(seen)}})

    measured(tmp_path, scenario(prepare), rounds=3)
    assert seen == [{}, {"heap": 101}, {"heap": 101}]


def test_steady_needs_two_blocks_with_the_same_median() -> None:
    assert not steady.is_steady([100.0] * 29)
    assert steady.is_steady([50.0] * 30 + [100.0] * 15 + [104.0] * 15)
    assert not steady.is_steady([100.0] * 15 + [106.0] * 15)
    assert not steady.is_steady([0.0] * 30)


@pytest.mark.parametrize(("rising_s", "expected"), [(0, (60, True)), (60, (90, True)), (10_000, (180, False))])
def test_warming_takes_a_minute_at_least_and_ends_when_figures_stand_still(
    tmp_path: Path, rising_s: int, expected: tuple[int, bool]
) -> None:
    now = 0

    def load(seconds: float) -> list[float]:
        nonlocal now
        values = [min(now + at, rising_s) + 10.0 for at in range(int(seconds))]
        now += int(seconds)
        return values

    found = steady.warmed(Step(SERVERS["ours"], tmp_path, quick=False), load)
    assert (found["warm_s"], found["steady"]) == expected


def test_the_environment_names_no_host_and_no_path(tmp_path: Path) -> None:
    found = environment.described(tmp_path)
    assert found["cpu"] and found["memory_gib"] > 0 and found["trees"].keys() == {"node/src", "bench"}
    assert str(tmp_path) not in str(found)
