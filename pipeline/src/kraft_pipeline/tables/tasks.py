"""One range of offsets to Parquet files, on an executor: fetch, decode, file, write; what comes back is about files."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.client import Cluster, Settings, fetch_range
from kraft_pipeline.client.fetch import Range
from kraft_pipeline.codec import Decoder
from kraft_pipeline.sources.positions import Key
from kraft_pipeline.tables import intents, partitions, values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.committer import Added, stem
from kraft_pipeline.tables.spec import TableSpec
from kraft_pipeline.tables.storage import Storage, open_storage

FILE_BYTES: Final = 96 * 1024 * 1024
"""Arrow bytes that a task holds before it writes them: files large enough for readers, memory small enough for two."""
STAGED_ROWS: Final = 50_000
"""Of a group of rows in files that merges by key read in parts."""
STATISTICS: Final = 32
"""Columns with a minimum and a maximum in the commit, as Delta's writers have by default."""
KEY_LENGTH: Final = 64
"""Longer texts and bytes are no bounds of keys: each commit holds those of all files."""


@dataclass(frozen=True, slots=True)
class Job:
    """What the tasks of one batch have in common."""

    spec: TableSpec
    app: str
    epoch: int
    """How the names of its files begin: who writes."""
    settings: Settings
    fields: pa.Schema
    batch: int
    run: str
    """Of the process that commits: files of others are told from its own."""
    additive: bool
    taken: frozenset[str]
    """Names, in small letters, that no new field may have."""
    settled: Mapping[Key, np.ndarray] = field(default_factory=dict)
    """Offsets of records that are committed dead letters of this batch already, in order."""
    staged: bool = False
    """Whether rows are put aside, for a transform to make the table's rows of them."""


@dataclass(frozen=True, slots=True)
class Result:
    """What a task has written, and what it has learnt of the values' fields."""

    rows: int = 0
    dead: int = 0
    size: int = 0
    """Bytes of the records, uncompressed."""
    files: list[Added] = field(default_factory=list)
    dead_files: list[Added] = field(default_factory=list)
    fields: pa.Schema | None = None
    first_reason: str = ""


def run_task(job: Job, wanted: Range) -> Result:
    """Write the rows of a range. Raises ClientError, CodecError and OSError."""
    decoder, spec = Decoder(wanted.topic, wanted.partition, (*values.RAW,)), job.spec

    def fetched(cluster: Cluster) -> Iterator[pa.RecordBatch]:
        for chunk in fetch_range(cluster, wanted, committed=spec.committed, fail_on_data_loss=spec.fail_on_data_loss):
            yield from decoder.decode(chunk.records, chunk.offset, chunk.end, chunk.aborted)

    with Cluster(job.settings) as cluster:
        return write(job, wanted, fetched(cluster), decoder.damaged)


def write(job: Job, wanted: Range, batches: Iterable[pa.RecordBatch], damaged: Collection[int]) -> Result:
    """Write the rows of record batches; `damaged` is the decoder's and grows with them."""
    spec = job.spec
    rows = RowFiles(open_storage(spec.path, spec.storage), job, wanted, spec.partition_by, spec.keys)
    plain = replace(job, staged=False)
    dead = RowFiles(open_storage(spec.dead_letter_path, spec.storage), plain, wanted, ())
    fields, reason, size = job.fields, "", 0
    parse = values.parser(spec, fields, retry_s=job.settings.retry_s)
    settled = job.settled.get((wanted.topic, wanted.partition))
    for fetched in batches:
        size += fetched.nbytes
        records = fetched if settled is None else _without(fetched, settled)
        found = values.decode(
            _ordered(records),
            spec,
            fields,
            job.batch,
            additive=job.additive,
            taken=job.taken,
            parse=parse,
            damaged=damaged,
        )
        fields = found.fields
        if not fields.equals(job.fields):
            continue  # all will be written anew, with the columns that they teach
        rows.add(found.rows)
        if found.dead.num_rows:
            reason = reason or _where(found.dead)
            dead.add(found.dead)
    learnt = None if fields.equals(job.fields) else fields
    rows.close(discard=learnt is not None)
    dead.close(discard=learnt is not None)
    return Result(rows.rows, dead.rows, size, rows.files, dead.files, learnt, reason)


