"""The protocol: scenarios and rows are valid, the seed decides the order, every step ends in the journal."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bench.runs import environment, runner, steady
from bench.runs.journal import Journal
from bench.runs.registry import SECTIONS, SLOTS, rows, scenarios_by_name
from bench.runs.row import ImpossibleError, Life, Measured, Row, Scenario, Step
from bench.servers.server import SERVERS

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


def test_every_row_without_full_validation_has_a_row_with_it() -> None:
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
    assert len(set(order)) == len(order) == sum(s.rounds_of(5) * len(s.servers) for s in chosen)
    fresh = [key for key in order if not scenarios_by_name()[key[1]].live]
    assert [key[0] for key in fresh] == sorted(key[0] for key in fresh)
    firsts = {
        [key[2] for key in order if key[:2] == (at, "starts")][0]  # noqa: RUF015
        for at in range(1, 6)
    }
    assert firsts == {"ours", "kafka"}


def test_rounds_of_the_same_process_are_consecutive_and_servers_alternate() -> None:
    order = runner.plan(list(scenarios_by_name().values()), 5, 1)
    at = order.index(next(key for key in order if key[1] == "produce"))
    block = order[at : at + 10]
    assert {key[1] for key in block} == {"produce"}
    assert [key[0] for key in block] == [1, 1, 2, 2, 3, 3, 4, 4, 5, 5]
    assert [{key[2] for key in block[two : two + 2]} for two in range(0, 10, 2)] == [{"ours", "kafka"}] * 5


def test_servers_that_run_apart_have_consecutive_rounds() -> None:
    order = [key for key in runner.plan(list(scenarios_by_name().values()), 5, 1) if key[1] == "cluster-faults"]
    assert [key[0] for key in order] == [1, 2, 3, 4, 5] * 3
    assert all(len({key[2] for key in order[at : at + 5]}) == 1 for at in (0, 5, 10))


def test_compared_rows_have_five_rounds_unless_the_protocol_names_them() -> None:
    fewer = {name for name, s in scenarios_by_name().items() if s.rounds_of(5) < 5}
    text = (environment.ROOT / "docs" / "benchmarks" / "protocol.md").read_text()
    assert all(f"`{name}`" in text for name in fewer), fewer


def test_a_sample_and_its_detail_end_in_the_journal(tmp_path: Path) -> None:
    journal = measured(tmp_path, scenario(lambda _step: Measured({"row": 2.0}, {"series": [1, 2]})))
    (end,) = journal.run.ends.values()
    assert (end["kind"], end["figures"], end["detail"]) == ("sample", {"row": 2.0}, {"series": [1, 2]})
    assert journal.run.finished


@pytest.mark.parametrize("kind", [AssertionError, ConnectionError, AttributeError])
def test_a_failed_step_is_recorded_without_paths_and_the_run_continues(tmp_path: Path, kind: type[Exception]) -> None:
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


def test_a_hanging_step_is_ended(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "STEP_LIMIT_S", 1)

    def hang(_step: Step) -> Measured:
        time.sleep(60)
        return Measured({"row": 1.0})

    journal = measured(tmp_path, scenario(hang))
    (end,) = journal.run.ends.values()
    assert "took longer than 1 s" in end["error"]


def living(live: Any, rounds: int = 0, *, apart: bool = False) -> Scenario:
    pairs = (("ours", "kafka"),)
    return Scenario("one", SECTIONS[0], (ROW,), None, 1, pairs, live=live, rounds=rounds, apart=apart)


@pytest.mark.parametrize("apart", [False, True])
def test_a_server_that_outlives_rounds_is_started_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, apart: bool
) -> None:
    monkeypatch.setattr(runner, "_check_server", lambda _server: None)
    reported: list[str] = []

    @contextmanager
    def live(step: Step) -> Iterator[Life]:
        reported.append(f"begin {step.server.name}")
        yield Life(lambda: Measured({"row": float(len(reported))}, {"raw": 1}), {"series": [1]})
        reported.append(f"end {step.server.name}")

    journal = measured(tmp_path, living(live, apart=apart), rounds=3)
    assert sorted(reported) == ["begin kafka", "begin ours", "end kafka", "end ours"]
    assert [text.split()[0] for text in reported] == (["begin", "end"] * 2 if apart else ["begin"] * 2 + ["end"] * 2)
    ends = journal.run.ends
    assert len(ends) == 6 and all(end["detail"]["raw"] == 1 for end in ends.values())
    warm = [key for key, end in ends.items() if end["detail"].get("warm", {}).get("series") == [1]]
    assert sorted(warm) == [(1, "one", "kafka"), (1, "one", "ours")]


def test_a_server_that_cannot_start_fails_only_its_own_rounds(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(runner, "_check_server", lambda _server: None)

    @contextmanager
    def live(step: Step) -> Iterator[Life]:
        assert step.server.name == "ours", "it does not start"
        yield Life(lambda: Measured({"row": 1.0}))

    journal = measured(tmp_path, living(live), rounds=2)
    kinds = {key: end["kind"] for key, end in journal.run.ends.items()}
    assert [kinds[at, "one", "ours"] for at in (1, 2)] == ["sample"] * 2
    assert [kinds[at, "one", "kafka"] for at in (1, 2)] == ["failed"] * 2
    assert journal.run.finished


def test_a_scenario_may_have_fewer_rounds_than_the_run(tmp_path: Path) -> None:
    one = Scenario("one", SECTIONS[0], (ROW,), lambda _step: Measured({"row": 1.0}), 1, (("ours", ""),), rounds=2)
    assert len(measured(tmp_path, one, rounds=5).run.ends) == 2


def test_a_step_that_the_machine_cannot_run_is_skipped_by_name(tmp_path: Path) -> None:
    def refuse(_step: Step) -> Measured:
        raise ImpossibleError("the hard limit of open files is 20000")

    (end,) = measured(tmp_path, scenario(refuse)).run.ends.values()
    assert (end["kind"], end["why"]) == ("skipped", "the hard limit of open files is 20000")


def test_the_time_of_a_running_child_is_counted() -> None:
    before = environment._own_s()
    child = subprocess.Popen([sys.executable, "-c", "while True: pass"])
    try:
        deadline = time.monotonic() + 60
        while environment._own_s() <= before + 0.1:
            assert time.monotonic() < deadline, "the child's processor time is not seen"
            time.sleep(0.05)
    finally:
        child.kill()
        child.wait()


def test_a_server_that_is_missing_is_skipped(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    one = scenario(lambda _step: Measured({"row": 1.0}), pairs=(("etcd", ""),))
    head = {"plan": runner.plan([one], 1, 1), "quick": True, "begun_at": ""}
    journal = Journal.create(tmp_path / "run.jsonl", head)
    runner.go_on(journal, {one.name: one}, tmp_path, 1e9, lambda _text: None)
    (end,) = journal.run.ends.values()
    assert (end["kind"], end["why"]) == ("skipped", "etcd is not in PATH")


def test_a_run_over_budget_stops_between_steps_and_can_resume(tmp_path: Path) -> None:
    one = scenario(lambda _step: Measured({"row": time.monotonic()}))
    journal = measured(tmp_path, one, rounds=3, budget_s=-1)
    assert len(journal.run.left()) == 3
    assert not journal.run.finished
    again = Journal.resume(journal.path)
    assert runner.go_on(again, {one.name: one}, tmp_path, 1e9, lambda _text: None)
    assert again.run.left() == []


def test_later_steps_receive_the_prepared_values_of_the_first(tmp_path: Path) -> None:
    seen = []

    def prepare(step: Step) -> Measured:
        seen.append(dict(step.prepared))
        return Measured({"row": 1.0}, {"prepared": {"heap": 100 + len(seen)}})

    measured(tmp_path, scenario(prepare), rounds=3)
    assert seen == [{}, {"heap": 101}, {"heap": 101}]


def test_steady_needs_two_blocks_with_the_same_median() -> None:
    assert not steady.is_steady([100.0] * 9)
    assert steady.is_steady([50.0] * 30 + [100.0] * 5 + [104.0] * 5)
    assert not steady.is_steady([100.0] * 5 + [106.0] * 5)
    assert not steady.is_steady([0.0] * 30)


@pytest.mark.parametrize(("rising_s", "expected"), [(0, (0, True)), (62, (10, True)), (1000, (20, False))])
def test_kafka_is_warmed_for_at_least_a_minute_until_figures_are_steady(
    tmp_path: Path, rising_s: int, expected: tuple[int, bool]
) -> None:
    now = 0

    def load(seconds: float) -> list[float]:
        nonlocal now
        values = [100 * 1.02 ** min(now + at, rising_s) for at in range(int(seconds))]
        now += int(seconds)
        return values

    found = steady.warmed(Step(SERVERS["kafka"], tmp_path, quick=False), {"load": load})
    assert found["together_s"] == steady.WARM_S
    assert (found["load"]["alone_s"], found["load"]["steady"]) == expected


def test_each_load_must_be_steady(tmp_path: Path) -> None:
    taken: dict[str, list[float]] = {"a": [], "b": []}

    def load(name: str, seconds: float) -> list[float]:
        taken[name].append(seconds)
        return [10.0] * int(seconds)

    found = steady.warmed(
        Step(SERVERS["kafka"], tmp_path, quick=False),
        {name: lambda seconds, name=name: load(name, seconds) for name in taken},  # type: ignore[misc]
    )
    assert taken == {"a": [60, 5, 5], "b": [60, 5, 5]}
    assert found["a"]["steady"] and found["b"]["steady"]


def test_a_server_without_a_compiler_gets_ten_seconds(tmp_path: Path) -> None:
    found = steady.warmed(Step(SERVERS["ours"], tmp_path, quick=False), {"load": lambda seconds: [1.0] * int(seconds)})
    assert found["together_s"] == steady.READY_S == 10


def test_the_environment_names_no_host_and_no_path(tmp_path: Path) -> None:
    found = environment.described(tmp_path)
    assert found["cpu"] and found["memory_gib"] > 0 and found["trees"].keys() == {"protocol/src", "node/src", "bench"}
    assert str(tmp_path) not in str(found)
