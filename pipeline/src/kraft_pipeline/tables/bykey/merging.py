"""Merge of rows by key into tables that replace files as a whole.

A task reads the keys and order columns of a file. It reads the rest only if a row is older than the change of its key;
the remaining rows then become a new file. A change that is older than the row of its key is refused. All other changes
go into new files, sorted by key, so each file covers a narrow range of keys.

Executors have staged the changes of a batch in parts, each with a range of keys (`upserts`). Tasks read the parts that
they need. The driver sees only bounds, paths and counts.
"""

from __future__ import annotations

import uuid
from bisect import bisect_left
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.tables.bykey.ordering import Order, matches, newer
from kraft_pipeline.tables.engines.tasks import FILE_BYTES, INT96_UNIT
from kraft_pipeline.tables.schemas import aligned, as_in
from kraft_pipeline.tables.specs import partitions
from kraft_pipeline.tables.specs.partitions import By
from kraft_pipeline.tables.stores.committer import DELETED, Added, Changes, Each, Part, stem
from kraft_pipeline.tables.stores.datafiles import encoded
from kraft_pipeline.tables.stores.intents import Work

BOUNDED: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, and the numbers of the parts that may share keys with it."""

    file: Added
    parts: tuple[int, ...]

    @property
    def path(self) -> str:
        """Path of the file, relative to the table."""
        return self.file.path


@dataclass(frozen=True, slots=True)
class Left:
    """The result for a file that shares keys with the changes."""

    old: Added
    changed: bool
    """Whether some of its rows are replaced."""
    rest: Added | None
    """The file that replaces it; None if no row remains or nothing changed."""
    refused: dict[int, list[int]]
    """By number of the part: indexes of changes that are older than rows of the file."""


@dataclass(frozen=True, slots=True)
class Merge:
    """The merge of one batch; it is sent to executors."""

    work: Work
    keys: tuple[str, ...]
    order: Order | None
    parts: tuple[Part, ...]
    whole: bool
    """Whether files contain the partition columns."""
    columns: pa.Schema = field(default_factory=lambda: pa.schema([]), kw_only=True)
    """Columns of the table. Files of other writers may store their types otherwise."""
    only_look: bool = field(default=False, kw_only=True)
    """Whether to find refused changes only, without new files."""

    @classmethod
    def of(
        cls, work: Work, changes: Changes, columns: pa.Schema | None, *, whole: bool, only_look: bool = False
    ) -> Merge:
        """The merge of `changes` into a table with `columns`; the new files belong to `work`."""
        assert columns is not None, "a table is created before anything is committed"
        return cls(work, changes.keys, changes.order, changes.parts, whole, columns=columns, only_look=only_look)

    def candidates(self, files: Sequence[Added], each: Each) -> list[Candidate]:
        """The files that may have a row with one of the keys, by the bounds of their key columns."""
        numbers = range(len(self.parts))
        look = partial(self._may_hold, list(files))
        found = self._each(each)(look, numbers)
        by_file: dict[int, list[int]] = {}
        for number, places in enumerate(found):
            for place in places:
                by_file.setdefault(place, []).append(number)
        return [Candidate(files[place], tuple(parts)) for place, parts in sorted(by_file.items())]

    def _may_hold(self, files: Sequence[Added], number: int) -> list[int]:
        there = self.parts[number].read(self.work.storage, self.keys)
        if not there.num_rows:
            return []
        distinct = {
            name: pc.unique(there.column(name)).sort()
            for name in self.keys
            if any(is_kind(there.schema.field(name).type) for is_kind in BOUNDED)
        }
        return [n for n, file in enumerate(files) if all(_within(file, name, keys) for name, keys in distinct.items())]

    def left(self, candidate: Candidate) -> Left | None:
        """Merge the changes into one file. Returns None if it has no key of the batch. Raises OSError."""
        file, rows = candidate.file, None
        refused: dict[int, list[int]] = {}
        with self.work.storage.open(file.path) as source, _opened(source) as opened:
            for number in candidate.parts:
                there = self.parts[number].read(self.work.storage, self._columns)
                if rows is None:
                    names = [name for name in there.column_names if name in opened.schema_arrow.names]
                    rows = aligned(_with_partition_columns(opened.read(names), file, there.schema), there.schema)
                    kept, met = np.ones(rows.num_rows, np.bool_), False
                old, new = matches(rows, there, list(self.keys))
                wins = np.ones(len(new), np.bool_)
                if self.order is not None:
                    wins = newer(there.take(pa.array(new)), rows.take(pa.array(old)), self.order)
                if not wins.all():
                    refused[number] = [int(place) for place in new[~wins]]
                kept[old[wins]] = False
                met = met or len(old) > 0
            if rows is None or not met:
                return None
            if kept.all() or self.only_look:
                return Left(file, changed=False, rest=None, refused=refused)
            rest = opened.read().filter(pa.array(kept)) if kept.any() else None
        if rest is None:
            return Left(file, changed=True, rest=None, refused=refused)
        rest = aligned(rest, as_in(self.columns, rest.schema))
        written = self._written([(rest, file, file.path.rpartition("/")[0])])
        return Left(file, changed=True, rest=written[0], refused=refused)

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([*self.keys, *(self.order.columns if self.order else ())]))

    def rows(self, found: Iterable[Left], levels: Sequence[By], each: Each) -> list[Added]:
        """Write the changes that are not refused to new files, one task per part. Returns the files."""
        refused: dict[int, list[int]] = {}
        for left in found:
            for number, places in left.refused.items():
                refused.setdefault(number, []).extend(places)
        work = [(number, refused.get(number, [])) for number in range(len(self.parts))]
        return [file for files in self._each(each)(partial(self._inserted, list(levels)), work) for file in files]

    def _each(self, each: Each) -> Each:
        """Runs a task for each part. Parts in memory stay in this process."""
        return each if any(part.rows is None for part in self.parts) else lambda call, work: [call(one) for one in work]

    def _inserted(self, levels: Sequence[By], work: tuple[int, list[int]]) -> list[Added]:
        number, refused = work
        return self.added(inserted(accepted(self.parts[number].read(self.work.storage), refused)), levels)

    def added(self, rows: pa.Table, levels: Sequence[By]) -> list[Added]:
        """Write rows to new files, sorted by key and split by partition. Raises OSError."""
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
            made = encoded(rows, [key for key in self.keys if key in rows.column_names])
            self.work.storage.write(path, made.data)
            found.append(made.at(path, like.values))
        return found


def _opened(source: Any) -> pq.ParquetFile:
    return pq.ParquetFile(source, coerce_int96_timestamp_unit=INT96_UNIT)


def accepted(rows: pa.Table, refused: Sequence[int]) -> pa.Table:
    """The changes without the rows at the `refused` indexes; the column DELETED stays."""
    good = np.ones(rows.num_rows, np.bool_)
    good[list(refused)] = False
    return rows.filter(pa.array(good))


def inserted(changes: pa.Table) -> pa.Table:
    """The changes that are not deletions, without the column DELETED."""
    return changes.filter(pc.invert(changes.column(DELETED))).drop_columns([DELETED])


def _with_partition_columns(rows: pa.Table, file: Added, schema: pa.Schema) -> pa.Table:
    """Add the partition columns that `schema` has, with the values of the file."""
    for name, text in file.values.items():
        if name in schema.names and name not in rows.column_names:
            kind = schema.field(name).type
            rows = rows.append_column(name, pa.array([text] * rows.num_rows, pa.string()).cast(kind))
    return rows


def _within(file: Added, name: str, keys: pa.Array) -> bool:
    least, most = file.minima.get(name), file.maxima.get(name)
    if least is None or most is None:
        return True
    at = bisect_left(keys, least, key=lambda key: key.as_py())
    found: Any = keys[at].as_py() if at < len(keys) else None
    return found is not None and bool(found <= most)
