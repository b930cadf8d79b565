"""Does the simulation see what it should? Wrong lines are planted in a copy of the node, one bug at a time.

`python -m tests.sim.planted_bugs` (`make planted`) prints which bugs were found, by which law and after how many seeds.
A bug is a file in `planted/`: a sentence, the file, the right lines and the wrong ones.
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

ROOT = Path(__file__).parents[2]
NODE = ROOT / "node" / "src" / "kraft_node"
PLANTED = Path(__file__).parent / "planted"
SEEDS = 200


@dataclass(frozen=True)
class Bug:
    """Wrong lines in the place of right ones."""

    name: str
    what: str
    file: str
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
    what, _, file = head.strip().partition("\nfile: ")
    return Bug(path.stem, what, file, old, new)


def all_bugs() -> list[Bug]:
    return [read_bug(path) for path in sorted(PLANTED.glob("*.txt"))]


def hunt(bug: Bug) -> tuple[Bug, str, int]:
    """The first law that was broken and the seed; an empty text when none was."""
    with tempfile.TemporaryDirectory(prefix="planted-") as folder:
        copy = Path(folder) / "kraft_node"
        shutil.copytree(NODE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy / bug.file
        target.write_text(bug.plant(target.read_text()))
        command = [sys.executable, "-m", "kraft_node.testing.sim", "--seeds", str(SEEDS), "--jobs", "1", "--json"]
        done = subprocess.run(
            [*command, "--until-broken"],
            env={**os.environ, "PYTHONPATH": folder},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode not in (0, 1):
        raise RuntimeError(f"{bug.name}: {done.stderr}")
    failures = json.loads(done.stdout)["failures"]
    return (bug, failures[0]["findings"][0], failures[0]["seed"]) if failures else (bug, "", -1)


def main() -> int:
    bugs = all_bugs()
    missed = 0
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for bug, law, seed in pool.map(hunt, bugs):
            missed += not law
            found = f"seed {seed:<4} {law[:110]}" if law else "NOT FOUND"
            print(f"{bug.name:<36} {found}", flush=True)
    print(f"{len(bugs) - missed} of {len(bugs)} planted bugs were found within {SEEDS} seeds")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
