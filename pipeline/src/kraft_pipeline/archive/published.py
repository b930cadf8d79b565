"""Publishes the state of an archive for readers: a set of files, and tables that are copies of it.

A run writes the tables of its state into its own folder, `state/<batch>-<id>/`. The transaction with the changes names
the folder, so changes and state are committed together. Then it publishes the set. First it writes `state.json`, which
names the files of the set; they never change. Then it replaces the copy of each table (`partitions`, `topics`, …), and
`state.json` has `published`. If a run dies meanwhile, its transaction names the set, and the next run publishes it. A
run that was replaced by another run can no longer write: see `Storage.replace`.
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
from kraft_pipeline.tables.errors import ConflictError
from kraft_pipeline.tables.stores.storage import Storage, open_storage, store_options

SETS: Final = "state"
STATE: Final = "state.json"
"""File with the offset of the published tables, and the files of their set."""
LEFT_S: Final = 3600.0
"""Age at which a set other than the present set is removed: readers have read it, and its run has committed it."""
TRIES: Final = 20
"""Attempts to replace a Delta table, while other writers replace it, too."""


class Published:
    """The state of an archive. `check` raises FencedError if another run has replaced this run."""

    def __init__(self, spec: ArchiveSpec, check: Callable[[], None]) -> None:
        self._spec, self._check = spec, check
        self._root = open_storage(spec.path, spec.storage)

    def write(self, tables: Mapping[str, pa.Table], batch: int) -> str:
        """Write a set of tables by name. Returns its folder. Raises OSError."""
        folder = f"{SETS}/{batch:08d}-{uuid.uuid4().hex[:12]}"
        for name, rows in tables.items():
            self._root.write(_path(folder, name), encode(rows))
        # Written last: a set without it is incomplete.
        self._root.create(f"{folder}/tables.json", json.dumps(sorted(tables)).encode())
        return folder

    def has(self, folder: str) -> bool:
        """Whether the set exists and is complete."""
        return bool(folder) and self._root.exists(f"{folder}/tables.json")

    def publish(self, folder: str, offset: int, epoch: int) -> None:
        """Publish the set of `offset`. Raises FencedError, OSError."""
        names = json.loads(self._root.read(f"{folder}/tables.json"))
        state = {"offset": offset, "epoch": epoch, "tables": {name: _path(folder, name) for name in names}}
        there = _published_state(self._root)
        if there.get("tables") == state["tables"] and there.get("published"):
            return
        self._put(STATE, json.dumps({**state, "published": False}).encode())
        for name in names:
            data = self._root.read(_path(folder, name))
            if self._spec.format == "delta":
                self._overwrite(name, pq.read_table(pa.BufferReader(data)))
            else:
                self._put(f"{name}/{name}.parquet", data)
        self._put(STATE, json.dumps({**state, "published": True}).encode())
        limit = time.time() - LEFT_S
        for file in list(self._root.list(SETS)):
            if not file.path.startswith(f"{folder}/") and file.modified < limit:
                self._root.delete(file.path)

    def _put(self, path: str, data: bytes) -> None:
        self._root.replace(path, data, self._check)

    def _overwrite(self, name: str, rows: pa.Table) -> None:
        where, options = f"{self._spec.path.rstrip('/')}/{name}", store_options(self._spec.storage)
        for _ in range(TRIES):
            if _overwritten(where, rows.cast(plain(rows.schema)), options, self._check):
                return
        raise ConflictError(f"{where}: other writers replace the table again and again")


def _overwritten(where: str, rows: pa.Table, options: dict[str, str], check: Callable[[], None]) -> bool:
    """Replace all rows of a Delta table. Returns False if another writer did so since `check` was called."""
    from deltalake import CommitProperties, DeltaTable, write_deltalake  # noqa: PLC0415 - an extra
    from deltalake.exceptions import CommitFailedError, TableNotFoundError  # noqa: PLC0415

    there: Any = where
    with suppress(TableNotFoundError):
        there = DeltaTable(where, storage_options=options or None)
    check()  # after reading the version to replace: a later version makes the commit fail
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


def _published_state(root: Storage) -> dict[str, Any]:
    try:
        found: dict[str, Any] = json.loads(root.read(STATE))
    except (FileNotFoundError, ValueError):
        return {}
    return found


def _path(folder: str, name: str) -> str:
    return f"{folder}/{name}.parquet"
