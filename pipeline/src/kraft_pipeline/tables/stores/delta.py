"""Delta tables through delta-rs. The batch number is the version in `txn`; the end position is in the commit's info.

Tasks write the files, and the commit only names them, as any Delta writer does. The version in `txn` ensures that a
batch is committed once. The writer reads it before each commit. If another commit takes the same version of the table,
the commit fails, and the writer reads the table again before it retries.
"""

from __future__ import annotations

import hashlib
import json
import math
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final, NamedTuple

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, PostCommitHookProperties, Transaction
from deltalake.exceptions import DeltaError, TableNotFoundError
from deltalake.schema import Schema

from kraft_pipeline.sources.positions import Loss, Position
from kraft_pipeline.tables.bykey.merging import Left, Merge, accepted
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.schemas import widened
from kraft_pipeline.tables.specs.partitions import By, with_columns
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, Changes, Each, State
from kraft_pipeline.tables.stores.deltaactions import add, live_files, merge, remove
from kraft_pipeline.tables.stores.deltapositions import StoredPositions, check_expiry
from kraft_pipeline.tables.stores.deltarestores import APP, BATCH, POSITION, RESTORE, taken_back
from kraft_pipeline.tables.stores.intents import Work
from kraft_pipeline.tables.stores.storage import open_storage, store_options

DELETION_VECTORS: Final = "deletionVectors"
"""Table feature: rows of a data file may be deleted by a separate file. delta-rs does not report which files."""
CHANGE_FEED: Final = "delta.enableChangeDataFeed"
RECENT: Final = 20
"""Newest commits to read before the whole history. Each is a file, and our last commit is nearly always among them."""


HOURS_MAX: Final = 1000 * 365 * 24
"""The age of files that delta-rs is given at most. It panics for more than it can count."""

LOADED_S: Final = 600.0
"""Seconds after which a writer no longer looks for the next commit by its name: much less than logs are retained."""


class _Known(NamedTuple):
    """The transactions of a version of the table."""

    version: int
    versions: Mapping[str, int]


class _Mark(NamedTuple):
    """A commit that has been read. Another table at the same path has another commit under this number."""

    version: int
    digest: bytes


