"""Replays rows of changes to the state of the cluster: brokers, topics, partitions, configurations and features.

Partitions are replayed in columns. In each column, the last row of a partition with a value counts. Epochs are
computed: a partition epoch rises with each change, a leader epoch with each change that names a leader (KIP-631). Other
records are few and replayed one by one. Records of an aborted or unfinished transaction (KIP-868) are ignored.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from kraft_pipeline.archive.changes import NAMES, SCHEMA
from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.generic import BYTES
from kraft_pipeline.codec.arrays import fixed

TOPIC_RESOURCE: Final = 2
BROKER_RESOURCE: Final = 4
RESOURCES: Final = {2: "topic", 4: "broker", 8: "broker-logger", 16: "client-metrics", 32: "group"}
NUMBERS: Final = ("leader", "leader_recovery")
LISTS: Final = (
    "replicas",
    "isr",
    "removing_replicas",
    "adding_replicas",
    "eligible_leader_replicas",
    "last_known_elr",
    "directories",
)
ELR: Final = ("eligible_leader_replicas", "last_known_elr")
PARTITIONS: Final = pa.schema(
    [
        pa.field("topic", NAMES),
        *(SCHEMA.field(name) for name in ("topic_id", "partition", "leader", "leader_recovery")),
        *(SCHEMA.field(name) for name in ("leader_epoch", "partition_epoch", *LISTS)),
    ]
)
"""The state of each partition; `leader` is -1 without a leader."""

FOLD_ROWS: Final = 1 << 24
"""Maximum rows of partitions before they are merged to a row for each partition: about a gigabyte."""
_ROW: Final = ("offset", "topic_id", "partition", *NUMBERS, "leader_epoch", "partition_epoch", *LISTS)


@dataclass(slots=True)
class Small:
    """State that is replayed record by record."""

    topics: dict[str, str] = field(default_factory=dict)
    """Names by id."""
    brokers: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Registrations with the fields of their records; `fenced` is the present value."""
    controllers: dict[int, dict[str, Any]] = field(default_factory=dict)
    configs: dict[tuple[int, str], dict[str, str]] = field(default_factory=dict)
    features: dict[str, int] = field(default_factory=dict)
    quotas: dict[tuple[tuple[str, str | None], ...], dict[str, float]] = field(default_factory=dict)
    acls: dict[str, dict[str, Any]] = field(default_factory=dict)
    users: dict[tuple[str, int], int] = field(default_factory=dict)
    """Iterations of SCRAM users by name and mechanism."""
    leader: int = -1
    """The active controller."""
    voters: list[int] = field(default_factory=list)


@dataclass(slots=True)
class ClusterState:
    """The state of a cluster at an offset."""

    offset: int
    epoch: int
    timestamp_ms: int
    small: Small
    partitions: pa.Table
    """Rows in PARTITIONS, in the order of topics' creation."""


