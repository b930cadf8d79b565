"""Iceberg tables through PyIceberg: one snapshot holds a batch, its number and its end position.

Tasks write the files, and the commit only names them. The files have no column ids; the table's name mapping maps
columns by name. Rows are partitioned by Iceberg's own transforms, so queries need no extra columns: `date` is the day
of `_timestamp`.

A snapshot's summary has `kraft.app`, `kraft.batch` and `kraft.position-at`, the path of a file with the position. A
rollback of the table therefore rolls the position back, too. Every metadata version repeats all summaries, so they are
short. The table's properties also have the last batch and its position, in case its snapshot has expired. PyIceberg's
own retries are off: the writer reads the table again before it retries a commit.
"""

from __future__ import annotations

import json
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Operation, Snapshot
from pyiceberg.table.update.snapshot import ExpireSnapshots, _SnapshotProducer
from pyiceberg.typedef import Record

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.bykey.merging import Merge
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.iceberg.catalogs import open_catalog, reachable
from kraft_pipeline.tables.iceberg.commits import TAG_CHARACTERS, Overwrite, evolve, partition, shared, tag
from kraft_pipeline.tables.iceberg.expiry import Expired, due, referred, replaced_ms
from kraft_pipeline.tables.iceberg.fields import bounds_of, levels_of, metrics, number, shown, small, spec_of, text_of
from kraft_pipeline.tables.iceberg.path import FOLDER, PathCatalog
from kraft_pipeline.tables.specs.partitions import By
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, Changes, Each, State
from kraft_pipeline.tables.stores.intents import COMMIT, COMPACT, Work
from kraft_pipeline.tables.stores.storage import Storage

APP: Final = "kraft.app"
BATCH: Final = "kraft.batch"
POSITION: Final = "kraft.position"
"""Key of the position in summaries of earlier releases."""
POSITION_AT: Final = "kraft.position-at"
POSITIONS: Final = "_kraft_positions"
"""Folder of position files."""
TRIES: Final = 5
"""Attempts of a commit while unrelated commits are first."""
FOREIGN: Final = "deleted rows by files of their own, or filed rows otherwise"
LEFT_S: Final = 3600.0
"""Seconds after which an unreferenced position file or draft is abandoned: commits take seconds."""
_LOG: Final = logging.getLogger(__name__)
PROPERTIES: Final = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


