"""Whole nodes under many seeds.

    python -m kraft_node.testing.sim [--scenario KIND] [--rare] [--seeds N] [--first S] [--jobs J] [--until-broken]
    python -m kraft_node.testing.sim [--scenario KIND] [--rare] --seed S [--nodes N] [--story]


`--seeds 0` runs without end; `--json` prints the result as JSON. KIND is `node`, `cluster`, `groups`,
`secured`, `transactions`, `whole`, or `both`: node and cluster alternating. The same seed gives the same run on every
machine. With `--rare` it gives another: nodes often take paths that are rare in production (`base.rare`), and the
report names the paths that no seed came to. A failure ends with the command that replays it. Exit code 1 if a law was
broken.
"""

from __future__ import annotations

import argparse
import contextlib
import itertools
import json
import multiprocessing
import os
import sys
import time
from collections import Counter, deque
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from multiprocessing.pool import AsyncResult
from typing import Any, Final

from kraft_node.base.rare import PLACES
from kraft_node.testing.checker import Violation
from kraft_node.testing.scenario import KINDS, SeedResult, run

DEFAULT_SEEDS: Final = 200
NODE, CLUSTER, BOTH = "node", "cluster", "both"
FAILURES_SHOWN: Final = 5
WAITING_PER_JOB: Final = 4
"""Seeds queued per process."""
REPORT_S: Final = 30.0
"""Time between progress reports without a terminal."""
STORY_TAIL: Final = 25
"""Lines of the story shown with a failure."""


@dataclass
class Score:
    """The outcome of many seeds."""

    seeds: int = 0
    events: int = 0
    simulated_ms: float = 0.0
    acknowledged: int = 0
    read: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    failures: list[SeedResult] = field(default_factory=list)
    traces: dict[int, str] = field(default_factory=dict)
    """Hashes by seed."""
    places: Counter[str] = field(default_factory=Counter)
    """Seeds that came to each place of `base.rare`."""

    def add(self, result: SeedResult) -> None:
        """Add a result."""
        self.seeds += 1
        self.events += result.events
        self.simulated_ms += result.simulated_ms
        self.acknowledged += result.acknowledged
        self.read += result.read
        self.faults.update(result.faults)
        self.traces[result.seed] = result.hash
        self.places.update(result.places.keys())
        if not result.good:
            self.failures.append(result)


def replay_line(seed: int, nodes: int = 1, kind: str = NODE, *, rare: bool = False) -> str:
    """The command that replays a seed."""
    of_many = f" --nodes {nodes}" if kind == NODE and nodes != 1 else ""
    if kind != NODE:
        of_many = f" --scenario {kind}"
    return f"replay: python -m kraft_node.testing.sim --seed {seed}{of_many}{' --rare' if rare else ''} --story"


def _replay(failure: SeedResult) -> str:
    return replay_line(failure.seed, failure.nodes, failure.kind, rare=bool(failure.places))


def sweep(
    first: int, count: int, *, nodes: int = 1, kind: str = NODE, jobs: int = 1, rare: bool = False
) -> Iterator[SeedResult]:
    """Run seeds and yield results as they finish; `count` 0: without end."""
    seeds = range(first, first + count) if count else itertools.count(first)
    kinds = (NODE, CLUSTER) if kind == BOTH else (kind,)
    runs = ((seed, kind) for seed in seeds for kind in kinds)
    if jobs == 1:
        yield from (_run(one, nodes, rare) for one in runs)
        return
    with multiprocessing.get_context("spawn").Pool(jobs) as pool:
        # One by one: a pool consumes an endless generator before it starts.
        waiting: deque[AsyncResult[SeedResult]] = deque()
        for one in runs:
            waiting.append(pool.apply_async(_run, (one, nodes, rare)))
            if len(waiting) >= jobs * WAITING_PER_JOB:
                yield waiting.popleft().get()
        while waiting:
            yield waiting.popleft().get()