class Replay:
    """Replays rows of changes in their order. `state` can be read at any time."""

    def __init__(self) -> None:
        self._small = Small()
        self._codes: dict[str, int] = {}
        self._parts: list[pa.RecordBatch] = []
        """Rows of partitions, with codes instead of topic ids."""
        self._rows = 0
        self._last = (-1, 0, 0)
        self._transaction: tuple[Small, int] | None = None
        """The state before it: the rest, and the number of `_parts`."""
        self._begun = False
        self._snapshot = -1
        """The offset of the snapshot that it began with."""

    def add(self, batch: pa.RecordBatch) -> None:
        """Replay rows in `changes.SCHEMA`. Raises ArchiveError for records that do not fit the state."""
        if not batch.num_rows:
            return
        kinds = batch.column("type").dictionary.to_pylist()
        for part in self._begins(batch):
            self._add(part, kinds, part.column("type").indices.to_numpy(zero_copy_only=False))

    def _begins(self, batch: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """The rows from a beginning: offset 0, or a snapshot, which replaces the state."""
        flags = batch.column("snapshot")
        offsets = batch.column("offset").to_numpy()
        if not self._begun and offsets[0] == 0:
            self._begun = True
        is_snapshot = flags.to_numpy(zero_copy_only=False)
        if not is_snapshot.any():
            if self._begun:
                yield batch
            return
        runs = np.where(is_snapshot, offsets, -1)
        cuts = [0, *(np.flatnonzero(np.diff(runs)) + 1).tolist(), len(runs)]
        for at, end in pairwise(cuts):
            if runs[at] >= 0 and runs[at] != self._snapshot:
                self._small, self._codes, self._parts, self._rows = Small(), {}, [], 0
                self._begun, self._snapshot, self._transaction = True, int(runs[at]), None
            if self._begun:
                yield batch.slice(at, end - at)

    def _add(self, batch: pa.RecordBatch, kinds: list[str], codes: NDArray[np.int32]) -> None:
        special = [code for code, kind in enumerate(kinds) if kind in SPECIAL]
        cuts = np.flatnonzero(np.isin(codes, special)).tolist() if special else []
        at = 0
        for cut in cuts:
            self._plain(batch.slice(at, cut - at), kinds, codes[at:cut])
            self._special(batch, cut, kinds[codes[cut]])
            at = cut + 1
        self._plain(batch.slice(at), kinds, codes[at:])
        if self._rows > FOLD_ROWS and self._transaction is None:
            self._fold(self._partitions(self._parts, self._small))
        last = batch.num_rows - 1
        self._last = (
            batch.column("offset")[last].as_py(),
            batch.column("epoch")[last].as_py(),
            batch.column("timestamp").cast(pa.int64())[last].as_py() // 1000,
        )

    def state(self) -> ClusterState:
        """The state after the last row. Raises ArchiveError if the rows had no beginning."""
        if not self._begun:
            raise ArchiveError("the archive has neither the start of the log nor an earlier snapshot")
        small, parts = self._small, self._parts
        if self._transaction is not None:
            small, count = self._transaction
            parts = parts[:count]
        return ClusterState(*self._last, copy.deepcopy(small), self._named(self._partitions(parts, small), small))

    def _plain(self, batch: pa.RecordBatch, kinds: list[str], codes: NDArray[np.int32]) -> None:
        if not batch.num_rows:
            return
        partition = [code for code, kind in enumerate(kinds) if kind in PARTITION_KINDS]
        is_partition = np.isin(codes, partition)
        nothing = [code for code, kind in enumerate(kinds) if kind in IDLE]
        others = np.flatnonzero(~is_partition & ~np.isin(codes, nothing))
        if is_partition.any():
            rows = batch if is_partition.all() else batch.filter(mask(is_partition))
            self._keep(rows, codes[is_partition] == _code(kinds, RECORD))
        if others.size:
            texts = batch.column("fields").take(fixed(pa.int64(), others)).to_pylist()
            for row, text in zip(others.tolist(), texts, strict=True):
                try:
                    self._one(kinds[codes[row]], text)
                except (KeyError, ArchiveError) as e:
                    offset = batch.column("offset")[row].as_py()
                    raise ArchiveError(f"{kinds[codes[row]]} at offset {offset} does not fit: {e}") from None

    def _keep(self, rows: pa.RecordBatch, is_record: NDArray[np.bool_]) -> None:
        ids = rows.column("topic_id")
        known = np.array([self._codes.setdefault(t, len(self._codes)) for t in ids.dictionary.to_pylist()], np.int32)
        codes = known[ids.indices.to_numpy(zero_copy_only=False)]
        columns = {name: rows.column(name) for name in _ROW if name != "topic_id"}
        columns |= {"topic": fixed(pa.int32(), codes), "record": mask(is_record)}
        self._parts.append(pa.RecordBatch.from_arrays(list(columns.values()), names=list(columns)))
        self._rows += rows.num_rows

    def _special(self, batch: pa.RecordBatch, row: int, kind: str) -> None:
        if kind == "BEGIN_TRANSACTION_RECORD":
            self._transaction = (copy.deepcopy(self._small), len(self._parts))
        elif kind == "END_TRANSACTION_RECORD":
            self._transaction = None
        elif kind == "ABORT_TRANSACTION_RECORD":
            if self._transaction is not None:
                self._small, count = self._transaction
                del self._parts[count:]
            self._transaction = None
        else:
            name = json.loads(batch.column("fields")[row].as_py())["topicName"]
            self._clear_elr({i for i, n in self._small.topics.items() if not name or n == name})

    def _clear_elr(self, topics: set[str]) -> None:
        """A change of partitions that have eligible leader replicas."""
        now = self._partitions(self._parts, self._small)
        there = np.isin(now.column("topic").to_numpy(), [self._codes[t] for t in topics if t in self._codes])
        has_elr = np.zeros(now.num_rows, np.bool_)
        for name in ELR:
            has_elr |= pc.list_value_length(now.column(name)).to_numpy() > 0
        rows = np.flatnonzero(there & has_elr)
        if not rows.size:
            return
        empty = pa.array([[]] * len(rows), pa.list_(pa.int32()))
        columns = {name: pa.nulls(len(rows), SCHEMA.field(name).type) for name in _ROW if name != "topic_id"}
        taken = now.take(fixed(pa.int64(), rows))
        columns |= {name: taken.column(name).combine_chunks() for name in ("topic", "partition", "offset")}
        columns |= dict.fromkeys(ELR, empty) | {"record": mask(np.zeros(len(rows), np.bool_))}
        self._parts.append(pa.RecordBatch.from_arrays([columns[n] for n in PART_NAMES], names=list(PART_NAMES)))

    def _fold(self, now: pa.Table) -> None:
        """Continue from a row for each partition."""
        whole = now.append_column("record", [mask(np.ones(now.num_rows, np.bool_))])
        self._parts = whole.select(PART_NAMES).combine_chunks().to_batches()
        self._rows = now.num_rows

    def _partitions(self, parts: list[pa.RecordBatch], small: Small) -> pa.Table:
        """A row for each existing partition, by the codes of topics."""
        alive = np.zeros(len(self._codes), np.bool_)
        alive[[self._codes[t] for t in small.topics if t in self._codes]] = True
        if not parts:
            return _EMPTY
        now, _ = folded(pa.Table.from_batches(parts).combine_chunks(), len(self._codes))
        strange = ~now.column("record").to_numpy(zero_copy_only=False)
        if strange.any():
            row = int(np.flatnonzero(strange)[0])
            where = f"{list(self._codes)[now.column('topic')[row].as_py()]}-{now.column('partition')[row]}"
            raise ArchiveError(f"offset {now.column('offset')[row]} changes partition {where}, which does not exist")
        is_alive = alive[now.column("topic").to_numpy()]
        now = now if is_alive.all() else now.filter(mask(is_alive))
        lists = {name: _or_empty(now.column(name)) for name in LISTS}
        return pa.table({name: lists.get(name, now.column(name)) for name in PART_NAMES if name != "record"})

    def _named(self, now: pa.Table, small: Small) -> pa.Table:
        """Convert to PARTITIONS, with the names and ids of topics."""
        codes = now.column("topic").combine_chunks()
        ids = list(self._codes)
        names = pa.array([small.topics.get(i, "") for i in ids], pa.string())
        columns = {name: now.column(name) for name in PARTITIONS.names if name in now.column_names}
        columns["topic"] = pa.chunked_array([pa.DictionaryArray.from_arrays(_one(codes), names)], NAMES)
        columns["topic_id"] = pa.chunked_array(
            [pa.DictionaryArray.from_arrays(_one(codes), pa.array(ids, pa.string()))], NAMES
        )
        return pa.table([columns[name] for name in PARTITIONS.names], schema=PARTITIONS)

    def _one(self, kind: str, text: str) -> None:
        """Replay a record that is not about a partition."""
        record = json.loads(text)
        if record.keys() == {BYTES}:
            raise ArchiveError("its release is unknown")
        rule = _RULES.get(kind)
        if rule is not None:
            rule(self._small, record)


RECORD: Final = "PARTITION_RECORD"
PARTITION_KINDS: Final = frozenset({RECORD, "PARTITION_CHANGE_RECORD"})
IDLE: Final = frozenset({"NO_OP_RECORD"})
SPECIAL: Final = frozenset(
    {"BEGIN_TRANSACTION_RECORD", "END_TRANSACTION_RECORD", "ABORT_TRANSACTION_RECORD", "CLEAR_ELR_RECORD"}
)
PART_NAMES: Final = (*(name for name in _ROW if name != "topic_id"), "topic", "record")
_EMPTY: Final = pa.table(
    {
        **{name: pa.array([], SCHEMA.field(name).type) for name in _ROW if name != "topic_id"},
        "topic": pa.array([], pa.int32()),
    }
)


def folded(rows: pa.Table, topics: int) -> tuple[pa.Table, NDArray[np.int64]]:
    """Merge `rows` to one row for each partition, with the columns `PART_NAMES`.

    Returns these rows, and for each the index of its last row in `rows`. Topics are numbers below `topics`.
    If the rows of a partition hold only changes, the merged row is a change with the effect of all rows. Its epochs
    are the sums of their increments. Raises ArchiveError.
    """
    topic, number = rows.column("topic").to_numpy(), rows.column("partition").to_numpy()
    is_record = rows.column("record").to_numpy(zero_copy_only=False)
    if len(number) and number.min() < 0:
        raise ArchiveError(f"offset {rows.column('offset')[int(number.argmin())]} is about partition {number.min()}")
    sizes = np.zeros(topics, np.int64)
    np.maximum.at(sizes, topic, number + np.int64(1))
    firsts, count = np.cumsum(sizes) - sizes, int(sizes.sum())
    slots = firsts[topic] + number
    base, last = (_last(slots, wanted, count) for wanted in (is_record, np.ones(len(slots), np.bool_)))
    after = np.arange(len(slots)) > base[slots]
    found = np.flatnonzero(last >= 0)
    base, last = base[found], last[found]
    columns: dict[str, Any] = {
        "topic": fixed(pa.int32(), topic[last].astype(np.int32)),
        "record": mask(base >= 0),
        **{name: rows.column(name).take(fixed(pa.int64(), last)) for name in ("partition", "offset")},
    }
    for name, raised in (("leader_epoch", _there(rows.column("leader"))), ("partition_epoch", after)):
        increments = np.where(_there(rows.column(name)), _ints(rows.column(name)), raised)
        more = np.bincount(slots[after], increments[after], count)[found]
        columns[name] = fixed(pa.int32(), (np.where(base < 0, 0, increments[base]) + more).astype(np.int32))
    for name in (*NUMBERS, *LISTS):
        latest = _last(slots, is_record | _there(rows.column(name)), count)[found]
        columns[name] = rows.column(name).take(fixed(pa.int64(), latest, latest < 0))
    return pa.table({name: columns[name] for name in PART_NAMES}), last


def _code(kinds: list[str], kind: str) -> int:
    return kinds.index(kind) if kind in kinds else -1


def mask(flags: NDArray[np.bool_]) -> pa.Array:
    """Convert to Arrow."""
    return pa.Array.from_buffers(pa.bool_(), len(flags), [None, pa.py_buffer(np.packbits(flags, bitorder="little"))])


def _last(slots: NDArray[np.int64], wanted: NDArray[np.bool_], count: int) -> NDArray[np.int64]:
    """The last wanted row of each slot; -1 without a wanted row."""
    found = np.full(count, -1, np.int64)
    rows = np.flatnonzero(wanted)
    found[slots[rows]] = rows  # of several assignments, the last counts
    return found


def _there(column: pa.ChunkedArray) -> NDArray[np.bool_]:
    found: NDArray[np.bool_] = pc.is_valid(column).to_numpy()
    return found


def _ints(column: pa.ChunkedArray) -> NDArray[np.int32]:
    """Values without nulls; a null has any value."""
    one = _one(column)
    return np.frombuffer(one.buffers()[1], np.int32, len(one), one.offset * 4)


def _one(column: pa.Array | pa.ChunkedArray) -> pa.Array:
    return column.combine_chunks() if isinstance(column, pa.ChunkedArray) else column


def _or_empty(column: pa.ChunkedArray) -> pa.Array:
    """Lists; empty instead of null."""
    lists = _one(column)
    if not lists.null_count:
        return lists
    return pa.ListArray.from_arrays(lists.offsets, lists.values) if not lists.offset else pc.fill_null(lists, [])


def _register(small: Small, record: dict[str, Any]) -> None:
    small.brokers[record["brokerId"]] = record


def _fence(small: Small, record: dict[str, Any]) -> None:
    small.brokers[record["id"]] = {**small.brokers[record["id"]], "fenced": True}


def _unfence(small: Small, record: dict[str, Any]) -> None:
    small.brokers[record["id"]] = {**small.brokers[record["id"]], "fenced": False}


def _change(small: Small, record: dict[str, Any]) -> None:
    changed = dict(small.brokers[record["brokerId"]])
    for name in ("fenced", "inControlledShutdown"):
        if record.get(name):
            changed[name] = record[name] > 0
    changed |= {name: record[name] for name in ("logDirs", "cordonedLogDirs") if record.get(name) is not None}
    small.brokers[record["brokerId"]] = changed


def _topic(small: Small, record: dict[str, Any]) -> None:
    small.topics[record["topicId"]] = record["name"]


def _remove_topic(small: Small, record: dict[str, Any]) -> None:
    small.configs.pop((TOPIC_RESOURCE, small.topics.pop(record["topicId"])), None)


def _config(small: Small, record: dict[str, Any]) -> None:
    key = (record["resourceType"], record["resourceName"])
    _put(small.configs, key, record["name"], record["value"])


def _feature(small: Small, record: dict[str, Any]) -> None:
    if record["featureLevel"]:
        small.features[record["name"]] = record["featureLevel"]
    else:
        small.features.pop(record["name"], None)


def _quota(small: Small, record: dict[str, Any]) -> None:
    entity = tuple(sorted((e["entityType"], e["entityName"]) for e in record["entity"]))
    _put(small.quotas, entity, record["key"], None if record["remove"] else record["value"])


def _put(section: dict[Any, dict[str, Any]], key: Any, name: str, value: Any) -> None:
    """Set or remove a value of an entry. An entry without values is removed."""
    values = section.setdefault(key, {})
    if value is None:
        values.pop(name, None)
    else:
        values[name] = value
    if not values:
        del section[key]


def _leader(small: Small, record: dict[str, Any]) -> None:
    small.leader = record["leaderId"]
    small.voters = [voter["voterId"] for voter in record["voters"]]


_RULES: Final[dict[str, Any]] = {
    "REGISTER_BROKER_RECORD": _register,
    "UNREGISTER_BROKER_RECORD": lambda small, record: small.brokers.pop(record["brokerId"]),
    "FENCE_BROKER_RECORD": _fence,
    "UNFENCE_BROKER_RECORD": _unfence,
    "BROKER_REGISTRATION_CHANGE_RECORD": _change,
    "REGISTER_CONTROLLER_RECORD": lambda small, record: small.controllers.update({record["controllerId"]: record}),
    "TOPIC_RECORD": _topic,
    "REMOVE_TOPIC_RECORD": _remove_topic,
    "CONFIG_RECORD": _config,
    "FEATURE_LEVEL_RECORD": _feature,
    "CLIENT_QUOTA_RECORD": _quota,
    "ACCESS_CONTROL_ENTRY_RECORD": lambda small, record: small.acls.update({record["id"]: record}),
    "REMOVE_ACCESS_CONTROL_ENTRY_RECORD": lambda small, record: small.acls.pop(record["id"]),
    "USER_SCRAM_CREDENTIAL_RECORD": lambda small, record: small.users.update(
        {(record["name"], record["mechanism"]): record["iterations"]}
    ),
    "REMOVE_USER_SCRAM_CREDENTIAL_RECORD": lambda small, record: small.users.pop(
        (record["name"], record["mechanism"]), None
    ),
    "LEADER_CHANGE": _leader,
    "KRAFT_VOTERS": lambda small, record: setattr(small, "voters", [v["voterId"] for v in record["voters"]]),
}
