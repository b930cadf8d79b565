"""An archive as DataFrames: its changes, and the cluster's state at any offset or time. Executors read all rows.

    from kraft_pipeline.archive.frames import MetadataFrames

    archive = MetadataFrames(spark, "/data/metadata")
    archive.changes().groupBy("type").count().show()
    then = archive.at(time="2026-11-20T12:00")
    then.partitions().where("leader = -1").show()

The driver reads names of files, and their sizes and offsets. A task reads some files of changes, and reduces each to
the rows that lead to the same state (`spread.reduced`). These rows are shuffled by topic, and `state.Replay` replays
each group. So the result equals `kraft-pipeline meta as-of`, and no process has the state of all partitions.

This is the only module of the package that imports Spark.
"""

from __future__ import annotations

import json
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from numpy.typing import NDArray
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from kraft_pipeline.archive.changes import SCHEMA
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.run import check_known, gaps_of
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.spread import reduced
from kraft_pipeline.archive.state import PARTITION_KINDS, PARTITIONS, SPECIAL, ClusterState, Replay
from kraft_pipeline.archive.tables import (
    BROKERS,
    CHANGES,
    CONFIGS,
    FEATURES,
    READ_ROWS,
    open_changes,
    plain,
    state_tables,
)
from kraft_pipeline.codec.arrays import fixed
from kraft_pipeline.tables.specs.instants import unix_ms
from kraft_pipeline.tables.specs.table_spec import SpecError
from kraft_pipeline.tables.stores.committer import Added
from kraft_pipeline.tables.stores.storage import Storage, open_storage

TASK_BYTES: Final = 32 * 1024 * 1024
"""Bytes of files that a task reads: one full file of changes, or many small ones."""
OPEN_BYTES: Final = 1024 * 1024
"""Bytes that a file counts at least, because opening it takes time, too."""
GROUP_ROWS: Final = 1_000_000
"""Rows of changes for each group of topics: a group is replayed in memory, by one task."""
GROUPS_MAX: Final = 4096
ALL: Final = -1
"""Group of rows that every group of topics needs: where snapshots and transactions begin and end."""
NONE: Final = -2
"""Group of rows that no group of topics needs."""
MARK: Final = "NO_OP_RECORD"
TOPIC_KINDS: Final = frozenset({"TOPIC_RECORD", "REMOVE_TOPIC_RECORD"})
SMALL_COLUMNS: Final = ("offset", "epoch", "timestamp", "type", "snapshot", "fields")
"""Columns of changes that a replay without partitions reads."""
PACKED: Final = pa.schema({"group": pa.int32(), "file": pa.int32(), "rows": pa.binary()})
"""Shuffled rows: the changes of a file for a group, as a stream of Arrow. A row for each change would cost the JVM more
than all the rest."""
CLUSTER: Final = pa.schema(
    {"offset": pa.int64(), "epoch": pa.int32(), "timestamp": pa.timestamp("us", tz="UTC"), "leader": pa.int32()}
)
TOPICS: Final = pa.schema({"topic": pa.string(), "topic_id": pa.string()})
_LATE: Final = pa.schema({"file": pa.int32(), "row": pa.int64(), "before": pa.int64(), "after": pa.int64()})


class ChangesFile(NamedTuple):
    """A file of changes: its place in the log, path, and bytes."""

    place: int
    path: str
    size: int


class Limit(NamedTuple):
    """The end of a state: an offset, or the first row that is left out, as the place of its file and its number."""

    offset: int | None = None
    row: tuple[int, int] | None = None


