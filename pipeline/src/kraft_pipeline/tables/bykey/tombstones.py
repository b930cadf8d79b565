"""Tombstones of a table by key, kept for a time so that older rows do not reappear.

A tombstone deletes its row, so later batches lack a row to compare with. So each batch writes its tombstones to
`_kraft_tombstones/<written>-<latest>-<id>.arrow`, which holds keys and order columns. The name has the writer's clock
and the latest record time, both in Unix milliseconds. A batch reads the files with records that may be later than its
earliest row. If the topic has no late records, these are the files of the last minutes.

Deletions of change events have a value in the column of `orderBy`, which ranks them regardless of time. The names of
their files end with the greatest value, `-<value>.arrow`. A batch reads the files whose value reaches its least value.

Debezium sends a tombstone right after each deletion, also when a killed connector sends both again. The tombstone takes
the value of its deletion, even if an earlier batch had the deletion. So batches store a deletion whose tombstone is not
in the batch, also if the batch has a newer change of the key.

`care` merges files into one. The merged file names its parts, which stay for `PARTS_S`: a batch may have listed their
names, and would miss their tombstones.

A file is written before its batch is committed and applies at once. This needs no transaction: a deletion in the log is
a fact, even if the batch is never committed.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kraft_pipeline.tables.bykey.ordering import Order, Within, matches, newer
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.stores.committer import DELETED, Changes
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_tombstones"
ANY: Final = "any"
"""Bound of values of `orderBy` that are not texts, or too long for a file's name."""
Places = NDArray[np.int64]
_TEXT_BYTES_MAX: Final = 80
MERGE_FROM: Final = 64
"""Number of files from which `care` merges them into one."""
PARTS_S: Final = 600.0
"""Seconds for which the parts of a merged file stay: batches read tombstones within seconds."""
_PARTS: Final = b"kraft.parts"
"""Key in the metadata of a merged file: the names of its parts, in JSON."""


class _File(NamedTuple):
    path: str
    written_ms: int
    latest_ms: int
    most: str
    """Greatest value of `orderBy` as hexadecimal digits of UTF-8, ANY if it is unknown, "" if no tombstone has one."""
    modified: float
    """Unix time in seconds, by the clock of the store."""


class Tombstones:
    """Tombstones of the table in `storage`, kept for `kept_s` seconds. Methods raise OSError."""

    def __init__(self, storage: Storage, kept_s: float) -> None:
        self._storage, self._kept_s = storage, kept_s

    def fresh(self, changes: Changes) -> Changes:
        """The changes without rows that are not newer than a tombstone of their key.

        As in a merge, the row has to be newer: with a lower offset and a later time, or the other way around, each of
        the two would count as newer than the other.
        """
        order, rows = changes.order, changes.rows
        assert rows is not None, "tasks gather rows in memory"
        if order is None or not rows.num_rows or not self._kept_s:
            return changes
        there = rows.column(DELETED)
        stay = rows.filter(pc.invert(there))
        first = pc.min(stay.column(order.time))
        if not first.is_valid:
            return changes
        least = pc.min(stay.column(order.by)) if order.by else None
        kept = np.ones(rows.num_rows, np.bool_)
        wanted = rows.select(_columns(changes)).schema
        for file in self._files():
            if order.within is not Within.EITHER or file.latest_ms >= _ms(first) or _reaches(file.most, least):
                gone = aligned(pa.ipc.open_file(self._storage.read(file.path)).read_all(), wanted)
                dead, at = matches(gone, rows, list(changes.keys))
                wins = newer(rows.take(pa.array(at)), gone.take(pa.array(dead)), order)
                kept[at[~wins]] = False
        kept |= np.asarray(there)  # a tombstone does not undo another tombstone
        return Changes(rows.filter(pa.array(kept)), changes.keys, order)

    def ranked(self, rows: pa.Table, keys: Sequence[str], order: Order) -> pa.Table:
        """Give tombstones the value of `orderBy` that the deletion right before them has, in this batch or before."""
        if not order.by:
            return rows
        bare = rows.filter(_bare(rows, order))
        if not bare.num_rows:
            return rows
        wanted = rows.select(list(dict.fromkeys([*keys, *order.columns]))).schema
        deletions = [rows.filter(_by_events(rows, order)).select(wanted.names)]
        for file in self._files():
            if file.most:
                stored = aligned(pa.ipc.open_file(self._storage.read(file.path)).read_all(), wanted)
                deletions.append(stored.filter(order.ranked(stored)))
        found = pa.concat_tables(deletions)
        before, at = _adjacent(found, bare, keys, order)
        value = np.full(bare.num_rows, -1, np.int64)
        value[at] = before
        new = found.column(order.by).take(pa.array(value, mask=value < 0))
        place = rows.schema.get_field_index(order.by)
        bare = bare.set_column(place, rows.schema.field(place), new)
        return pa.concat_tables([rows.filter(pc.invert(_bare(rows, order))), bare])

    def remember(self, changes: Changes, rows: pa.Table | None = None) -> None:
        """Store the tombstones among the changes, and the deletions among all `rows` without their tombstones."""
        assert changes.rows is not None, "tasks gather rows in memory"
        gone = changes.rows.filter(changes.rows.column(DELETED))
        if rows is not None and changes.order is not None and changes.order.by:
            gone = pa.concat_tables([gone.select(_columns(changes)), _unpaired(rows, changes.keys, changes.order)])
        if gone.num_rows and changes.order is not None and self._kept_s:
            by = changes.order.by
            most = _bound(pc.max(gone.column(by))) if by else ""
            latest_ms = max(0, _ms(pc.max(gone.column(changes.order.time))))  # -1: a record without a time
            self._put(gone.select(_columns(changes)), latest_ms, _now_ms(), most)

    def care(self) -> None:
        """Remove files older than `kept_s` and parts of merged files, and merge the rest from MERGE_FROM files on."""
        limit, there = _now_ms() - 1000 * self._kept_s, list[_File]()
        for file in self._files():
            if file.written_ms < limit:
                self._storage.delete(file.path)
            else:
                there.append(file)
        if len(there) < MERGE_FROM:
            return
        found = {file.path: pa.ipc.open_file(self._storage.read(file.path)).read_all() for file in there}
        small = self._without_parts(there, found)
        if len(small) < MERGE_FROM:
            return
        rows = pa.concat_tables([found[file.path] for file in small], promote_options="permissive")
        rows = rows.replace_schema_metadata({_PARTS: json.dumps([file.path for file in small])})
        bounds = {file.most for file in small}
        most = ANY if ANY in bounds else max(bounds)
        self._put(rows, max(file.latest_ms for file in small), max(file.written_ms for file in small), most)

    def _without_parts(self, there: Sequence[_File], found: Mapping[str, pa.Table]) -> list[_File]:
        """The files that are not parts of others. Removes the parts of files that are older than PARTS_S."""
        parts, limit = set[str](), time.time() - PARTS_S
        for file in there:
            names = json.loads((found[file.path].schema.metadata or {}).get(_PARTS, b"[]"))
            parts.update(names)
            for path in names if file.modified < limit else ():
                self._storage.delete(path)
        return [file for file in there if file.path not in parts]

    def _put(self, rows: pa.Table, latest_ms: int, written_ms: int, most: str) -> None:
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(rows)
        name = f"{FOLDER}/{written_ms:013d}-{latest_ms:013d}-{uuid.uuid4().hex}{most and f'-{most}'}.arrow"
        self._storage.create(name, out.getvalue().to_pybytes())

    def _files(self) -> Iterator[_File]:
        for file in sorted(self._storage.list(FOLDER)):
            name = file.path.rpartition("/")[2]
            parts = name.removesuffix(".arrow").split("-")
            if not name.startswith(".") and len(parts) in {3, 4}:
                most = parts[3] if parts[3:] else ""
                yield _File(file.path, int(parts[0]), int(parts[1]), most, file.modified)