class IcebergTable:
    """A `Committer` over one Iceberg table in any catalog, with all files in `storage`."""

    def __init__(
        self, storage: Storage, app_id: str, catalog: Mapping[str, str], store: Mapping[str, str] | None = None
    ) -> None:
        """`store`: options of the object store. Raises SpecError, RefusedError, OSError and ValueError."""
        self._uri, self._app, self._storage, self._epoch = storage.uri, app_id, storage, 0
        self._catalog, self._name = open_catalog(storage, catalog, store)
        weakref.finalize(self, self._catalog.close)
        self._table: Table | None = None
        self._expired = Expired(storage)
        self._now: Work | None = None
        """The work of the snapshot that is being written."""
        self._load()

    def schema(self) -> pa.Schema | None:
        """Return the columns as Arrow types, or None if the table does not exist."""
        if self._table is None:
            return None
        whole = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return pa.schema([pa.field(field.name, small(field.type)) for field in whole])

    def state(self) -> State:
        """State of our newest snapshot up to the current snapshot. Raises ValueError if a rollback hides which it
        is."""
        self._load()
        return self._state()

    def _state(self) -> State:
        if self._table is None:
            return State()
        epoch = int(self._table.properties.get(f"{self._app}.writer", 0))
        at = self._table.metadata.current_snapshot()
        while at is not None:
            summary = _summary(at)
            if summary.get(APP) == self._app:
                return State(int(summary[BATCH]), self._position(summary), epoch)
            if at.parent_snapshot_id is None and (at.sequence_number or 0) <= 1:
                return State(epoch=epoch)  # the first snapshot: it has no expired parent
            at = self._table.metadata.snapshot_by_id(at.parent_snapshot_id or 0)
        return self._before_expiry(self._table.properties, epoch)

    def _before_expiry(self, properties: Mapping[str, str], epoch: int) -> State:
        """Our last commit by the table's properties, for the case that its snapshot has expired or never existed."""
        assert self._table is not None
        last, snapshot = properties.get(f"{self._app}.batch"), properties.get(f"{self._app}.snapshot")
        if last is None:
            return State(epoch=epoch)
        if snapshot is not None and self._table.metadata.snapshot_by_id(int(snapshot)) is not None:
            raise ValueError(
                f"table {self._uri}: it was rolled back to before batch {last}, and the snapshots before have expired."
                f" It is unknown which batch of {self._app} it holds: roll it forward to snapshot {snapshot}, or reset"
                " it"
            )
        return State(int(last), Position.from_json(properties[f"{self._app}.position"]), epoch)

    def _position(self, summary: Mapping[str, str]) -> Position:
        """The end position of a summary's batch: from a file, from the properties, or from an old summary itself."""
        assert self._table is not None
        properties = self._table.properties
        if POSITION in summary:
            return Position.from_json(summary[POSITION])
        if summary[BATCH] == properties.get(f"{self._app}.batch"):
            return Position.from_json(properties[f"{self._app}.position"])
        return Position.from_json(self._storage.read(summary[POSITION_AT]).decode())

    def _position_at(self, state: State) -> str:
        """The path of the file with the position of a batch, which is written unless a snapshot has it already."""
        assert self._table is not None and state.position is not None
        for snapshot in reversed(self._table.metadata.snapshots):
            summary = _summary(snapshot)
            if summary.get(APP) == self._app:
                if summary[BATCH] == str(state.batch) and POSITION_AT in summary:
                    return summary[POSITION_AT]
                break
        path = f"{POSITIONS}/{self._app}/{state.batch}-{uuid.uuid4().hex}.json"
        self._storage.create(path, json.dumps(state.position.to_json()).encode())
        return path

    def claim(self, epoch: int) -> None:
        """Store the new epoch as a table property. Raises ConflictError unless it is the highest so far."""

        def fill(tx: Transaction) -> None:
            state = self._state()
            if epoch <= state.epoch:
                raise ConflictError(f"table {self._uri}: writer {state.epoch} has claimed it before writer {epoch}")
            self._snapshot(tx, state, {}, ())  # a new snapshot makes catalogs refuse commits that began before it
            tx.set_properties({f"{self._app}.writer": str(epoch)})

        self._transact(fill, self._work("claim", epoch))
        self._epoch = epoch

    def join(self) -> int:
        """Adopt the epoch of the current writer, without a commit, and return it."""
        self._epoch = self.state().epoch
        return self._epoch

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        """Create the table, or add and widen columns. Raises ValueError if it is partitioned differently."""
        if self._table is None:
            fields = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
            self._create(fields, spec_of(fields, levels))
        assert self._table is not None
        there = self._table.spec()
        if levels and not there.fields and not self.files():
            self._transact(lambda tx: partition(tx, schema, levels))
            return
        wanted = spec_of(self._table.schema(), levels)
        if not there.compatible_with(wanted):
            raise ValueError(f"table {self._uri} is partitioned by {shown(there)}, not by {shown(wanted)}")
        known = self.schema()
        assert known is not None
        if any(field.name not in known.names or known.field(field.name).type != field.type for field in schema):
            self._transact(lambda tx: evolve(tx, schema))

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        """As `Committer.commit`, by one snapshot."""

        def fill(tx: Transaction) -> None:
            self._follows(batch, after)
            gone = self._held(removed) if removed else {}
            self._snapshot(tx, State(batch, position), gone, files)

        self._transact(fill, self._work(f"b{batch:08d}"))

    def upsert(self, batch: int, position: Position, changes: Changes, *, after: int, each: Each) -> list[str]:
        """As `Keyed.upsert`, by one snapshot. Raises ValueError if another writer has delete files in it."""
        work = intents.batch(self._storage, self._app, self._epoch, batch)
        merge = Merge.of(work, changes, self.schema(), whole=True)
        new: list[Added] = []

        def fill(tx: Transaction) -> None:
            self._follows(batch, after)
            assert self._table is not None
            schema, spec = self._table.schema(), self._table.spec()
            there, clean = self._present()
            files = [self._added(file, clean=clean, bounded=changes.keys) for file in there.values()]
            old = merge.candidates(files, each)
            if not all(one.file.whole for one in old):
                raise ValueError(f"table {self._uri}: another writer has {FOREIGN}; rows by key cannot be kept in it")
            found = [left for left in each(merge.left, old) if left is not None]
            new[:] = merge.rows(found, levels_of(spec, schema), each)
            new.extend(left.rest for left in found if left.rest is not None)
            gone = {left.old.path: there[left.old.path] for left in found if left.changed}
            self._snapshot(tx, State(batch, position), gone, new)

        self._transact(fill, self._work(f"b{batch:08d}"))
        return [file.path for file in new]

    def files(self) -> set[str]:
        """Paths of the data files of all snapshots, including expired snapshots if their files still exist."""
        self._load()
        if self._table is None:
            return set()
        snapshots = [*self._table.metadata.snapshots, *self._expired.snapshots()]
        return referred(self._table.io, self._uri, snapshots).data

    def live(self) -> list[Added]:
        """Data files of the current snapshot, without bounds."""
        self._load()
        if self._table is None:
            return []
        files, clean = self._present()
        return [self._added(file, clean=clean) for file in files.values()]

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """As `Committer.replace`, by a snapshot of operation `replace`. Raises ConflictError, FencedError."""

        def fill(tx: Transaction) -> None:
            self._state().check(self._uri, self._epoch)
            self._snapshot(tx, self._state(), self._held(old), new, same_rows=True)

        self._transact(fill, self._work(f"{COMPACT}{uuid.uuid4().hex}"))

    def _held(self, paths: Sequence[str]) -> dict[str, DataFile]:
        there, clean = self._present()
        gone = [path for path in paths if path not in there]
        if gone:
            raise ConflictError(f"{gone[0]} is no longer a file of {self._uri}")
        if not all(self._added(there[path], clean=clean).whole for path in paths):
            raise ConflictError(f"table {self._uri}: another writer has {FOREIGN}; they are its to merge")
        return {path: there[path] for path in paths}

    def vacuum(self, older_s: float) -> int:
        """Expire snapshots replaced `older_s` seconds ago that no branch or tag names, and remove their files.

        Returns the number of data files removed.
        """
        self._load()
        if self._table is None:
            return 0
        metadata = self._table.metadata
        limit, kept = (time.time() - older_s) * 1000, {ref.snapshot_id for ref in metadata.refs.values()}
        replaced = replaced_ms(metadata.snapshots)
        old = [s for s in metadata.snapshots if replaced[s.snapshot_id] < limit and s.snapshot_id not in kept]
        if old:
            self._expired.record(old, metadata.snapshots)
            self._transact(lambda tx: _expire(tx, old))
        removed = self._expired.remove(self._table.io, self._table.metadata.snapshots, older_s)
        named, limit = {_summary(s).get(POSITION_AT) for s in self._table.metadata.snapshots}, time.time() - LEFT_S
        for file in list(self._storage.list(POSITIONS)):  # of backfills and replays, too: they have no maintenance
            if file.path not in named and file.modified < limit:
                self._storage.delete(file.path)
        return removed

    def sweep(self) -> int:
        """Remove manifests of interrupted commits, found by their names, and old drafts. Returns their number."""
        self._load()
        count = 0
        for work in intents.unsettled(self._storage, self._app):
            if work.name.startswith(COMMIT) and (work.epoch, work.is_beside) < (self._epoch, True):
                count += self._clean(work)
                work.settle(set)
        return count

    def _clean(self, work: Work) -> int:
        """Remove the manifests of a commit that no snapshot references."""
        if self._table is None:
            return 0
        begin, limit, count = str(tag(work))[:TAG_CHARACTERS], time.time() - LEFT_S, 0
        snapshots = [*self._table.metadata.snapshots, *self._expired.snapshots()]
        # If the work committed a snapshot, it references all its manifests; otherwise read all snapshots.
        committed = [snapshot for snapshot in snapshots if f"-{begin}" in snapshot.manifest_list]
        known = self._manifests(committed or snapshots)
        for file in list(self._storage.list(FOLDER)):
            name = file.path.rpartition("/")[2]
            ours = name.startswith(begin) or (name.startswith("snap-") and f"-{begin}" in name)
            if (ours or (name.startswith(".v") and file.modified < limit)) and file.path not in known:
                self._storage.delete(file.path)
                count += 1
        return count

    def forget(self) -> None:
        """Drop the table from its catalog."""
        if self._table is not None:
            with reachable(self._name):
                self._catalog.drop_table(self._name)

    def _load(self) -> None:
        try:
            with reachable(self._name):
                self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._table = None
            return
        if self._table.location().rstrip("/") != self._uri:
            raise ValueError(f"{self._name} lies at {self._table.location()} by its catalog, not at {self._uri}")
        # A conflict must reach the writer, which checks its position: pyiceberg must not retry the commit.
        once = {**self._table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        self._table.metadata = shared(self._table.metadata).model_copy(update={"properties": once})

    def _create(self, fields: Schema, spec: PartitionSpec) -> None:
        try:
            with reachable(self._name):
                if not isinstance(self._catalog, PathCatalog):
                    self._make_namespace()
                self._catalog.create_table(self._name, fields, self._uri, spec, properties=PROPERTIES)
        except (CommitFailedException, TableAlreadyExistsError):
            _LOG.info("table %s: another writer has just made it", self._uri)
        self._load()

    def _make_namespace(self) -> None:
        try:
            self._catalog.create_namespace(self._name.rpartition(".")[0])
        except NamespaceAlreadyExistsError:
            return

    def _work(self, name: str, epoch: int | None = None) -> Work:
        return Work(self._storage, self._app, self._epoch if epoch is None else epoch, f"{COMMIT}{name}")

    def _transact(self, fill: Callable[[Transaction], None], work: Work | None = None) -> None:
        """Reload the table and commit what `fill` adds, up to TRIES times. Raises ConflictError after the last.

        `work`: the recorded work that owns the new manifests; None without new manifests.
        """
        if work is not None:
            work.intend(())
        for left in reversed(range(TRIES)):
            self._load()
            if self._table is None:
                State().check(self._uri, self._epoch)
            assert self._table is not None, "a table is created before anything is committed"
            tx, self._now = self._table.transaction(), work
            try:
                fill(tx)
                with reachable(self._name):
                    tx.commit_transaction()
            except (CommitFailedException, ValidationException) as e:
                if not left:
                    raise ConflictError(f"table {self._uri}: {e}") from e
            else:
                self._load()
                if work is not None:
                    if left < TRIES - 1:
                        self._clean(work)
                    work.settle(set)
                return

    def _follows(self, batch: int, after: int) -> None:
        state = self._state()
        state.check(self._uri, self._epoch)
        if state.batch != after:
            raise ConflictError(f"batch {batch} follows {after}, but the last one of {self._uri} is {state.batch}")

    def _snapshot(
        self,
        tx: Transaction,
        state: State,
        old: Mapping[str, DataFile],
        new: Sequence[Added],
        *,
        same_rows: bool = False,
    ) -> None:
        """Add a snapshot with `state` that removes and adds files. `same_rows`: the operation is `replace`."""
        info = {}
        if state.position is not None:
            info = {APP: self._app, BATCH: str(state.batch), POSITION_AT: self._position_at(state)}
        assert self._table is not None
        producer: _SnapshotProducer[Any]
        if old:
            operation = Operation.REPLACE if same_rows else Operation.OVERWRITE
            producer = Overwrite(operation, tx, self._table.io, snapshot_properties=info)
        else:
            producer = tx.update_snapshot(info).merge_append()
        assert self._now is not None, "the writer has recorded the snapshot before its commit"
        producer.commit_uuid = tag(self._now)
        with producer:
            for file in old.values():
                producer.delete_data_file(file)
            for added in new:
                producer.append_data_file(self._data_file(added))
        if state.position is not None:
            self._remember(tx, producer.snapshot_id, state.batch, state.position)
        expired = due(tx.table_metadata)
        if expired:
            self._expired.record(expired, tx.table_metadata.snapshots)
            _expire(tx, expired)

    def _remember(self, tx: Transaction, snapshot: int, batch: int, position: Position) -> None:
        last = {
            f"{self._app}.batch": str(batch),
            f"{self._app}.position": json.dumps(position.to_json()),
            f"{self._app}.snapshot": str(snapshot),
        }
        if tx.table_metadata.name_mapping() is None:
            mapping = create_mapping_from_schema(tx.table_metadata.schema())
            last[TableProperties.DEFAULT_NAME_MAPPING] = mapping.model_dump_json()
        tx.set_properties(last)

    def _data_file(self, file: Added) -> DataFile:
        assert self._table is not None
        schema, spec = self._table.schema(), self._table.spec()
        counts: dict[str, Any] = {**metrics(schema, file)}
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._uri}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(number(field, schema, file.values[field.name]) for field in spec.fields)),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            **counts,
            split_offsets=None,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            spec_id=spec.spec_id,
        )

    def _added(self, file: DataFile, *, clean: bool, bounded: Sequence[str] = ()) -> Added:
        """An `Added` of a data file, with bounds of the columns `bounded`."""
        assert self._table is not None
        schema, spec = self._table.schema(), self._table.spec()
        path, size, rows = self._path(file.file_path), file.file_size_in_bytes, file.record_count
        least, most = bounds_of(schema, file, bounded) if bounded else ({}, {})
        if file.spec_id != spec.spec_id:
            return Added(path, size, rows, {}, least, most, whole=False)
        values = {f.name: text_of(f, schema, file.partition[i]) for i, f in enumerate(spec.fields)}
        return Added(path, size, rows, values, least, most, whole=clean)

    def _present(self) -> tuple[dict[str, DataFile], bool]:
        """The data files of the current snapshot by path, and whether the table has no delete files."""
        assert self._table is not None
        snapshot = self._table.metadata.current_snapshot()
        found, clean = {}, True
        for manifest in [] if snapshot is None else snapshot.manifests(self._table.io):
            if manifest.content == ManifestContent.DELETES:
                clean = clean and not (manifest.has_added_files() or manifest.has_existing_files())
                continue
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                found[self._path(entry.data_file.file_path)] = entry.data_file
        return found, clean

    def _manifests(self, snapshots: Sequence[Snapshot]) -> set[str]:
        """Paths of the snapshots' manifests and manifest lists."""
        assert self._table is not None
        found = {self._path(snapshot.manifest_list) for snapshot in snapshots}
        for snapshot in snapshots:
            with suppress(FileNotFoundError):  # an expired snapshot
                found |= {self._path(manifest.manifest_path) for manifest in snapshot.manifests(self._table.io)}
        return found

    def _path(self, location: str) -> str:
        return location.removeprefix(f"{self._uri}/")


def _summary(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _expire(tx: Transaction, snapshots: Sequence[Snapshot]) -> None:
    with ExpireSnapshots(tx) as expiry:
        expiry.by_ids([snapshot.snapshot_id for snapshot in snapshots])