class DeltaTableOf:
    """A `Committer` over one Delta table."""

    def __init__(self, uri: str, app_id: str, storage: Mapping[str, str]) -> None:
        """Raises SpecError for a path that delta-rs would misread."""
        self._uri, self._app, self._storage = uri, app_id, store_options(storage)
        self._state: State | None = None
        self._info: Mapping[str, str] = {}
        """The last commit info of this application that was read: batch and position."""
        self._lost: tuple[Loss, ...] | None = None
        """What RESTORE took out of the table since the last batch; None if the log has not been searched."""
        self._shown: tuple[Loss, ...] = ()
        """The losses that `state` returned last."""
        self._known: _Known | None = None
        self._mark: _Mark | None = None
        """The newest commit that was read; None if the log lacks it, because it is older than the log's retention."""
        self._loaded = -math.inf
        self._files = open_storage(uri, self._storage)
        self._positions = StoredPositions(self._files, app_id)
        escape = re.search("%[0-9A-Fa-f]{2}", self._files.uri)  # also above a relative path
        if escape:  # deltalake would write the log to one folder and read it from another
            where = self._files.uri
            raise SpecError(f"spec.table.path: {where}: deltalake takes {escape[0]} for an escape; give another path")
        self._epoch = 0
        self._table: DeltaTable | None = None
        self._load()

    def schema(self) -> pa.Schema | None:
        """Return the columns as Arrow types, or None if the table does not exist."""
        return None if self._table is None else pa.schema(self._table.schema().to_arrow())

    def state(self) -> State:
        """Read new commits and return this writer's last batch, position, epoch and losses. Raises OSError."""
        found = self._newest()
        self._shown = found.lost
        return found

    def _newest(self) -> State:
        with self._errors_explained():
            if not self._probe():
                self._load()
                self._known = self._read_whole()
            return self._stands()

    def _stands(self) -> State:
        if self._table is None or self._known is None:
            return State()
        epoch, batch = self._known.versions.get(self._writer, 0), self._known.versions.get(self._app)
        if batch is None:
            return State(epoch=epoch)
        if self._state is None or self._state.batch != batch:
            info = self._info
            is_it = info.get(BATCH) == str(batch) and POSITION in info
            self._state = State(batch, Position.from_json(info[POSITION]) if is_it else self._position(batch))
            self._lost = None if self._lost is None else ()
        if self._lost is None:
            assert self._state.position is not None
            self._load_newer()
            self._lost = tuple(taken_back(self._commits(), self._app, batch, self._state.position))
        return replace(self._state, epoch=epoch, lost=self._lost)

    def _read_whole(self, newest: int | None = None) -> _Known | None:
        """The `txn` versions of our applications by delta-rs, which reads all commits since a checkpoint.

        `newest`: the newest batch that had a file before the table was loaded; None if files were not listed. Raises
        ValueError if a committed batch has lost its number.
        """
        if self._table is None:
            return None
        listed = self._positions.newest() if newest is None else newest
        if self._is_lost(listed):
            if newest is not None:
                raise self._positions.lost(self._uri, self._last(), newest)
            self._load()  # another writer may have committed before the files were listed
            return self._read_whole(listed)
        last, writer = self._table.transaction_version(self._app), self._table.transaction_version(self._writer)
        found = {app: number for app, number in ((self._app, last), (self._writer, writer)) if number is not None}
        self._lost = None
        return _Known(self._table.version(), found)

    def _last(self) -> int:
        """The last batch in the loaded version; -1 without."""
        assert self._table is not None
        found = self._table.transaction_version(self._app)
        return -1 if found is None else found

    def _is_lost(self, newest: int) -> bool:
        """Whether the loaded version lacks the number of a committed batch. `newest` is the newest with a file."""
        last = self._last()
        if newest == 0 > last:
            return any(commit.get(APP) == self._app and BATCH in commit for commit in self._commits())
        return newest > last + 1

    def _probe(self) -> bool:
        """Read the commits after the known version by their names; delta-rs lists the log, the slower the longer it is.

        Returns False if the table must be loaded: after many commits, a pause, a removal, or a change of its columns.
        """
        if self._table is None or self._known is None or time.monotonic() - self._loaded > LOADED_S:
            return False
        if not self._is_same():
            return False
        number, found = self._known.version, dict(self._known.versions)
        for _ in range(RECENT):
            try:
                commit = self._files.read(_log_name(number + 1))
            except FileNotFoundError:
                self._known, self._loaded = _Known(number, found), time.monotonic()
                return True
            number += 1
            if any(f'"{name}"'.encode() in commit for name in ("metaData", "protocol", RESTORE)):
                return False
            self._read(commit, found)
            self._mark = _mark_of(number, commit)
        return False

    def _is_same(self) -> bool:
        """Whether the log still has the newest commit that was read. If not, it may be the log of another table."""
        return self._mark is not None and self._marked(self._mark.version) == self._mark

    def _marked(self, version: int) -> _Mark | None:
        try:
            return _mark_of(version, self._files.read(_log_name(version)))
        except FileNotFoundError:
            return None

    def _read(self, commit: bytes, found: dict[str, int]) -> None:
        """Add the `txn` versions of a commit to `found`, and keep its info if it is of this application."""
        for line in commit.splitlines():
            if b'"txn"' not in line and b'"commitInfo"' not in line:
                continue
            action = json.loads(line)
            txn, info = action.get("txn"), action.get("commitInfo") or {}
            if txn is not None and txn["appId"] in (self._app, self._writer):
                found[txn["appId"]] = int(txn["version"])
            if info.get(APP) == self._app and BATCH in info:
                self._info = info

    def _fixed(self) -> State:
        """The state of the version that delta-rs has loaded: it refuses to commit if another commit follows that.

        Raises ValueError if the state may expire.
        """
        state = self._newest()
        if self._table is not None and self._known is not None and self._table.version() != self._known.version:
            with self._errors_explained():
                self._load()
                if self._table is None or self._known is None or self._table.version() != self._known.version:
                    self._known = self._read_whole()
                state = self._stands()
        if self._table is not None:
            check_expiry(self._uri, self._table.metadata().configuration)
        return state

    def _load_newer(self) -> None:
        """Load the table if `state` has read commits that delta-rs does not know yet."""
        if self._table is not None and self._known is not None and self._table.version() < self._known.version:
            self._load()

    def claim(self, epoch: int) -> None:
        """Commit a `txn` with the new epoch. Raises ConflictError unless `epoch` is the highest so far."""
        state = self._fixed()
        if epoch <= state.epoch:
            raise ConflictError(f"table {self._uri}: writer {state.epoch} has claimed it before writer {epoch}")
        self._write([], self._properties(state, Transaction(self._writer, epoch)))
        self._epoch = epoch

    def join(self) -> int:
        """Adopt the epoch of the current writer, without a commit, and return it."""
        self._epoch = self.state().epoch
        return self._epoch

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        """Create the table or add missing columns. Raises ValueError if it is partitioned differently."""
        schema, partition_by = with_columns(schema, levels), [by.name for by in levels]
        self._load()
        if self._table is None:
            self._table = DeltaTable.create(
                self._uri, schema, mode="ignore", partition_by=partition_by, storage_options=self._storage or None
            )
            self._load()
        assert self._table is not None
        there = self._table.metadata().partition_columns
        if partition_by and not there and not self._live():
            self._partition(schema, partition_by)
        elif partition_by != there:
            raise ValueError(f"table {self._uri} is partitioned by {there}, not by {partition_by}")
        known = {field.name: field for field in self._table.schema().fields}
        wider = Schema.from_arrow(widened(pa.schema(self._table.schema().to_arrow()), schema))
        new: list[Field] = [f for f in wider.fields if f != known.get(f.name)]
        if new:
            with self._errors_explained():
                self._table.alter.add_columns(new)
            self._load()

    def _partition(self, schema: pa.Schema, partition_by: Sequence[str]) -> None:
        """Partition a table without files, in a commit that keeps its transactions. Raises ConflictError."""
        assert self._table is not None
        metadata, there = self._table.metadata(), pa.schema(self._table.schema().to_arrow())
        with self._errors_explained():
            DeltaTable.create(
                self._uri,
                widened(there, schema),
                mode="overwrite",
                partition_by=list(partition_by),
                name=metadata.name,
                description=metadata.description,
                configuration=metadata.configuration,
                storage_options=self._storage or None,
                commit_properties=CommitProperties(max_commit_retries=0),
            )
        self._load()

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        """As `Committer.commit`: one Delta version with add and remove actions, and `txn` = batch."""
        self._check_order(batch, after)
        state = State(batch, position)
        gone = [remove(file, data_change=True) for file in self._held(removed)] if removed else []
        properties = self._properties(state, Transaction(self._app, batch))
        with self._keep_position(state):
            self._write([*gone, *(add(file, self.schema(), new=True) for file in files)], properties)

    def _held(self, paths: Sequence[str]) -> list[Added]:
        there = {file.path: file for file in self._live()}
        gone = [path for path in paths if path not in there]
        if gone:
            raise ConflictError(f"{gone[0]} is no longer a file of {self._uri}")
        return [there[path] for path in paths]

    def upsert(self, batch: int, position: Position, changes: Changes, *, after: int, each: Each) -> list[str]:
        """As `Keyed.upsert`. Raises ValueError, too, if the table has deletion vectors.

        delta-rs merges a table with a change data feed; then the result is empty.
        """
        self._check_order(batch, after)
        if not self._whole():
            raise ValueError(f"table {self._uri} has deletion vectors of another writer: it takes no rows by key")
        assert self._table is not None, "a table is created before anything is committed"
        state, work = State(batch, position), self._work(batch)
        properties = self._properties(state, Transaction(self._app, batch))
        feeds = self._table.metadata().configuration.get(CHANGE_FEED) == "true"
        plan = Merge.of(work, changes, self.schema(), whole=False, only_look=feeds)
        candidates = plan.candidates(self._live(changes.keys), each)
        found = [left for left in each(plan.left, candidates) if left is not None]
        if feeds:
            with self._keep_position(state):
                self._merge(self._newer_changes(plan, found), changes.keys, properties)
                if self.state().batch != batch:  # delta-rs commits nothing if no row changes
                    self._write([], properties)
            return []
        levels = [By(name, name, None) for name in self._table.metadata().partition_columns]
        new = [*plan.rows(found, levels, each), *(left.rest for left in found if left.rest is not None)]
        gone = [remove(left.old, data_change=True) for left in found if left.changed]
        with self._keep_position(state):
            self._write([*gone, *(add(file, self.schema(), new=True) for file in new)], properties)
        return [file.path for file in new]

    @contextmanager
    def _keep_position(self, state: State) -> Iterator[None]:
        """Store the position of a batch beside the table; the block commits the batch."""
        with self._positions.kept(state):
            yield
            self._state, self._lost = state, ()

    def _newer_changes(self, merge: Merge, found: Sequence[Left]) -> pa.Table:
        """Read all changes that are newer than the table's rows into this process, where delta-rs merges them."""
        storage, parts = merge.work.storage, []
        for number, part in enumerate(merge.parts):
            refused = [place for left in found for place in left.refused.get(number, [])]
            parts.append(accepted(part.read(storage), refused))
        return pa.concat_tables(parts)

    def _merge(self, rows: pa.Table, keys: Sequence[str], properties: CommitProperties) -> None:
        assert self._table is not None
        with self._errors_explained():
            merge(self._table, rows, keys, properties)

    def _work(self, batch: int) -> Work:
        return intents.batch(self._files, self._app, self._epoch, batch)

    def files(self) -> set[str]:
        """Paths of the current version's files and of replaced files not vacuumed yet: readers may still use them."""
        self._load()
        if self._table is None:
            return set()
        old = self._table.vacuum(retention_hours=0, dry_run=True, enforce_retention_duration=False)
        return {file.path for file in self.live()} | {_relative(path, self._uri) for path in old}

    def live(self) -> list[Added]:
        """Return the files of the newest version, without bounds."""
        self._load()
        return self._live()

    def _live(self, bounded: Sequence[str] = ()) -> list[Added]:
        """The files of the loaded version, with bounds of the columns `bounded` if the commits have them."""
        if self._table is None:
            return []
        return live_files(self._table, bounded, whole=self._whole())

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """As `Committer.replace`, without a data change. Raises ConflictError for deletion vectors, too."""
        state = self._fixed()
        state.check(self._uri, self._epoch)
        there = self._held(old)
        if not self._whole():
            raise ConflictError(f"table {self._uri} has deletion vectors: its files are another writer's to merge")
        removed = [remove(file, data_change=False) for file in there]
        self._write([*removed, *(add(file, self.schema(), new=False) for file in new)], self._properties(state))

    def vacuum(self, older_s: float) -> int:
        """Run Delta's VACUUM and remove expired log files. The age is rounded up to whole hours."""
        self._load()
        if self._table is None:
            return 0
        with self._errors_explained():
            self._table.cleanup_metadata()  # here, because after each commit it would list the whole log
        # delta-rs counts whole hours: round up, so no file goes too early
        hours = min(math.ceil(older_s / 3600), HOURS_MAX)
        return len(self._table.vacuum(retention_hours=hours, dry_run=False, enforce_retention_duration=False))

    def sweep(self) -> int:
        """Return 0: delta-rs does not report remains of interrupted commits."""
        return 0

    def forget(self) -> None:
        """Do nothing: a Delta table has no catalog entry."""

    def _whole(self) -> bool:
        assert self._table is not None
        return DELETION_VECTORS not in (self._table.protocol().writer_features or ())

    @property
    def _writer(self) -> str:
        """The application id with epochs as its `txn` versions."""
        return f"{self._app}.writer"

    def _check_order(self, batch: int, after: int) -> None:
        """Raise ConflictError unless the last batch of the table is `after`, and the caller knows of each RESTORE."""
        state = self._fixed()
        state.check(self._uri, self._epoch)
        for loss in set(state.lost).difference(self._shown):
            raise ConflictError(f"table {self._uri}: {loss.cause}")
        if state.batch != after:
            raise ConflictError(f"batch {batch} follows {after}, but the last one of {self._uri} is {state.batch}")

    def _properties(self, state: State, *transactions: Transaction) -> CommitProperties:
        """Commit properties without retries: the runner reads the table before it retries."""
        # A commit after a RESTORE must not look as if the table had the rows of the last batch.
        info = {} if state.position is None or state.lost else _info(state.batch, state.position)
        return CommitProperties({APP: self._app, **info}, max_commit_retries=0, app_transactions=list(transactions))

    def _write(self, actions: list[Any], properties: CommitProperties) -> None:
        assert self._table is not None, "a table is created before anything is committed"
        with self._errors_explained():
            self._table.create_write_transaction(
                actions,
                "append",
                self._table.schema(),
                self._table.metadata().partition_columns,
                commit_properties=properties,
                post_commithook_properties=PostCommitHookProperties(cleanup_expired_logs=False),
            )

    @contextmanager
    def _errors_explained(self) -> Iterator[None]:
        """Translate DeltaError: OSError if its text names a failed read or write, otherwise ConflictError."""
        try:
            yield
        except TableNotFoundError:
            raise
        except DeltaError as e:
            kind = OSError if re.search(r"Generic \w+ error|os error", str(e)) else ConflictError
            raise kind(f"table {self._uri}: {e}") from e

    def _load(self) -> None:
        """Load the newest version. delta-rs adds new commits to a loaded table without a look at the table's id."""
        self._loaded = time.monotonic()
        table = self._table if self._is_same() else None
        is_another = table is None
        try:
            with self._errors_explained():
                if table is None:
                    table = DeltaTable(self._uri, storage_options=self._storage or None)
                else:
                    table.update_incremental()
        except TableNotFoundError:
            table = None
        if is_another:
            self._known, self._state, self._info, self._lost = None, None, {}, None
        self._table = table
        self._mark = None if table is None else self._marked(table.version())

    def _commits(self) -> Iterator[dict[str, Any]]:
        """The infos of the log's commits, newest first."""
        assert self._table is not None
        recent = self._table.history(RECENT)
        yield from recent
        if len(recent) == RECENT:
            yield from self._table.history()[RECENT:]

    def _position(self, batch: int) -> Position:
        """Where the batch ended: from commit infos, newest first, or from the position file beside the table.

        Raises ValueError if neither has the position.
        """
        self._load_newer()
        for commit in self._commits():
            if commit.get(APP) == self._app and commit.get(BATCH) == str(batch):
                return Position.from_json(commit[POSITION])
        kept = self._positions.of(batch)
        if kept is not None:
            return kept
        raise ValueError(f"table {self._uri}: no commit shows the end of batch {batch}; its history was truncated")


def _log_name(version: int) -> str:
    return f"_delta_log/{version:020d}.json"


def _mark_of(version: int, commit: bytes) -> _Mark:
    return _Mark(version, hashlib.sha256(commit).digest())


def _info(batch: int, position: Position) -> dict[str, str]:
    return {BATCH: str(batch), POSITION: json.dumps(position.to_json())}


def _relative(path: str, uri: str) -> str:
    return path.removeprefix(uri).lstrip("/")
