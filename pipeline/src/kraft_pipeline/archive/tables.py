"""The tables of an archive: `changes`, to which runs append, and the state, which each run rewrites.

`changes` is a table of KafkaTable's committers: files and their end offset are a single transaction. So a run that dies
has no effect, and the next run continues at the last committed offset. The other tables are small and written as a
whole, by `published`:

- `partitions` (state.PARTITIONS), `topics` (topic, topic_id, partitions, replicas),
- `brokers` (broker, rack, fenced, in_controlled_shutdown, epoch, incarnation, listeners, log_dirs),
- `configs` (resource, name, key, value), `features` (feature, level).

Secrets are not archived: see `redacted`.
"""

from __future__ import annotations

import json
import re
import time
import uuid
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from kraft_pipeline.archive.changes import SCHEMA
from kraft_pipeline.archive.reconcile import Positions
from kraft_pipeline.archive.spec import ArchiveSpec
from kraft_pipeline.archive.state import BROKER_RESOURCE, RESOURCES, ClusterState
from kraft_pipeline.sources.positions import Position
from kraft_pipeline.tables.stores.committer import Added, Committer, stem
from kraft_pipeline.tables.stores.parquet import ParquetTable
from kraft_pipeline.tables.stores.storage import Storage, open_storage
from kraft_protocol.configs.names import is_secret

CHANGES: Final = "changes"
TOPIC: Final = "__cluster_metadata"
KEY: Final = (TOPIC, 0)
FILE_ROWS: Final = 1_000_000
"""Maximum rows of a file of changes: about 30 MB. They are in memory until the file is written."""
READ_ROWS: Final = 1 << 17
DICTIONARY: Final = ("type", "topic_id", "topic", "directories.list.element", "leader", "epoch")
"""Columns with few distinct values."""


REDACTED: Final = "(redacted)"
_SECRETIVE: Final = frozenset({"USER_SCRAM_CREDENTIAL_RECORD", "CONFIG_RECORD"})
_TEXTS: Final = pa.list_(pa.string())
BROKERS: Final = pa.schema(
    {
        "broker": pa.int32(),
        "rack": pa.string(),
        "fenced": pa.bool_(),
        "in_controlled_shutdown": pa.bool_(),
        "epoch": pa.int64(),
        "incarnation": pa.string(),
        "listeners": _TEXTS,
        "log_dirs": _TEXTS,
    }
)
CONFIGS: Final = pa.schema([(name, pa.string()) for name in ("resource", "name", "key", "value")])
FEATURES: Final = pa.schema({"feature": pa.string(), "level": pa.int32()})


def plain(schema: pa.Schema) -> pa.Schema:
    """The schema without dictionaries, as in the table."""
    return pa.schema([f.with_type(f.type.value_type) if pa.types.is_dictionary(f.type) else f for f in schema])


def open_changes(spec: ArchiveSpec) -> Committer:
    """The table of changes."""
    path = f"{spec.path.rstrip('/')}/{CHANGES}"
    if spec.format == "parquet":
        return ParquetTable(open_storage(path, spec.storage), spec.app_id)
    from kraft_pipeline.tables.stores.delta import DeltaTableOf  # noqa: PLC0415 - an extra

    return DeltaTableOf(path, spec.app_id, spec.storage)