def _run(one: tuple[int, str], nodes: int, rare: bool) -> SeedResult:
    seed, kind = one
    return run(seed, nodes, kind, rare=rare)


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the seeds that the arguments name (default: sys.argv) and print the result.

    Returns the exit code: 1 if a seed broke a law. Wrong arguments raise SystemExit.
    """
    parser = argparse.ArgumentParser(
        prog="python -m kraft_node.testing.sim", description="Run whole nodes under seeds."
    )
    parser.add_argument("--seeds", type=int, default=DEFAULT_SEEDS, metavar="N", help="how many; 0: until Ctrl-C")
    parser.add_argument("--first", type=int, default=0, metavar="S", help="the first of them")
    parser.add_argument("--seed", type=int, metavar="S", help="run this one only")
    parser.add_argument("--story", action="store_true", help="with --seed: print the events")
    parser.add_argument("--scenario", choices=(NODE, *KINDS, BOTH), default=NODE, help="what to run")
    parser.add_argument("--rare", action="store_true", help="favour paths that are rare in production")
    parser.add_argument("--nodes", type=int, default=1, metavar="N", help="machines, each controller and broker")
    parser.add_argument("--until-broken", action="store_true", help="stop at the first seed that breaks a law")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="processes")
    parser.add_argument("--json", action="store_true", help="print the result as JSON")
    options = parser.parse_args(arguments)
    for count, least in (("seeds", 0), ("nodes", 1), ("jobs", 1)):
        if getattr(options, count) < least:
            parser.error(f"--{count}: at least {least}")
    if options.seed is not None and options.scenario == BOTH:
        parser.error("--seed: one seed needs one scenario, not both")
    if options.seed is not None:
        return _one(options)
    begun = time.perf_counter()
    score = Score()
    with contextlib.suppress(KeyboardInterrupt), _progress(options.seeds, quiet=options.json) as advance:
        sweeping = {"nodes": options.nodes, "kind": options.scenario, "jobs": options.jobs, "rare": options.rare}
        for result in sweep(options.first, options.seeds, **sweeping):
            score.add(result)
            advance(score, time.perf_counter() - begun)
            if options.until_broken and score.failures:
                break
    seconds = time.perf_counter() - begun
    if options.json:
        print(json.dumps(_as_json(score, seconds)))
    else:
        _print(score, seconds)
    return 1 if score.failures else 0


def _one(options: argparse.Namespace) -> int:
    result = run(options.seed, options.nodes, options.scenario, rare=options.rare)
    if options.json:
        fields = asdict(result)
        if not options.story:
            del fields["story"]
        print(json.dumps(fields))
    else:
        if options.story:
            print("\n".join(result.story))
        print(
            f"seed {options.seed}: {result.events} events, {result.simulated_ms / 1000:.1f} s simulated, "
            f"{result.acknowledged} batches acknowledged, {result.read} records read, trace {result.hash}"
        )
        for finding in result.findings:
            print(f"BROKEN {finding}")
    return 0 if result.good else 1


def _as_json(score: Score, seconds: float) -> dict[str, Any]:
    return {
        "seeds": score.seeds,
        "seconds": round(seconds, 2),
        "events": score.events,
        "events_per_second": round(score.events / seconds),
        "simulated_seconds": round(score.simulated_ms / 1000),
        "acknowledged": score.acknowledged,
        "read": score.read,
        "faults": dict(score.faults.most_common()),
        "traces": dict(sorted(score.traces.items())),
        "places": dict(sorted(score.places.items())),
        "failures": [
            {
                "seed": failure.seed,
                "findings": list(map(str, failure.findings)),
                "replay": _replay(failure),
            }
            for failure in sorted(score.failures, key=lambda failure: failure.seed)
        ],
    }


def _print(score: Score, seconds: float) -> None:
    print(
        f"{score.seeds} seeds, {score.events} events in {seconds:.1f} s ({score.events / seconds:,.0f} events/s); "
        f"{score.simulated_ms / 1000:,.0f} s simulated, {score.acknowledged:,} batches acknowledged, "
        f"{score.read:,} records read"
    )
    print("faults: " + ", ".join(f"{count} {name.replace('_', ' ')}" for name, count in score.faults.most_common()))
    if score.places:
        missed = [place for place in PLACES if not score.places[place]]
        print(f"rare paths: {len(PLACES) - len(missed)} of {len(PLACES)} places reached")
        for place in missed:
            print(f"  never reached: {place} ({PLACES[place]})")
    if not score.failures:
        print("no law was broken")
        return
    print(f"{len(score.failures)} seeds broke a law")
    for failure in sorted(score.failures, key=lambda failure: failure.seed)[:FAILURES_SHOWN]:
        print(f"\nseed {failure.seed}, the end of its story:")
        print("\n".join(f"  {line}" for line in failure.story[-STORY_TAIL:]))
        for finding in failure.findings:
            print(f"BROKEN {finding}")
        print(_replay(failure))


@contextlib.contextmanager
def _progress(total: int, *, quiet: bool) -> Iterator[Callable[[Score, float], None]]:
    """A progress bar on a terminal, otherwise a line from time to time."""
    if quiet:
        yield lambda _score, _seconds: None
        return
    if not sys.stderr.isatty():
        yield _reporter()
        return
    from rich.console import Console  # noqa: PLC0415 - only where somebody looks
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn  # noqa: PLC0415

    bar = Progress(
        TextColumn("seeds"), BarColumn(), MofNCompleteColumn(), TextColumn("{task.fields[rate]}"),
        TextColumn("[red]{task.fields[broken]}"), console=Console(stderr=True), transient=True,
    )  # fmt: skip
    with bar:
        task = bar.add_task("", total=total or None, rate="", broken="")

        def advance(score: Score, seconds: float) -> None:
            broken = f"{len(score.failures)} broken" if score.failures else ""
            bar.update(task, completed=score.seeds, rate=f"{score.events / seconds:,.0f} events/s", broken=broken)

        yield advance


def _reporter() -> Callable[[Score, float], None]:
    """Prints a line every REPORT_S, and findings at once."""
    reported_s, reported_failures = 0.0, 0

    def advance(score: Score, seconds: float) -> None:
        nonlocal reported_s, reported_failures
        for failure in score.failures[reported_failures:]:
            print(f"BROKEN {failure.findings[0]}", _replay(failure), sep="\n")
        reported_failures = len(score.failures)
        if seconds - reported_s >= REPORT_S:
            reported_s = seconds
            print(
                f"{score.seeds} seeds, {score.events / seconds:,.0f} events/s, {reported_failures} broken", flush=True
            )

    return advance


__all__ = ["Score", "Violation", "main", "replay_line", "sweep"]


if __name__ == "__main__":
    sys.exit(main())
