"""Processes the files of a large log or archive in tasks on executors, a task for each file.

A task decodes a segment or a snapshot and writes its rows as files of the table of changes. Beside them it writes a
summary: rows that lead to the same state. It has a single row for each partition, and no rows without an effect. The
driver replays the summaries in the order of the log, and commits the files. All processes must reach the files by the
same path.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from kraft_pipeline.archive import files
from kraft_pipeline.archive.changes import SCHEMA
from kraft_pipeline.archive.state import IDLE, PART_NAMES, PARTITION_KINDS, RECORD, SPECIAL, _code, folded, mask
from kraft_pipeline.archive.tables import FILE_ROWS, read_changes, redacted, write_changes
from kraft_pipeline.codec.arrays import fixed
from kraft_pipeline.tables.engines.engine import Engine
from kraft_pipeline.tables.stores.committer import Added
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_state"
"""Suffix of summaries, beside the files of changes. The run that ordered a summary reads and removes it."""
RUNS_MAX: Final = 64
"""Maximum transactions of a file; rows with more transactions are not summarized."""


@dataclass(frozen=True, slots=True)
class Spread:
    """Common parameters of the tasks of a run. Sent to executors."""

    storage: Storage
    """Folder of the table of changes."""
    begin: str
    """Prefix of the names of new files."""

    def archived(self, there: Sequence[Added], engine: Engine) -> Iterator[pa.RecordBatch]:
        """The summaries of the table's files. Raises TaskError, OSError."""
        for part in engine.map(self._archived, there):
            yield from self._taken(part)

    def decoded(
        self, pieces: Sequence[files.Piece], engine: Engine, take: Callable[[list[Added]], None]
    ) -> Iterator[pa.RecordBatch]:
        """The summaries of segments and snapshots; `take` gets their files. Raises TaskError, OSError."""
        for part in engine.map(self._decoded, list(enumerate(pieces))):
            take(part.added)
            yield from self._taken(part)

    def _archived(self, file: Added) -> TaskOutput:
        return TaskOutput([self._left(list(read_changes(self.storage, file.path)))], [])

    def _decoded(self, work: tuple[int, files.Piece]) -> TaskOutput:
        left, added = [], []
        for number, some in enumerate(_by_files(files.read(work[1]))):
            name = f"{self.begin}-{work[0]:05d}-{number:05d}-{uuid.uuid4().hex[:8]}.parquet"
            added.append(write_changes(self.storage, name, some))
            left.append(self._left(some))
        return TaskOutput(left, added)

    def _taken(self, part: TaskOutput) -> Iterator[pa.RecordBatch]:
        for path in part.left:
            yield from pa.ipc.open_stream(self.storage.read(path))
            self.storage.delete(path)

    def _left(self, rows: list[pa.RecordBatch]) -> str:
        """Write rows, reduced and without secrets, to a file of this job. Returns its path."""
        path, out = f"{FOLDER}/{self.begin}-{uuid.uuid4().hex}.arrow", pa.BufferOutputStream()
        with pa.ipc.new_stream(out, SCHEMA) as stream:
            for batch in reduced(rows).to_batches():
                stream.write_batch(redacted(batch))
        self.storage.write(path, out.getvalue())
        return path


class TaskOutput(NamedTuple):
    """The output of a task: paths of summaries, and files of changes."""

    left: list[str]
    added: list[Added]


def _by_files(batches: Iterator[pa.RecordBatch]) -> Iterator[list[pa.RecordBatch]]:
    some: list[pa.RecordBatch] = []
    for batch in batches:
        some.append(batch)
        if sum(one.num_rows for one in some) >= FILE_ROWS:
            yield some
            some = []
    if some:
        yield some


def reduced(batches: list[pa.RecordBatch]) -> pa.Table:
    """Summarize rows in `changes.SCHEMA`.

    The result has fewer rows in the same order, with the same final state and the same last row.
    """
    whole = pa.Table.from_batches(batches).unify_dictionaries().combine_chunks()
    (kind,) = whole.column("type").chunks
    kinds, codes = kind.dictionary.to_pylist(), kind.indices.to_numpy()
    is_partition, is_idle, is_special = (
        np.isin(codes, [code for code, name in enumerate(kinds) if name in wanted])
        for wanted in (PARTITION_KINDS, IDLE, SPECIAL)
    )
    at, runs = np.flatnonzero(is_partition), _runs(whole, is_special)
    if not at.size or runs[-1] >= RUNS_MAX:
        return whole
    (ids,) = whole.column("topic_id").chunks
    topics = runs[at] * len(ids.dictionary) + ids.indices.take(fixed(pa.int64(), at)).to_numpy()
    columns = dict(zip(SCHEMA.names, whole.take(fixed(pa.int64(), at)).columns, strict=True))
    columns |= {"topic": fixed(pa.int32(), topics.astype(np.int32)), "record": mask(codes[at] == _code(kinds, RECORD))}
    found, last = folded(pa.table({name: columns[name] for name in PART_NAMES}), RUNS_MAX * len(ids.dictionary))

    is_other = ~is_partition & ~is_idle
    is_other[[0, -1]] = ~is_partition[[0, -1]]  # of any type: they show where a log begins and ends
    others = np.flatnonzero(is_other)
    columns = dict(zip(SCHEMA.names, whole.take(fixed(pa.int64(), at[last])).columns, strict=True))
    columns |= {name: found.column(name) for name in found.column_names if name in SCHEMA.names}
    is_record = found.column("record").to_numpy()
    codes = np.where(is_record, _code(kinds, RECORD), codes[at[last]]).astype(np.int32)
    columns["type"] = pa.DictionaryArray.from_arrays(fixed(pa.int32(), codes), kind.dictionary)
    rows = pa.concat_tables([pa.table(columns, SCHEMA), whole.take(fixed(pa.int64(), others))])
    return rows.take(fixed(pa.int64(), np.argsort(np.concatenate([at[last], others]))))


def _runs(rows: pa.Table, is_special: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Number the runs of rows that may be reordered: not across bounds of transactions and snapshots."""
    snapshots = np.where(rows.column("snapshot").to_numpy(), rows.column("offset").to_numpy(), -1)
    ends = is_special[:-1] | (snapshots[1:] != snapshots[:-1])
    return np.concatenate([[0], np.cumsum(ends)])
