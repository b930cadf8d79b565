"""Rows by key in tables whose files are replaced whole: what is left of a file, and the files of what is new.

A task reads the keys of a file, and all of it only where one of them is among those that change. Its other rows become
another file; the rows that changed go into files of their own, in the order of their keys, so that each holds few.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.tables import partitions
from kraft_pipeline.tables.changes import untouched
from kraft_pipeline.tables.committer import Added
from kraft_pipeline.tables.partitions import By
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.storage import Storage
from kraft_pipeline.tables.tasks import FILE_BYTES, encoded


@dataclass(frozen=True, slots=True)
class Left:
    """A file with rows that change, and what takes its place: None where no row is left."""

    old: Added
    rest: Added | None


@dataclass(frozen=True, slots=True)
class Merge:
    """One batch: the `keys` that change, and how the names of its files begin. Goes to executors."""

    storage: Storage
    stem: str
    keys: pa.Table

    def left(self, file: Added) -> Left | None:
        """What a file becomes; None where it stays, having none of the keys. Raises OSError."""
        names = self.keys.column_names
        with self.storage.open(file.path) as source, pq.ParquetFile(source) as opened:
            kept = untouched(aligned(opened.read(names), self.keys.schema), self.keys)
            if kept.all():
                return None
            rows = opened.read().filter(pa.array(kept)) if kept.any() else None
        return Left(file, None if rows is None else self._file(rows, file, file.path.rpartition("/")[0]))

    def added(self, rows: pa.Table, levels: Sequence[By]) -> list[Added]:
        """Files of the rows, all of which are new. Raises OSError."""
        files = []
        ordered = rows.sort_by([(name, "ascending") for name in self.keys.column_names])
        for values, some in partitions.split(ordered, levels, whole=True):
            most = max(1, some.num_rows * FILE_BYTES // max(some.nbytes, 1))
            for at in range(0, some.num_rows, most):
                like = Added("", 0, 0, values)
                files.append(self._file(some.slice(at, most), like, partitions.folder(values, some.column_names)))
        return files

    def _file(self, rows: pa.Table, like: Added, folder: str) -> Added:
        data, minima, maxima = encoded(rows, self.keys.column_names)
        path = f"{folder}/{self.stem}-{uuid.uuid4().hex}.parquet".lstrip("/")
        self.storage.write(path, data)
        return Added(path, data.size, rows.num_rows, like.values, minima, maxima)
