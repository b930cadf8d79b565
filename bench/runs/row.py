"""The rows of the comparison, and the scenarios that measure them.

A `Row` is a line of the page: a figure with its unit, its aim, and the differences between the servers. A `Scenario`
measures some rows on a server that it starts itself, so that scenarios can run in any order. The server is either
fresh in each round (`measure`), or lives over all rounds (`live`). Files in `bench.scenarios` list their scenarios in
`SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.servers.server import SERVERS, Server
from tests.compat.targets import Target

T = TypeVar("T")

Figures = dict[str, float]
"""Row name -> figure in the row's unit."""

OURS_AND_KAFKA = (("ours", "kafka"),)


@dataclass(frozen=True)
class Row:
    """A figure to compare.

    `aim` bounds the ratio of the first server to the second, or, if `absolute`, the first server's figure. None means
    that the row has no aim. `differs` names the different work of the two servers. `section` is the heading of the
    page if it is not the scenario's.
    """

    name: str
    unit: str
    more_is_better: bool
    aim: float | None = None
    absolute: bool = False
    differs: str = ""
    section: str = ""


@dataclass
class Measured:
    """The results of a scenario: figures by row, and their raw data (warm-up seconds, figures per second)."""

    figures: Figures
    detail: dict[str, Any] = field(default_factory=dict)


class ImpossibleError(Exception):
    """This machine cannot run the step with any server; the message names the limit. The step is skipped."""


@dataclass
class Life:
    """A server that lives over a scenario's rounds: `measure` runs one round, `warm` describes the warm-up."""

    measure: Callable[[], Measured]
    warm: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One scenario on one server in one round, with a folder for its files. Scenarios take all sizes from here."""

    server: Server
    folder: Path
    quick: bool
    prepared: dict[str, Any] = field(default_factory=dict)
    """Results of earlier steps of the same run for later steps, such as the smallest heap."""

    def size(self, full: T, quick: T) -> T:
        """The size for a measurement, or for a quick run, which only checks that the scenario works."""
        return quick if self.quick else full

    @property
    def shared(self) -> Path:
        """An existing folder for files that are prepared once and used by many steps of the run."""
        folder = self.folder.parent / "shared"
        folder.mkdir(parents=True, exist_ok=True)
        return folder

    @contextmanager
    def node(self, **overrides: str) -> Iterator[Target]:
        """A formatted node that is not started yet; it is killed at the end. In names, `log_dirs` means log.dirs."""
        values = {key.replace("_", "."): value for key, value in overrides.items()}
        target = self.server.node(self.folder, values)
        target.format()
        try:
            yield target
        finally:
            target.kill()

    @contextmanager
    def started(self, **overrides: str) -> Iterator[Target]:
        """A node that responds; it is killed at the end."""
        with self.node(**overrides) as target:
            yield target.start()


@dataclass(frozen=True)
class Scenario:
    """Measures some rows on one server. `pairs` lists the servers to compare; the first pair is the row's own."""

    name: str
    section: str
    rows: tuple[Row, ...]
    measure: Callable[[Step], Measured] | None
    """One round on a fresh server; None if the servers live over the rounds."""
    minutes: float
    """The approximate time of all rounds of a run on all servers."""
    pairs: tuple[tuple[str, str], ...] = OURS_AND_KAFKA
    keeps_files: bool = False
    """Whether its files stay until the run ends: after many deletions, ext4 creates files slowly for minutes, which
    would slow the next server."""
    live: Callable[[Step], AbstractContextManager[Life]] | None = None
    """Starts and warms a server for all rounds."""
    apart: bool = False
    """Whether the servers live one after another, because they would disturb each other."""
    rounds: int = 0
    """The maximum number of rounds; 0: all rounds of the run."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The distinct names of all servers in the pairs."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair if name))

    def rounds_of(self, rounds: int) -> int:
        """The number of rounds measured in a run of `rounds` rounds."""
        return min(rounds, self.rounds or rounds)

    def check(self) -> None:
        """Raise ValueError if a pair names an unknown server, or unless exactly one way to measure is given."""
        if (self.measure is None) == (self.live is None):
            raise ValueError(f"scenario {self.name}: either measure or live")
        unknown = set(self.servers) - set(SERVERS)
        if unknown:
            raise ValueError(f"scenario {self.name}: unknown servers {', '.join(sorted(unknown))}")
