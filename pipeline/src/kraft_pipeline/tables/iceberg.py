"""Iceberg tables through PyIceberg: the batch, its number and where it ended are one snapshot.

Files are written by tasks and only named in the commit. They carry no ids of columns; the table's name mapping says
which column is which, as Iceberg has it for files that other writers made. Rows are filed by Iceberg's own transforms:
`date` is a day of `_timestamp`, which queries need not know.

A snapshot's summary has `kraft.app`, `kraft.batch` and `kraft.position`, and so the table goes back with them when
somebody rolls it back. The same is kept in the table's properties, for tables whose older snapshots somebody expired.
PyIceberg would try a commit that lost against another again by itself; here it is looked at first what that other was.
"""

from __future__ import annotations

import hashlib
import json
import logging
import time
import uuid
import weakref
from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.conversions import to_bytes
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import _pyarrow_to_schema_without_ids, schema_to_pyarrow
from pyiceberg.manifest import DataFile, DataFileContent, FileFormat, ManifestContent
from pyiceberg.partitioning import PARTITION_FIELD_ID_START, PartitionField, PartitionSpec
from pyiceberg.schema import Schema, assign_fresh_schema_ids
from pyiceberg.table import Table, TableProperties, Transaction
from pyiceberg.table.name_mapping import create_mapping_from_schema
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import (
    DayTransform,
    HourTransform,
    IdentityTransform,
    MonthTransform,
    Transform,
    YearTransform,
)
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.committer import Added, ConflictError, State
from kraft_pipeline.tables.icebergpath import FOLDER, PathCatalog
from kraft_pipeline.tables.partitions import FORMATS, By
from kraft_pipeline.tables.spec import SpecError
from kraft_pipeline.tables.storage import Storage