class ChangeWriter:
    """Writes rows to files in a second thread, and commits all files at once."""

    def __init__(self, spec: ArchiveSpec) -> None:
        self._committer = open_changes(spec)
        self._epoch = 0
        self.storage = open_storage(f"{spec.path.rstrip('/')}/{CHANGES}", spec.storage)
        self._app = spec.app_id
        self._begun = self._committer.state()
        self._added: list[Added] = []
        self._removed: list[str] = []
        self.rows = 0
        """Rows that are new."""
        self._waiting: list[pa.RecordBatch] = []
        """Rows for the next file."""
        self._waiting_rows = 0
        self._files: list[Future[Added]] = []
        self._writer = ThreadPoolExecutor(1, "archive")

    @property
    def position(self) -> Position | None:
        """The end of the archive; None for a new archive."""
        return self._begun.position

    @property
    def epoch(self) -> int:
        """The epoch of this run, after it has taken over."""
        return self._epoch

    @property
    def batch(self) -> int:
        """The number of the next transaction."""
        return self._begun.batch + 1

    @property
    def gaps(self) -> dict[tuple[str, int], int]:
        """Gaps: first offset of changes trimmed before they were archived -> offset from which the state is known."""
        return {} if self.position is None else dict(self.position.begun)

    @property
    def begin(self) -> str:
        """Prefix of the names of its files."""
        return f"{stem(self._app, self._epoch)}{self._begun.batch + 1:08d}"

    def live(self) -> list[Added]:
        """The table's files, in the order of the log."""
        return sorted(self._committer.live(), key=lambda file: file.path)

    def take_over(self) -> int:
        """Take over from a run that has not ended, which then cannot commit.

        Removes its files; returns their number.
        """
        self._committer.create(plain(SCHEMA), [])
        self._epoch = max(self._committer.state().epoch + 1, int(time.time()))
        self._committer.claim(self._epoch)
        known: set[str] | None = None
        count = 0
        for file in list(self.storage.list()):
            made = re.match(rf"{re.escape(self._app)}-(?:e(\d+)-)?", file.path.rpartition("/")[2])
            if made is not None and int(made[1] or 0) < self._epoch:
                known = self._committer.files() if known is None else known
                if file.path not in known:
                    self.storage.delete(file.path)
                    count += 1
        return count

    def ends(self) -> Iterator[Positions]:
        """Offsets and epochs of the files, newest first. Raises OSError."""
        for file in reversed(self.live()):
            with self.storage.open(file.path) as source:
                rows = pq.read_table(source, columns=["offset", "epoch", "snapshot"])
            yield Positions(*(rows.column(name).to_numpy() for name in rows.column_names))

    def cut(self, offset: int) -> list[Added]:
        """Remove the rows from an offset on, with the next commit. Returns the remaining files."""
        kept = []
        for file in self.live():
            batches = list(read_changes(self.storage, file.path))
            good = [batch.filter(pc.less(batch.column("offset"), offset)) for batch in batches]
            rows, left = (sum(batch.num_rows for batch in some) for some in (batches, good))
            if left == rows:
                kept.append(file)
                continue
            self._removed.append(file.path)
            if left:  # its name sorts before the names of the files that this run adds
                name = f"{self.begin}-0-{uuid.uuid4().hex[:8]}.parquet"
                kept.append(write_changes(self.storage, name, [batch for batch in good if batch.num_rows]))
                self._added.append(kept[-1])
        return kept

    def read(self, files: Sequence[Added]) -> Iterator[pa.RecordBatch]:
        """The rows of some of the files."""
        for file in files:
            yield from read_changes(self.storage, file.path)

    def add(self, batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield rows in `changes.SCHEMA` and write them."""
        for batch in batches:
            self._waiting.append(batch)
            self._waiting_rows += batch.num_rows
            self.rows += batch.num_rows
            if self._waiting_rows >= FILE_ROWS:
                self._flush()
            yield batch

    def take(self, files: Sequence[Added]) -> None:
        """Add written files with names that have the prefix `begin`."""
        self._added += files
        self.rows += sum(file.rows for file in files)

    def commit(self, position: Position) -> int:
        """Commit all rows. Returns the number of files. Raises ConflictError if another run was first."""
        self._flush()
        files = [*self._added, *(future.result() for future in self._files)]
        self._added.clear()
        self._files.clear()
        self._committer.commit(self.batch, position, files, after=self._begun.batch, removed=self._removed)
        if self._removed and isinstance(self._committer, ParquetTable):
            self._committer.vacuum(0.0)  # a reader of the folder would see both
        self._removed = []
        self._begun = self._committer.state()
        return len(files)

    def close(self) -> None:
        """Stop the writing thread."""
        self._writer.shutdown(wait=True, cancel_futures=True)

    def check(self) -> None:
        """Raise FencedError if another run has taken over."""
        self._committer.state().check(self.storage.uri, self._epoch)

    def _flush(self) -> None:
        if not self._waiting:
            return
        batches, self._waiting, self._waiting_rows = self._waiting, [], 0
        if len(self._files) > 1:
            self._files[-2].result()  # at most two files' rows in memory
        name = f"{self.begin}-{len(self._files):05d}-{uuid.uuid4().hex[:8]}.parquet"
        self._files.append(self._writer.submit(write_changes, self.storage, name, batches))


def read_changes(storage: Storage, path: str) -> Iterator[pa.RecordBatch]:
    """The rows of a file of changes. Raises OSError."""
    reader = pq.ParquetFile(pa.BufferReader(storage.read(path)), read_dictionary=["type", "topic_id"])
    for batch in reader.iter_batches(batch_size=READ_ROWS):
        yield batch.select(SCHEMA.names).cast(SCHEMA)


def write_changes(storage: Storage, name: str, batches: list[pa.RecordBatch]) -> Added:
    """Write a file of changes. Raises OSError."""
    rows = pa.Table.from_batches([redacted(batch) for batch in batches])
    data = encode(rows)
    storage.write(name, data)
    ends = pc.min_max(rows.column("offset")).as_py()
    return Added(name, data.size, rows.num_rows, {}, {"offset": ends["min"]}, {"offset": ends["max"]})


def encode(rows: pa.Table) -> pa.Buffer:
    """Write Parquet. Numbers are dense enough without dictionaries."""
    out = pa.BufferOutputStream()
    pq.write_table(rows, out, compression="zstd", compression_level=1, use_dictionary=list(DICTIONARY))
    return out.getvalue()


def redacted(batch: pa.RecordBatch) -> pa.RecordBatch:
    """The rows without the keys of SCRAM users and the values of secret configurations."""
    kinds = batch.column("type").dictionary.to_pylist()
    secret = [code for code, kind in enumerate(kinds) if kind in _SECRETIVE]
    if not secret:
        return batch
    rows = np.flatnonzero(np.isin(batch.column("type").indices.to_numpy(), secret)).tolist()
    texts = batch.column("fields").to_pylist()
    changed = False
    for row in rows:
        fields = json.loads(texts[row])
        if "storedKey" in fields:
            fields |= dict.fromkeys(("salt", "storedKey", "serverKey"), REDACTED)
        elif fields.get("value") is not None and _is_secret(fields["resourceType"], fields["name"]):
            fields["value"] = REDACTED
        else:
            continue
        texts[row] = json.dumps(fields, separators=(",", ":"), ensure_ascii=False)
        changed = True
    if not changed:
        return batch
    return batch.set_column(batch.schema.get_field_index("fields"), "fields", pa.array(texts, pa.string()))


def state_tables(state: ClusterState) -> dict[str, pa.Table]:
    """The tables of a state by name."""
    small, partitions = state.small, state.partitions
    sizes = pc.list_value_length(partitions.column("replicas"))
    by_topic = pa.table({"topic_id": partitions.column("topic_id").cast(pa.string()), "size": sizes})
    counts = by_topic.group_by("topic_id").aggregate([("size", "count"), ("size", "max")])
    names = pa.table(
        {
            "topic": pa.array(small.topics.values(), pa.string()),
            "topic_id": pa.array(small.topics.keys(), pa.string()),
        }
    )
    topics = names.join(counts, "topic_id").rename_columns(["topic", "topic_id", "partitions", "replicas"])
    configs = [
        {"resource": RESOURCES.get(kind, str(kind)), "name": name, "key": key, "value": shown(kind, key, value)}
        for (kind, name), values in small.configs.items()
        for key, value in values.items()
    ]
    features = [{"feature": name, "level": level} for name, level in small.features.items()]
    return {
        "partitions": partitions,
        "topics": topics.sort_by("topic"),
        "brokers": pa.Table.from_pylist([_broker(b) for _, b in sorted(small.brokers.items())], schema=BROKERS),
        "configs": pa.Table.from_pylist(configs, schema=CONFIGS),
        "features": pa.Table.from_pylist(features, schema=FEATURES),
    }


def shown(resource_type: int, key: str, value: str) -> str:
    """A configuration's value, unless it is a secret."""
    return REDACTED if _is_secret(resource_type, key) else value


def _is_secret(resource_type: int, key: str) -> bool:
    return resource_type == BROKER_RESOURCE and is_secret(key)


def _broker(record: dict[str, Any]) -> dict[str, Any]:
    return {
        "broker": record["brokerId"],
        "rack": record["rack"],
        "fenced": record["fenced"],
        "in_controlled_shutdown": record.get("inControlledShutdown", False),
        "epoch": record["brokerEpoch"],
        "incarnation": record["incarnationId"],
        "listeners": [f"{e['name']}://{e['host']}:{e['port']}" for e in record["endPoints"]],
        "log_dirs": record.get("logDirs", []),
    }