class MetadataFrames:
    """The DataFrames of an archive.

    `storage` has the options of an object store, like `spec.table.storageOptions`. Raises ArchiveError if the path has
    no archive, SpecError for a path of an unknown scheme, and OSError.
    """

    def __init__(self, spark: SparkSession, path: str, storage: Mapping[str, str] | None = None) -> None:
        options = dict(storage or {})
        self.spark = spark
        self.storage = open_storage(f"{path.rstrip('/')}/{CHANGES}", options)
        """The folder of the changes."""
        is_delta = next(iter(self.storage.list("_delta_log")), None) is not None
        self._spec = ArchiveSpec(path=path, storage=options, format="delta" if is_delta else "parquet")
        self._live()

    def changes(self, *, start: int | None = None, end: int | None = None) -> DataFrame:
        """The changes with offsets from `start` to `end`, both included; None means no bound. Rows have no order.

        Executors read the files that are committed now. Raises OSError.
        """
        storage, schema = self.storage, plain(SCHEMA)

        def read(file: ChangesFile) -> Iterator[pa.RecordBatch]:
            for batch in _batches(storage, file.path, SCHEMA.names, start, end):
                yield batch.cast(schema)

        found = mapped(self.spark, self._files(), read, schema)
        found = found if start is None else found.where(F.col("offset") >= start)
        return found if end is None else found.where(F.col("offset") <= end)

    def at(self, *, offset: int | None = None, time: datetime | str | int | None = None) -> StateFrames:
        """The state after the record at `offset`, or after the last record not later than `time`; without both, the
        last state.

        `time` is ISO 8601 or a datetime (UTC without a zone), or milliseconds since 1970. To find it takes a Spark job.
        Raises ArchiveError if the state is in a gap of the archive or before its beginning, SpecError and OSError.
        """
        if offset is not None and time is not None:
            raise SpecError("give offset or time, not both")
        gaps, files, limit = gaps_of(self._spec), self._files(), Limit(offset)
        if offset is not None:
            check_known(gaps, offset, None)
            files = files if files and _span(self.storage, files[0])[0] <= offset else []
        if time is not None:
            late = self._late(files, microseconds(time))
            if late is not None:
                place, row = late["file"], late["row"]
                before = late["before"] if row or not place else _span(self.storage, files[place - 1])[1]
                check_known(gaps, before, late["after"])
                limit = Limit(row=(place, row))
                files = [file for file in files if (file.place, 0) < (place, row)]
        if not files:
            raise ArchiveError(f"{self._spec.path}: the archive begins later")
        return StateFrames(self.spark, self.storage, files, limit, sum(file.rows for file in self._live()))

    def _live(self) -> list[Added]:
        """The committed files in the order of the log. Raises ArchiveError, OSError."""
        table = open_changes(self._spec)
        if table.state().position is None:
            raise ArchiveError(f"{self._spec.path} is not an archive yet")
        return sorted(table.live(), key=lambda file: file.path)

    def _files(self) -> list[ChangesFile]:
        return [ChangesFile(place, file.path, file.size) for place, file in enumerate(self._live())]

    def _late(self, files: Sequence[ChangesFile], limit: int) -> Any:
        """The first row later than `limit` (microseconds), and the offsets before it and at it; None without one.

        The offset before the first row of a file is -1.
        """
        storage = self.storage

        def look(file: ChangesFile) -> Iterator[pa.RecordBatch]:
            row, before = 0, -1
            for batch in _batches(storage, file.path, ["offset", "timestamp"]):
                offsets = batch.column("offset").to_numpy()
                late = np.flatnonzero(batch.column("timestamp").cast(pa.int64()).to_numpy() > limit)
                if late.size:
                    at = int(late[0])
                    known = (file.place, row + at, int(offsets[at - 1]) if at else before, int(offsets[at]))
                    yield pa.RecordBatch.from_pylist([dict(zip(_LATE.names, known, strict=True))], schema=_LATE)
                    return
                row, before = row + batch.num_rows, int(offsets[-1])

        return mapped(self.spark, files, look, _LATE).orderBy("file").first()


