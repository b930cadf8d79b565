"""The page of benchmarks: what is written by hand stays, and a row says truly whether it reached its aim."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench import report
from bench.cluster import COMMIT, COMMITS_OF_MANY
from bench.scenarios import GROUPS, ROWS

PRODUCE = "produce 1 KB records, default batching"
START = "start: formatted disk to first acknowledged produce"
CONNECTION = "memory of an idle connection"


def samples(row: str, ours: float, kafka: float) -> report.Samples:
    return {row: {"ours": [ours], "kafka": [kafka]}}


@pytest.mark.parametrize(
    ("row", "ours", "kafka", "verdict"),
    [
        (PRODUCE, 1300, 1000, "yes"),
        (PRODUCE, 1299, 1000, "**no**"),
        (START, 0.15, 1, "yes"),
        (START, 0.16, 1, "**no**"),
        # An aim that is a figure of ours: how Kafka does is shown, and does not decide.
        (CONNECTION, 20, 1, "yes"),
        (CONNECTION, 21, 1000, "**no**"),
    ],
)
def test_the_verdict_follows_the_aim(row: str, ours: float, kafka: float, verdict: str) -> None:
    (line,) = report.table(samples(row, ours, kafka))
    assert line[0] == row
    assert line[-1] == verdict


def test_an_absolute_aim_needs_no_figure_of_kafka() -> None:
    """A heap that had room shows no growth: there is no ratio to nothing."""
    (line,) = report.table(samples(CONNECTION, 1, 0))
    assert line[3] == "-"
    assert line[-1] == "yes"


def test_ratios_are_made_of_pairs_of_one_round() -> None:
    found = report.ratios({PRODUCE: {"ours": [10, 40, 90], "kafka": [10, 20, 30]}})
    assert found == {PRODUCE: {"median": 2, "min": 1, "max": 3}}


def test_every_row_has_a_unit_and_an_aim() -> None:
    assert all(row.unit and row.aim > 0 for row in ROWS.values())


def test_writing_keeps_what_stands_around_the_marks(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    report.write_page(page, "node", "first\n")
    text = page.read_text()
    page.write_text("before\n" + text + "by hand\n")
    report.write_page(page, "node", "second\n")
    assert page.read_text() == "before\n" + text.replace("first", "second") + "by hand\n"


def test_a_page_without_marks_is_not_overwritten(tmp_path: Path) -> None:
    page = tmp_path / "benchmarks.md"
    page.write_text("all by hand\n")
    with pytest.raises(ValueError, match="has not the marks"):
        report.write_page(page, "cluster", "body")
    assert page.read_text() == "all by hand\n"


def test_the_page_names_the_rows_that_fall_short_and_no_host() -> None:
    body = report.compared({**samples(PRODUCE, 1, 1), **samples(START, 0.01, 1)}, "benchmarks-node.svg")
    body += report.parts_of_a_node(
        {"Thing v1 decode": {"ours_us": 1.0, "theirs_us": 2.0, "ratio": 2.0, "least": 1.9, "aim": 3.0}},
        {"small_us": 70.0, "large_us": 77.0, "ratio": 1.1, "aim": 1.2},
    )
    assert f"1 of 2 rows reach their aim; short of it: {PRODUCE}." in body
    assert "| Thing v1 decode | 1 µs | 2 µs | 2.0 (1.9) | ≥ 3 | **no** |" in body
    assert "| 70 µs | 77 µs | 1.10 | ≤ 1.2 | yes |" in body
    assert "cores" in body


def test_the_page_has_a_place_for_every_group() -> None:
    page = (Path(__file__).parents[3] / "docs" / "benchmarks.md").read_text()
    for group in GROUPS:
        assert f"<!-- {group}: begin -->" in page
        assert f"<!-- {group}: end -->" in page


def test_what_a_million_partitions_cost_in_one_process_is_judged() -> None:
    many = {"load_s": 2.3, "kept": 31.2, "index": 2.2, "failover_ms": 0.14, "failover": 1.3}
    body = report.parts_of_many(many)
    assert "| 2.30 s | ≤ 5 s | yes |" in body
    assert "| 31 bytes | ≤ 64 bytes | yes |" in body
    assert "| 0.14 ms, ratio 1.30 | ≤ 1.2 | **no** |" in body
    assert "| 2.2 bytes | ≤ 33 bytes | yes |" in body


def test_etcd_is_printed_beside_where_there_was_one() -> None:
    figures = {**samples(COMMIT, 2, 3), **samples(COMMITS_OF_MANY, 4000, 5000)}
    assert report.parts_of_a_cluster(figures, {}) == ""
    body = report.parts_of_a_cluster(figures, {"p50_ms": 1.25, "per_s": 3000})
    assert "| metadata commit, one client, p50 | 2 ms | 3 ms | 1.25 ms |" in body
    assert "| 4,000 /s | 5,000 /s | 3,000 /s |" in body
