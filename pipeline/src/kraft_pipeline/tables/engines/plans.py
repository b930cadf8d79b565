"""Plan the offsets of the next batch, for the live stream or for a backfill of older records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final, Protocol

from kraft_pipeline.codec import Decoder
from kraft_pipeline.sources import offsets, planning
from kraft_pipeline.sources.options import Options
from kraft_pipeline.sources.positions import Key, Offsets, Position, continued, followed, position, refuse, strangers
from kraft_pipeline.tables.losses import Losses, judged
from kraft_pipeline.tables.specs.table_spec import SpecError, TableSpec
from kraft_pipeline.tables.stores.committer import State
from kraft_pipeline.tables.stores.opening import options_of
from kraft_pipeline.tables.values import RAW
from kraft_protocol.client.cluster import Cluster
from kraft_protocol.client.fetch import Range, fetch_range
from kraft_protocol.client.requests import EARLIEST

SAMPLE_BYTES: Final = 256 * 1024
"""Bytes to fetch before the first batch, to estimate the size of a record."""


@dataclass(frozen=True, slots=True)
class Plan:
    """A planned batch: its offsets, and the states of the table and of the dead letters before it."""

    state: State
    dead: State
    start: Offsets
    end: Position
    lag: int
    again: bool
    """Whether an earlier attempt committed the dead letters of this batch, but not its rows."""
    full: bool
    """Whether the batch has the maximum number of rows or bytes, so it must not wait for more."""
    cut: frozenset[Key] = frozenset()
    """For a repeated batch: partitions that lost records of it. The losses are recorded."""

    @property
    def records(self) -> int:
        """Number of offsets in the batch, over all partitions."""
        return sum(last - self.start[key] for key, last in self.end.offsets.items())

    def taken(self, key: Key) -> int:
        """Number of offsets of a partition in the batch."""
        return self.end.offsets.get(key, 0) - self.start.get(key, 0) if key in self.end.offsets else 0

    @property
    def ranges(self) -> list[Range]:
        """One range for each partition, sorted; a range may be empty."""
        return [
            Range(key[0], bytes.fromhex(self.end.topics[key[0]]), key[1], self.start[key], last, self._epoch(key))
            for key, last in sorted(self.end.offsets.items())
        ]

    def _epoch(self, key: Key) -> int:
        return self.end.epochs.get(key, -1)

    def to_json(self) -> dict[str, Any]:
        """Serialize for another process, without the position of the table's state, which the batch does not need."""
        dead = self.dead.position
        return {
            "table": [self.state.batch, self.state.epoch],
            "dead": [self.dead.batch, self.dead.epoch, None if dead is None else dead.to_json()],
            "start": Position(self.start).to_json(),
            "end": self.end.to_json(),
            "lag": self.lag,
            "again": self.again,
            "full": self.full,
            "cut": sorted(self.cut),
        }


def plan_of(found: Mapping[str, Any]) -> Plan:
    """Inverse of `Plan.to_json`."""
    (batch, epoch), (dead, dead_epoch, dead_position) = found["table"], found["dead"]
    dead_end = None if dead_position is None else Position.from_json(dead_position)
    return Plan(
        State(batch, None, epoch),
        State(dead, dead_end, dead_epoch),
        Position.from_json(found["start"]).offsets,
        Position.from_json(found["end"]),
        found["lag"],
        again=found["again"],
        full=found["full"],
        cut=frozenset((topic, partition) for topic, partition in found["cut"]),
    )


class Planner(Protocol):
    """Plans the batch after the given states of the table and its dead letters."""

    lags: Offsets
    """Records of each partition that the table lacked when `plan` was last called."""

    def plan(self, cluster: Cluster, state: State, dead: State) -> Plan | None:
        """Return the next batch, or None without new records. Raises ClientError, DataLossError."""


class Sizes:
    """Limits the records of a batch by `maxRows` and `maxBytes`; the size of records comes from earlier batches."""

    def __init__(self, spec: TableSpec, options: Options) -> None:
        self._spec, self._options = spec, options
        self._record_bytes = 0.0
        self.learned = 0, 0
        """Number of records of the last batch, and their bytes."""

    def learn(self, records: int, size: int) -> None:
        """Remember the bytes of a record: `size` is the uncompressed bytes of all `records` of a batch."""
        if records:
            self._record_bytes, self.learned = size / records, (records, size)

    def most(self, cluster: Cluster, start: Offsets, end: Position) -> int:
        """How many of the records from `start` to `end` a batch may have, at least 1. May fetch a sample."""
        key = max(end.offsets, key=lambda k: end.offsets[k] - start[k], default=None)
        if not self._record_bytes and key is not None and end.offsets[key] > start[key]:
            self._sample(
                cluster, Range(key[0], bytes.fromhex(end.topics[key[0]]), key[1], start[key], end.offsets[key])
            )
        by_bytes = int(self._spec.max_bytes / self._record_bytes) if self._record_bytes else self._spec.max_rows
        return max(1, min(self._spec.max_rows, by_bytes))

    def _sample(self, cluster: Cluster, wanted: Range) -> None:
        decoder, strict = Decoder(wanted.topic, wanted.partition, RAW), self._options.fail_on_data_loss
        for chunk in fetch_range(cluster, wanted, max_bytes=SAMPLE_BYTES, fail_on_data_loss=strict):
            found = list(decoder.decode(chunk.records, chunk.offset, wanted.end))
            self.learn(sum(part.num_rows for part in found), sum(part.nbytes for part in found))
            return


