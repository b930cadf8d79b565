"""Parquet files with a manifest of ours: which of them are the table, and how far it is.

`_kraft/00000000000000000007.json` is one transaction: its number in the name, and in it the batch, where that ended,
the files added and removed, the schema, or the epoch of a writer that begins. Transactions are put down whole or not at
all, never twice under one number. Every `CHECKPOINT_EVERY` of them the whole state is written beside
(`….checkpoint.json`): a reader begins there. What comes before the last checkpoint but one, and is older than an hour,
is removed: the log does not grow with the age of the table. `_common_metadata` has the columns of all files; Spark goes
by it rather than by those of one file. Engines ignore names that begin with an underscore, and see the files in Hive's
folders; between the death of a writer and the next start they may see files of a batch that was never committed, so who
must not, asks for `files()`.
"""

from __future__ import annotations

import base64
import json
import re
import time
import uuid
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.committer import Added, ConflictError, FencedError, State
from kraft_pipeline.tables.partitions import By, with_columns
from kraft_pipeline.tables.schemas import widened
from kraft_pipeline.tables.storage import Storage

LOG: Final = "_kraft"
SCHEMA: Final = "_common_metadata"
_NAMES: Final = rf"{LOG}/\d{{20}}(\.checkpoint)?\.json"
CHECKPOINT_EVERY: Final = 100
"""Transactions that a start reads one by one, at most."""
TRIM_S: Final = 3600.0
"""Age from which transactions before two checkpoints are removed: nobody reads for so long from a list of names."""
DRAFT_S: Final = 3600.0
"""Age from which a draft is of a transaction that was cut off: it takes milliseconds."""


