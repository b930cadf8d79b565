"""Hunts one mutant: seeds until a law is broken, then unit tests."""

from __future__ import annotations

import os
import random
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from tools.mutants.cores import ROOT, SIMULATORS, Broken, Core, Simulator
from tools.mutants.sites import Mutant

FIRST_SEEDS = range(10_000_000, 1_000_000_000)
"""No other run uses these seeds."""
CHUNKS = (4, 16, 64, 256)
"""Seeds of one process after another, so that a hanging mutant ends soon."""
START_S = 60.0
HANGS_AT = 10
"""Times the usual time of a seed."""
MEMORY_BYTES = 6 << 30
TESTS_S = 900.0

LAW, HUNG, DIED, TESTS, SURVIVED = "law", "hung", "died", "tests", "survived"
"""How a mutant ended: a law was broken; a run took too long; a process ended without a verdict, such as by an import
that fails; unit tests failed; nothing noticed it."""


class End(NamedTuple):
    """The end of a hunt."""

    outcome: str
    by: str
    """The simulator, or the first failed test."""
    seeds: int
    """Seeds that ran until then, over all simulators."""
    seed: int
    """The seed that found it, or -1."""
    detail: str
    """The law, or the end of the output."""
    seconds: float


class NotTheMutantError(Exception):
    """A seed breaks a law without the mutant as well: a defect of the product or of the simulator."""


def hunt(core: Core, mutant: Mutant, rng: random.Random, budgets: Mapping[str, int] | None = None) -> End:
    """Hunt one mutant of a core. `budgets` replaces the seeds of simulators. Raises NotTheMutantError."""
    begun = time.monotonic()
    ran = 0
    with planted(core, mutant) as path:
        for name in core.simulators:
            simulator = SIMULATORS[name]
            first = rng.choice(FIRST_SEEDS)
            budget = (budgets or {}).get(name, simulator.seeds)
            found = run_seeds(simulator, path, first, budget)
            if isinstance(found, Broken):
                _check_original(simulator, found.seed)
                tried = ran + found.seed - first + 1
                return End(LAW, name, tried, found.seed, found.law[:300], time.monotonic() - begun)
            if found:
                outcome, detail = found
                return End(outcome, name, ran, -1, detail[-300:], time.monotonic() - begun)
            ran += budget
        failed = _failed_test(core, path)
    return End(TESTS if failed else SURVIVED, failed, ran, -1, "", time.monotonic() - begun)


@contextmanager
def planted(core: Core, mutant: Mutant) -> Iterator[Path]:
    """A copy of the package with the mutant; yields the folder for PYTHONPATH."""
    with tempfile.TemporaryDirectory(prefix="mutant-") as folder:
        copy = Path(folder) / Path(core.package).name
        shutil.copytree(ROOT / core.package, copy, ignore=shutil.ignore_patterns("__pycache__"))
        target = copy / mutant.file
        target.write_text(mutant.plant(target.read_text()))
        yield Path(folder)


def run_seeds(simulator: Simulator, path: Path, first: int, count: int) -> Broken | tuple[str, str] | None:
    """Run seeds with the package at `path`. Returns the broken law, an outcome with its output, or None."""
    done = 0
    while done < count:
        chunk = min(next((size for size in CHUNKS if size > done), CHUNKS[-1]), count - done)
        limit_s = START_S + simulator.seed_s * (chunk + HANGS_AT)
        try:
            ended = _python(simulator.command(first + done, chunk), path, limit_s)
        except subprocess.TimeoutExpired:
            return HUNG, f"{chunk} seeds took more than {limit_s:.0f} s"
        if ended.returncode == 1 and (broken := simulator.read(ended.stdout)):
            return broken
        if ended.returncode != 0:
            return DIED, ended.stderr.strip() or f"exit code {ended.returncode}"
        done += chunk
    return None


def _check_original(simulator: Simulator, seed: int) -> None:
    if run_seeds(simulator, ROOT / "node" / "src", seed, 1) is not None:
        raise NotTheMutantError(f"{simulator.name} seed {seed} breaks a law without the mutant")


def _failed_test(core: Core, path: Path) -> str:
    """The first unit test of the core that fails; "" if all pass."""
    tests = [folder for folder in core.tests if (ROOT / folder).exists()]
    command = ["-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *tests]
    try:
        ended = _python(command, path, TESTS_S)
    except subprocess.TimeoutExpired:
        return f"the tests took more than {TESTS_S:.0f} s"
    if ended.returncode == 0:
        return ""
    failed = [line for line in ended.stdout.splitlines() if line.startswith(("FAILED tests/", "ERROR tests/"))]
    return failed[0].split(" - ")[0].split(maxsplit=1)[1] if failed else f"exit code {ended.returncode} of pytest"


def _python(arguments: list[str], path: Path, limit_s: float) -> subprocess.CompletedProcess[str]:
    """Run Python with `path` before the product. Raises subprocess.TimeoutExpired."""
    sources = [str(ROOT / name / "src") for name in ("protocol", "node", "operator")]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(path), *sources, str(ROOT)])}
    # The copy is compiled once for all of its processes.
    environment.pop("PYTHONDONTWRITEBYTECODE", None)
    return subprocess.run(
        [sys.executable, *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=limit_s,
        check=False,
        preexec_fn=_limit_memory,
    )


def _limit_memory() -> None:
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY_BYTES, MEMORY_BYTES))
