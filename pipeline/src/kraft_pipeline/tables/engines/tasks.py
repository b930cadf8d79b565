"""The task of an executor: fetch and decode a range of offsets, write Parquet files, and return their metadata."""

from __future__ import annotations

import uuid
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

import numpy as np
import pyarrow as pa

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sources.positions import Key, Loss
from kraft_pipeline.tables import values
from kraft_pipeline.tables.bykey import changes
from kraft_pipeline.tables.formats.recordmeta import MetaReader
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.table_spec import TableSpec
from kraft_pipeline.tables.stores import intents
from kraft_pipeline.tables.stores.committer import Added, stem
from kraft_pipeline.tables.stores.datafiles import encoded, parquet
from kraft_pipeline.tables.stores.storage import Storage, open_storage
from kraft_protocol.client.cluster import Cluster, Settings
from kraft_protocol.client.fetch import Range, fetch_range

FILE_BYTES: Final = 96 * 1024 * 1024
"""Arrow bytes that a task holds before it writes a file: large enough for readers, with memory for two."""
STAGED_ROWS: Final = 50_000
"""Rows of a row group in staged files, which merges by key read in parts."""
INT96_UNIT: Final = "us"
"""Unit of timestamps that other writers store as INT96; in nanoseconds, the years after 2262 would overflow."""


@dataclass(frozen=True, slots=True)
class Job:
    """Parameters that all tasks of a batch share."""

    spec: TableSpec
    app: str
    epoch: int
    """Epoch of the writer; `app` and `epoch` begin the names of its files."""
    settings: Settings
    fields: pa.Schema
    batch: int
    run: str
    """Id of the process that commits; it is part of file names."""
    additive: bool
    taken: frozenset[str]
    """Names, in lower case, that new fields must not have."""
    settled: Mapping[Key, np.ndarray] = field(default_factory=dict)
    """Sorted offsets of records that are already committed dead letters of this batch."""
    staged: bool = False
    """Whether to stage rows for a transform."""


@dataclass(frozen=True, slots=True)
class Result:
    """The files that a task wrote, and their statistics. `fields`: the fields with new fields of values, None without
    new fields.

    If `fields` is set, the task wrote no usable files and must run again. `first_reason`: of the first dead letter.
    """

    rows: int = 0
    dead: int = 0
    size: int = 0
    """Uncompressed bytes of the records."""
    files: list[Added] = field(default_factory=list)
    dead_files: list[Added] = field(default_factory=list)
    fields: pa.Schema | None = None
    first_reason: str = ""
    lost: list[Loss] = field(default_factory=list)
    """Without failOnDataLoss: records that disappeared after the batch was planned."""


def run_task(job: Job, wanted: Range) -> Result:
    """Fetch a range and write its rows. Runs on an executor. Raises ClientError, CodecError and OSError."""
    decoder, spec, gaps = Decoder(wanted.topic, wanted.partition, (*values.RAW,)), job.spec, list[Loss]()

    def lost(first: int, end: int, cause: str) -> None:
        gaps.append(Loss(wanted.topic, wanted.partition, first, end, cause, f"{first} {end}"))

    def fetched(cluster: Cluster) -> Iterator[pa.RecordBatch]:
        for chunk in fetch_range(
            cluster, wanted, committed=spec.committed, fail_on_data_loss=spec.fail_on_data_loss, lost=lost
        ):
            yield from decoder.decode(chunk.records, chunk.offset, chunk.end, chunk.aborted)

    with Cluster(job.settings) as cluster:
        return replace(write(job, wanted, fetched(cluster), decoder.damaged), lost=gaps)


def write(job: Job, wanted: Range, batches: Iterable[pa.RecordBatch], damaged: Collection[int]) -> Result:
    """Write the rows of decoded record batches. `damaged`: the decoder's collection, which grows with the batches."""
    spec = job.spec
    keys = () if job.staged else spec.keys  # a transform makes the columns of the key
    rows = RowFiles(open_storage(spec.path, spec.storage), job, wanted, spec.partition_by, keys)
    plain = replace(job, staged=False)
    dead = RowFiles(open_storage(spec.dead_letter_path, spec.storage), plain, wanted, ())
    fields, reason, size = job.fields, "", 0
    parse = values.parser(spec, fields, retry_s=job.settings.retry_s)
    meta = MetaReader(spec.key, spec.headers, retry_s=job.settings.retry_s)
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
            meta=meta,
        )
        fields = found.fields
        if not fields.equals(job.fields):
            continue  # the task runs again with the new columns
        rows.add(found.rows)
        if found.dead.num_rows:
            reason = reason or _where(found.dead)
            dead.add(values.identified(found.dead, wanted.topic_id))
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
    """Buffers rows and writes them to files of about FILE_BYTES of Arrow data."""

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
        """Add rows; writes files once FILE_BYTES are buffered."""
        if rows.num_rows:
            self._held.append(rows)
            self._bytes += rows.nbytes
            self.rows += rows.num_rows
            if self._bytes >= FILE_BYTES:
                self._write()

    def close(self, *, discard: bool = False) -> None:
        """Write the buffered rows, or discard them."""
        if self._held and not discard:
            self._write()
        self._held = []

    def _write(self) -> None:
        whole = pa.concat_tables(self._held, promote_options="default")
        self._held, self._bytes = [], 0
        if self._keys:
            # Keep the last row of each key. With `orderBy` the order may differ from the offsets, so the merge decides.
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
            if folder:  # staged: no commit describes the file
                data = parquet(rows, group=STAGED_ROWS if self._keys else None)
                file = Added(path, data.size, rows.num_rows, texts)
            else:
                made = encoded(rows)
                data, file = made.data, made.at(path, texts)
            self._storage.write(path, data)
            self.files.append(file)

    def _path(self, folder: str) -> str:
        job = self._job
        begin = f"{stem(job.app, job.epoch)}b{job.batch:08d}-{job.run}-{self._wanted.partition}"
        return f"{folder}/{begin}-{uuid.uuid4().hex[:8]}.parquet".lstrip("/")