class ParquetTable:
    """A `Committer` over a folder or prefix."""

    def __init__(self, storage: Storage, app_id: str) -> None:
        self._storage, self._app = storage, app_id
        self._next = self._epoch = 0
        self._states: dict[str, State] = {}
        """By writer."""
        self._schema: pa.Schema | None = None
        self._shown: pa.Schema | None = None
        """What `_common_metadata` has, as far as this process knows."""
        self._partition_by: tuple[str, ...] = ()
        self._files: dict[str, Added] = {}
        self._removed: dict[str, float] = {}
        self._refresh()

    def schema(self) -> pa.Schema | None:
        return self._schema

    def state(self) -> State:
        self._refresh()
        return self._states.get(self._app, State())

    def claim(self, epoch: int) -> None:
        state = self.state()
        if epoch <= state.epoch:
            raise ConflictError(f"the table: writer {state.epoch} has claimed it before writer {epoch}")
        self._append({"writer": epoch, "run": uuid.uuid4().hex})
        self._epoch = epoch

    def join(self) -> int:
        self._epoch = self.state().epoch
        return self._epoch

    def create(self, schema: pa.Schema, levels: Sequence[By]) -> None:
        self._refresh()
        schema, partition_by = with_columns(schema, levels), tuple(by.name for by in levels)
        if self._schema is not None and partition_by != self._partition_by:
            raise ValueError(f"the table is partitioned by {self._partition_by}, not by {partition_by}")
        wider = schema if self._schema is None else widened(self._schema, schema)
        if self._schema is None or not self._schema.equals(wider):
            self._append({"schema": _schema_text(wider), "partitionBy": list(partition_by)})
        if self._shown is None or not self._shown.equals(wider):
            out = pa.BufferOutputStream()
            pq.write_metadata(pa.schema(f for f in wider if f.name not in partition_by), out)
            self._storage.write(SCHEMA, out.getvalue())
            self._shown = wider

    def commit(
        self, batch: int, position: Position, files: Sequence[Added], *, after: int, removed: Sequence[str] = ()
    ) -> None:
        state = self.state()
        state.check(self._storage.uri, self._epoch)
        if state.batch != after:
            raise ConflictError(f"batch {batch} follows {after}, but the last one of the table is {state.batch}")
        self._hold(removed)
        gone = {"removed": list(removed)} if removed else {}
        self._append(
            {"batch": batch, "position": position.to_json(), "added": [asdict(file) for file in files], **gone},
        )

    def files(self) -> set[str]:
        self._refresh()
        return {*self._files, *self._removed}

    def live(self) -> list[Added]:
        self._refresh()
        return list(self._files.values())

    def replace(self, old: Sequence[str], new: Sequence[Added]) -> None:
        self.state().check(self._storage.uri, self._epoch)
        self._hold(old)
        self._append({"removed": list(old), "added": [asdict(file) for file in new]})

    def _hold(self, paths: Sequence[str]) -> None:
        gone = [path for path in paths if path not in self._files]
        if gone:
            raise ConflictError(f"{gone[0]} is no file of the table any longer")

    def vacuum(self, older_s: float) -> int:
        """Replaced files that nobody refers to; their age is that of the transaction that replaced them."""
        old = [path for path, when in self._removed.items() if time.time() - when >= older_s]
        for path in old:
            self._storage.delete(path)
        while not self._removed.keys().isdisjoint(old):
            try:
                self._append({"forgotten": old})
            except ConflictError:  # with what another one commits meanwhile it has nothing to do
                self._refresh()
        return len(old)

    def sweep(self) -> int:
        """Drafts of transactions in folders."""
        limit, count = time.time() - DRAFT_S, 0
        for file in list(self._storage.list(LOG)):
            if file.path.startswith(f"{LOG}/.") and file.modified < limit:
                self._storage.delete(file.path)
                count += 1
        return count

    def forget(self) -> None:
        """Nothing is kept outside the table's own files."""

    def _append(self, what: dict[str, Any]) -> None:
        number = self._next
        document = json.dumps({"app": self._app, "time": time.time(), **what}, default=str).encode()
        if not self._storage.create(_name(number), document):
            raise ConflictError(f"transaction {number}: another writer was first")
        self._apply(json.loads(document))
        if self._next % CHECKPOINT_EVERY == 0:
            self._storage.create(f"{LOG}/{self._next - 1:020d}.checkpoint.json", json.dumps(self._whole()).encode())
            self._trim()

    def _trim(self) -> None:
        """Remove what no reader needs that began within `TRIM_S`: two checkpoints and what follows them are enough."""
        limit = time.time() - TRIM_S
        files = [file for file in self._storage.list(LOG) if re.fullmatch(_NAMES, file.path)]
        points = sorted(_number(file.path) for file in files if file.path.endswith(".checkpoint.json"))
        kept = points[-2] if len(points) > 1 else 0
        for file in files:
            if _number(file.path) < kept and file.modified < limit:
                self._storage.delete(file.path)

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
        for app, (batch, position, *epoch) in what.get("states", {}).items():
            self._states[app] = State(batch, position and Position.from_json(position), *epoch)

    def _whole(self) -> dict[str, Any]:
        found: dict[str, Any] = {"app": self._app, "added": [asdict(file) for file in self._files.values()]}
        found["replaced"] = dict(self._removed)
        if self._schema is not None:
            found |= {"schema": _schema_text(self._schema), "partitionBy": list(self._partition_by)}
        found["states"] = {
            app: (state.batch, state.position and state.position.to_json(), state.epoch)
            for app, state in self._states.items()
        }
        return found

    def _refresh(self) -> None:
        """Read the transactions that came since, from the last checkpoint on; nothing is listed if none came."""
        if self._next and self._storage.exists(_name(self._next - 1)) and not self._storage.exists(_name(self._next)):
            return
        names = sorted(file.path for file in self._storage.list(LOG) if re.fullmatch(_NAMES, file.path))
        points = [name for name in names if name.endswith(".checkpoint.json") and _number(name) >= self._next]
        if self._next and _name(self._next - 1) not in names and not points:  # those before a checkpoint are trimmed
            raise FencedError(f"table {self._storage.uri} has been removed, or made anew, meanwhile")
        if points:
            self._files.clear()
            self._removed.clear()
            self._next = _number(points[-1])
            self._apply(json.loads(self._storage.read(points[-1])))
        for name in names:
            if (
                not name.endswith(".checkpoint.json")
                and not name.startswith(f"{LOG}/.")
                and _number(name) >= self._next
            ):
                if _number(name) != self._next:
                    raise ValueError(f"transaction {self._next} is missing: {name} comes next")
                self._apply(json.loads(self._storage.read(name)))


def _name(number: int) -> str:
    return f"{LOG}/{number:020d}.json"


def _number(name: str) -> int:
    return int(name.rpartition("/")[2].partition(".")[0])


def _schema_text(schema: pa.Schema) -> str:
    return base64.b64encode(schema.serialize()).decode()


def _schema_of(text: str) -> pa.Schema:
    return pa.ipc.read_schema(pa.py_buffer(base64.b64decode(text)))
