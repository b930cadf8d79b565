"""One seed of a simulation, as a test."""

from __future__ import annotations

from kraft_node.testing import sim
from kraft_node.testing.scenario import SeedResult, run


def checked(seed: int, kind: str = sim.NODE) -> SeedResult:
    """Run a seed. Raises AssertionError, with the end of the story and the command that replays it, if it broke a
    law."""
    result = run(seed, kind=kind)
    story = "\n".join(result.story[-sim.STORY_TAIL :])
    findings = "\n".join(map(str, result.findings))
    assert result.good, f"{story}\n{findings}\n{sim.replay_line(seed, kind=kind)}"
    return result
