"""Seeds without end, with a record: every night continues where the last one ended.

    python -m tools.nights run [--scenario raft cluster ...] [--budget 8h] [--jobs 2]
    python -m tools.nights page [--check]      write docs/detection/nights.md from the records

A night is a file in docs/detection/nights. It is written after every chunk, so an interrupted night keeps its count.
Commit it: without the file, the next night runs the same seeds again. Exit code 1 if a seed broke a law.
"""

from __future__ import annotations

import argparse
import itertools
import json
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from tools.mutants.cores import ROOT, SIMULATORS, Broken
from tools.mutants.hunt import run_seeds

RECORDS = ROOT / "docs" / "detection" / "nights"
PAGE = RECORDS.parent / "nights.md"
FIRST_SEED = 20_000_000
"""Seeds below were run before there was a record."""
CHUNK_S = 240.0
"""A chunk takes about this long on a busy machine: so much is lost if a night is killed."""
CODE = {
    "raft": ("node/src/kraft_node/raft", "node/src/kraft_node/testing/raft"),
    "operator": ("operator/src/kraft_operator/plan", "tests/sim/operator"),
}
"""The folders that a scenario runs; without an entry, all of the node."""
WHOLE_NODE = ("protocol/src", "node/src")
UNITS = {"h": 3600, "m": 60, "s": 1}


@dataclass
class Seeds:
    """The seeds of one scenario in one night."""

    code: str
    """The hash of the folders that they ran."""
    first: int
    count: int = 0
    broken: list[dict[str, Any]] = field(default_factory=list)


@dataclass
class Night:
    """One run."""

    name: str
    commit: str
    begun_at: str
    seconds: float
    scenarios: dict[str, Seeds]


def read(path: Path) -> Night:
    """Read a record."""
    found = json.loads(path.read_text())
    scenarios = {name: Seeds(**seeds) for name, seeds in found.pop("scenarios").items()}
    return Night(**found, scenarios=scenarios)


def nights() -> list[Night]:
    """All recorded nights, the oldest first."""
    return [read(path) for path in sorted(RECORDS.glob("*.json"))]


def next_seed(scenario: str, known: Sequence[Night]) -> int:
    """The first seed that no night has run."""
    ran = [night.scenarios[scenario] for night in known if scenario in night.scenarios]
    return max((seeds.first + seeds.count for seeds in ran), default=FIRST_SEED)


def run(scenarios: Sequence[str], budget_s: float, jobs: int, path: Path) -> Night:
    """Run chunks of the scenarios in turn until the budget is used up; rewrite `path` after each chunk."""
    known = nights()
    begun = time.monotonic()
    night = Night(
        path.stem,
        _git("rev-parse", "HEAD"),
        time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
        0.0,
        {name: Seeds(_code(name), next_seed(name, known)) for name in scenarios},
    )
    lock = threading.Lock()
    chunks = _chunks(night)

    def worker(_: int) -> None:
        while time.monotonic() - begun < budget_s:
            with lock:
                name, first, count = next(chunks)
            ended = run_seeds(SIMULATORS[name], ROOT / "node" / "src", first, count)
            with lock:
                _add(night.scenarios[name], first, count, ended)
                night.seconds = round(time.monotonic() - begun, 1)
                _write(night, path)

    with ThreadPoolExecutor(jobs) as pool:
        list(pool.map(worker, range(jobs)))
    return night


def _chunks(night: Night) -> Iterator[tuple[str, int, int]]:
    """Scenario, first seed and number of seeds of the chunks, the scenarios in turn."""
    ahead = {name: seeds.first for name, seeds in night.scenarios.items()}
    for name in itertools.cycle(night.scenarios):
        count = max(1, int(CHUNK_S / SIMULATORS[name].seed_s))
        yield name, ahead[name], count
        ahead[name] += count


def _add(seeds: Seeds, first: int, count: int, ended: Broken | tuple[str, str] | None) -> None:
    """Count a chunk. It ends at its first broken law: its other seeds are never run."""
    if isinstance(ended, Broken):
        seeds.broken.append({"seed": ended.seed, "law": ended.law[:300]})
    elif ended:
        seeds.broken.append({"seed": first, "law": f"{ended[0]} within {count} seeds: {ended[1][-300:]}"})
    seeds.count += count
    for broken in seeds.broken[-1:] if ended else []:
        print(f"BROKEN seed {broken['seed']}: {broken['law']}", flush=True)


