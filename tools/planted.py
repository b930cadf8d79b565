"""Plants known bugs, one at a time, into a copy of the product, and requires that the everyday checks find each bug.

`python -m tools.planted tests/sim/raft/planted [NAME…]`. Each bug is a file. Lines that begin with `#` describe it.
Then follow `file:`, `package:` (default node/src/kraft_node), and optionally `catch:` (pytest arguments) or
`simulator:` (`raft` or `migration`; without both, the Raft simulator must find the bug). The old text stands between
`<<<<` and `====`, the new text between `====` and `>>>>`. The old text must occur exactly once, so that an outdated bug
is noticed. `found.json` in the folder keeps the seed that last found each bug. Exit code 0: all bugs were found.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
SIMULATORS = {
    "raft": (["-m", "kraft_node.testing.raft", "--events", "2000"], 1000),
    "migration": (["-m", "kraft_node.testing.migration", "--until-broken"], 40),
}
"""Name -> its command, and how many seeds it may try: the budget of the everyday run."""
TIMEOUT_S = 900
PACKAGE = "node/src/kraft_node"


class Bug(NamedTuple):
    """A bug to plant."""

    name: str
    about: str
    package: str
    file: str
    catch: list[str]
    simulator: str
    old: str
    new: str


class Outcome(NamedTuple):
    """Whether a bug was found, by which check, and how long that took."""

    bug: Bug
    caught: bool
    by: str
    seconds: float
    seed: int | None = None
    """The seed that found it; None: a test did."""


def read_bug(path: Path) -> Bug:
    """Read a bug from a file. Raises ValueError if the file has another format."""
    head, _, rest = path.read_text().partition("\n<<<<\n")
    old, separator, rest = rest.partition("\n====\n")
    new = rest.partition("\n>>>>")[0] if not rest.startswith(">>>>") else ""
    about = " ".join(line.removeprefix("#").strip() for line in head.splitlines() if line.startswith("#"))
    fields = dict(re.findall(r"^(\w+): (.*)$", head, re.MULTILINE))
    if not separator or "file" not in fields or not about:
        raise ValueError(f"{path}: no planted bug")
    package, simulator = fields.get("package", PACKAGE), fields.get("simulator", "raft")
    if simulator not in SIMULATORS:
        raise ValueError(f"{path}: the simulator {simulator} does not exist; use {', '.join(SIMULATORS)}")
    return Bug(path.stem, about, package, fields["file"], fields.get("catch", "").split(), simulator, old, new)


def plant(bug: Bug, source: str) -> str:
    """The source with the bug. Raises ValueError if the old text does not occur exactly once."""
    if source.count(bug.old) != 1:
        raise ValueError(f"{bug.name}: its text occurs {source.count(bug.old)} times in {bug.file}")
    return source.replace(bug.old, bug.new)


def try_bug(bug: Bug) -> Outcome:
    """Run the checks that should find the bug."""
    begun = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="planted-") as directory:
        copy = Path(directory) / "src" / Path(bug.package).name
        shutil.copytree(ROOT / bug.package, copy, ignore=shutil.ignore_patterns("__pycache__", "workloads"))
        target = copy / bug.file
        target.write_text(plant(bug, target.read_text()))
        simulator, seeds = SIMULATORS[bug.simulator]
        pytest = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider"]
        command = [*pytest, *bug.catch] if bug.catch else [*simulator, "--seeds", str(seeds)]
        try:
            done = subprocess.run(
                [sys.executable, *command],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": _paths(copy.parent), "PYTHONDONTWRITEBYTECODE": "1"},
                capture_output=True,
                text=True,
                timeout=TIMEOUT_S,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return Outcome(bug, False, f"no verdict within {TIMEOUT_S} s", time.monotonic() - begun)
    found = re.search(r"^(seed \d+: .*|E .*Error.*|FAILED .*)$", done.stdout, re.MULTILINE)
    caught = done.returncode == 1 and found is not None
    match = re.match(r"seed (\d+):", found.group(1)) if found else None
    seed = None if match is None else int(match.group(1))
    if caught and seed is not None and not _holds_without_bug(bug.simulator, seed):
        return Outcome(bug, False, f"seed {seed} fails without the bug, too", time.monotonic() - begun)
    by = found.group(1) if found else f"exit code {done.returncode} {done.stderr[-300:]}"
    return Outcome(bug, caught, by, time.monotonic() - begun, seed)


def _paths(*first: Path) -> str:
    """The packages of this tree, after `first`."""
    return os.pathsep.join(map(str, [*first, *(ROOT / name / "src" for name in ("protocol", "node", "operator"))]))


def _holds_without_bug(simulator: str, seed: int) -> bool:
    """Whether that seed passes without the bug, so that the bug broke the law."""
    command = [*SIMULATORS[simulator][0], "--seeds", "1", "--seed-from", str(seed)]
    env = {**os.environ, "PYTHONPATH": _paths()}
    done = subprocess.run(
        [sys.executable, *command], cwd=ROOT, env=env, capture_output=True, timeout=TIMEOUT_S, check=False
    )
    return done.returncode == 0


def _keep(path: Path, outcomes: list[Outcome]) -> None:
    """Note the seeds that found bugs in `path`; the seeds of bugs that did not run stay."""
    seeds: dict[str, int] = json.loads(path.read_text()) if path.exists() else {}
    seeds |= {one.bug.name: one.seed for one in outcomes if one.caught and one.seed is not None}
    if seeds:
        path.write_text(json.dumps(dict(sorted(seeds.items())), indent=1) + "\n")


def main(arguments: list[str]) -> int:
    """The command line."""
    folder = Path(arguments[0])
    bugs = [read_bug(path) for path in sorted(folder.glob("*.bug"))]
    bugs = [bug for bug in bugs if not arguments[1:] or bug.name in arguments[1:]]
    outcomes = []
    with ThreadPoolExecutor(int(os.environ.get("JOBS", "2"))) as pool:
        for outcome in pool.map(try_bug, bugs):
            outcomes.append(outcome)
            verdict = "caught" if outcome.caught else "MISSED"
            print(f"{verdict} {outcome.bug.name} ({outcome.seconds:.0f} s): {outcome.by[:160]}", flush=True)
    _keep(folder / "found.json", outcomes)
    score = sum(outcome.caught for outcome in outcomes)
    print(f"{score} of {len(outcomes)} planted bugs caught")
    return 0 if score == len(outcomes) else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