def _bare(rows: pa.Table, order: Order) -> pa.ChunkedArray:
    """A mask of the tombstones without a value of `orderBy`."""
    return pc.and_(rows.column(DELETED), pc.invert(order.ranked(rows)))


def _by_events(rows: pa.Table, order: Order) -> pa.ChunkedArray:
    """A mask of the deletions with a value of `orderBy`."""
    return pc.and_(rows.column(DELETED), order.ranked(rows))


def _adjacent(one: pa.Table, other: pa.Table, keys: Sequence[str], order: Order) -> tuple[Places, Places]:
    """The indexes in both tables of each pair with one key where `other` has the record right after that of `one`."""
    left, right = matches(one, other, list(keys))
    first, second = one.take(pa.array(left)), other.take(pa.array(right))
    good = pc.equal(pc.add(first.column(order.offset), 1), second.column(order.offset))
    for name in (order.topic, order.partition):
        good = pc.and_(good, pc.equal(first.column(name), second.column(name)))
    if order.generation:
        good = pc.and_(good, pc.equal(order.generations(first), order.generations(second)))
    mask = np.asarray(pc.fill_null(good, False)).astype(np.bool_)
    return left[mask], right[mask]


def _unpaired(rows: pa.Table, keys: Sequence[str], order: Order) -> pa.Table:
    """The deletions with a value of `orderBy` whose tombstones are not among the rows."""
    deletions = rows.filter(_by_events(rows, order))
    left, _ = _adjacent(deletions, rows.filter(rows.column(DELETED)), keys, order)
    kept = np.ones(deletions.num_rows, np.bool_)
    kept[left] = False
    return deletions.filter(pa.array(kept)).select(list(dict.fromkeys([*keys, *order.columns])))


def _columns(changes: Changes) -> list[str]:
    assert changes.order is not None
    return list(dict.fromkeys([*changes.keys, *changes.order.columns]))


def _bound(most: pa.Scalar) -> str:
    text = most.as_py()
    if text is None:
        return ""
    data = text.encode() if isinstance(text, str) else b""
    return data.hex() if 0 < len(data) <= _TEXT_BYTES_MAX else ANY


def _reaches(most: str, least: pa.Scalar | None) -> bool:
    """Whether a tombstone with a value up to `most` may rank above a row with at least the value `least`."""
    text = None if least is None else least.as_py()
    if not most or text is None:
        return False
    return most == ANY or not isinstance(text, str) or bytes.fromhex(most) >= text.encode()


def _ms(when: pa.Scalar) -> int:
    return int(when.cast(pa.int64()).as_py() // {"s": 1, "ms": 1, "us": 1000, "ns": 10**6}[when.type.unit])


def _now_ms() -> int:
    return int(time.time() * 1000)
