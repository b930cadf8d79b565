"""Iceberg tables through PyIceberg: the batch, its number and where it ended are one snapshot.

Files are written by tasks and only named in the commit. They carry no ids of columns; the table's name mapping says
which column is which, as Iceberg has it for files that other writers made. Rows are filed by Iceberg's own transforms:
`date` is a day of `_timestamp`, which queries need not know.

A snapshot's summary has `kraft.app`, `kraft.batch` and `kraft.position-at`, the path of a file with the position, and
so the table goes back with them when somebody rolls it back. Each version has all summaries, so these are short. The
table's properties have the last batch and its position, also for tables whose older snapshots somebody expired.
PyIceberg would try a commit that lost against another again by itself; here it is looked at first what that other was.
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
from pyiceberg.catalog import Catalog, load_catalog
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
from kraft_pipeline.tables import intents
from kraft_pipeline.tables.bykey.merging import Merge
from kraft_pipeline.tables.committer import Added, Changes, ConflictError, Each, State
from kraft_pipeline.tables.iceberg.commits import TAG_CHARACTERS, Overwrite, shared, tag
from kraft_pipeline.tables.iceberg.expiry import Expired, due, referred
from kraft_pipeline.tables.iceberg.fields import bounds, bounds_of, levels_of, number, shown, small, spec_of, text_of
from kraft_pipeline.tables.iceberg.path import FOLDER, PathCatalog
from kraft_pipeline.tables.intents import COMMIT, COMPACT, Work
from kraft_pipeline.tables.partitions import By
from kraft_pipeline.tables.spec import SpecError
from kraft_pipeline.tables.storage import Storage

APP: Final = "kraft.app"
BATCH: Final = "kraft.batch"
POSITION: Final = "kraft.position"
"""Of summaries that earlier versions wrote."""
POSITION_AT: Final = "kraft.position-at"
POSITIONS: Final = "_kraft_positions"
"""Folder of positions."""
TRIES: Final = 5
"""Times that a commit is begun anew because another one, which is not in its way, was first."""
FOREIGN: Final = "deleted rows by files of their own, or filed rows otherwise"
LEFT_S: Final = 3600.0
"""Age from which a manifest that no snapshot refers to is of a commit that was cut off: commits take seconds."""
_LOG: Final = logging.getLogger(__name__)
PROPERTIES: Final = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",
    TableProperties.MANIFEST_MERGE_ENABLED: "true",
}


def open_catalog(storage: Storage, options: Mapping[str, str]) -> tuple[Catalog, str]:
    """The catalog and the table's name in it. Raises SpecError for options that PyIceberg does not know."""
    if not options:
        return PathCatalog(storage), storage.uri
    given = dict(options)
    name = given.pop("name", "")
    if name.count(".") < 1:
        raise SpecError(f"spec.table.catalog.name: {name!r} is no namespace.table")
    try:
        return load_catalog("kraft", **given), name
    except (ValueError, ImportError) as e:
        raise SpecError(f"spec.table.catalog: {e}") from None


