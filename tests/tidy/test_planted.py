"""Each planted bug fits the present source. A bug whose text was reworded would prove nothing until a run fails."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.sim import planted_bugs
from tools import planted

BUGS = sorted((planted.ROOT / "tests" / "sim").glob("*/planted/*.bug"))


@pytest.mark.parametrize("path", BUGS, ids=lambda path: path.stem)
def test_a_planted_bug_fits_its_source(path: Path) -> None:
    bug = planted.read_bug(path)
    assert planted.plant(bug, (planted.ROOT / bug.package / bug.file).read_text())
    for place in bug.catch:
        if place.startswith("tests/"):
            assert (planted.ROOT / place.partition("::")[0]).exists(), f"{bug.name} is caught by no existing test"


@pytest.mark.parametrize("bug", planted_bugs.all_bugs(), ids=lambda bug: bug.name)
def test_a_bug_of_the_simulated_node_fits_its_source(bug: planted_bugs.Bug) -> None:
    assert bug.plant((planted_bugs.NODE / bug.file).read_text())
