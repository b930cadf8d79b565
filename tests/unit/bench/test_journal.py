"""Files of runs: samples are only added, never replaced; a run that ended early continues."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bench.runs.journal import Journal, JournalError, read

STEP = {"round": 1, "scenario": "starts", "server": "ours"}


def head() -> dict[str, Any]:
    return {"begun_at": "2026-01-01T00:00:00Z", "plan": [[1, "starts", "ours"], [1, "starts", "kafka"]]}


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal.create(path, head()).add("sample", **STEP, figures={"a": 1.0})
    before = path.read_bytes()
    with pytest.raises(JournalError, match="samples are never replaced"):
        Journal.create(path, head())
    assert path.read_bytes() == before


@pytest.mark.parametrize("first", ["sample", "failed", "skipped"])
@pytest.mark.parametrize("second", ["sample", "failed", "skipped"])
def test_a_finished_step_cannot_end_again(tmp_path: Path, first: str, second: str) -> None:
    path = tmp_path / "run.jsonl"
    Journal.create(path, head()).add(first, **STEP, figures={})
    before = path.read_bytes()
    with pytest.raises(JournalError, match="has an end"):
        Journal.resume(path).add(second, **STEP, figures={})
    assert path.read_bytes() == before


def test_a_finished_run_cannot_be_resumed(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal.create(path, head()).add("finished")
    with pytest.raises(JournalError, match="finished"):
        Journal.resume(path)


def test_an_interrupted_run_lists_its_remaining_steps(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    journal = Journal.create(path, head())
    journal.add("begun", **STEP)
    journal.add("sample", **STEP, figures={"a": 1.0})
    again = Journal.resume(path)
    assert again.run.left() == [(1, "starts", "kafka")]
    assert again.run.values("a", "ours") == {1: 1.0}
    assert again.run.values("a", "kafka") == {}


def test_a_torn_line_is_skipped_and_later_lines_are_read(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal.create(path, head()).add("begun", **STEP)
    with path.open("a") as out:
        out.write('{"kind": "sample", "round": 1, "scen')
    journal = Journal.resume(path)
    journal.add("begun", **STEP)
    journal.add("sample", **STEP, figures={"a": 2.0})
    run = read(path)
    assert run.torn == 1
    assert run.begun == {(1, "starts", "ours"): 2}
    assert run.values("a", "ours") == {1: 2.0}


def test_a_file_with_two_ends_of_a_step_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "run.jsonl"
    Journal.create(path, head()).add("sample", **STEP, figures={"a": 1.0})
    lines = path.read_text().split("\n")
    path.write_text("\n".join([*lines[:2], lines[1], ""]))
    with pytest.raises(JournalError, match="two ends"):
        read(path)


@pytest.mark.parametrize("text", ["", "not JSON\n", '{"kind": "header", "format": 99}\n'])
def test_a_file_without_a_run_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "run.jsonl"
    path.write_text(text)
    with pytest.raises(JournalError, match=r"run\.jsonl"):
        read(path)
