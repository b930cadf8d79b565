"""The page of benchmarks: made from the files of runs alone, in three colours, with every run listed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from bench.report import page
from bench.runs.journal import Journal, JournalError

DOCS = Path(__file__).parents[3] / "docs" / "benchmarks"
PRODUCE = {
    "name": "produce",
    "unit": "MB/s",
    "more_is_better": True,
    "aim": 1.3,
    "absolute": False,
    "differs": "ours reads less",
}
MEMORY = {
    **PRODUCE,
    "name": "memory",
    "unit": "KiB",
    "more_is_better": False,
    "aim": 20.0,
    "absolute": True,
    "differs": "",
}
FIGURES = {"ours": (200.0, 210.0, 220.0, 230.0, 240.0), "kafka": (100.0, 100.0, 100.0, 100.0, 100.0)}


def run(folder: Path, name: str, figures: dict[str, tuple[float, ...]] = FIGURES, **changes: Any) -> Journal:
    """A file of a run of two rows; our memory row has a twentieth of the other server's figure."""
    rounds = len(figures["ours"])
    head: dict[str, Any] = {
        "begun_at": "2026-01-01T00:00:00Z",
        "quick": False,
        "whole": True,
        "rounds": rounds,
        "seed": 7,
        "plan": [[at, "bulk", server] for at in range(1, rounds + 1) for server in figures],
        "sections": ["One node"],
        "scenarios": {"bulk": {"section": "One node", "pairs": [["ours", "kafka"]], "rows": [PRODUCE, MEMORY]}},
        "slots": {"compaction MB/s": ""},
        "servers": {
            "ours": {"label": "ours", "settings": {}, "options": []},
            "kafka": {"label": "Kafka", "settings": {}, "options": ["-Xmx1024M"]},
            "kafka-linger0": {"label": "Kafka with `linger=0`", "settings": {"linger": "0"}, "options": []},
        },
        "environment": {"commit": "abcdef0123456789", "was_quiet": True},
    }
    journal = Journal.create(folder / "data" / f"{name}.jsonl", {**head, **changes})
    for server, values in figures.items():
        for at, value in enumerate(values, 1):
            place = {"round": at, "scenario": "bulk", "server": server}
            journal.add(
                "sample", **place, seconds=10.0, others_cpu_s=1.0, figures={"produce": value, "memory": value / 20}
            )
    return journal


def text_of(folder: Path) -> str:
    return page.files(folder)["README.md"]


def test_a_row_has_colour_interval_and_aim(tmp_path: Path) -> None:
    run(tmp_path, "one").add("finished")
    text = text_of(tmp_path)
    assert "| produce | 220 MB/s | 100 MB/s | 2.20 (2.00 to 2.40) | 🟢 better | ≥ 1.3 | yes | (1) | 5 |" in text
    assert "| memory | 11 KiB | 5 KiB | 2.20 (2.00 to 2.40) | 🔴 worse | ≤ 20 KiB | yes |  | 5 |" in text
    assert "1 are better, 0 within noise, 1 worse.\n- 2 of 2 aims" in text
    assert "\n(1) ours reads less.\n" in text
    assert "| compaction MB/s |" in text
    assert "-Xmx1024M" in text


def test_a_difference_within_noise_gets_no_verdict(tmp_path: Path) -> None:
    run(tmp_path, "one", {"ours": (90.0, 110.0, 110.0, 110.0, 110.0), "kafka": (100.0,) * 5}).add("finished")
    assert "⚪ within noise | ≥ 1.3 | no |" in text_of(tmp_path)


def test_fewer_rounds_than_five_get_no_verdict(tmp_path: Path) -> None:
    run(tmp_path, "one", {"ours": (900.0,) * 4, "kafka": (100.0,) * 4}).add("finished")
    assert "too few samples" in text_of(tmp_path)


def test_a_variant_has_a_line_below_its_row(tmp_path: Path) -> None:
    pairs = [["ours", "kafka"], ["ours", "kafka-linger0"]]
    scenarios = {"bulk": {"section": "One node", "pairs": pairs, "rows": [PRODUCE]}}
    run(tmp_path, "one", {**FIGURES, "kafka-linger0": (110.0,) * 5}, scenarios=scenarios).add("finished")
    line = (
        "| ↳ ours beside Kafka with `linger=0` | 220 MB/s | 110 MB/s | 2.00 (1.82 to 2.18) | 🟢 better |  |  |  | 5 |"
    )
    assert line in text_of(tmp_path)


