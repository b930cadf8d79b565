"""The history of a cluster: under-replicated and offline partitions over time, moves of leaders, changes of ISRs,
registrations of brokers, elections of controllers.

Computed from all rows of changes at once. Rows of partitions are sorted by partition, so a row shows its change by
comparison with the row before. A partition is offline while it has no leader. It is under-replicated while its ISR is
smaller than its replicas, without replicas that a reassignment adds (as kafka-topics counts).
"""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

BUCKETS: Final = 200
"""Number of buckets of the time between the first and the last row, in a report."""
TOP: Final = 20
"""Number of topics and partitions that are named."""
_WANTED: Final = frozenset({"PARTITION_RECORD", "PARTITION_CHANGE_RECORD"})
_BROKERS: Final = frozenset(
    {
        "REGISTER_BROKER_RECORD",
        "UNREGISTER_BROKER_RECORD",
        "FENCE_BROKER_RECORD",
        "UNFENCE_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
    }
)
_OTHERS: Final = frozenset({"TOPIC_RECORD", "REMOVE_TOPIC_RECORD", "LEADER_CHANGE"}) | _BROKERS
NO_LEADER: Final = -1


@dataclass(slots=True)
class Broker:
    """The history of a broker."""

    events: list[tuple[int, int, str]] = field(default_factory=list)
    """Offset, time (ms) and event: registered, fenced, unfenced, shutting down, unregistered."""
    fenced_ms: int = 0
    """Milliseconds for which it was fenced, registrations included."""

    @property
    def flaps(self) -> int:
        """How often it was fenced after it had been unfenced."""
        served, count = False, 0
        for _, _, what in self.events:
            count += what == "fenced" and served
            served = what == "unfenced" or (served and what == "shutting down")
        return count


@dataclass(slots=True)
class Health:
    """The report; times are milliseconds since 1970. Lists over time have an entry for each bucket of `times`."""

    first_offset: int = -1
    last_offset: int = -1
    times: list[int] = field(default_factory=list)
    """The ends of the buckets."""
    under_replicated: list[int] = field(default_factory=list)
    """Maximum number of partitions in each bucket."""
    offline: list[int] = field(default_factory=list)
    leader_moves: list[int] = field(default_factory=list)
    isr_shrinks: list[int] = field(default_factory=list)
    isr_expansions: list[int] = field(default_factory=list)
    under_replicated_now: int = 0
    offline_now: int = 0
    partitions: int = 0
    moved_most: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, partition and number of leader moves."""
    churned_most: list[tuple[str, int, int]] = field(default_factory=list)
    """Topic, partition and number of ISR shrinks."""
    brokers: dict[int, Broker] = field(default_factory=dict)
    controllers: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Offset, time, epoch and leader of each election of an active controller."""

    def to_json(self) -> dict[str, Any]:
        """The report as JSON values."""
        flaps = {str(number): broker.flaps for number, broker in self.brokers.items()}
        return {**asdict(self), "broker_flaps": flaps}


