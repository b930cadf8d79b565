"""Parquet files with a transaction log of our own, which lists the table's files and its position.

`_kraft/00000000000000000007.json` is one transaction. Its name has the number. It holds a batch with its end position,
files added and removed, a schema, or the epoch of a new writer. Each transaction is written atomically, once per
number. After every `CHECKPOINT_EVERY` transactions the writer adds the whole state (`….checkpoint.json`), and readers
begin at the newest checkpoint. Transactions before the last checkpoint but one are removed after an hour, so the log
does not grow with the age of the table. `_common_metadata` has the columns of all files, and Spark uses it instead of
the columns of one file.

Engines ignore names that begin with an underscore and find data files in Hive folders. After a writer dies, they may
see files of an uncommitted batch until the next start. Readers that must not see them use `live()`. Engines would see
replaced files beside the files that replace them, so replaced files are removed right after the transaction.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import time
import uuid
from collections.abc import Collection, Sequence
from dataclasses import replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.errors import ConflictError, FencedError
from kraft_pipeline.tables.schemas import widened
from kraft_pipeline.tables.specs.partitions import By, with_columns
from kraft_pipeline.tables.stores.committer import Added, State
from kraft_pipeline.tables.stores.storage import Storage

LOG: Final = "_kraft"
SCHEMA: Final = "_common_metadata"
_NAMES: Final = rf"{LOG}/\d{{20}}(\.checkpoint)?\.json"
CHECKPOINT_EVERY: Final = 100
"""Transactions between two checkpoints; a start reads at most this many one by one."""
PROBES: Final = 10
"""New transactions that a reader finds by their names, one by one, before it lists the log."""
TRIM_S: Final = 3600.0
"""Seconds that transactions stay after two newer checkpoints, for readers that have listed their names."""
DRAFT_S: Final = 3600.0
"""Seconds after which a draft of a transaction is abandoned: a live writer needs milliseconds."""


class ParquetTable:
    """A `Committer` over a folder or prefix."""

    def __init__(self, storage: Storage, app_id: str) -> None:
        self._storage, self._app = storage, app_id
        self._next = self._epoch = 0
        self._last = b""
        """Digest of the last transaction that was read. Another table at the same path has another one there."""
        self._states: dict[str, State] = {}
        """By application id."""
        self._schema: pa.Schema | None = None
        self._shown: pa.Schema | None = None
        """The schema last written to `_common_metadata` by this process; None if it has not written any."""
        self._partition_by: tuple[str, ...] = ()
        self._files: dict[str, Added] = {}
        self._removed: dict[str, float] = {}
        self._dropped: dict[str, set[str]] = {}
        """By application id: files that no process may commit in the current epoch, because they have been removed."""
        self._refresh()

    def schema(self) -> pa.Schema | None:
        """Return the columns, including partition columns, or None if the table does not exist."""
        return self._schema

    def state(self) -> State:
        """Read new transactions and return this writer's last batch, position and epoch. Raises FencedError."""
        self._refresh()
        return self._states.get(self._app, State())

    def claim(self, epoch: int) -> None:
        """Append a transaction with the new epoch. Raises ConflictError unless it is the highest so far."""
        state = self.state()
        if epoch <= state.epoch:
            raise ConflictError(f"the table: writer {state.epoch} has claimed it before writer {epoch}")
        self._append({"writer": epoch, "run": uuid.uuid4().hex})
        self._epoch = epoch

    def join(self) -> int:
        """Adopt the epoch of the current writer, without a transaction, and return it."""
        self._epoch = self.state().epoch
        return self._epoch

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        """Create the table or add missing columns, and write `_common_metadata`.

        Raises ValueError if the table is partitioned differently.
        """
        self._refresh()
        schema, partition_by = with_columns(schema, levels), tuple(by.name for by in levels)
        partitioned = self._schema is not None and partition_by == self._partition_by
        if self._schema is not None and not partitioned and (self._partition_by or self.files()):
            raise ValueError(f"the table is partitioned by {self._partition_by}, not by {partition_by}")
        wider = schema if self._schema is None else widened(self._schema, schema)
        if self._schema is None or not self._schema.equals(wider) or not partitioned:
            self._append({"schema": _schema_text(wider), "partitionBy": list(partition_by)})
        if self._shown is None or not self._shown.equals(wider):
            out = pa.BufferOutputStream()
            pq.write_metadata(pa.schema(f for f in wider if f.name not in partition_by), out)
            self._storage.write(SCHEMA, out.getvalue())
            self._shown = wider

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        """As `Committer.commit`: append one transaction that names the batch, its end and its files."""
        state = self.state()
        state.check(self._storage.uri, self._epoch)
        if state.batch != after:
            raise ConflictError(f"batch {batch} follows {after}, but the last one of the table is {state.batch}")
        self._hold(removed)
        self._check_dropped(files, "its writer")
        gone = {"removed": list(removed)} if removed else {}
        self._append(
            {"batch": batch, "position": position.to_json(), "added": [_described(file) for file in files], **gone},
        )
        self._remove_replaced()

    def files(self) -> set[str]:
        """Paths of current files and of replaced files that are not removed yet."""
        self._refresh()
        return {*self._files, *self._removed}

    def live(self) -> list[Added]:
        """Return the current files after reading new transactions."""
        self._refresh()
        return list(self._files.values())

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        """As `Committer.replace`: append one transaction, and remove the old files.

        Raises ConflictError, FencedError, and OSError, after which the table may have the new files.
        """
        self.state().check(self._storage.uri, self._epoch)
        self._hold(old)
        self._check_dropped(new, "its compaction")
        self._append({"removed": list(old), "added": [_described(file) for file in new]})
        self._remove_replaced()

    def _check_dropped(self, files: Sequence[Added], writer: str) -> None:
        for file in files:
            if file.path in self._dropped.get(self._app, ()):
                raise ConflictError(f"{file.path} has been removed, because {writer} seemed dead: run it again")

    def drop(self, paths: Collection[str]) -> set[str]:
        """Refuse uncommitted files of this application from now on. Returns those that may be removed.

        The transaction fences a writer that is only slow, not dead: that writer commits before the transaction or
        never.
        """
        while True:
            self._refresh()
            left = set(paths) - self._files.keys() - self._removed.keys()
            if left <= self._dropped.get(self._app, set()):
                return left
            try:
                self._append({"dropped": {self._app: sorted(left)}})
            except ConflictError:
                continue  # the other commit may have one of the files

    def _hold(self, paths: Sequence[str]) -> None:
        gone = [path for path in paths if path not in self._files]
        if gone:
            raise ConflictError(f"{gone[0]} is no longer a file of the table")

    def vacuum(self, older_s: float) -> int:  # noqa: ARG002 - readers of the folder see files of any age
        """Remove replaced files that an interrupted writer has left. Returns their number."""
        self._refresh()
        return self._remove_replaced()

    def _remove_replaced(self) -> int:
        old = list(self._removed)
        for path in old:
            self._storage.delete(path)
        while not self._removed.keys().isdisjoint(old):
            try:
                self._append({"forgotten": old})
            except ConflictError:  # a concurrent commit does not affect these files, so retry
                self._refresh()
        return len(old)

    def sweep(self) -> int:
        """Remove abandoned drafts of transactions, and replaced files. Returns their number."""
        limit, count = time.time() - DRAFT_S, self.vacuum(0.0)
        for file in list(self._storage.list(LOG)):
            if file.path.startswith(f"{LOG}/.") and file.modified < limit:
                self._storage.delete(file.path)
                count += 1
        return count

    def forget(self) -> None:
        """Do nothing: the table has no catalog entry."""

    def _append(self, what: dict[str, Any]) -> None:
        number = self._next
        document = json.dumps({"app": self._app, "time": time.time(), **what}).encode()
        if not self._storage.create(_name(number), document):
            raise ConflictError(f"transaction {number}: another writer was first")
        self._take(document)
        if self._next % CHECKPOINT_EVERY == 0:
            self._storage.create(f"{LOG}/{self._next - 1:020d}.checkpoint.json", json.dumps(self._whole()).encode())
            self._trim()

    def _trim(self) -> None:
        """Remove files older than `TRIM_S` before the last checkpoint but one. Readers need two checkpoints at most."""
        limit = time.time() - TRIM_S
        files = [file for file in self._storage.list(LOG) if re.fullmatch(_NAMES, file.path)]
        points = sorted(_number(file.path) for file in files if file.path.endswith(".checkpoint.json"))
        kept = points[-2] if len(points) > 1 else 0
        for file in files:
            if _number(file.path) < kept and file.modified < limit:
                self._storage.delete(file.path)

    def _take(self, document: bytes) -> None:
        """Apply the text of the next transaction."""
        self._apply(json.loads(document))
        self._last = _digest(document)

    def _apply(self, what: dict[str, Any]) -> None:
        self._next += 1
        if "schema" in what:
            self._schema = _schema_of(what["schema"])
            self._partition_by = tuple(what["partitionBy"])
        for path in what.get("removed", ()):
            self._files.pop(path, None)
            self._removed[path] = what["time"]
        for path in what.get("forgotten", ()):
            self._removed.pop(path, None)
        self._removed.update(what.get("replaced", {}))
        for file in what.get("added", ()):
            self._files[file["path"]] = Added(**file)
        before = self._states.get(what["app"], State())
        if "batch" in what:
            self._states[what["app"]] = State(what["batch"], Position.from_json(what["position"]), before.epoch)
        elif "writer" in what:
            self._states[what["app"]] = replace(before, epoch=what["writer"])
            self._dropped.pop(what["app"], None)
        for app, paths in what.get("dropped", {}).items():
            self._dropped.setdefault(app, set()).update(paths)
        for app, (batch, position, *epoch) in what.get("states", {}).items():
            self._states[app] = State(batch, position and Position.from_json(position), *epoch)

    def _whole(self) -> dict[str, Any]:
        found: dict[str, Any] = {"app": self._app, "added": [_described(file) for file in self._files.values()]}
        found["replaced"] = dict(self._removed)
        found["dropped"] = {app: sorted(paths) for app, paths in self._dropped.items()}
        if self._schema is not None:
            found |= {"schema": _schema_text(self._schema), "partitionBy": list(self._partition_by)}
        found["states"] = {
            app: (state.batch, state.position and state.position.to_json(), state.epoch)
            for app, state in self._states.items()
        }
        return found

    def _probe(self) -> bool:
        """Read the next transactions by their names. Returns whether the last of them has been read."""
        if self._read_digest(self._next - 1) != self._last:
            return False  # the log was trimmed, removed, or replaced by another
        for _ in range(PROBES):
            try:
                text = self._storage.read(_name(self._next))
            except FileNotFoundError:
                return True
            self._take(text)
        return False

    def _read_digest(self, number: int) -> bytes:
        """The digest of a transaction; empty if the log lacks it."""
        try:
            return _digest(self._storage.read(_name(number)))
        except FileNotFoundError:
            return b""

    def _refresh(self) -> None:
        """Read new transactions. Lists the log only after PROBES of them, because it has a hundred names or more.

        Raises FencedError if the table was removed or created again, and ValueError if a transaction is missing.
        """
        if self._next and self._probe():
            return
        names = sorted(file.path for file in self._storage.list(LOG) if re.fullmatch(_NAMES, file.path))
        points = [name for name in names if name.endswith(".checkpoint.json") and _number(name) >= self._next]
        there = self._read_digest(self._next - 1) if self._next else self._last
        if there != self._last and (there or not points):  # transactions before a checkpoint are trimmed
            raise FencedError(f"table {self._storage.uri} was removed or recreated meanwhile")
        if points:
            number = _number(points[-1])
            whole, last = json.loads(self._storage.read(points[-1])), self._read_digest(number)
            self._files.clear()
            self._removed.clear()
            self._dropped.clear()
            self._states.clear()
            self._next, self._schema = number, None
            self._apply(whole)
            self._last = last
        for name in names:
            if (
                not name.endswith(".checkpoint.json")
                and not name.startswith(f"{LOG}/.")
                and _number(name) >= self._next
            ):
                if _number(name) != self._next:
                    raise ValueError(f"transaction {self._next} is missing: {name} comes next")
                self._take(self._storage.read(name))


def _described(file: Added) -> dict[str, Any]:
    """A file as the log has it: without statistics, because readers find them in the file itself."""
    return {"path": file.path, "size": file.size, "rows": file.rows, "values": dict(file.values), "whole": file.whole}


def _digest(document: bytes) -> bytes:
    return hashlib.sha256(document).digest()


def _name(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
