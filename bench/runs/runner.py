"""A run: a plan drawn from a seed, then step after step; each is appended to the journal when it ends.

The run passes over the scenarios once per round, each time in another order. A scenario with fresh servers has one
round in each pass. A scenario with servers that live over the rounds has all its rounds in one randomly chosen pass.
Its servers are started and warmed first, then take turns. Servers are shuffled in each round.
"""

from __future__ import annotations

import random
import shutil
import signal
import subprocess
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import asdict
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.runs import environment
from bench.runs.journal import Journal, Key, Run
from bench.runs.registry import SECTIONS, SLOTS
from bench.runs.row import ImpossibleError, Life, Measured, Scenario, Step
from bench.servers.server import SERVERS, Server

STEP_LIMIT_S = 3600
"""A longer step has failed, so that a hanging server does not end an unattended run."""
PAUSE_S = 1.0
"""The pause between steps, after a sync, so that a step does not pay for the previous one."""
TURN_PAUSE_S = 0.5
"""The pause between servers that take turns."""

Say = Callable[[str], None]


class StepTimeoutError(AssertionError):
    """A step took longer than STEP_LIMIT_S."""


def plan(scenarios: Sequence[Scenario], rounds: int, seed: int) -> list[Key]:
    """All steps in order; the same seed gives the same order."""
    rng = random.Random(seed)
    ordered = sorted(scenarios, key=lambda scenario: scenario.name)
    passes = {scenario.name: rng.randint(1, rounds) for scenario in ordered if scenario.live}
    steps = []
    for at in range(1, rounds + 1):
        turn = [s for s in ordered if (passes[s.name] == at if s.live else at <= s.rounds_of(rounds))]
        rng.shuffle(turn)
        for scenario in turn:
            steps += _rounds(scenario, range(1, scenario.rounds_of(rounds) + 1) if scenario.live else [at], rng)
    return steps


def _rounds(scenario: Scenario, rounds: Iterable[int], rng: random.Random) -> list[Key]:
    """The steps of a scenario: servers shuffled in each round, or one server after another if they live apart."""
    if scenario.apart:
        servers = rng.sample(scenario.servers, len(scenario.servers))
        return [(at, scenario.name, server) for server in servers for at in rounds]
    return [
        (at, scenario.name, server) for at in rounds for server in rng.sample(scenario.servers, len(scenario.servers))
    ]


def header(
    scenarios: Sequence[Scenario], rounds: int, seed: int, *, quick: bool, whole: bool, folder: Path
) -> dict[str, Any]:
    """The first line of a run's file; with it, the page can show the run without the code of its time."""
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
            s.name: {
                "section": s.section,
                "pairs": s.pairs,
                "rows": [asdict(row) for row in s.rows],
                "one_life": s.live is not None,
            }
            for s in scenarios
        },
        "slots": SLOTS,
        "servers": {name: SERVERS[name].described() for name in servers},
        "environment": environment.described(folder),
    }


def go_on(journal: Journal, scenarios: dict[str, Scenario], folder: Path, budget_s: float, say: Say) -> bool:
    """Measure the remaining steps until the budget is used up. Returns whether the run is finished.

    The budget ends the run between two steps. Raises AssertionError if a planned scenario no longer exists.
    """
    run = journal.run
    gone = {key[1] for key in run.left()} - set(scenarios)
    assert not gone, f"the plan has scenarios that do not exist any more: {', '.join(sorted(gone))}"
    begun = time.monotonic()
    left = run.left()
    done = 0
    for name, keys in _blocks(left, scenarios):
        if time.monotonic() - begun > budget_s:
            say(f"the budget is used up; {len(left) - done} steps are left: `resume {journal.path}`")
            return False

        def note(text: str, done: int = done + 1) -> None:
            say(f"[{done}/{len(left)}, {(time.monotonic() - begun) / 60:.1f} min] {text}")

        _Block(journal, scenarios[name], folder, note).run(keys)
        done += len(keys)
    journal.add("finished", at=environment.now())
    return True


def _blocks(left: list[Key], scenarios: dict[str, Scenario]) -> Iterator[tuple[str, list[Key]]]:
    """Groups of steps: each step alone, or all steps of a scenario with servers that live over the rounds."""
    for name, keys in groupby(left, key=lambda key: key[1]):
        if scenarios[name].live:
            yield name, list(keys)
        else:
            yield from ((name, [key]) for key in keys)