class IcebergTable:
    """A `Committer` over one Iceberg table, whose files are all in `storage`, in whatever catalog it is."""

    def __init__(self, storage: Storage, app_id: str, catalog: Mapping[str, str]) -> None:
        self._uri, self._app, self._storage, self._epoch = storage.uri, app_id, storage, 0
        self._catalog, self._name = open_catalog(storage, catalog)
        weakref.finalize(self, self._catalog.close)
        self._table: Table | None = None
        self._expired = Expired(storage)
        self._now: Work | None = None
        """Whose snapshot is being made."""
        self._load()

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return None
        whole = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return pa.schema([pa.field(field.name, small(field.type)) for field in whole])

    def state(self) -> State:
        """Of the newest snapshot of ours that the present one goes back to."""
        self._load()
        return self._state()

    def _state(self) -> State:
        if self._table is None:
            return State()
        epoch = int(self._table.properties.get(f"{self._app}.writer", 0))
        at = self._table.metadata.current_snapshot()
        while at is not None:
            told = _told(at)
            if told.get(APP) == self._app:
                return State(int(told[BATCH]), self._position(told), epoch)
            if at.parent_snapshot_id is None and (at.sequence_number or 0) <= 1:
                return State(epoch=epoch)  # the table's first snapshot, whose parent cannot have expired
            at = self._table.metadata.snapshot_by_id(at.parent_snapshot_id or 0)
        return self._before_expiry(self._table.properties, epoch)

    def _before_expiry(self, properties: Mapping[str, str], epoch: int) -> State:
        """The last commit of ours by the table's properties: its snapshot has expired, or there is none at all."""
        assert self._table is not None
        last, snapshot = properties.get(f"{self._app}.batch"), properties.get(f"{self._app}.snapshot")
        if last is None:
            return State(epoch=epoch)
        if snapshot is not None and self._table.metadata.snapshot_by_id(int(snapshot)) is not None:
            raise ValueError(
                f"table {self._uri}: it was rolled back to before batch {last}, and the snapshots before have expired: "
                f"which batch of {self._app} it holds is unknown; roll it forward to snapshot {snapshot}, or reset it"
            )
        return State(int(last), Position.from_json(properties[f"{self._app}.position"]), epoch)

    def _position(self, told: Mapping[str, str]) -> Position:
        """Where the batch of a summary ended: beside it, or in it if an earlier version wrote it."""
        assert self._table is not None
        properties = self._table.properties
        if POSITION in told:
            return Position.from_json(told[POSITION])
        if told[BATCH] == properties.get(f"{self._app}.batch"):
            return Position.from_json(properties[f"{self._app}.position"])
        return Position.from_json(self._storage.read(told[POSITION_AT]).decode())

    def _position_at(self, state: State) -> str:
        """The path of the file with the position of a batch, which is written unless a snapshot has it already."""
        assert self._table is not None and state.position is not None
        for snapshot in reversed(self._table.metadata.snapshots):
            told = _told(snapshot)
            if told.get(APP) == self._app:
                if told[BATCH] == str(state.batch) and POSITION_AT in told:
                    return told[POSITION_AT]
                break
        path = f"{POSITIONS}/{self._app}/{state.batch}-{uuid.uuid4().hex}.json"
        self._storage.create(path, json.dumps(state.position.to_json()).encode())
        return path

    def claim(self, epoch: int) -> None:
        def fill(tx: Transaction) -> None:
            state = self._state()
            if epoch <= state.epoch:
                raise ConflictError(f"table {self._uri}: writer {state.epoch} has claimed it before writer {epoch}")
            self._snapshot(tx, state, {}, ())  # catalogs refuse commits that were begun before it, and not for less
            tx.set_properties({f"{self._app}.writer": str(epoch)})

        self._transact(fill, self._work("claim", epoch))
        self._epoch = epoch

    def join(self) -> int:
        self._epoch = self.state().epoch
        return self._epoch

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        if self._table is None:
            fields = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
            self._create(fields, spec_of(fields, levels))
        assert self._table is not None
        there = self._table.spec()
        wanted = spec_of(self._table.schema(), levels)
        if not there.compatible_with(wanted):
            raise ValueError(f"table {self._uri} is partitioned by {shown(there)}, not by {shown(wanted)}")
        known = self.schema()
        assert known is not None
        if any(field.name not in known.names or known.field(field.name).type != field.type for field in schema):
            self._transact(lambda tx: _evolve(tx, schema))

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        def fill(tx: Transaction) -> None:
            self._follows(batch, after)
            gone = self._held(removed) if removed else {}
            self._snapshot(tx, State(batch, position), gone, files)

        self._transact(fill, self._work(f"b{batch:08d}"))

    def upsert(self, batch: int, position: Position, changes: Changes, *, after: int, each: Each) -> list[str]:
        merge = Merge.of(intents.batch(self._storage, self._app, self._epoch, batch), changes, whole=True)
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
        self._load()
        if self._table is None:
            return set()
        snapshots = [*self._table.metadata.snapshots, *self._expired.snapshots()]
        return referred(self._table.io, self._uri, snapshots).data

    def live(self) -> list[Added]:
        self._load()
        if self._table is None:
            return []
        files, clean = self._present()
        return [self._added(file, clean=clean) for file in files.values()]

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        def fill(tx: Transaction) -> None:
            self._state().check(self._uri, self._epoch)
            self._snapshot(tx, self._state(), self._held(old), new, same_rows=True)

        self._transact(fill, self._work(f"{COMPACT}{uuid.uuid4().hex}"))

    def _held(self, paths: Sequence[str]) -> dict[str, DataFile]:
        there, clean = self._present()
        gone = [path for path in paths if path not in there]
        if gone:
            raise ConflictError(f"{gone[0]} is no file of {self._uri} any longer")
        if not all(self._added(there[path], clean=clean).whole for path in paths):
            raise ConflictError(f"table {self._uri}: another writer has {FOREIGN}; they are its to merge")
        return {path: there[path] for path in paths}

    def vacuum(self, older_s: float) -> int:
        """Snapshots older than that are expired, all but the present one, and with them what only they refer to."""
        self._load()
        if self._table is None:
            return 0
        metadata = self._table.metadata
        limit, kept = (time.time() - older_s) * 1000, {ref.snapshot_id for ref in metadata.refs.values()}
        old = [s for s in metadata.snapshots if s.timestamp_ms < limit and s.snapshot_id not in kept]
        if old:
            self._expired.record(old)
            self._transact(lambda tx: _expire(tx, old))
        removed = self._expired.remove(self._table.io, self._table.metadata.snapshots, older_s)
        told, limit = {_told(s).get(POSITION_AT) for s in self._table.metadata.snapshots}, time.time() - LEFT_S
        for file in list(self._storage.list(f"{POSITIONS}/{self._app}")):
            if file.path not in told and file.modified < limit:
                self._storage.delete(file.path)
        return removed

    def sweep(self) -> int:
        """Manifests of commits that were cut off, told by their names, and with them old drafts of versions."""
        self._load()
        count = 0
        for work in intents.unsettled(self._storage, self._app):
            if work.name.startswith(COMMIT) and (work.epoch, work.is_beside) < (self._epoch, True):
                count += self._clean(work)
                work.settle(set)
        return count

    def _clean(self, work: Work) -> int:
        """Remove the manifests of a commit that no snapshot refers to."""
        if self._table is None:
            return 0
        begin, limit, count = str(tag(work))[:TAG_CHARACTERS], time.time() - LEFT_S, 0
        snapshots = [*self._table.metadata.snapshots, *self._expired.snapshots()]
        # A snapshot that the work committed has all of its manifests; others are read only if there is none.
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
        """Out of its catalog, where it has one."""
        if self._table is not None:
            self._catalog.drop_table(self._name)

    def _load(self) -> None:
        try:
            self._table = self._catalog.load_table(self._name)
        except NoSuchTableError:
            self._table = None
            return
        if self._table.location().rstrip("/") != self._uri:
            raise ValueError(f"{self._name} lies at {self._table.location()} by its catalog, not at {self._uri}")
        once = {**self._table.metadata.properties, TableProperties.COMMIT_NUM_RETRIES: "0"}
        self._table.metadata = shared(self._table.metadata).model_copy(update={"properties": once})

    def _create(self, fields: Schema, spec: PartitionSpec) -> None:
        try:
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
        """Commit what `fill` makes of the table as it is now; again while another commit gets in between.

        `work`: whose manifests are written, if any are.
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
        """One snapshot that tells `state`, with files taken away and added, which may hold the `same_rows`."""
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
        assert self._now is not None, "who commits a snapshot has it on record"
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
            self._expired.record(expired)
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
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._uri}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(number(field, schema, file.values[field.name]) for field in spec.fields)),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds=bounds(schema, file.minima),
            upper_bounds=bounds(schema, file.maxima),
            split_offsets=None,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            spec_id=spec.spec_id,
        )

    def _added(self, file: DataFile, *, clean: bool, bounded: Sequence[str] = ()) -> Added:
        """`bounded`: the columns whose bounds are wanted."""
        assert self._table is not None
        schema, spec = self._table.schema(), self._table.spec()
        path, size, rows = self._path(file.file_path), file.file_size_in_bytes, file.record_count
        least, most = bounds_of(schema, file, bounded) if bounded else ({}, {})
        if file.spec_id != spec.spec_id:
            return Added(path, size, rows, {}, least, most, whole=False)
        values = {f.name: text_of(f, schema, file.partition[i]) for i, f in enumerate(spec.fields)}
        return Added(path, size, rows, values, least, most, whole=clean)

    def _present(self) -> tuple[dict[str, DataFile], bool]:
        """The data files of the present version by path, and whether none of their rows is deleted by other files."""
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
        """The paths of their manifests, and of the lists of these."""
        assert self._table is not None
        found = {self._path(snapshot.manifest_list) for snapshot in snapshots}
        for snapshot in snapshots:
            with suppress(FileNotFoundError):  # of an expired one
                found |= {self._path(manifest.manifest_path) for manifest in snapshot.manifests(self._table.io)}
        return found

    def _path(self, location: str) -> str:
        return location.removeprefix(f"{self._uri}/")


def _told(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _evolve(tx: Transaction, schema: pa.Schema) -> None:
    with tx.update_schema() as update:
        update.union_by_name(schema)


def _expire(tx: Transaction, snapshots: Sequence[Snapshot]) -> None:
    with ExpireSnapshots(tx) as expiry:
        expiry.by_ids([snapshot.snapshot_id for snapshot in snapshots])
