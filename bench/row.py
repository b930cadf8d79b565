"""What is measured: rows, and the scenarios that measure them.

A `Row` is a line of the page: a figure with its unit, its aim, and what the two servers do differently. A `Scenario`
measures the figures of some rows on a server that it starts itself, so that scenarios can run in any order. Files in
`bench.scenarios` list their scenarios in `SCENARIOS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeVar

from bench.server import SERVERS, Server
from tests.compat.targets import Target

T = TypeVar("T")

Figures = dict[str, float]
"""Row name -> figure in the row's unit."""

OURS_AND_KAFKA = (("ours", "kafka"),)


@dataclass(frozen=True)
class Row:
    """A figure to compare.

    `aim` bounds the ratio of the first server to the second, or, if `absolute`, the first server's figure. None
    means that the row has no aim. `differs` names what the two servers do differently.
    """

    name: str
    unit: str
    more_is_better: bool
    aim: float | None = None
    absolute: bool = False
    differs: str = ""


@dataclass
class Measured:
    """What a scenario found: figures by row, and raw data behind them (seconds of warming, a figure a second)."""

    figures: Figures
    detail: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Step:
    """One scenario on one server in one round, with the folder for its files. Scenarios take all sizes from here."""

    server: Server
    folder: Path
    quick: bool
    prepared: dict[str, Any] = field(default_factory=dict)
    """What earlier steps of the same run found out for later steps, such as the smallest heap."""

    def size(self, full: T, quick: T) -> T:
        """The size for a measurement, or for a quick run, which shows only that the scenario works."""
        return quick if self.quick else full

    @contextmanager
    def node(self, **overrides: str) -> Iterator[Target]:
        """A formatted node that is not started yet; it is killed at the end. Names: `log_dirs` is log.dirs."""
        values = {key.replace("_", "."): value for key, value in overrides.items()}
        target = self.server.node(self.folder, values)
        target.format()
        try:
            yield target
        finally:
            target.kill()

    @contextmanager
    def started(self, **overrides: str) -> Iterator[Target]:
        """A node that answers; it is killed at the end."""
        with self.node(**overrides) as target:
            yield target.start()


@dataclass(frozen=True)
class Scenario:
    """Measures some rows on one server. `pairs` lists the servers to compare; the first pair is the row's own."""

    name: str
    section: str
    rows: tuple[Row, ...]
    measure: Callable[[Step], Measured]
    minutes: float
    """How long a round on all servers takes, roughly."""
    pairs: tuple[tuple[str, str], ...] = OURS_AND_KAFKA
    keeps_files: bool = False
    """Whether its files stay until the run ends: after many files were removed, ext4 makes new ones slowly for minutes,
    and the next server would pay for that."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The names of all servers of the pairs, each once."""
        return tuple(dict.fromkeys(name for pair in self.pairs for name in pair if name))

    def check(self) -> None:
        """Raise ValueError if a pair names an unknown server."""
        unknown = set(self.servers) - set(SERVERS)
        if unknown:
            raise ValueError(f"scenario {self.name}: unknown servers {', '.join(sorted(unknown))}")