def test_a_variant_without_figures_has_no_line(tmp_path: Path) -> None:
    pairs = [["ours", "kafka"], ["ours", "kafka-linger0"]]
    scenarios = {"bulk": {"section": "One node", "pairs": pairs, "rows": [PRODUCE]}}
    run(tmp_path, "one", scenarios=scenarios).add("finished")
    assert "↳" not in text_of(tmp_path)


def test_the_page_names_rounds_of_the_same_process(tmp_path: Path) -> None:
    scenarios = {"bulk": {"section": "One node", "pairs": [["ours", "kafka"]], "rows": [PRODUCE], "one_life": True}}
    run(tmp_path, "one", scenarios=scenarios).add("finished")
    assert "| (1) | 5, one life |" in text_of(tmp_path)


def test_the_page_reports_failures_of_a_run(tmp_path: Path) -> None:
    plan = [[1, "bulk", "ours"], [1, "bulk", "kafka"], [2, "bulk", "ours"], [2, "bulk", "kafka"], [3, "bulk", "ours"]]
    journal = run(
        tmp_path,
        "one",
        {"ours": (), "kafka": ()},
        plan=plan,
        rounds=3,
        environment={"commit": "abc", "was_quiet": False},
    )
    place: dict[str, Any] = {"scenario": "bulk", "server": "ours"}
    journal.add("begun", **place, round=1)
    journal.add("begun", **place, round=1)
    detail = {"one": {"steady": False}}
    journal.add("sample", **place, round=1, seconds=10, others_cpu_s=5.0, figures={"produce": 1.0}, detail=detail)
    journal.add("failed", **place, round=2, error="AssertionError: no")
    journal.add("skipped", scenario="bulk", server="kafka", round=2, why="Kafka is not in PATH")
    text = text_of(tmp_path)
    assert "Failed: round 2 bulk ours." in text
    assert "Skipped: kafka (Kafka is not in PATH)." in text
    assert "Interrupted and begun again: round 1 bulk ours." in text
    assert "Not steady when measured: round 1 bulk ours." in text
    assert "2 of 5 steps were not measured" in text
    assert "The machine was busy" in text
    assert "used 50% of one core" in text


def test_all_runs_are_listed_and_the_newest_whole_one_is_shown(tmp_path: Path) -> None:
    run(tmp_path, "first").add("finished")
    run(tmp_path, "second", begun_at="2026-01-02T00:00:00Z").add("finished")
    run(tmp_path, "part", begun_at="2026-01-03T00:00:00Z", whole=False)
    text = text_of(tmp_path)
    assert "Run `second`" in text
    assert "[first](data/first.jsonl) |" in text
    assert "[second](data/second.jsonl) (shown) |" in text
    assert "[part](data/part.jsonl) | 2026-01-03T00:00:00Z | abcdef0123 | a part |" in text


def test_the_page_of_a_quick_run_is_refused(tmp_path: Path) -> None:
    run(tmp_path, "one", quick=True)
    with pytest.raises(JournalError, match="quick run"):
        page.files(tmp_path)


def test_the_same_samples_give_the_same_page(tmp_path: Path) -> None:
    run(tmp_path, "one").add("finished")
    assert page.write(tmp_path) == ["one-node.svg", "README.md"]
    assert page.write(tmp_path, only_check=True) == []
    (tmp_path / "README.md").write_text((tmp_path / "README.md").read_text().replace("220", "230"))
    assert page.write(tmp_path, only_check=True) == ["README.md"]


def test_a_picture_shows_better_to_the_right(tmp_path: Path) -> None:
    run(tmp_path, "one").add("finished")
    svg = page.files(tmp_path)["one-node.svg"]
    assert ElementTree.fromstring(svg).tag.endswith("svg")
    assert svg.index(">2.2x<") < svg.index(">0.455x<")


def test_the_committed_page_follows_from_the_committed_samples() -> None:
    assert page.write(DOCS, only_check=True) == [], "run `python -m bench page`"


def test_the_committed_samples_hold_no_path_and_no_quick_run() -> None:
    for path in (DOCS / "data").glob("*.jsonl"):
        assert not json.loads(path.read_text().split("\n")[0])["quick"], path.name
        assert "/tmp/" not in path.read_text(), path.name
