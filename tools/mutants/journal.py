"""A run: mutants drawn by a seed, hunted in random order; each end is a line of the run's file."""

from __future__ import annotations

import json
import random
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tools.mutants.cores import CORES, PLANTED, ROOT, SIMULATORS, Core, planted_bugs
from tools.mutants.hunt import NotTheMutantError, hunt
from tools.mutants.sites import Mutant

DATA = ROOT / "docs" / "detection" / "data"
MEASURED = ("protocol/src", "node/src", "operator/src", "tests/sim", "tools/mutants")
"""The trees that decide how a run ends."""


@dataclass(frozen=True)
class Drawn:
    """The mutants of a run."""

    sites: dict[str, int]
    """All mutants of each core, hunted or not."""
    chosen: list[tuple[Core, Mutant]]
    """In the order of the hunt, which is random: a run that ends early has hunted a random part."""


def draw(names: Sequence[str], sample: int, rng: random.Random) -> Drawn:
    """Draw `sample` mutants of each named core; of `planted` all."""
    sites, chosen = {}, []
    for name in names:
        if name == PLANTED:
            found = planted_bugs()
            sites[name] = len(found)
            chosen += found
            continue
        mutants = CORES[name].mutants()
        sites[name] = len(mutants)
        chosen += [(CORES[name], mutant) for mutant in rng.sample(mutants, min(sample, len(mutants)))]
    rng.shuffle(chosen)
    return Drawn(sites, chosen)


def run(
    path: Path,
    names: Sequence[str],
    *,
    sample: int,
    seed: int,
    jobs: int,
    budgets: Mapping[str, int],
    budget_s: float,
    say: Callable[[str], None],
) -> int:
    """Hunt, and write the file. Returns the number of seeds that break a law without a mutant.

    Raises FileExistsError if the file exists, RuntimeError if the product differs from its commit.
    """
    changed = _git("status", "--porcelain", "--", *MEASURED)
    if changed:
        raise RuntimeError(f"not committed: {changed}; commit it, so that others can repeat the run")
    drawn = draw(names, sample, random.Random(seed))
    lock, begun = threading.Lock(), time.monotonic()
    broken = 0
    with path.open("x") as file:

        def write(line: dict[str, Any]) -> None:
            with lock:
                file.write(json.dumps(line) + "\n")
                file.flush()

        def one(place: int) -> None:
            nonlocal broken
            core, mutant = drawn.chosen[place]
            if time.monotonic() - begun > budget_s:
                return
            what = {"core": core.name, "mutant": mutant.name, "line": mutant.line}
            try:
                end = hunt(core, mutant, random.Random(f"{seed} {mutant.name}"), budgets)
            except NotTheMutantError as error:
                broken += 1
                say(f"BROKEN {error} (found with {mutant.name})")
                write({**what, "error": str(error)})
                return
            old, new = mutant.old[:400], mutant.new[:400]
            write({**what, "old": old, "new": new, **end._asdict(), "seconds": round(end.seconds, 1)})
            place_text = f"[{place + 1}/{len(drawn.chosen)}, {(time.monotonic() - begun) / 60:.1f} min]"
            say(f"{place_text} {end.outcome} {end.by} after {end.seeds} seeds: {mutant.name}")

        write(
            {
                "commit": _git("rev-parse", "HEAD"),
                "python": sys.version.split()[0],
                "begun_at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "seed": seed,
                "sites": drawn.sites,
                "drawn": {name: sum(core.name == name for core, _ in drawn.chosen) for name in names},
                "seeds": {name: budgets.get(name, simulator.seeds) for name, simulator in SIMULATORS.items()},
            }
        )
        with ThreadPoolExecutor(jobs) as pool:
            list(pool.map(one, range(len(drawn.chosen))))
    return broken


def _git(*arguments: str) -> str:
    ended = subprocess.run(["git", *arguments], cwd=ROOT, capture_output=True, text=True, check=True)
    return ended.stdout.strip()
