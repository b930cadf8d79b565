"""What a table must be able to do: say where it stands, and take a batch as one transaction."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import pyarrow as pa

from kraft_pipeline.sources.positions import Position


class ConflictError(Exception):
    """Somebody else has committed to the table what was to be committed now; the message names table and batch."""


@dataclass(frozen=True, slots=True)
class Added:
    """A data file: its path relative to the table, and what a reader may know without opening it."""

    path: str
    size: int
    rows: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    """Of the columns that rows are filed under."""
    minima: Mapping[str, Any] = field(default_factory=dict)
    maxima: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class State:
    """The last batch that was committed, -1 for none, and where it ended."""

    batch: int = -1
    position: Position | None = None


class Committer(Protocol):
    """A table as the runner sees it.

    Raises OSError, ConflictError, and ValueError for a table that is not of this kind.
    """

    def schema(self) -> pa.Schema | None:
        """The columns, None for a table that has not been created."""

    def state(self) -> State:
        """Where the table stands, read anew."""

    def create(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Make the table, or give one that exists the columns that it lacks."""

    def commit(self, batch: int, position: Position, files: Sequence[Added], *, after: int) -> None:
        """Add the files as batch number `batch`. Raises ConflictError unless `after` is the last one."""

    def files(self) -> set[str]:
        """The paths of all files that any version that can still be read refers to."""

    def live(self) -> list[Added]:
        """The files of the present version."""

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """Put `new` files in the place of `old` ones that hold the same rows. Raises ConflictError."""

    def vacuum(self, older_s: float) -> int:
        """Remove files that were replaced longer ago than that; how many."""