class Live:
    """Plans from the table's position to the ends of the topics; with `once`, to their ends at the first call."""

    def __init__(self, spec: TableSpec, options: Options, sizes: Sizes, losses: Losses, *, once: bool) -> None:
        self._spec, self._options, self._sizes, self._once = spec, options, sizes, once
        self._losses = losses
        self._until: Position | None = None
        self.lags: Offsets = {}

    def plan(self, cluster: Cluster, state: State, dead: State) -> Plan | None:
        """As `Planner.plan`: first repeat a batch if its dead letters are committed but its rows are not."""
        if dead.batch > state.batch and dead.position is not None:
            return self._again(cluster, state, dead, dead.position)
        grace_s = None if self._once else offsets.AWAY_S
        end = self._until or offsets.latest(cluster, self._options, state.position, grace_s=grace_s)
        self._until = end if self._once else None
        start, new = self._start(cluster, state, end)
        self.lags = {key: max(0, last - start[key]) for key, last in end.offsets.items()}
        todo = sum(self.lags.values())
        if not todo and (state.position is not None or self._spec.starting == "earliest"):
            return None
        most = self._sizes.most(cluster, start, end)
        until = planning.limited(start, end.offsets, most)
        until = {key: max(last, start[key]) for key, last in until.items()}
        taken = sum(last - start[key] for key, last in until.items())
        begun = _begun(state.position, start, new)
        reached = Position(until, end.cluster, end.topics, begun, epochs=end.epochs)
        return Plan(state, dead, start, reached, todo - taken, again=False, full=todo >= most)

    def _again(self, cluster: Cluster, state: State, dead: State, end: Position) -> Plan:
        """Plan again the batch with committed dead letters, with the same start."""
        then, topics = state.position or Position({}, end.cluster), end.topics
        then = replace(then, offsets={**end.begun, **then.offsets}, topics={**topics, **then.topics})
        going = followed(cluster, then, _present(cluster, self._options, then, end), bottom=True)
        judged(going.lost, self._losses, strict=self._spec.fail_on_data_loss)
        cut = frozenset((loss.topic, loss.partition) for loss in going.lost)
        new = {key: end.begun.get(key, 0) for key in going.new if key not in cut}
        start = {**end.offsets, **new, **going.good}
        return Plan(state, dead, start, replace(end, rows={}), 0, again=True, full=True, cut=cut)

    def _start(self, cluster: Cluster, state: State, end: Position) -> tuple[Offsets, list[Key]]:
        """The start offset of each partition, and the partitions that are read from their beginning."""
        if state.position is None:
            found = offsets.starting(cluster, self._options)
            return {key: min(found.get(key, 0), last) for key, last in end.offsets.items()}, sorted(end.offsets)
        going = followed(cluster, state.position, end)
        if any(end.offsets[key] > offset for key, offset in going.good.items()):
            going = followed(cluster, state.position, end, bottom=True)
        judged(going.lost, self._losses, strict=self._spec.fail_on_data_loss)
        return {**going.good, **offsets.earliest(cluster, going.new)}, going.new


def _present(cluster: Cluster, options: Options, then: Position, end: Position) -> Position:
    """The end of a batch with the topics' present ids, without partitions that are gone. `then`: its start."""
    now = offsets.latest(cluster, options, then)
    there = {key: last for key, last in end.offsets.items() if key in now.offsets}
    return replace(end, offsets=there, cluster=now.cluster, topics={**end.topics, **now.topics})


def _begun(then: Position | None, start: Offsets, new: Sequence[Key]) -> Offsets:
    """First offset ever read: `new` partitions begin now; after a truncation the lower offset counts."""
    found: Offsets = {}
    for key, offset in start.items():
        if then is None or key in new:
            found[key] = offset
        elif key in then.begun:
            found[key] = min(offset, then.begun[key])
    return found


