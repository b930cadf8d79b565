"""Rare paths of the product, favoured under a seed (`base.rare`)."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from kraft_node.base import rare
from kraft_node.testing import sim
from kraft_node.testing.rare_paths import RarePaths
from kraft_node.testing.scenario import SeedResult, run

PRODUCT = Path(rare.__file__).parents[1]


def _marks() -> Iterator[str]:
    for path in PRODUCT.rglob("*.py"):
        if "testing" in path.parts:
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) == "rare.takes":
                yield ast.literal_eval(node.args[0])


def test_every_mark_is_listed_and_every_listed_place_is_marked() -> None:
    assert set(_marks()) == set(rare.PLACES)


def test_production_takes_no_rare_path() -> None:
    assert rare.takes is rare.never
    assert not any(map(rare.takes, rare.PLACES))


def test_two_seeds_come_to_every_place_and_break_no_law() -> None:
    results = [run(303, kind="transactions", rare=True), run(311, kind="groups", rare=True)]
    assert [result.findings for result in results] == [[], []]
    assert {place for result in results for place in result.places} == set(rare.PLACES)
    assert rare.takes is rare.never


def test_a_seed_gives_the_same_run_again_and_another_one_without_rare_paths() -> None:
    first, again, usual = (run(303, kind="transactions", rare=which).hash for which in (True, True, False))
    assert first == again != usual


@pytest.mark.slow  # both faults have unit tests: test_eligible_leaders, test_log_dir_moves
def test_a_change_of_the_minimum_isr_and_copies_after_a_kill() -> None:
    """A partition was left without a candidate; the same kill had all copies recovered in one event."""
    assert run(60004, kind="whole", rare=True).findings == []


def test_an_end_leaves_only_usual_paths() -> None:
    paths = RarePaths(5)
    with paths.in_force():
        taken = [place for place in rare.PLACES for _ in range(200) if rare.takes(place)]
        paths.end()
        assert not any(rare.takes(place) for place in rare.PLACES for _ in range(200))
    assert Counter(taken) == paths.taken
    assert 3 <= len(paths.taken) < len(rare.PLACES)


def test_the_report_names_places_that_no_seed_came_to(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    places = dict.fromkeys(rare.PLACES, 3)
    del places["turn short"]
    result = SeedResult(7, 1, "node", [], 10, 5.0, "hash", 0, 0, [], ["end"], places)
    monkeypatch.setattr(sim, "sweep", lambda *_, **__: [result])
    assert sim.main(["--rare", "--seeds", "1", "--jobs", "1"]) == 0
    out = capsys.readouterr().out
    assert f"{len(rare.PLACES) - 1} of {len(rare.PLACES)} places reached" in out
    assert f"never reached: turn short ({rare.PLACES['turn short']})" in out
