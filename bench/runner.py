"""A run: the plan from a seed, then step after step, each added to the journal when it ends.

Rounds are the outer order, so a run that ends early has whole rounds. Within a round the scenarios are shuffled, and
within a scenario its servers.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

from bench import environment
from bench.journal import Journal, Key, Run
from bench.registry import SECTIONS, SLOTS
from bench.row import Measured, Scenario, Step
from bench.server import SERVERS

STEP_LIMIT_S = 3600
"""A step that takes longer has failed, so that a server that hangs does not end an unattended run."""
PAUSE_S = 5.0
"""Between steps, after a sync, so that a step does not pay for the one before."""

Say = Callable[[str], None]


class StepTimeoutError(AssertionError):
    """A step took longer than STEP_LIMIT_S."""


def plan(scenarios: Sequence[Scenario], rounds: int, seed: int) -> list[Key]:
    """All steps in order; the same seed gives the same order."""
    rng = random.Random(seed)
    steps = []
    for at in range(1, rounds + 1):
        order = sorted(scenarios, key=lambda scenario: scenario.name)
        rng.shuffle(order)
        for scenario in order:
            servers = list(scenario.servers)
            rng.shuffle(servers)
            steps += [(at, scenario.name, server) for server in servers]
    return steps


def header(
    scenarios: Sequence[Scenario], rounds: int, seed: int, *, quick: bool, whole: bool, folder: Path
) -> dict[str, Any]:
    """The first line of a run's file: with it the page needs no code of today to show the run."""
    servers = dict.fromkeys(server for scenario in scenarios for server in scenario.servers)
    return {
        "begun_at": environment.now(),
        "quick": quick,
        "whole": whole,
        "rounds": rounds,
        "seed": seed,
        "plan": plan(scenarios, rounds, seed),
        "sections": list(SECTIONS),
        "scenarios": {
            s.name: {"section": s.section, "pairs": s.pairs, "rows": [asdict(row) for row in s.rows]} for s in scenarios
        },
        "slots": SLOTS,
        "servers": {name: SERVERS[name].described() for name in servers},
        "environment": environment.described(folder),
    }


def go_on(journal: Journal, scenarios: dict[str, Scenario], folder: Path, budget_s: float, say: Say) -> bool:
    """Measure the steps that are left until the budget is used up; whether the run is finished.

    The budget ends the run between two steps. Raises AssertionError if a scenario of the plan does not exist any more.
    """
    run = journal.run
    gone = {key[1] for key in run.left()} - set(scenarios)
    assert not gone, f"the plan has scenarios that do not exist any more: {', '.join(sorted(gone))}"
    begun = time.monotonic()
    left = run.left()
    for number, key in enumerate(left, 1):
        if time.monotonic() - begun > budget_s:
            say(f"the budget is used up; {len(left) - number + 1} steps are left: `resume {journal.path}`")
            return False
        _step(journal, scenarios[key[1]], key, folder, lambda text, at=number: say(f"[{at}/{len(left)}] {text}"))  # type: ignore[misc]
    journal.add("finished", at=environment.now())
    return True


def _step(journal: Journal, scenario: Scenario, key: Key, folder: Path, say: Say) -> None:
    at, name, server = key
    place = {"round": at, "scenario": name, "server": server}
    what = f"round {at}, {name}, {server}"
    missing = SERVERS[server].missing()
    if missing:
        journal.add("skipped", **place, why=missing)
        say(f"{what}: skipped, {missing}")
        return
    journal.add("begun", **place, at=environment.now())
    files = folder / f"{at}-{name}-{server}"
    step = Step(SERVERS[server], files, bool(journal.run.header["quick"]), _prepared(journal.run))
    load, others, begun = environment.load(), environment.others_cpu(), time.monotonic()
    try:
        with _limit(STEP_LIMIT_S):
            found = scenario.measure(step)
        _check(scenario, found)
    except Exception as error:  # also a defect of a scenario must not end an unattended run
        journal.add("failed", **place, error=_told(error, folder), seconds=_since(begun), load=load)
        say(f"{what}: failed: {_told(error, folder)[:200]}")
    else:
        spent = {"seconds": _since(begun), "load": load, "others_cpu_s": others()}
        journal.add("sample", **place, **spent, figures=found.figures, detail=found.detail)
        say(f"{what}: {spent['seconds']:.0f} s, {spent['others_cpu_s']} s of CPU used by others")
    if not scenario.keeps_files:
        shutil.rmtree(files, ignore_errors=True)
    if not step.quick:  # what this step wrote must not be written back during the next one
        subprocess.run(["sync"], check=False)
        time.sleep(PAUSE_S)


def _prepared(run: Run) -> dict[str, Any]:
    """What earlier steps found out for later ones; the first finding counts."""
    found: dict[str, Any] = {}
    for key in run.plan:
        end = run.ends.get(key, {})
        for name, value in end.get("detail", {}).get("prepared", {}).items():
            found.setdefault(name, value)
    return found


def _check(scenario: Scenario, found: Measured) -> None:
    names = {row.name for row in scenario.rows}
    unknown = set(found.figures) - names
    assert not unknown, f"{scenario.name} measured unknown rows: {', '.join(sorted(unknown))}"
    assert found.figures, f"{scenario.name} measured nothing"


def _told(error: BaseException, folder: Path) -> str:
    """The error without paths of this machine, cut to what a reader needs."""
    text = f"{type(error).__name__}: {error}"
    for path in (folder, environment.ROOT, Path.home()):
        text = text.replace(str(path), "…")
    return text[:2000]


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 2)


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise StepTimeoutError in the block after so many seconds."""

    def late(_number: int, _frame: Any) -> None:
        raise StepTimeoutError(f"the step took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
