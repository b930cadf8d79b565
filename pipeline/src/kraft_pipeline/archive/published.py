"""The state of an archive for others to read: one set of files, and tables that are copies of it.

A run writes the tables of its state into a folder of its own, `state/<batch>-<id>/`, and names it in the transaction
with the changes that led to it: changes and state are one. Then it publishes the set. `state.json` is put first: it
names the files of the set, which never change. After that each table is put in the place of its copy (`partitions`,
`topics`, …), and `state.json` says `published`. A run that dies in between leaves a transaction that names the set, and
the next run publishes it. A run that another one has replaced puts nothing any more: see `Storage.replace`.
"""

from __future__ import annotations

import json
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.tables import encode, plain
from kraft_pipeline.tables.committer import ConflictError
from kraft_pipeline.tables.storage import Storage, open_storage, s3_options

SETS: Final = "state"
STATE: Final = "state.json"
"""Of which offset the published tables are, and the files of the set that they are copies of."""
LEFT_S: Final = 3600.0
"""Age from which a set that is not the present one is removed: a reader has read it by then, a run committed it."""
TRIES: Final = 20
"""Of a Delta table, as long as others replace it meanwhile."""


class Published:
    """The state of one archive. `check` raises FencedError for a run that another one has replaced."""

    def __init__(self, spec: ArchiveSpec, check: Callable[[], None]) -> None:
        self._spec, self._check = spec, check
        self._root = open_storage(spec.path, spec.storage)

    def write(self, tables: Mapping[str, pa.Table], batch: int) -> str:
        """A set of tables by name; its folder. Raises OSError."""
        folder = f"{SETS}/{batch:08d}-{uuid.uuid4().hex[:12]}"
        for name, rows in tables.items():
            self._root.write(_path(folder, name), encode(rows))
        # The last one: a set without it was cut off.
        self._root.create(f"{folder}/tables.json", json.dumps(sorted(tables)).encode())
        return folder

    def has(self, folder: str) -> bool:
        """Whether there is such a set, whole."""
        return bool(folder) and self._root.exists(f"{folder}/tables.json")

    def publish(self, folder: str, offset: int, epoch: int) -> None:
        """Make the set of `offset` the published one. Raises FencedError, OSError."""
        names = json.loads(self._root.read(f"{folder}/tables.json"))
        told = {"offset": offset, "epoch": epoch, "tables": {name: _path(folder, name) for name in names}}
        there = _told(self._root)
        if there.get("tables") == told["tables"] and there.get("published"):
            return
        self._put(STATE, json.dumps({**told, "published": False}).encode())
        for name in names:
            data = self._root.read(_path(folder, name))
            if self._spec.format == "delta":
                self._overwrite(name, pq.read_table(pa.BufferReader(data)))
            else:
                self._put(f"{name}/{name}.parquet", data)
        self._put(STATE, json.dumps({**told, "published": True}).encode())
        limit = time.time() - LEFT_S
        for file in list(self._root.list(SETS)):
            if not file.path.startswith(f"{folder}/") and file.modified < limit:
                self._root.delete(file.path)

    def _put(self, path: str, data: bytes) -> None:
        self._root.replace(path, data, self._check)

    def _overwrite(self, name: str, rows: pa.Table) -> None:
        where, options = f"{self._spec.path.rstrip('/')}/{name}", s3_options(self._spec.storage)
        for _ in range(TRIES):
            if _overwritten(where, rows.cast(plain(rows.schema)), options, self._check):
                return
        raise ConflictError(f"{where}: other writers replace the table again and again")


def _overwritten(where: str, rows: pa.Table, options: dict[str, str], check: Callable[[], None]) -> bool:
    """Make the rows a Delta table's only ones; False where another writer did so since `check` was called."""
    from deltalake import CommitProperties, DeltaTable, write_deltalake  # noqa: PLC0415 - an extra
    from deltalake.exceptions import CommitFailedError, TableNotFoundError  # noqa: PLC0415

    there: Any = where
    with suppress(TableNotFoundError):
        there = DeltaTable(where, storage_options=options or None)
    check()  # after the version was read that is replaced: a later one is in the way of the commit
    try:
        write_deltalake(
            there,
            rows,
            mode="overwrite",
            schema_mode="overwrite",
            storage_options=options or None,
            commit_properties=CommitProperties(max_commit_retries=0),
        )
    except CommitFailedError:
        return False
    return True


def _told(root: Storage) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(root.read(STATE))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.parquet"
