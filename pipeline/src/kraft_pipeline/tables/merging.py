"""Rows by key in tables whose files are replaced whole: what is left of a file, and the files of what is new.

A task reads the keys and the order of a file's rows, and all of it only where a row is older than the change of its
key. Its other rows become another file. A change that is older than the row of its key is refused. All other changes go
into files of their own, in the order of their keys, so that each holds few.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.tables import partitions
from kraft_pipeline.tables.committer import DELETED, Added, Changes, stem
from kraft_pipeline.tables.intents import Work
from kraft_pipeline.tables.ordering import Order, matches, newer
from kraft_pipeline.tables.partitions import By
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.tasks import FILE_BYTES, encoded

BOUNDED: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary)


@dataclass(frozen=True, slots=True)
class Left:
    """A file with rows that have one of the keys."""

    old: Added
    changed: bool
    """Whether rows of it are replaced."""
    rest: Added | None
    """What takes its place then, None where no row is left."""
    refused: list[int]
    """The places of changes that are older than rows of it."""


@dataclass(frozen=True, slots=True)
class Merge:
    """One batch, and what of it the merge of each file needs. Goes to executors."""

    work: Work
    keys: tuple[str, ...]
    order: Order | None
    there: pa.Table
    """The columns of keys and order, of all changes."""
    whole: bool
    """Whether files have the columns that their rows are filed under."""
    only_look: bool = field(default=False, kw_only=True)
    """Whether files stay as they are, and only refusals are wanted."""

    @classmethod
    def of(cls, work: Work, changes: Changes, *, whole: bool, only_look: bool = False) -> Merge:
        """The task that merges `changes` into the files of `work`; it carries only keys and order columns."""
        names = dict.fromkeys([*changes.keys, *(changes.order.columns if changes.order else ())])
        return cls(work, changes.keys, changes.order, changes.rows.select(list(names)), whole, only_look=only_look)

    def may_hold(self, files: Iterable[Added]) -> list[Added]:
        """The files that may have a row with one of the keys, as far as the bounds of their columns tell."""
        some = {
            name: pc.unique(self.there.column(name)).sort()
            for name in self.keys
            if any(is_kind(self.there.schema.field(name).type) for is_kind in BOUNDED)
        }
        return [file for file in files if all(_within(file, name, keys) for name, keys in some.items())]

    def left(self, file: Added) -> Left | None:
        """What a file becomes; None where it has none of the keys. Raises OSError."""
        with self.work.storage.open(file.path) as source, pq.ParquetFile(source) as opened:
            names = [name for name in self.there.column_names if name in opened.schema_arrow.names]
            rows = aligned(_filed(opened.read(names), file, self.there.schema), self.there.schema)
            old, new = matches(rows, self.there, list(self.keys))
            if not len(old):
                return None
            wins = np.ones(len(new), np.bool_)
            if self.order is not None:
                wins = newer(self.there.take(pa.array(new)), rows.take(pa.array(old)), self.order)
            refused = [int(place) for place in new[~wins]]
            if not wins.any() or self.only_look:
                return Left(file, changed=False, rest=None, refused=refused)
            kept = np.ones(rows.num_rows, np.bool_)
            kept[old[wins]] = False
            rest = opened.read().filter(pa.array(kept)) if kept.any() else None
        if rest is None:
            return Left(file, changed=True, rest=None, refused=refused)
        written = self._written([(rest, file, file.path.rpartition("/")[0])])
        return Left(file, changed=True, rest=written[0], refused=refused)

    def added(self, rows: pa.Table, levels: Sequence[By]) -> list[Added]:
        """Files of rows that are new. Raises OSError."""
        files = []
        ordered = rows.sort_by([(name, "ascending") for name in self.keys])
        for values, some in partitions.split(ordered, levels, whole=self.whole):
            most = max(1, some.num_rows * FILE_BYTES // max(some.nbytes, 1))
            like, folder = Added("", 0, 0, values), partitions.folder(values, some.column_names)
            files += [(some.slice(at, most), like, folder) for at in range(0, some.num_rows, most)]
        return self._written(files) if files else []

    def _written(self, files: Sequence[tuple[pa.Table, Added, str]]) -> list[Added]:
        begin = f"{stem(self.work.app, self.work.epoch)}{self.work.name}"
        paths = [f"{folder}/{begin}-{uuid.uuid4().hex}.parquet".lstrip("/") for _, _, folder in files]
        self.work.intend(paths)
        found = []
        for path, (rows, like, _) in zip(paths, files, strict=True):
            data, minima, maxima = encoded(rows, [key for key in self.keys if key in rows.column_names])
            self.work.storage.write(path, data)
            found.append(Added(path, data.size, rows.num_rows, like.values, minima, maxima))
        return found


def accepted(changes: Changes, found: Iterable[Left]) -> pa.Table:
    """The changes that no row refuses, with DELETED."""
    good = np.ones(changes.rows.num_rows, np.bool_)
    for left in found:
        good[left.refused] = False
    return changes.rows.filter(pa.array(good))


def inserted(changes: pa.Table) -> pa.Table:
    """The rows among changes, without DELETED."""
    return changes.filter(pc.invert(changes.column(DELETED))).drop_columns([DELETED])


def _filed(rows: pa.Table, file: Added, schema: pa.Schema) -> pa.Table:
    """With the columns that the file's place says, and that are wanted."""
    for name, text in file.values.items():
        if name in schema.names and name not in rows.column_names:
            kind = schema.field(name).type
            rows = rows.append_column(name, pa.array([text] * rows.num_rows, pa.string()).cast(kind))
    return rows


def _within(file: Added, name: str, some: pa.Array) -> bool:
    least, most = file.minima.get(name), file.maxima.get(name)
    if least is None or most is None:
        return True
    at = bisect_left(some, least, key=lambda key: key.as_py())
    found: Any = some[at].as_py() if at < len(some) else None
    return found is not None and bool(found <= most)
