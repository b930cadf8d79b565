"""The interface of a table: its state, and a batch as one transaction."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple, Protocol, TypeVar, runtime_checkable

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Loss, Position
from kraft_pipeline.tables.bykey.ordering import Order
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.specs.partitions import By
from kraft_pipeline.tables.stores.storage import Storage

T = TypeVar("T")
R = TypeVar("R")
TRIES: Final = 20
"""Attempts of one commit while other writers commit to the same table first."""
DELETED: Final = "_kraft_deleted"
"""Column of changes by key: whether the row is deleted. Tables do not have this column."""


@dataclass(frozen=True, slots=True)
class Added:
    """A data file: its path relative to the table, bytes, rows, and metadata."""

    path: str
    size: int
    rows: int
    values: Mapping[str, str | None] = field(default_factory=dict)
    """Partition columns and their values as texts. `minima` and `maxima`: bounds of some columns (`datafiles`)."""
    minima: Mapping[str, Any] = field(default_factory=dict)
    maxima: Mapping[str, Any] = field(default_factory=dict)
    whole: bool = True
    """False if it must not be replaced: another file deletes rows of it, or it has another partition spec."""
    nulls: Mapping[str, int] = field(default_factory=dict)
    """Numbers of nulls by column. Without them, deltalake takes nulls for values in the bounds."""


class Part(NamedTuple):
    """Some changes of a batch: rows in memory, or in a staged Parquet file."""

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
    """The changes of one batch: rows with the table's columns and DELETED, at most one for each value of `keys`.

    The rows are in one table, or in `files` that executors have staged.
    """

    rows: pa.Table | None
    keys: tuple[str, ...]
    order: Order | None = None
    """None if changes are always newer than rows of the table."""
    files: tuple[Part, ...] = ()

    @property
    def parts(self) -> tuple[Part, ...]:
        """The changes as parts, from `rows` or `files`."""
        return self.files if self.rows is None else (Part(self.rows),)

    def read(self, storage: Storage) -> pa.Table | None:
        """Read all rows; returns None without parts. Raises OSError."""
        parts = [part.read(storage) for part in self.parts]
        return pa.concat_tables(parts) if parts else None


@dataclass(frozen=True, slots=True)
class State:
    """A writer's last committed batch, -1 before the first, and its end position."""

    batch: int = -1
    position: Position | None = None
    epoch: int = 0
    """Epoch of the process that may commit; 0 before the first claim."""
    lost: tuple[Loss, ...] = ()
    """Records of committed batches that another program has taken out of the table since the last batch."""

    def check(self, table: str, epoch: int) -> None:
        """Raise FencedError unless `epoch` may commit. `table` names the table in the message."""
        if epoch and not self.epoch:
            raise FencedError(f"table {table} was removed or recreated meanwhile")
        if epoch != self.epoch:
            raise FencedError(f"table {table}: writer {self.epoch} has taken over, writer {epoch} commits nothing more")


def retry_commit(commit: Callable[[], None], is_open: Callable[[], bool] = lambda: True) -> None:
    """Commit, and retry while others, such as a backfill, commit first and `is_open`. Raises FencedError at once."""
    for tries_left in reversed(range(TRIES)):
        try:
            return commit()
        except ConflictError as e:
            if isinstance(e, FencedError) or not tries_left or not is_open():
                raise
    return None


def stem(app_id: str, epoch: int) -> str:
    """Prefix of the names of a writer's data files."""
    return f"{app_id}-e{epoch:010d}-"


def is_left(name: str, app_id: str, epoch: int) -> bool:
    """Whether the writer of `epoch` may remove an uncommitted file of an earlier release, which recorded no files.

    Files of later writers and of a compaction beside this writer stay, because they may still be committed.
    """
    found = re.match(rf"{re.escape(app_id)}-(?:e(\d{{10}})-)?(?:b\d{{8}}-|(compact-))", name)
    return found is not None and (int(found[1] or 0), bool(found[2])) < (epoch, True)


class Committer(Protocol):
    """A table as the runner sees it. Writers with different ids (stream, backfill, replay) have separate states.

    Two processes may run with the same id, if the first does not know yet that it was replaced. A starting process
    claims the next epoch with a transaction of the table. After it the earlier process can no longer commit, so its
    uncommitted files can be removed.

    Methods raise OSError, ConflictError, and ValueError if the table is of another kind. After a ConflictError the
    caller may retry if its own state is unchanged, unless it is a FencedError.
    """

    def schema(self) -> pa.Schema | None:
        """Return the columns, or None if the table does not exist."""

    def state(self) -> State:
        """Read the table again and return this writer's state."""

    def claim(self, epoch: int) -> None:
        """Take over with `epoch` and fence all earlier epochs. Raises ConflictError unless it is the highest so
        far."""

    def join(self) -> int:
        """Adopt the current writer's epoch, to replace files beside it, and return it."""

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        """Create the table, partitioned by `levels`, or add missing columns to an existing table.

        Raises ValueError if the existing table is partitioned differently.
        """

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        """Commit batch number `batch`: add `files`, and remove the `removed` files with their rows.

        Raises ConflictError unless `after` is the last batch and the table has the removed files, and FencedError.
        """

    def files(self) -> set[str]:
        """Paths of all files that any readable version references."""

    def live(self) -> list[Added]:
        """Files of the current version."""

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """Replace `old` files by `new` files with the same rows. Raises ConflictError, FencedError."""

    def vacuum(self, older_s: float) -> int:
        """Remove files replaced more than `older_s` seconds ago. Returns their number."""

    def sweep(self) -> int:
        """Remove metadata files of this writer's interrupted commits, not data files. Returns their number."""

    def forget(self) -> None:
        """Drop the table from its catalog. Call this before its files are removed."""


class Each(Protocol):
    """Calls a function with each argument, possibly concurrently, and returns the results in order."""

    def __call__(self, call: Callable[[T], R], work: Sequence[T], /) -> list[R]: ...


@runtime_checkable
class Keyed(Committer, Protocol):
    """A table that also accepts changes by key."""

    def upsert(self, batch: int, position: Position, changes: Changes, *, after: int, each: Each) -> list[str]:
        """As `commit`, but `changes` replace older rows with the same keys. Returns the paths of the new files.

        `each` runs the work on single files.
        """