class _Block:
    """The steps of one scenario, measured one after another."""

    def __init__(self, journal: Journal, scenario: Scenario, folder: Path, say: Say) -> None:
        self._journal, self._scenario, self._folder, self._say = journal, scenario, folder, say

    def run(self, keys: list[Key]) -> None:
        """Measure the steps; the journal names a server that cannot be started or measured."""
        if self._scenario.measure is not None:
            for key in keys:
                self._fresh(key, self._scenario.measure)
        elif self._scenario.apart:
            for _, own in groupby(keys, key=lambda key: key[2]):
                self._living(list(own))
        else:
            self._living(keys)

    def _fresh(self, key: Key, measure: Callable[[Step], Measured]) -> None:
        step = self._step_of(key, f"{key[0]}-{key[1]}-{key[2]}")
        self._take(key, lambda: measure(step))
        self._leave(step)

    def _living(self, keys: list[Key]) -> None:
        """Start and warm all servers, then let them take turns."""
        steps = {key[2]: self._step_of(key, f"{key[1]}-{key[2]}") for key in keys}
        with ExitStack() as stack:
            born = {server: self._born(stack, step) for server, step in steps.items()}
            for key in keys:
                self._take(key, born[key[2]])
                self._pause(steps[key[2]], TURN_PAUSE_S)
        for step in steps.values():
            self._leave(step)

    def _born(self, stack: ExitStack, step: Step) -> Callable[[], Measured]:
        """Start and warm a server. Returns how to take a round; its first sample describes the warm-up."""
        assert self._scenario.live is not None
        begun = time.monotonic()
        try:
            _check_server(step.server)
            with _limit(STEP_LIMIT_S):
                life: Life = stack.enter_context(self._scenario.live(step))
        except Exception as error:
            return lambda error=error: _raise(error)  # type: ignore[misc]
        warm = [{"prepared": life.warm.pop("prepared", {}), "warm": {**life.warm, "seconds": _since(begun)}}]
        self._say(f"{self._scenario.name}, {step.server.name}: warm after {_since(begun):.0f} s")
        self._pause(step, TURN_PAUSE_S)

        def measured() -> Measured:
            found = life.measure()
            return Measured(found.figures, {**(warm.pop() if warm else {}), **found.detail})

        return measured

    def _step_of(self, key: Key, name: str) -> Step:
        run = self._journal.run
        return Step(SERVERS[key[2]], self._folder / name, bool(run.header["quick"]), _prepared(run))

    def _take(self, key: Key, measure: Callable[[], Measured]) -> None:
        """Run one step, and append its result to the journal."""
        at, name, server = key
        place = {"round": at, "scenario": name, "server": server}
        what = f"round {at}, {name}, {server}"
        load, others, begun = environment.load(), environment.others_cpu(), time.monotonic()
        try:
            _check_server(SERVERS[server])
            self._journal.add("begun", **place, at=environment.now())
            with _limit(STEP_LIMIT_S):
                found = measure()
            _check(self._scenario, found)
        except ImpossibleError as error:
            self._journal.add("skipped", **place, why=str(error))
            self._say(f"{what}: skipped, {error}")
        except Exception as error:  # not even a scenario's bug may end an unattended run
            note = _error_text(error, self._folder)
            self._journal.add("failed", **place, error=note, seconds=_since(begun), load=load)
            self._say(f"{what}: failed: {note[:200]}")
        else:
            spent = {"seconds": _since(begun), "load": load, "others_cpu_s": others()}
            self._journal.add("sample", **place, **spent, figures=found.figures, detail=found.detail)
            self._say(f"{what}: {spent['seconds']:.0f} s, {spent['others_cpu_s']} s of CPU used by others")

    def _leave(self, step: Step) -> None:
        if not self._scenario.keeps_files:
            shutil.rmtree(step.folder, ignore_errors=True)
        self._pause(step, PAUSE_S)

    @staticmethod
    def _pause(step: Step, seconds: float) -> None:
        """Sync and pause: data that this step wrote must not be written back during the next step."""
        if not step.quick:
            subprocess.run(["sync"], check=False)
            time.sleep(seconds)


def _check_server(server: Server) -> None:
    if server.missing():
        raise ImpossibleError(server.missing())


def _raise(error: Exception) -> Measured:
    raise error


def _prepared(run: Run) -> dict[str, Any]:
    """The results of earlier steps for later steps; the first result counts."""
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


def _error_text(error: BaseException, folder: Path) -> str:
    """The error without paths of this machine, shortened."""
    text = f"{type(error).__name__}: {error}"
    for path in (folder, environment.ROOT, Path.home()):
        text = text.replace(str(path), "…")
    return text[:2000]


def _since(begun: float) -> float:
    return round(time.monotonic() - begun, 2)


@contextmanager
def _limit(seconds: int) -> Iterator[None]:
    """Raise StepTimeoutError in the block after `seconds`."""

    def late(_number: int, _frame: Any) -> None:
        raise StepTimeoutError(f"the step took longer than {seconds} s")

    before = signal.signal(signal.SIGALRM, late)
    signal.alarm(seconds)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)
