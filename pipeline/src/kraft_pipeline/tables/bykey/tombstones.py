"""Tombstones of a table by key, kept for a time so that older rows do not reappear.

A tombstone deletes its row, and later batches have nothing to compare with. So each batch writes its tombstones to
`_kraft_tombstones/<written>-<latest>-<id>.arrow`, which holds keys and order columns. The name has the writer's clock
and the latest record time, both in Unix milliseconds. A batch reads the files whose records may be later than its
earliest row. If the topic has no late records, these are the files of the last minutes.

A file is written before its batch is committed and applies at once. This needs no transaction: a deletion in the log is
a fact, even if the batch is never committed.
"""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from kraft_pipeline.tables.bykey.ordering import matches, newer
from kraft_pipeline.tables.schemas import aligned
from kraft_pipeline.tables.stores.committer import DELETED, Changes
from kraft_pipeline.tables.stores.storage import Storage

FOLDER: Final = "_kraft_tombstones"
MERGE_FROM: Final = 64
"""Number of files from which `care` merges them into one."""


class _File(NamedTuple):
    path: str
    written_ms: int
    latest_ms: int


class Tombstones:
    """Tombstones of the table in `storage`, kept for `kept_s` seconds. Methods raise OSError."""

    def __init__(self, storage: Storage, kept_s: float) -> None:
        self._storage, self._kept_s = storage, kept_s

    def fresh(self, changes: Changes) -> Changes:
        """The changes without rows that are older than a tombstone of their key."""
        order, rows = changes.order, changes.rows
        assert rows is not None, "tasks gather rows in memory"
        if order is None or not rows.num_rows or not self._kept_s:
            return changes
        there = rows.column(DELETED)
        first = pc.min(rows.filter(pc.invert(there)).column(order.time))
        if not first.is_valid:
            return changes
        kept = np.ones(rows.num_rows, np.bool_)
        wanted = rows.select(_columns(changes)).schema
        for file in self._files():
            if file.latest_ms >= _ms(first):
                gone = aligned(pa.ipc.open_file(self._storage.read(file.path)).read_all(), wanted)
                dead, at = matches(gone, rows, list(changes.keys))
                late = newer(gone.take(pa.array(dead)), rows.take(pa.array(at)), order.plain)
                kept[at[late]] = False
        kept |= np.asarray(there)  # a tombstone does not undo another tombstone
        return Changes(rows.filter(pa.array(kept)), changes.keys, order)

    def remember(self, changes: Changes) -> None:
        """Store the tombstones among the changes."""
        assert changes.rows is not None, "tasks gather rows in memory"
        gone = changes.rows.filter(changes.rows.column(DELETED))
        if gone.num_rows and changes.order is not None and self._kept_s:
            self._put(gone.select(_columns(changes)), _ms(pc.max(gone.column(changes.order.time))), _now_ms())

    def care(self) -> None:
        """Remove files older than `kept_s`, and merge the rest into one from MERGE_FROM files on."""
        limit, small = _now_ms() - 1000 * self._kept_s, list[_File]()
        for file in self._files():
            if file.written_ms < limit:
                self._storage.delete(file.path)
            else:
                small.append(file)
        if len(small) < MERGE_FROM:
            return
        parts = [pa.ipc.open_file(self._storage.read(file.path)).read_all() for file in small]
        rows = pa.concat_tables(parts, promote_options="default")
        self._put(rows, max(file.latest_ms for file in small), max(file.written_ms for file in small))
        for file in small:
            self._storage.delete(file.path)

    def _put(self, rows: pa.Table, latest_ms: int, written_ms: int) -> None:
        out = pa.BufferOutputStream()
        with pa.ipc.new_file(out, rows.schema, options=pa.ipc.IpcWriteOptions(compression="zstd")) as writer:
            writer.write_table(rows)
        name = f"{FOLDER}/{written_ms:013d}-{latest_ms:013d}-{uuid.uuid4().hex}.arrow"
        self._storage.create(name, out.getvalue().to_pybytes())

    def _files(self) -> Iterator[_File]:
        for file in sorted(self._storage.list(FOLDER)):
            name = file.path.rpartition("/")[2]
            parts = name.split("-")
            if not name.startswith(".") and len(parts) == 3:
                yield _File(file.path, int(parts[0]), int(parts[1]))


def _columns(changes: Changes) -> list[str]:
    assert changes.order is not None
    return list(dict.fromkeys([*changes.keys, *changes.order.plain.columns]))


def _ms(when: pa.Scalar) -> int:
    return int(when.cast(pa.int64()).as_py() // {"s": 1, "ms": 1, "us": 1000, "ns": 10**6}[when.type.unit])


def _now_ms() -> int:
    return int(time.time() * 1000)
