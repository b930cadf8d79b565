"""Checks that the simulation finds known bugs. Plants wrong lines in a copy of the node, one bug at a time.

`python -m tests.sim.planted_bugs` (`make planted`) prints which bugs were found, by which law and after how many seeds.
A bug is a file in `planted/`: a sentence, the file, perhaps `scenario: cluster`, the right lines and the wrong ones.
Each run stops at its first seed that breaks a law. A seed that breaks a law without the bug as well does not count.

`planted/found.json` keeps the seed that last found each bug, and this seed is tried first. All seeds run again only if
a change of the simulation has changed that seed's events.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[2]
NODE = ROOT / "node" / "src" / "kraft_node"
PLANTED = Path(__file__).parent / "planted"
FOUND = PLANTED / "found.json"
SEEDS = {"node": 200, "cluster": 300, "transactions": 150, "groups": 60, "secured": 40, "whole": 120}
"""The everyday budget of each scenario."""


@dataclass(frozen=True)
class Bug:
    """Right lines and the wrong lines that replace them."""

    name: str
    what: str
    file: str
    scenario: str
    old: str
    new: str

    def plant(self, source: str) -> str:
        """The file with the bug in it."""
        if source.count(self.old) != 1:
            raise ValueError(f"{self.name}: the lines to be replaced are {source.count(self.old)} times in {self.file}")
        return source.replace(self.old, self.new)


def read_bug(path: Path) -> Bug:
    head, _, rest = path.read_text().partition("--- old\n")
    old, _, new = rest.partition("--- new\n")
    what, _, fields = head.strip().partition("\nfile: ")
    file, _, scenario = fields.partition("\nscenario: ")
    return Bug(path.stem, what, file, scenario or "node", old, new)


def all_bugs() -> list[Bug]:
    return [read_bug(path) for path in sorted(PLANTED.glob("*.txt"))]


def found_before() -> dict[str, int]:
    """The seed that last found each bug."""
    seeds: dict[str, int] = json.loads(FOUND.read_text()) if FOUND.exists() else {}
    return seeds


def hunt(bug: Bug) -> tuple[Bug, str, int]:
    """The first broken law and its seed; an empty text if no law was broken."""
    before = found_before().get(bug.name)
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "kraft_node"
        shutil.copytree(NODE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy / bug.file
        target.write_text(bug.plant(target.read_text()))
        failures = [] if before is None else _failures(folder, bug, before, 1)
        failures = failures or _failures(folder, bug, 0, SEEDS[bug.scenario])
    if not failures:
        return bug, "", -1
    seed = failures[0]["seed"]
    if _failures(str(NODE.parent), bug, seed, 1):
        raise RuntimeError(f"{bug.name}: seed {seed} breaks a law without the bug, too")
    return bug, failures[0]["findings"][0], seed


def _failures(path: str, bug: Bug, first: int, count: int) -> list[dict[str, Any]]:
    """The output for the first seed that breaks a law, with the product at `path`."""
    command = [sys.executable, "-m", "kraft_node.testing.sim", "--scenario", bug.scenario, "--seeds", str(count)]
    done = subprocess.run(
        [*command, "--first", str(first), "--jobs", "1", "--json", "--until-broken"],
        env={**os.environ, "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )
    if done.returncode not in (0, 1) or not done.stdout:
        raise RuntimeError(f"{bug.name}: {done.stderr}")
    failures: list[dict[str, Any]] = json.loads(done.stdout)["failures"]
    return failures


def _hunted(bug: Bug) -> tuple[Bug, str, int]:
    """Same as `hunt`; a bug that cannot be planted or judged is reported as not found."""
    try:
        return hunt(bug)
    except (RuntimeError, ValueError) as e:
        return bug, f"{e}", -1


def _keep(seeds: dict[str, int]) -> None:
    """Write the seeds at once, in case the hunt is interrupted; other threads may read the file."""
    new = FOUND.with_suffix(".new")
    new.write_text(json.dumps(dict(sorted(seeds.items())), indent=1) + "\n")
    new.replace(FOUND)


def main(names: list[str]) -> int:
    bugs = [bug for bug in all_bugs() if not names or bug.name in names]
    found = 0
    seeds = found_before()
    with ThreadPoolExecutor(int(os.environ.get("JOBS", os.cpu_count() or 1))) as pool:
        for bug, law, seed in pool.map(_hunted, bugs):
            found += seed >= 0
            if seed >= 0:
                seeds[bug.name] = seed
                _keep(seeds)
            text = f"{bug.scenario} seed {seed:<4} {law[:110]}" if seed >= 0 else f"NOT FOUND {law[-200:]}"
            print(f"{bug.name:<36} {text}", flush=True)
    print(f"{found} of {len(bugs)} planted bugs were found")
    return 0 if found == len(bugs) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
