"""Planted bugs of the migration: each fits its line, and some run every day; `make planted-migration` runs all."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools.planted import ROOT, plant, read_bug, try_bug

BUGS = sorted(Path(__file__).parent.glob("planted/*.bug"))
QUICK = ("writes_unchecked", "offset_of_the_end")


def test_there_are_enough_planted_bugs() -> None:
    assert len(BUGS) >= 10


@pytest.mark.parametrize("path", BUGS, ids=lambda path: path.stem)
def test_a_planted_bug_applies_to_its_source(path: Path) -> None:
    bug = read_bug(path)
    source = (ROOT / bug.package / bug.file).read_text()
    compile(plant(bug, source), bug.file, "exec")


@pytest.mark.parametrize("name", QUICK)
def test_a_planted_bug_is_noticed(name: str) -> None:
    outcome = try_bug(read_bug(Path(__file__).parent / "planted" / f"{name}.bug"))
    assert outcome.caught, outcome.by