def _ordered(records: pa.RecordBatch) -> pa.RecordBatch:
    return records.select([name for name in values.RAW])  # noqa: C416


def _without(records: pa.RecordBatch, offsets: np.ndarray) -> pa.RecordBatch:
    return records.filter(pa.array(~np.isin(records.column("offset").to_numpy(), offsets)))


def _where(dead: pa.Table) -> str:
    first = dead.slice(0, 1).select(["topic", "partition", "offset", "reason"]).to_pylist()[0]
    return f"{first['topic']}-{first['partition']}, offset {first['offset']}: {first['reason']}"


class RowFiles:
    """Holds rows until they are worth a file."""

    def __init__(
        self,
        storage: Storage,
        job: Job,
        wanted: Range,
        partition_by: tuple[str, ...],
        keys: tuple[str, ...] = (),
    ) -> None:
        self._storage, self._job, self._wanted = storage, job, wanted
        self._work = intents.batch(storage, job.app, job.epoch, job.batch)
        self._partition_by, self._keys = partition_by, keys
        self._held: list[pa.Table] = []
        self._bytes = 0
        self.rows = 0
        self.files: list[Added] = []

    def add(self, rows: pa.Table) -> None:
        """Take rows; the oldest may be written now."""
        if rows.num_rows:
            self._held.append(rows)
            self._bytes += rows.nbytes
            self.rows += rows.num_rows
            if self._bytes >= FILE_BYTES:
                self._write()

    def close(self, *, discard: bool = False) -> None:
        """Write what is held, or forget it."""
        if self._held and not discard:
            self._write()
        self._held = []

    def _write(self) -> None:
        whole = pa.concat_tables(self._held, promote_options="default")
        self._held, self._bytes = [], 0
        if self._keys:
            # Of one key only the newest in the end, which the merge finds: an order may be another than the offsets'.
            kept = whole if self._job.spec.order_by else changes.last(whole, self._keys)
            self._put([({}, kept.sort_by([(key, "ascending") for key in self._keys]))], changes.STAGED)
            return
        if self._job.staged:
            self._put([({}, whole)], changes.STAGED)
            return
        levels = partitions.parse(self._partition_by, whole.schema)
        self._put(list(partitions.split(whole, levels, whole=self._job.spec.format == "iceberg")))

    def _put(self, parts: Sequence[tuple[Mapping[str, str | None], pa.Table]], folder: str = "") -> None:
        paths = [self._path(folder or partitions.folder(texts, rows.column_names)) for texts, rows in parts]
        self._work.intend(paths)
        for path, (texts, rows) in zip(paths, parts, strict=True):
            data, minima, maxima = encoded(rows, group=STAGED_ROWS if self._keys else None)
            self._storage.write(path, data)
            self.files.append(Added(path, data.size, rows.num_rows, texts, minima, maxima))

    def _path(self, folder: str) -> str:
        job = self._job
        begin = f"{stem(job.app, job.epoch)}b{job.batch:08d}-{job.run}-{self._wanted.partition}"
        return f"{folder}/{begin}-{uuid.uuid4().hex[:8]}.parquet".lstrip("/")


def encoded(
    rows: pa.Table, keys: Sequence[str] = (), *, group: int | None = None
) -> tuple[pa.Buffer, dict[str, Any], dict[str, Any]]:
    """The rows as a Parquet file, and the least and greatest of integer columns, and of `keys` that are short texts.

    `group`: rows that a reader has to read together, if fewer than Arrow's default.
    """
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="zstd", compression_level=1, row_group_size=group)
    minima, maxima = {}, {}
    for name in dict.fromkeys([*keys, *rows.column_names[:STATISTICS]]):
        kind = rows.schema.field(name).type
        text = name in keys and (pa.types.is_string(kind) or pa.types.is_binary(kind))
        if (text or pa.types.is_integer(kind)) and rows.column(name).null_count < rows.num_rows:
            least, most = pc.min_max(rows.column(name)).as_py().values()
            if not text or max(len(least), len(most)) <= KEY_LENGTH:
                minima[name], maxima[name] = least, most
    return out.getvalue(), minima, maxima
