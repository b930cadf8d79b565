"""Rows by key in tables whose files are replaced whole: what is left of a file, and the files of what is new.

A task reads the keys and the order of a file's rows, and all of it only where a row is older than the change of its
key. Its other rows become another file. A change that is older than the row of its key is refused. All other changes go
into files of their own, in the order of their keys, so that each holds few.

The changes of a batch are in parts, each of a range of keys, which executors have put aside (`upserts`). Tasks read the
parts that they need; the driver learns of bounds, paths and counts.
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

from kraft_pipeline.tables import partitions
from kraft_pipeline.tables.bykey.ordering import Order, matches, newer
from kraft_pipeline.tables.committer import DELETED, Added, Changes, Each, Part, stem
from kraft_pipeline.tables.intents import Work
from kraft_pipeline.tables.partitions import By
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.tasks import FILE_BYTES, encoded

BOUNDED: Final = (pa.types.is_integer, pa.types.is_string, pa.types.is_binary)


@dataclass(frozen=True, slots=True)
class Candidate:
    """A file, and the numbers of the parts that may have keys of its rows."""

    file: Added
    parts: tuple[int, ...]

    @property
    def path(self) -> str:
        """Of the file."""
        return self.file.path


@dataclass(frozen=True, slots=True)
class Left:
    """A file with rows that have one of the keys."""

    old: Added
    changed: bool
    """Whether rows of it are replaced."""
    rest: Added | None
    """What takes its place then, None where no row is left."""
    refused: dict[int, list[int]]
    """By number of the part: the places of changes that are older than rows of the file."""


@dataclass(frozen=True, slots=True)
class Merge:
    """One batch, and what of it the merge of each file needs. Goes to executors."""

    work: Work
    keys: tuple[str, ...]
    order: Order | None
    parts: tuple[Part, ...]
    whole: bool
    """Whether files have the columns that their rows are filed under."""
    only_look: bool = field(default=False, kw_only=True)
    """Whether files stay as they are, and only refusals are wanted."""

    @classmethod
    def of(cls, work: Work, changes: Changes, *, whole: bool, only_look: bool = False) -> Merge:
        """The task that merges `changes` into the files of `work`."""
        return cls(work, changes.keys, changes.order, changes.parts, whole, only_look=only_look)

    def candidates(self, files: Sequence[Added], each: Each) -> list[Candidate]:
        """The files that may have a row with one of the keys, as far as the bounds of their columns tell."""
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
        some = {
            name: pc.unique(there.column(name)).sort()
            for name in self.keys
            if any(is_kind(there.schema.field(name).type) for is_kind in BOUNDED)
        }
        return [n for n, file in enumerate(files) if all(_within(file, name, keys) for name, keys in some.items())]

    def left(self, candidate: Candidate) -> Left | None:
        """What a file becomes; None where it has none of the keys. Raises OSError."""
        file, rows = candidate.file, None
        refused: dict[int, list[int]] = {}
        with self.work.storage.open(file.path) as source, pq.ParquetFile(source) as opened:
            for number in candidate.parts:
                there = self.parts[number].read(self.work.storage, self._columns)
                if rows is None:
                    names = [name for name in there.column_names if name in opened.schema_arrow.names]
                    rows = aligned(_filed(opened.read(names), file, there.schema), there.schema)
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
        written = self._written([(rest, file, file.path.rpartition("/")[0])])
        return Left(file, changed=True, rest=written[0], refused=refused)

    @property
    def _columns(self) -> list[str]:
        return list(dict.fromkeys([*self.keys, *(self.order.columns if self.order else ())]))

    def rows(self, found: Iterable[Left], levels: Sequence[By], each: Each) -> list[Added]:
        """Files of the changes that no row refuses: each part is a task of its own."""
        refused: dict[int, list[int]] = {}
        for left in found:
            for number, places in left.refused.items():
                refused.setdefault(number, []).extend(places)
        work = [(number, refused.get(number, [])) for number in range(len(self.parts))]
        return [file for files in self._each(each)(partial(self._inserted, list(levels)), work) for file in files]

    def _each(self, each: Each) -> Each:
        """What runs a task for each part: parts in memory stay in this process."""
        return each if any(part.rows is None for part in self.parts) else lambda call, work: [call(one) for one in work]

    def _inserted(self, levels: Sequence[By], work: tuple[int, list[int]]) -> list[Added]:
        number, refused = work
        return self.added(inserted(accepted(self.parts[number].read(self.work.storage), refused)), levels)

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


def accepted(rows: pa.Table, refused: Sequence[int]) -> pa.Table:
    """The changes, with DELETED, but for those at some places."""
    good = np.ones(rows.num_rows, np.bool_)
    good[list(refused)] = False
    return rows.filter(pa.array(good))


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