class Backfill:
    """Plans the records from `since_ms` (Unix time) to where the live stream or an earlier backfill began.

    The first call fixes the range, and each batch stores it in the table. An unfinished backfill continues its range.
    Raises SpecError for a table by key, where older rows would replace newer rows.
    """

    def __init__(
        self, spec: TableSpec, sizes: Sizes, live: Callable[[], State], losses: Losses, since_ms: int | None = None
    ) -> None:
        if spec.mode != "append":
            raise SpecError("spec.table.mode: older rows would replace newer rows: backfill by key is not supported")
        self._spec, self._sizes, self._live, self._since_ms = spec, sizes, live, since_ms
        self._losses, self._options = losses, options_of(spec)
        self._range: Position | None = None
        self.lags: Offsets = {}

    def plan(self, cluster: Cluster, state: State, dead: State) -> Plan | None:
        """As `Planner.plan`. Raises SpecError if the live stream has no batch, or does not record where it began."""
        if dead.batch > state.batch and dead.position is not None:
            end = dead.position
            then = replace(end, offsets=_start_of(state.position, end))
            left, cut = self._left(cluster, then, _present(cluster, self._options, then, end))
            start = {**end.offsets, **left}
            return Plan(state, dead, start, replace(end, rows={}), 0, again=True, full=True, cut=cut)
        if self._range is None:
            self._range = self._settled(cluster, state.position)
        whole = self._range
        end = replace(whole, offsets=whole.until)
        start, _ = self._left(cluster, replace(whole, offsets=_start_of(state.position, end)), end)
        self.lags = {key: whole.until[key] - offset for key, offset in start.items()}
        todo = sum(self.lags.values())
        if not todo:
            return None
        most = self._sizes.most(cluster, start, Position(whole.until, whole.cluster, whole.topics))
        until = planning.limited(start, whole.until, most)
        taken = sum(last - start[key] for key, last in until.items())
        reached = Position(until, whole.cluster, whole.topics, whole.begun, whole.until)
        return Plan(state, dead, start, reached, todo - taken, again=False, full=True)

    def _left(self, cluster: Cluster, then: Position, end: Position) -> tuple[Offsets, frozenset[Key]]:
        """The start of each partition from `then` on after deletions by retention, and the partitions that lost
        records.

        Raises DataLossError.
        """
        going = followed(cluster, replace(then, epochs={}), replace(end, epochs={}), bottom=True)
        judged(going.lost, self._losses, strict=self._spec.fail_on_data_loss)
        return going.good, frozenset((loss.topic, loss.partition) for loss in going.lost)

    def _settled(self, cluster: Cluster, then: Position | None) -> Position:
        """The range of an unfinished backfill, or the records before all that has been read.

        Both end where the stream began. That may be below an earlier range: in a log that an unclean election
        truncated, or in a topic that was made anew. Raises SpecError and DataLossError.
        """
        live = self._live().position
        if live is None:
            raise SpecError("the table has no batch yet: its first batch settles what came before it")
        for topic, partition in sorted(set(live.offsets) - set(live.begun)):
            raise SpecError(f"the table does not record where {topic}-{partition} began: an earlier version created it")
        refuse(continued(live, position(cluster, live.offsets)).lost)
        until = dict(live.begun)
        if then is not None:
            unread = {key: offset for key, offset in then.offsets.items() if offset < then.until[key]}
            lost = continued(replace(then, offsets=unread), live).lost
            judged(lost, self._losses, strict=self._spec.fail_on_data_loss)
            same = continued(then, live).good
            ends = {key: min(then.until[key], live.begun[key]) for key in same}
            reached = {key: min(offset, ends[key]) for key, offset in same.items()}
            if reached != ends:
                begun = {key: then.begun[key] for key in same}
                return Position(reached, live.cluster, live.topics, begun, ends)
            until |= {key: min(then.begun[key], live.begun[key]) for key in same}
        found = cluster.offsets(dict.fromkeys(until, EARLIEST))
        if self._since_ms is not None:
            since = cluster.offsets(dict.fromkeys(until, self._since_ms))  # -1: all records are older
            found = {key: max(offset, since[key]) if since[key] >= 0 else until[key] for key, offset in found.items()}
        begun = {key: min(found[key], last) for key, last in until.items()}
        return Position(begun, live.cluster, live.topics, begun, until)


def _start_of(then: Position | None, end: Position) -> Offsets:
    """Where a backfill at `then` continues in the range of `end`: at the start of the range, if it is another one.

    Ranges of a partition with the same start are one range, or the later one is empty.
    """
    if then is None:
        return dict(end.begun)
    former = strangers(then, end)
    same = [key for key, first in end.begun.items() if key[0] not in former and then.begun.get(key) == first]
    return {**end.begun, **{key: min(then.offsets[key], end.offsets[key]) for key in same}}
