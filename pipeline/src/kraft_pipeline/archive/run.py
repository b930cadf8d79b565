"""One run of an archive: what is new since the last one, to its tables."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.archive import files
from kraft_pipeline.archive.changes import SCHEMA
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.state import Replay, State
from kraft_pipeline.archive.tables import KEY, Changes, open_changes, write_state
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.storage import open_storage


@dataclass(frozen=True, slots=True)
class Done:
    """What a run has done."""

    rows: int
    """New changes."""
    offset: int
    """The last one of the archive."""
    partitions: int
    topics: int
    brokers: int
    files: int
    seconds: float

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def archive(spec: ArchiveSpec, tell: Callable[[int], None] = lambda _: None) -> Done:
    """Bring the archive up to date; `tell` is given the number of rows that have been added since it was called last.

    Raises ArchiveError, ConflictError, ClientError and OSError.
    """
    began = time.monotonic()
    changes = Changes(spec)
    replay = Replay()
    rows, offset = 0, -1
    try:
        changes.sweep()
        start = 0
        if changes.position is not None:
            start = changes.position.offsets[KEY]
            for batch in archived(spec):
                replay.add(batch)
        for batch in source(spec, start, changes.position):
            changes.add(batch)
            replay.add(batch)
            rows += batch.num_rows
            offset = batch.column("offset")[batch.num_rows - 1].as_py()
            tell(batch.num_rows)
        state = replay.state()
        end = max(offset + 1, start)
        count = changes.commit(Position({KEY: end}, cluster_of(spec))) if rows else 0
    finally:
        changes.close()
    write_state(spec, state)
    found = (state.partitions.num_rows, len(state.small.topics), len(state.small.brokers))
    return Done(rows, end - 1, *found, count, round(time.monotonic() - began, 3))


def source(spec: ArchiveSpec, start: int = 0, since: Position | None = None) -> Iterator[pa.RecordBatch]:
    """The rows of the log itself from an offset on. Raises ArchiveError for another cluster than that of `since`."""
    cluster = cluster_of(spec)
    if since is not None and since.cluster and cluster and since.cluster != cluster:
        raise ArchiveError(f"the archive is of cluster {since.cluster}, this is cluster {cluster}")
    for piece in files.pieces(spec.paths, start):
        yield from files.read(piece)


def archived(spec: ArchiveSpec) -> Iterator[pa.RecordBatch]:
    """The rows of an archive's table of changes. Raises ArchiveError where there is none."""
    table = open_changes(spec)
    if table.state().position is None:
        raise ArchiveError(f"{spec.path} is no archive yet")
    storage = open_storage(f"{spec.path.rstrip('/')}/changes", spec.storage)
    for file in sorted(table.live(), key=lambda file: file.path):
        reader = pq.ParquetFile(pa.BufferReader(storage.read(file.path)), read_dictionary=["type", "topic_id"])
        for batch in reader.iter_batches(batch_size=1 << 17):
            yield batch.select(SCHEMA.names).cast(SCHEMA)


def cluster_of(spec: ArchiveSpec) -> str:
    """The cluster's id, where the source tells it."""
    for path in spec.paths:
        for folder in (Path(path), Path(path).parent):
            meta = folder / "meta.properties"
            if meta.is_file():
                lines = (line.partition("=") for line in meta.read_text().splitlines())
                return next((value for key, _, value in lines if key == "cluster.id"), "")
    return ""


def state_at(batches: Iterator[pa.RecordBatch], *, offset: int | None = None, time_ms: int | None = None) -> State:
    """The state after the record at `offset`, or after the last one that is not younger than `time_ms`; the last state
    there is without either. Raises ArchiveError where that lies before the beginning."""
    replay = Replay()
    limit = None if time_ms is None else time_ms * 1000
    for batch in batches:
        rows = batch
        if offset is not None:
            rows = batch.slice(0, int(batch.column("offset").to_numpy().searchsorted(offset, "right")))
        if limit is not None:
            late = batch.column("timestamp").cast(pa.int64()).to_numpy() > limit
            rows = batch.slice(0, int(late.argmax())) if late.any() else batch
        replay.add(rows)
        if rows.num_rows < batch.num_rows:
            break
    return replay.state()