def _write(night: Night, path: Path) -> None:
    new = path.with_suffix(".new")
    new.write_text(json.dumps(asdict(night), indent=1) + "\n")
    new.replace(path)


def _code(scenario: str) -> str:
    """A short hash of the folders that the scenario runs, as committed."""
    return "-".join(_git("rev-parse", f"HEAD:{folder}")[:7] for folder in CODE.get(scenario, WHOLE_NODE))


def _git(*arguments: str) -> str:
    return subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True).stdout.strip()


def page(known: Sequence[Night]) -> str:
    """The page; the same records give the same text."""
    out = [
        "# Nights",
        "",
        "<!-- Written by `python -m tools.nights page` from the files in `nights`; do not edit. -->",
        "",
        "Every night the simulators run seeds that have not run before (`make sim-night`). A chunk of seeds ends at",
        "the first broken law. *Code* is the hash of the folders that a scenario runs: rows with the same hash add up.",
        "",
        "| scenario | code | seeds | laws broken |",
        "|---|---|---|---|",
    ]
    totals: dict[tuple[str, str], list[int]] = {}
    for night in known:
        for name, seeds in night.scenarios.items():
            total = totals.setdefault((name, seeds.code), [0, 0])
            total[0] += seeds.count
            total[1] += len(seeds.broken)
    out += [f"| {name} | {code} | {count:,} | {broken} |" for (name, code), (count, broken) in sorted(totals.items())]
    for night in reversed(known):
        ran = ", ".join(f"{name} {s.count:,} from {s.first}" for name, s in night.scenarios.items() if s.count)
        out += ["", f"## {night.name}", "", f"Commit {night.commit[:12]}, {night.seconds / 60:.0f} minutes: {ran}.", ""]
        out += [
            f"- {name} seed {broken['seed']}: {' '.join(broken['law'].split())}"
            for name, seeds in night.scenarios.items()
            for broken in seeds.broken
        ]
        if out[-1] == "":
            out.append("No law was broken.")
    return "\n".join(out) + "\n"


def main(arguments: list[str] | None = None) -> int:
    """The command line."""
    parser = argparse.ArgumentParser(
        prog="python -m tools.nights", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    commands = parser.add_subparsers(required=True, dest="command")
    runs = commands.add_parser("run", help="run seeds that have not run before")
    runs.add_argument("--scenario", nargs="+", choices=list(SIMULATORS), default=list(SIMULATORS))
    runs.add_argument("--budget", type=_seconds, default=1e9, metavar="8h", help="start no chunk after this time")
    runs.add_argument("--jobs", type=int, default=2)
    written = commands.add_parser("page", help="write docs/detection/nights.md")
    written.add_argument("--check", action="store_true", help="write nothing; exit 1 if the page would change")
    options = parser.parse_args(arguments)
    if options.command == "page":
        return _page(check=options.check)
    RECORDS.mkdir(parents=True, exist_ok=True)
    path = RECORDS / f"{time.strftime('%Y-%m-%d-%H%M', time.gmtime())}.json"
    night = run(options.scenario, options.budget, options.jobs, path)
    ran = ", ".join(f"{name} {seeds.count}" for name, seeds in night.scenarios.items())
    broken = sum(len(seeds.broken) for seeds in night.scenarios.values())
    print(f"{path.relative_to(ROOT)}: {ran}; {broken} laws broken")
    return 1 if broken else 0


def _page(*, check: bool) -> int:
    text = page(nights())
    if PAGE.exists() and PAGE.read_text() == text:
        return 0
    if check:
        print(f"would change: {PAGE.relative_to(ROOT)}")
        return 1
    PAGE.write_text(text)
    return 0


def _seconds(text: str) -> float:
    try:
        return float(text[:-1]) * UNITS[text[-1]]
    except (ValueError, KeyError, IndexError):
        raise argparse.ArgumentTypeError(f"{text!r} is not a duration such as 90m or 8h") from None


if __name__ == "__main__":
    sys.exit(main())
