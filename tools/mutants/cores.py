"""The cores that mutants are drawn from, and the simulators that must find them."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from tests.sim.planted_bugs import SEEDS, all_bugs
from tools.mutants.sites import Mutant, mutants_of
from tools.planted import read_bug

ROOT = Path(__file__).parents[2]
NODE, OPERATOR = "node/src/kraft_node", "operator/src/kraft_operator"


class Broken(NamedTuple):
    """The first seed that broke a law."""

    seed: int
    law: str


class Simulator(NamedTuple):
    """A program that runs seeds until one breaks a law."""

    name: str
    seeds: int
    """The budget of one mutant: the same as that of a planted bug in `make planted`."""
    seed_s: float
    """The time of a slow seed on a busy machine. Ten times as much means that the mutant hangs."""
    command: Callable[[int, int], list[str]]
    """Arguments for Python to run `count` seeds from `first` on."""
    read: Callable[[str], Broken | None]
    """Reads the output of a run that ended with exit code 1."""


def _raft_command(first: int, count: int) -> list[str]:
    return ["-m", "kraft_node.testing.raft", "--seeds", str(count), "--seed-from", str(first), "--events", "2000"]


def _read_raft(output: str) -> Broken | None:
    found = re.search(r"^seed (\d+): (.*)$", output, re.MULTILINE)
    return Broken(int(found[1]), found[2]) if found else None


def _sim_command(scenario: str) -> Callable[[int, int], list[str]]:
    def command(first: int, count: int) -> list[str]:
        seeds = ["--seeds", str(count), "--first", str(first), "--jobs", "1"]
        return ["-m", "kraft_node.testing.sim", "--scenario", scenario, *seeds, "--json", "--until-broken"]

    return command


def _read_sim(output: str) -> Broken | None:
    try:
        failures = json.loads(output)["failures"]
    except (json.JSONDecodeError, KeyError):
        return None
    return Broken(failures[0]["seed"], failures[0]["findings"][0]) if failures else None


def _planner_command(first: int, count: int) -> list[str]:
    return ["-m", "tests.sim.operator", "--seeds", str(count), "--first", str(first)]


def _read_planner(output: str) -> Broken | None:
    found = re.search(r"^FAILED --first (\d+) --seeds 1 (.*)$", output, re.MULTILINE)
    return Broken(int(found[1]), found[2]) if found else None


def _sim(scenario: str, seed_s: float) -> Simulator:
    return Simulator(scenario, SEEDS[scenario], seed_s, _sim_command(scenario), _read_sim)


SIMULATORS = {
    each.name: each
    for each in (
        Simulator("raft", 1000, 2.0, _raft_command, _read_raft),
        _sim("node", 10.0),
        _sim("cluster", 30.0),
        _sim("transactions", 30.0),
        _sim("groups", 60.0),
        _sim("secured", 60.0),
        _sim("whole", 120.0),
        Simulator("operator", 6, 60.0, _planner_command, _read_planner),
    )
}


class Core(NamedTuple):
    """Files of a package, the simulators that run them, and their unit tests."""

    name: str
    package: str
    files: tuple[str, ...]
    """Patterns, relative to the package."""
    simulators: tuple[str, ...]
    """In the order in which they hunt."""
    tests: tuple[str, ...]
    """What judges the survivors."""

    def sources(self) -> dict[str, Path]:
        """The paths of the files, by their names relative to the package."""
        package = ROOT / self.package
        paths = sorted({path for pattern in self.files for path in package.glob(pattern)})
        return {path.relative_to(package).as_posix(): path for path in paths}

    def mutants(self) -> list[Mutant]:
        """All mutants, in the order of the files."""
        return [mutant for file, path in self.sources().items() for mutant in mutants_of(file, path.read_text())]


CORES = {
    core.name: core
    for core in (
        Core("raft", NODE, ("raft/**/*.py",), ("raft",), ("tests/unit/raft", "tests/property/raft")),
        Core(
            "partition",
            NODE,
            ("partition/*.py",),
            ("cluster",),
            ("tests/unit/partition", "tests/property/partition"),
        ),
        Core("log", NODE, ("log/**/*.py",), ("node", "cluster"), ("tests/unit/log", "tests/property/log")),
        Core(
            "controller",
            NODE,
            ("controller/**/*.py",),
            ("cluster",),
            ("tests/unit/controller", "tests/property/controller"),
        ),
        Core(
            "coordinators",
            NODE,
            ("broker/coordinators/**/*.py",),
            ("transactions", "groups"),
            ("tests/unit/coordinators", "tests/property/coordinators"),
        ),
        Core("planner", OPERATOR, ("plan/**/*.py",), ("operator",), ("tests/unit/operator", "tests/property/operator")),
    )
}


PLANTED = "planted"
"""The name of the cores, and the kind of the mutants, that somebody chose."""


def planted_bugs() -> list[tuple[Core, Mutant]]:
    """The planted bugs of the node, as mutants whose seeds are not known."""
    raft = [read_bug(path) for path in sorted((ROOT / "tests/sim/raft/planted").glob("*.bug"))]
    bugs = [(bug.name, bug.file, bug.old, bug.new, "raft") for bug in raft if not bug.catch]
    bugs += [(bug.name, bug.file, bug.old, bug.new, bug.scenario) for bug in all_bugs()]
    found = []
    for name, file, old, new, simulator in bugs:
        data = (ROOT / NODE / file).read_bytes()
        start = data.index(old.encode())
        line = data.count(b"\n", 0, start) + 1
        mutant = Mutant(file, name, PLANTED, 0, line, start, start + len(old.encode()), old, new)
        found.append((Core(PLANTED, NODE, (), (simulator,), ()), mutant))
    return found


def find(name: str) -> tuple[Core, Mutant]:
    """A mutant or a planted bug by its name. Raises KeyError."""
    for bug in planted_bugs():
        if bug[1].name == name:
            return bug
    file = name.partition(":")[0]
    for core in CORES.values():
        path = core.sources().get(file)
        for mutant in mutants_of(file, path.read_text()) if path else []:
            if mutant.name == name:
                return core, mutant
    raise KeyError(name)