class Reader:
    """Collects rows of changes in their order, and keeps the columns that matter; `report` covers all of them."""

    def __init__(self) -> None:
        self._codes: dict[str, int] = {}
        self._names: dict[str, str] = {}
        self._columns: dict[str, list[NDArray[Any]]] = defaultdict(list)
        self._removed: list[tuple[int, int, str]] = []
        """Time, index among all rows, and topic id."""
        self._report = Health()
        self._ends: list[tuple[int, int]] = []
        self._seen = 0

    def add(self, batch: pa.RecordBatch) -> None:
        """Add the next rows, in `changes.SCHEMA`."""
        if not batch.num_rows:
            return
        kinds = batch.column("type").dictionary.to_pylist()
        codes = batch.column("type").indices.to_numpy()
        times = batch.column("timestamp").cast(pa.int64()).to_numpy() // 1000
        offsets = batch.column("offset").to_numpy()
        self._ends += [(int(offsets[0]), int(times.min())), (int(offsets[-1]), int(times.max()))]
        others = np.flatnonzero(np.isin(codes, [c for c, kind in enumerate(kinds) if kind in _OTHERS]))
        texts = batch.column("fields").take(pa.array(others)).to_pylist() if others.size else []
        for row, text in zip(others.tolist(), texts, strict=True):
            place = self._seen + row
            self._one(kinds[codes[row]], json.loads(text), int(offsets[row]), int(times[row]), place, batch, row)
        is_wanted = np.isin(codes, [c for c, kind in enumerate(kinds) if kind in _WANTED])
        if is_wanted.any():
            self._partitions(batch, is_wanted, times)
        self._seen += batch.num_rows

    def _partitions(self, batch: pa.RecordBatch, wanted: NDArray[np.bool_], times: NDArray[np.int64]) -> None:
        places = np.flatnonzero(wanted)
        rows = batch.take(pa.array(places)) if len(places) < batch.num_rows else batch
        ids = rows.column("topic_id")
        known = np.array([self._codes.setdefault(t, len(self._codes)) for t in ids.dictionary.to_pylist()], np.int64)
        add = self._columns
        add["topic"].append(known[ids.indices.to_numpy()])
        add["partition"].append(rows.column("partition").to_numpy())
        add["place"].append(places + self._seen)
        add["time"].append(times[places])
        for name in ("leader", "isr", "replicas", "adding_replicas"):
            column = rows.column(name)
            numbers = column if name == "leader" else pc.list_value_length(column)
            add[name].append(numbers.fill_null(-9).to_numpy())

    def _one(
        self, kind: str, record: dict[str, Any], offset: int, time: int, place: int, batch: pa.RecordBatch, row: int
    ) -> None:
        if kind == "TOPIC_RECORD":
            self._names[record["topicId"]] = record["name"]
        elif kind == "REMOVE_TOPIC_RECORD":
            self._removed.append((time, place, record["topicId"]))
        elif kind == "LEADER_CHANGE":
            epoch = batch.column("epoch")[row].as_py()
            self._report.controllers.append((offset, time, epoch, record["leaderId"]))
        else:
            number = record["brokerId"] if "brokerId" in record else record["id"]
            events = self._report.brokers.setdefault(number, Broker()).events
            events += [(offset, time, what) for what in _events(kind, record)]

    def report(self) -> Health:
        """Compute the report."""
        found = self._report
        if not self._ends:
            return found
        found.first_offset, found.last_offset = self._ends[0][0], self._ends[-1][0]
        begin, end = min(t for _, t in self._ends), max(t for _, t in self._ends)
        _fenced_times(found.brokers, end)
        width = max(1, -(-(end - begin + 1) // BUCKETS))
        count = (end - begin) // width + 1
        found.times = [begin + (bucket + 1) * width for bucket in range(count)]
        columns = {name: np.concatenate(parts) for name, parts in self._columns.items()}
        if columns:
            self._over_time(found, columns, begin, width, count)
        else:
            found.under_replicated = found.offline = [0] * count
            found.leader_moves = found.isr_shrinks = found.isr_expansions = [0] * count
        return found

    def _over_time(self, found: Health, columns: dict[str, Any], begin: int, width: int, count: int) -> None:
        key = (columns["topic"] << 32) | columns["partition"]
        order = np.argsort(key, kind="stable")
        key = key[order]
        is_first = np.ones(len(key), np.bool_)
        is_first[1:] = key[1:] != key[:-1]
        filled = {name: _fill(columns[name][order], is_first) for name in ("leader", "isr", "replicas")}
        adding = _fill(columns["adding_replicas"][order], is_first)
        under = filled["isr"] < filled["replicas"] - np.maximum(adding, 0)
        offline = filled["leader"] == NO_LEADER
        moved = _differs(filled["leader"], is_first)
        shrank = ~is_first & (np.diff(filled["isr"], prepend=0) < 0)
        grew = ~is_first & (np.diff(filled["isr"], prepend=0) > 0)
        buckets = (columns["time"][order] - begin) // width
        found.leader_moves = np.bincount(buckets[moved], minlength=count).tolist()
        found.isr_shrinks = np.bincount(buckets[shrank], minlength=count).tolist()
        found.isr_expansions = np.bincount(buckets[grew], minlength=count).tolist()
        is_last = np.ones(len(key), np.bool_)
        is_last[:-1] = is_first[1:]
        slots = np.cumsum(is_first) - 1
        ids = list(self._codes)
        for name, flags in (("moved_most", moved), ("churned_most", shrank)):
            setattr(
                found, name, self._most(np.bincount(slots[flags], minlength=int(slots[-1]) + 1), key[is_first], ids)
            )
        gone = {self._codes[topic]: (time, place) for time, place, topic in self._removed if topic in self._codes}
        is_gone = np.isin(key[is_last] >> 32, list(gone)) if gone else np.zeros(int(is_last.sum()), np.bool_)
        found.partitions = int((~is_gone).sum())
        for name, flags in (("under_replicated", under), ("offline", offline)):
            deltas = np.diff(flags.astype(np.int8), prepend=np.int8(0))
            deltas[is_first] = flags[is_first]
            steps = [(columns["place"][order], columns["time"][order], deltas)]
            lasts = flags[is_last]
            for topic, (time, place) in gone.items():
                left = int(lasts[key[is_last] >> 32 == topic].sum())
                if left:
                    steps.append((np.array([place]), np.array([time]), np.array([-left])))
            setattr(found, name, _most_at_once(steps, begin, width, count))
            setattr(found, f"{name}_now", int(lasts[~is_gone].sum()))

    def _most(self, counts: NDArray[np.int64], keys: NDArray[np.int64], ids: list[str]) -> list[tuple[str, int, int]]:
        top = [slot for slot in np.argsort(-counts, kind="stable")[:TOP].tolist() if counts[slot]]
        found = []
        for slot in top:
            topic = ids[int(keys[slot]) >> 32]
            found.append((self._names.get(topic, topic), int(keys[slot]) & 0xFFFFFFFF, int(counts[slot])))
        return found


def _events(kind: str, record: dict[str, Any]) -> list[str]:
    """The events of a broker in a record."""
    if kind == "REGISTER_BROKER_RECORD":
        return ["registered", *([] if record["fenced"] else ["unfenced"])]
    if kind == "UNREGISTER_BROKER_RECORD":
        return ["unregistered"]
    if kind != "BROKER_REGISTRATION_CHANGE_RECORD":
        return ["fenced" if kind == "FENCE_BROKER_RECORD" else "unfenced"]
    found = []
    if record.get("fenced"):
        found.append("fenced" if record["fenced"] > 0 else "unfenced")
    if record.get("inControlledShutdown", 0) > 0:
        found.append("shutting down")
    return found


def _fenced_times(brokers: dict[int, Broker], end: int) -> None:
    for broker in brokers.values():
        since: int | None = None
        for _, time, what in broker.events:
            if what in {"registered", "fenced"}:
                since = time if since is None else since
            elif since is not None and what in {"unfenced", "unregistered"}:
                broker.fenced_ms += time - since
                since = None
        if since is not None:
            broker.fenced_ms += end - since


def _fill(values: NDArray[Any], is_first: NDArray[np.bool_]) -> NDArray[Any]:
    """Replace unchanged values (-9) by the values of the former row of the same partition."""
    rows = np.where((values != -9) | is_first, np.arange(len(values)), 0)
    return values[np.maximum.accumulate(rows)]


def _differs(values: NDArray[Any], is_first: NDArray[np.bool_]) -> NDArray[np.bool_]:
    found = np.zeros(len(values), np.bool_)
    found[1:] = values[1:] != values[:-1]
    return found & ~is_first


def _most_at_once(steps: list[tuple[Any, Any, Any]], begin: int, width: int, count: int) -> list[int]:
    """The maximum of the running sum of `steps` in each bucket. A bucket without steps has the last sum."""
    places, times, deltas = (np.concatenate([step[part] for step in steps]) for part in range(3))
    changing = deltas != 0
    order = np.argsort(places[changing], kind="stable")
    sums = np.cumsum(deltas[changing][order].astype(np.int64))
    buckets = np.maximum.accumulate((times[changing][order] - begin) // width) if len(sums) else np.empty(0, np.int64)
    found, last, at = [], 0, 0
    for bucket in range(count):
        end = int(np.searchsorted(buckets, bucket, "right"))
        within = sums[at:end]
        found.append(int(max(last, within.max())) if len(within) else last)
        last = int(within[-1]) if len(within) else last
        at = end
    return found