APP: Final = "kraft.app"
BATCH: Final = "kraft.batch"
POSITION: Final = "kraft.position"
TRIES: Final = 5
"""Times that a commit is begun anew because another one, which is not in its way, was first."""
LEFT_S: Final = 3600.0
"""Age from which a manifest that no snapshot refers to is of a commit that was cut off: commits take seconds."""
_LOG: Final = logging.getLogger(__name__)
TRANSFORMS: Final[Mapping[str, Transform[Any, Any]]] = {
    "year": YearTransform(),
    "month": MonthTransform(),
    "date": DayTransform(),
    "hour": HourTransform(),
}
PROPERTIES: Final = {
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED: "true",  # each version holds all snapshots there are
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
        self._uri, self._app, self._storage = storage.uri, app_id, storage
        self._catalog, self._name = open_catalog(storage, catalog)
        weakref.finalize(self, self._catalog.close)
        self._table: Table | None = None
        self._load()

    def schema(self) -> pa.Schema | None:
        if self._table is None:
            return None
        whole = schema_to_pyarrow(self._table.schema(), include_field_ids=False)
        return pa.schema([pa.field(field.name, _small(field.type)) for field in whole])

    def state(self) -> State:
        """Of the newest snapshot of ours that the present one goes back to."""
        self._load()
        return self._state()

    def _state(self) -> State:
        if self._table is None:
            return State()
        at = self._table.metadata.current_snapshot()
        while at is not None:
            told = _told(at)
            if told.get(APP) == self._app:
                return State(int(told[BATCH]), Position.from_json(told[POSITION]))
            if at.parent_snapshot_id is None:
                return State()
            at = self._table.metadata.snapshot_by_id(at.parent_snapshot_id)
        # No snapshot at all, or those before have been expired: the last commit of ours is what properties say.
        last = self._table.properties.get(f"{self._app}.batch")
        if last is None:
            return State()
        return State(int(last), Position.from_json(self._table.properties[f"{self._app}.position"]))

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        if self._table is None:
            fields = assign_fresh_schema_ids(_pyarrow_to_schema_without_ids(schema))
            self._create(fields, _spec(fields, levels))
        assert self._table is not None
        there = self._table.spec()
        wanted = _spec(self._table.schema(), levels)
        if not there.compatible_with(wanted):
            raise ValueError(f"table {self._uri} is partitioned by {_shown(there)}, not by {_shown(wanted)}")
        known = self.schema()
        assert known is not None
        if any(field.name not in known.names or known.field(field.name).type != field.type for field in schema):
            self._transact(lambda tx: _evolve(tx, schema))

    def commit(self, batch: int, position: Position, files: Sequence[Added], *, after: int) -> None:
        def fill(tx: Transaction) -> None:
            last = self._state().batch
            if last != after:
                raise ConflictError(f"batch {batch} follows {after}, but the last one of {self._uri} is {last}")
            info = self._info(State(batch, position))
            producer = tx.update_snapshot(info).merge_append()
            producer.commit_uuid = self._tag()
            with producer:
                for file in files:
                    producer.append_data_file(self._data_file(file))
            self._remember(tx, info)

        self._transact(fill)

    def files(self) -> set[str]:
        self._load()
        return set() if self._table is None else self._referred(self._table.metadata.snapshots)[0]

    def live(self) -> list[Added]:
        self._load()
        if self._table is None:
            return []
        return [self._added(file) for file in self._data_files().values()]

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        def fill(tx: Transaction) -> None:
            state, there = self._state(), self._data_files()
            gone = [path for path in old if path not in there]
            if gone:
                raise ConflictError(f"{gone[0]} is no file of {self._uri} any longer")
            info = {} if state.position is None else self._info(state)
            producer = tx.update_snapshot(info).overwrite(commit_uuid=self._tag())
            with producer:
                for path in old:
                    producer.delete_data_file(there[path])
                for file in new:
                    producer.append_data_file(self._data_file(file))

        self._transact(fill)

    def vacuum(self, older_s: float) -> int:
        """Snapshots older than that are expired, all but the present one, and with them what only they refer to."""
        self._load()
        if self._table is None:
            return 0
        metadata = self._table.metadata
        limit, kept = (time.time() - older_s) * 1000, {ref.snapshot_id for ref in metadata.refs.values()}
        old = [s for s in metadata.snapshots if s.timestamp_ms < limit and s.snapshot_id not in kept]
        if not old:
            return 0
        data, rest = self._referred(old)
        self._transact(lambda tx: _expire(tx, [snapshot.snapshot_id for snapshot in old]))
        still, others = self._referred(self._table.metadata.snapshots)
        for path in sorted((data - still) | (rest - others)):
            self._storage.delete(path)
        return len(data - still)

    def sweep(self, older_s: float = LEFT_S) -> int:
        """Manifests of commits that were cut off, told by their names, and drafts of versions."""
        self._load()
        if self._table is None:
            return 0
        limit, tag, known, count = time.time() - older_s, str(self._tag())[:TAG_CHARACTERS], None, 0
        for file in list(self._storage.list(FOLDER)):
            name = file.path.rpartition("/")[2]
            ours = name.startswith((tag, ".v")) or (name.startswith("snap-") and f"-{tag}" in name)
            if not ours or file.modified > limit:
                continue
            known = self._referred(self._table.metadata.snapshots)[1] if known is None else known
            if file.path not in known:
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
        self._table.metadata = self._table.metadata.model_copy(update={"properties": once})

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

    def _transact(self, fill: Callable[[Transaction], None]) -> None:
        """Commit what `fill` makes of the table as it is now; again while another commit gets in between."""
        for left in reversed(range(TRIES)):
            self._load()
            assert self._table is not None, "a table is created before anything is committed"
            tx = self._table.transaction()
            try:
                fill(tx)
                tx.commit_transaction()
            except (CommitFailedException, ValidationException) as e:
                if not left:
                    raise ConflictError(f"table {self._uri}: {e}") from e
            else:
                self._load()
                return

    def _info(self, state: State) -> dict[str, str]:
        assert state.position is not None
        return {APP: self._app, BATCH: str(state.batch), POSITION: json.dumps(state.position.to_json())}

    def _remember(self, tx: Transaction, info: Mapping[str, str]) -> None:
        last = {f"{self._app}.batch": info[BATCH], f"{self._app}.position": info[POSITION]}
        if tx.table_metadata.name_mapping() is None:
            mapping = create_mapping_from_schema(tx.table_metadata.schema())
            last[TableProperties.DEFAULT_NAME_MAPPING] = mapping.model_dump_json()
        tx.set_properties(last)

    def _tag(self) -> uuid.UUID:
        """A new id for names of manifests, whose first half tells that they are ours."""
        ours = hashlib.sha256(self._app.encode()).digest()
        return uuid.UUID(bytes=ours[:8] + uuid.uuid4().bytes[8:])

    def _data_file(self, file: Added) -> DataFile:
        assert self._table is not None
        schema, spec = self._table.schema(), self._table.spec()
        return DataFile.from_args(
            content=DataFileContent.DATA,
            file_path=f"{self._uri}/{file.path}",
            file_format=FileFormat.PARQUET,
            partition=Record(*(_number(field, schema, file.values[field.name]) for field in spec.fields)),
            record_count=file.rows,
            file_size_in_bytes=file.size,
            column_sizes={},
            value_counts={},
            null_value_counts={},
            nan_value_counts={},
            lower_bounds=_bounds(schema, file.minima),
            upper_bounds=_bounds(schema, file.maxima),
            split_offsets=None,
            sort_order_id=None,
            equality_ids=None,
            key_metadata=None,
            spec_id=spec.spec_id,
        )

    def _added(self, file: DataFile) -> Added:
        assert self._table is not None
        schema, spec = self._table.schema(), self._table.specs()[file.spec_id]
        values = {f.name: _text(f, schema, file.partition[i]) for i, f in enumerate(spec.fields)}
        return Added(self._path(file.file_path), file.file_size_in_bytes, file.record_count, values)

    def _data_files(self) -> dict[str, DataFile]:
        """Of the present version, by path. Raises ValueError for tables with rows that were deleted one by one."""
        assert self._table is not None
        snapshot = self._table.metadata.current_snapshot()
        found = {}
        for manifest in [] if snapshot is None else snapshot.manifests(self._table.io):
            if manifest.content == ManifestContent.DELETES:
                raise ValueError(
                    f"table {self._uri} has files of deleted rows, which are another writer's to look after"
                )
            for entry in manifest.fetch_manifest_entry(self._table.io, discard_deleted=True):
                found[self._path(entry.data_file.file_path)] = entry.data_file
        return found

    def _referred(self, snapshots: Sequence[Snapshot]) -> tuple[set[str], set[str]]:
        """The paths of the data files, and of the manifests and their lists, that these snapshots refer to."""
        assert self._table is not None
        data: set[str] = set()
        rest: set[str] = set()
        for snapshot in snapshots:
            rest.add(self._path(snapshot.manifest_list))
            for manifest in snapshot.manifests(self._table.io):
                path = self._path(manifest.manifest_path)
                if path not in rest:
                    rest.add(path)
                    entries = manifest.fetch_manifest_entry(self._table.io, discard_deleted=True)
                    data.update(self._path(entry.data_file.file_path) for entry in entries)
        return data, rest

    def _path(self, location: str) -> str:
        return location.removeprefix(f"{self._uri}/")


TAG_CHARACTERS: Final = 19
"""Of a tag's text: the first half of its digits with their hyphens."""


def _told(snapshot: Snapshot) -> Mapping[str, str]:
    return {} if snapshot.summary is None else snapshot.summary.additional_properties


def _spec(schema: Schema, levels: Sequence[By]) -> PartitionSpec:
    fields = []
    for at, by in enumerate(levels):
        transform = TRANSFORMS[by.transform] if by.transform else IdentityTransform()
        source = schema.find_field(by.column).field_id
        fields.append(PartitionField(source, PARTITION_FIELD_ID_START + at, transform, by.name))
    return PartitionSpec(*fields)


def _shown(spec: PartitionSpec) -> list[str]:
    return [f"{field.name} ({field.transform})" for field in spec.fields]


def _evolve(tx: Transaction, schema: pa.Schema) -> None:
    with tx.update_schema() as update:
        update.union_by_name(schema)


def _expire(tx: Transaction, snapshots: list[int]) -> None:
    from pyiceberg.table.update.snapshot import ExpireSnapshots  # noqa: PLC0415

    with ExpireSnapshots(tx) as expiry:
        expiry.by_ids(snapshots)


def _bounds(schema: Schema, values: Mapping[str, Any]) -> dict[int, bytes]:
    fields = [(schema.find_field(name), value) for name, value in values.items()]
    return {f.field_id: to_bytes(f.field_type, value) for f, value in fields if isinstance(f.field_type, PrimitiveType)}


EPOCH: Final = date(1970, 1, 1)


def _number(field: PartitionField, schema: Schema, text: str | None) -> Any:
    """A partition's value as Iceberg stores it: days and hours since 1970, of a text such as 2024-02-29-10."""
    if text is None:
        return None
    for name, transform in TRANSFORMS.items():
        if field.transform == transform:
            at = datetime.strptime(text, FORMATS[name]).replace(tzinfo=UTC)
            return {
                "year": at.year - EPOCH.year,
                "month": (at.year - EPOCH.year) * 12 + at.month - 1,
                "date": (at.date() - EPOCH).days,
                "hour": int(at.timestamp()) // 3600,
            }[name]
    found = pa.array([text]).cast(_arrow(schema, field))
    return (found.cast(_stored(found.type)) if pa.types.is_temporal(found.type) else found)[0].as_py()


def _text(field: PartitionField, schema: Schema, value: Any) -> str | None:
    """The other way."""
    if value is None:
        return None
    for name, transform in TRANSFORMS.items():
        if field.transform == transform:
            months = value * 12 if name == "year" else value if name == "month" else 0
            hours = value * 24 if name == "date" else value if name == "hour" else 0
            at = datetime(EPOCH.year + months // 12, months % 12 + 1, 1, tzinfo=UTC) + timedelta(hours=hours)
            return at.strftime(FORMATS[name])
    kind = _arrow(schema, field)
    found = pa.array([value], _stored(kind)).cast(kind) if pa.types.is_temporal(kind) else pa.array([value], kind)
    text: str = found.cast(pa.string())[0].as_py()
    return text


def _arrow(schema: Schema, field: PartitionField) -> pa.DataType:
    return _small(schema_to_pyarrow(schema.find_field(field.source_id).field_type))


def _stored(kind: pa.DataType) -> pa.DataType:
    return pa.int32() if pa.types.is_date32(kind) else pa.int64()


def _small(kind: pa.DataType) -> pa.DataType:
    """Without the 64-bit offsets that PyIceberg gives texts and lists, and without ids."""
    if pa.types.is_large_string(kind):
        return pa.string()
    if pa.types.is_large_binary(kind):
        return pa.binary()
    if pa.types.is_list(kind) or pa.types.is_large_list(kind):
        return pa.list_(_small(kind.value_type))
    if pa.types.is_struct(kind):
        return pa.struct([pa.field(field.name, _small(field.type)) for field in kind])
    if pa.types.is_map(kind):
        return pa.map_(_small(kind.key_type), _small(kind.item_type))
    return kind
