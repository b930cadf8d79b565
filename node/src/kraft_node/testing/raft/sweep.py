"""Many seeds: progress, figures, and for each failure the end of its story and the command that replays it."""

from __future__ import annotations

import contextlib
import time
import traceback
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from kraft_node.testing.raft.simulation import Simulation
from kraft_node.testing.raft.story import Story

STORY_TAIL: Final = 60
"""Lines of the story shown with a failure; the replay shows all."""


class Failure(NamedTuple):
    """A seed under which a law was broken."""

    seed: int
    events: int
    error: str

    @property
    def command(self) -> str:
        """The command that replays it, with the whole story."""
        return f"python -m kraft_node.testing.raft --seeds 1 --seed-from {self.seed} --events {self.events} --story"


def run_seed(seed: int, events: int, story: Story | None = None) -> Simulation:
    """One simulation. Raises AssertionError that names the broken law."""
    sim = Simulation(seed, story)
    sim.run(events)
    return sim


def try_seed(seed: int, events: int) -> tuple[Simulation | None, Failure | None]:
    """Run a seed. Returns a Failure instead of raising."""
    sim = Simulation(seed)
    try:
        sim.run(events)
    except Exception as e:
        where = traceback.extract_tb(e.__traceback__)[-1]
        return None, Failure(seed, events, f"{type(e).__name__}: {e} [{where.name}, after {sim.events} events]")
    return sim, None


def sweep(
    seeds: Iterable[int],
    events: int,
    say: Callable[[str], None] = print,
    *,
    stop_after: int = 1,
    every_s: float = 5.0,
) -> list[Failure]:
    """Run seeds until `stop_after` have failed; report progress."""
    failures: list[Failure] = []
    begun, cpu = time.monotonic(), time.process_time()
    reported_s = begun
    total = count = elections = 0
    for seed in seeds:
        sim, failure = try_seed(seed, events)
        count += 1
        if sim is not None:
            total += sim.events
            elections += sim.laws.elections
        if failure is not None:
            failures.append(failure)
            say(f"seed {seed}: {failure.error}\n  replay: {failure.command}")
            if len(failures) >= stop_after:
                break
        if time.monotonic() >= reported_s + every_s:
            reported_s = time.monotonic()
            say(_progress(count, total, elections, reported_s - begun, time.process_time() - cpu))
    say(_progress(count, total, elections, time.monotonic() - begun, time.process_time() - cpu))
    return failures


def tail_of_story(failure: Failure) -> list[str]:
    """The last lines before the law was broken."""
    story = Story()
    with contextlib.suppress(Exception):
        run_seed(failure.seed, failure.events, story)
    return list(story.lines)[-STORY_TAIL:]


def _progress(seeds: int, events: int, elections: int, wall_s: float, cpu_s: float) -> str:
    rate = events / cpu_s if cpu_s else 0.0
    return f"{seeds} seeds, {events} events, {elections} elections, {wall_s:.1f} s, {rate:,.0f} events/s of CPU time"