@dataclass(frozen=True, slots=True)
class StateFrames:
    """The state of a cluster as DataFrames with the columns of the archive's tables. Each reads the changes again."""

    spark: SparkSession
    storage: Storage
    files: Sequence[ChangesFile]
    limit: Limit
    rows: int
    """Rows of all changes, which determine the number of groups."""

    def partitions(self) -> DataFrame:
        """A row for each partition. Executors replay groups of topics."""
        storage, limit = self.storage, self.limit
        groups = min(GROUPS_MAX, max(1, -(-self.rows // GROUP_ROWS)))

        def read(file: ChangesFile) -> Iterator[pa.RecordBatch]:
            rows = list(cut(_batches(storage, file.path, SCHEMA.names, None, limit.offset), file, limit))
            if rows:
                yield from packed(group_rows(rows, groups), file.place)

        shuffled = mapped(self.spark, self.files, read, PACKED).groupBy("group")
        return shuffled.applyInArrow(_partitions, from_arrow_schema(plain(PARTITIONS)))

    def topics(self) -> DataFrame:
        """A row for each topic: `topic`, `topic_id`, and its numbers of `partitions` and `replicas`."""
        sizes = self.partitions().select("topic_id", F.size("replicas").alias("size"))
        counts = sizes.groupBy("topic_id").agg(F.count("*").alias("partitions"), F.max("size").alias("replicas"))
        return self._small("topics", TOPICS).join(counts, "topic_id", "left").select("topic", *counts.columns)

    def brokers(self) -> DataFrame:
        """A row for each broker."""
        return self._small("brokers", BROKERS)

    def configs(self) -> DataFrame:
        """A row for each configuration value."""
        return self._small("configs", CONFIGS)

    def features(self) -> DataFrame:
        """A row for each feature."""
        return self._small("features", FEATURES)

    def cluster(self) -> DataFrame:
        """One row: offset, controller epoch and time of the last change, and the active controller (`leader`)."""
        return self._small("cluster", CLUSTER)

    def _small(self, name: str, schema: pa.Schema) -> DataFrame:
        """One of the tables without partitions. One task replays it."""
        storage, limit = self.storage, self.limit

        def read(file: ChangesFile) -> Iterator[pa.RecordBatch]:
            rows = list(cut(_batches(storage, file.path, SMALL_COLUMNS, None, limit.offset), file, limit))
            if rows:
                yield from packed([others(rows)], file.place)

        def replay(rows: pa.Table) -> pa.Table:
            return _small_tables(replayed(rows))[name].select(schema.names).cast(schema)

        shuffled = mapped(self.spark, self.files, read, PACKED).groupBy("group")
        return shuffled.applyInArrow(replay, from_arrow_schema(schema))


def mapped(
    spark: SparkSession,
    files: Sequence[ChangesFile],
    read: Callable[[ChangesFile], Iterator[pa.RecordBatch]],
    schema: pa.Schema,
) -> DataFrame:
    """The rows of `read` for each file. A task reads one large file, or several small ones."""
    tasks: list[list[ChangesFile]] = []
    size = TASK_BYTES
    for file in files:
        if size >= TASK_BYTES:
            tasks.append([])
            size = 0
        tasks[-1].append(file)
        size += max(file.size, OPEN_BYTES)

    def on_executor(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for number in batch.column("id").to_pylist():
                for file in tasks[number]:
                    yield from read(file)

    return spark.range(0, len(tasks), 1, max(1, len(tasks))).mapInArrow(on_executor, from_arrow_schema(schema))


def _batches(
    storage: Storage, path: str, columns: Sequence[str], start: int | None = None, end: int | None = None
) -> Iterator[pa.RecordBatch]:
    """Some columns of a file of changes, with the types of `SCHEMA`. Raises OSError.

    Parts of the file whose offsets are all below `start` or above `end` are not read.
    """
    dictionaries = [name for name in ("type", "topic_id") if name in columns]
    schema = pa.schema([SCHEMA.field(name) for name in columns])
    with storage.open(path) as source:
        file = pq.ParquetFile(source, read_dictionary=dictionaries, pre_buffer=True)
        spans = [_bounds(file, number) for number in range(file.num_row_groups)]
        wanted = [
            number
            for number, (first, last) in enumerate(spans)
            if (start is None or last >= start) and (end is None or first <= end)
        ]
        for batch in file.iter_batches(READ_ROWS, wanted, columns):
            yield batch.select(schema.names).cast(schema)


def _span(storage: Storage, file: ChangesFile) -> tuple[int, int]:
    """The first and last offset of a file, by its footer. Raises OSError."""
    with storage.open(file.path) as source:
        found = pq.ParquetFile(source)
        spans = [_bounds(found, number) for number in range(found.num_row_groups)]
    return spans[0][0], spans[-1][1]


def _bounds(file: pq.ParquetFile, group: int) -> tuple[int, int]:
    found = file.metadata.row_group(group).column(SCHEMA.get_field_index("offset")).statistics
    return found.min, found.max


def cut(batches: Iterator[pa.RecordBatch], file: ChangesFile, limit: Limit) -> Iterator[pa.RecordBatch]:
    """The rows of a file up to the limit."""
    left = limit.row[1] if limit.row is not None and limit.row[0] == file.place else None
    for batch in batches:
        rows = batch
        if limit.offset is not None:
            rows = rows.slice(0, int(rows.column("offset").to_numpy().searchsorted(limit.offset, "right")))
        if left is not None:
            rows = rows.slice(0, left)
            left -= rows.num_rows
        if rows.num_rows:
            yield rows
        if rows.num_rows < batch.num_rows:
            return


def group_rows(batches: list[pa.RecordBatch], groups: int) -> list[pa.Table]:
    """Reduce rows of changes to the rows of partitions and topics, by group.

    Each group has the rows that all groups need. The rows of a group are in the order of the log.
    """
    rows = reduced(batches).combine_chunks()
    (kind,) = rows.column("type").chunks
    kinds, codes = kind.dictionary.to_pylist(), kind.indices.to_numpy()
    group = np.full(rows.num_rows, NONE, np.int64)
    group[np.isin(codes, [code for code, name in enumerate(kinds) if name in SPECIAL])] = ALL
    (ids,) = rows.column("topic_id").chunks
    hashes = np.array([_hash(one) % groups for one in ids.dictionary.to_pylist()], np.int64)
    is_partition = np.isin(codes, [code for code, name in enumerate(kinds) if name in PARTITION_KINDS])
    if is_partition.any():
        group[is_partition] = hashes[ids.indices.take(fixed(pa.int64(), np.flatnonzero(is_partition))).to_numpy()]
    is_topic = np.isin(codes, [code for code, name in enumerate(kinds) if name in TOPIC_KINDS])
    for row in np.flatnonzero(is_topic).tolist():
        group[row] = _hash(json.loads(rows.column("fields")[row].as_py())["topicId"]) % groups
    # A mark comes before its row. The first row of the file may have been merged with a later one.
    starts = _starts(rows)
    marks = pa.concat_tables([_marks(batches[0], np.zeros(1, np.int64)), _marks(rows, starts)])
    places = np.concatenate([[-1], 2 * starts, 2 * np.arange(rows.num_rows) + 1])
    of_all = np.concatenate([np.full(marks.num_rows, ALL), group])
    whole = pa.concat_tables([marks, _plain(rows)])
    order = np.argsort(places, kind="stable")
    order = order[of_all[order] != NONE]
    return [_taken(whole, order[(of_all[order] == ALL) | (of_all[order] == one)]) for one in range(groups)]


def others(batches: list[pa.RecordBatch]) -> pa.Table:
    """The rows that are not about partitions, and marks for the others, in the order of the log."""
    rows = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    (kind,) = rows.column("type").chunks
    codes = [code for code, name in enumerate(kind.dictionary.to_pylist()) if name in PARTITION_KINDS]
    own = np.flatnonzero(~np.isin(kind.indices.to_numpy(), codes))
    marked = np.unique([0, *_starts(rows), rows.num_rows - 1])
    whole = pa.concat_tables([_marks(rows, marked), _plain(_taken(rows, own))])
    return _taken(whole, np.argsort(np.concatenate([2 * marked, 2 * own + 1]), kind="stable"))


def _starts(rows: pa.Table) -> NDArray[np.int64]:
    """The first row of each snapshot."""
    snapshots = np.where(rows.column("snapshot").to_numpy(), rows.column("offset").to_numpy(), -1)
    return np.flatnonzero(np.diff(snapshots, prepend=-1) * (snapshots >= 0))


def _marks(rows: pa.Table | pa.RecordBatch, indices: NDArray[np.int64]) -> pa.Table:
    """Rows with the places of some rows and nothing else: a replay sees where a log and its snapshots begin."""
    found = _plain(_taken(rows, indices))
    columns = {name: pa.nulls(found.num_rows, found.schema.field(name).type) for name in found.column_names}
    columns |= {name: found.column(name) for name in ("offset", "epoch", "timestamp", "snapshot")}
    columns["type"] = pa.array([MARK] * found.num_rows, pa.string())
    return pa.table(columns, schema=found.schema)


def _taken(rows: pa.Table | pa.RecordBatch, indices: NDArray[np.int64]) -> pa.Table:
    found = rows.take(fixed(pa.int64(), indices.astype(np.int64)))
    return pa.Table.from_batches([found]) if isinstance(found, pa.RecordBatch) else found


def _plain(rows: pa.Table) -> pa.Table:
    """The rows without dictionaries."""
    return rows.cast(plain(rows.schema))


def packed(groups: Sequence[pa.Table], place: int) -> Iterator[pa.RecordBatch]:
    """A row of PACKED for each group."""
    options = pa.ipc.IpcWriteOptions(compression="lz4")
    for number, rows in enumerate(groups):
        out = pa.BufferOutputStream()
        with pa.ipc.new_stream(out, rows.schema, options=options) as stream:
            stream.write_table(rows)
        row = {"group": number, "file": place, "rows": out.getvalue().to_pybytes()}
        yield pa.RecordBatch.from_pylist([row], schema=PACKED)


def replayed(group: pa.Table) -> ClusterState:
    """Replay the rows of a group, given as rows of PACKED in any order. Raises ArchiveError."""
    replay = Replay()
    for blob in group.sort_by("file").column("rows"):
        rows = pa.ipc.open_stream(blob.as_buffer()).read_all().combine_chunks()
        arrays = []
        for field in rows.schema:
            (column,) = rows.column(field.name).chunks
            is_dictionary = pa.types.is_dictionary(SCHEMA.field(field.name).type)
            arrays.append(column.dictionary_encode() if is_dictionary else column)
        replay.add(pa.RecordBatch.from_arrays(arrays, names=rows.schema.names))
    return replay.state()


def _partitions(group: pa.Table) -> pa.Table:
    return replayed(group).partitions.cast(plain(PARTITIONS))


def _small_tables(state: ClusterState) -> dict[str, pa.Table]:
    """The tables of a state without partitions."""
    end = {"offset": state.offset, "epoch": state.epoch, "leader": state.small.leader}
    row = {**end, "timestamp": datetime.fromtimestamp(state.timestamp_ms / 1000, UTC)}
    return {**state_tables(state), "cluster": pa.Table.from_pylist([row], schema=CLUSTER)}


def _hash(topic_id: str) -> int:
    return zlib.crc32(topic_id.encode())


def microseconds(time: datetime | str | int) -> int:
    """Microseconds since 1970, in whole milliseconds as in records. Raises SpecError."""
    if isinstance(time, str):
        try:
            time = int(time) if time.isdecimal() else datetime.fromisoformat(time)
        except ValueError:
            raise SpecError(f"time: {time!r} is neither ISO 8601 nor milliseconds since 1970") from None
    if isinstance(time, int):
        return time * 1000
    return unix_ms(time) * 1000
