"""What a table must be able to do: say where it stands, and take a batch as one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.bykey.ordering import Order
from kraft_pipeline.tables.partitions import By
from kraft_pipeline.tables.storage import Storage

T = TypeVar("T")
R = TypeVar("R")
DELETED: Final = "_kraft_deleted"
"""Of changes by key: whether the row goes; a column of no table."""


class ConflictError(Exception):
    """Somebody else has committed to the table what was to be committed now; the message names table and batch."""


class FencedError(ConflictError):
    """Another writer has taken the table over: this one commits nothing to it any more, however often it tries."""


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
    whole: bool = True
    """False where it is not ours to replace: rows of it are deleted elsewhere, or it is filed otherwise than others."""


class Part(NamedTuple):
    """Some of the changes of a batch: rows in memory, or in a Parquet file beside the table's."""

    rows: pa.Table | None = None
    path: str = ""

    def read(self, storage: Storage, columns: Sequence[str] | None = None) -> pa.Table:
        """The rows, or some of their columns. Raises OSError."""
        if self.rows is not None:
            return self.rows if columns is None else self.rows.select(list(columns))
        with storage.open(self.path) as source:
            return pq.ParquetFile(source).read(None if columns is None else list(columns))


@dataclass(frozen=True, slots=True)
class Changes:
    """What one batch changes: rows with the table's columns and DELETED; no two of them have the same `keys`.

    The rows are in one table, or in `parts` that executors have put aside.
    """

    rows: pa.Table | None
    keys: tuple[str, ...]
    order: Order | None = None
    """None where a change is newer than whatever is there."""
    files: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """What `rows` or `files` are."""
        return self.files if self.rows is None else (Part(self.rows),)

    def read(self, storage: Storage) -> pa.Table | None:
        """All rows, None if there is no part. Raises OSError."""
        parts = [part.read(storage) for part in self.parts]
        return pa.concat_tables(parts) if parts else None


@dataclass(frozen=True, slots=True)
class State:
    """The last batch that was committed, -1 for none, and where it ended."""

    batch: int = -1
    position: Position | None = None
    epoch: int = 0
    """Of the writer that may commit, 0 before there was one."""

    def check(self, table: str, epoch: int) -> None:
        """Raises FencedError for another writer's epoch than that of `table`."""
        if epoch and not self.epoch:
            raise FencedError(f"table {table} has been removed, or made anew, meanwhile")
        if epoch != self.epoch:
            raise FencedError(f"table {table}: writer {self.epoch} has taken over, writer {epoch} commits nothing more")


def stem(app_id: str, epoch: int) -> str:
    """How the names of all data files begin that a writer of that epoch makes."""
    return f"{app_id}-e{epoch:010d}-"


def is_left(name: str, app_id: str, epoch: int) -> bool:
    """Whether a file of an earlier version, which recorded nothing, may be swept by the writer of that epoch.

    Not what a later one has made, nor what a compaction beside it has: those may be committed yet.
    """
    found = re.match(rf"{re.escape(app_id)}-(?:e(\d{{10}})-)?(?:b\d{{8}}-|(compact-))", name)
    return found is not None and (int(found[1] or 0), bool(found[2])) < (epoch, True)


class Committer(Protocol):
    """A table as the runner sees it. Several writers (a stream, and what fills in what came before) have states apart.

    Of one such writer there may be two processes at once, the former one not knowing yet that it has been replaced.
    Whoever starts claims the next epoch, which is a transaction of the table like all others: what the former process
    has not committed by then it never will, and so its files, whose names have its epoch, may be swept.

    Raises OSError, ConflictError, and ValueError for a table that is not of this kind. A ConflictError leaves the table
    as the others made it: whoever finds its own state unchanged may try again, unless it is a FencedError.
    """

    def schema(self) -> pa.Schema | None:
        """The columns, None for a table that has not been created."""

    def state(self) -> State:
        """Where the table stands, read anew."""

    def claim(self, epoch: int) -> None:
        """Be the writer of that epoch, which shuts out all before. Raises ConflictError unless it is a new one."""

    def join(self) -> int:
        """Be of the present writer's epoch, to replace files beside it; which that is."""

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        """Make the table, its rows filed by `levels`, or give one that exists the columns that it lacks."""

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        """Add the files as batch number `batch`, and take `removed` ones away with their rows.

        Raises ConflictError unless `after` is the last batch and the removed files are the table's, FencedError.
        """

    def files(self) -> set[str]:
        """The paths of all files that any version that can still be read refers to."""

    def live(self) -> list[Added]:
        """The files of the present version."""

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """Put `new` files in the place of `old` ones that hold the same rows. Raises ConflictError, FencedError."""

    def vacuum(self, older_s: float) -> int:
        """Remove files that were replaced longer ago than that; how many."""

    def sweep(self) -> int:
        """Remove what commits of this writer that were cut off left of themselves, not data files; how many files."""

    def forget(self) -> None:
        """Take the table out of its catalog; called before its files are removed."""


class Each(Protocol):
    """Calls a function with each of many arguments, several at once where it can; the results in their order."""

    def __call__(self, call: Callable[[T], R], work: Sequence[T], /) -> list[R]: ...


@runtime_checkable
class Keyed(Committer, Protocol):
    """A table that also takes rows by key."""

    def upsert(self, batch: int, position: Position, changes: Changes, *, after: int, each: Each) -> list[str]:
        """As `commit`, but rows take the place of those that have the same keys and are older; the files it made.

        What is to be done file by file may be done by `each`.
        """
