"""The laws that must hold under all faults of the machines. Clients report the records that they sent and read, and
their answers.

Power losses divide time into *eras*. A SIGKILL loses nothing, because the page cache stays. A power loss may take
records that were not fsynced: always all from some offset to the end of a log. An observation of a client is dated by
the eras of its request and of its response. A response may be under way while the power fails.

The laws, by the name that a finding carries:

- `lost`       an acknowledged record (acks 1 or all) stays in the log. A power loss may take it only at or beyond the
  durable offset of that moment, and only together with all records after it
- `phantom`    a record that is read was sent, and not refused
- `duplicate`  a record is in the log once
- `reordered`  an idempotent producer's records lie in the order of their sequence numbers
- `unstable`   an offset always shows the same value (until a power loss takes records that were not durable)
- `gap`        offsets are dense: a reader gets every record in sequence
- `visible`    acks=all acknowledges no record at or beyond the high watermark (`workloads.acks_law`)
- `beyond`     no record at or beyond the high watermark is served
- `watermark`  a client never sees the high watermark of a partition go back, as long as the leader epoch is the same
- `range`      a position that was served is in the range of the log
- `session`    a producer with one batch under way, which retries it, is never out of order. With several batches under
  way, it is not out of order as long as no process has ended
- `fence`      a pair of producer id and epoch is given out once
- `offsets`    a group's committed offset was committed, and is not older than the last acknowledged commit
- `fresh`      a new topic is empty
- `topics`     creations, deletions and look-ups of topics are linearizable
- `rot`        data that fails its checksum is read only from disks with bit rot
- `fsync`      no process continues after a failed fsync
- `space`      deletion frees space: in the end no deleted file is open, and retention has kept no more than configured
- `latest`     a read of a compacted topic from its start finds the last value of each key (`workloads.keyed`)
- `forgotten`  a deleted key and its tombstone leave the log once `delete.retention.ms` is over (`workloads.sleeper`)
- `loop`       no event exceeds the limits for disk operations and bytes on the loop; no event waits there for a durable
  offset checkpoint
- `grain`      a damaged replica ends neither its node nor its log directory
- `idle`       once all clients have ended, a node holds nothing for their requests (`leftovers`)
- `alive`      an undamaged node starts by itself, and clients make progress when all faults are over
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.lag import name_of
from kraft_node.testing.histories.linearizability import (
    CREATED,
    DELETED,
    EXISTS,
    UNKNOWN,
    HistoryOperation,
    topic_model,
    violations,
)
from kraft_node.testing.world import World

if TYPE_CHECKING:
    from kraft_node.testing.disks.load import Spent
    from kraft_node.testing.world import SimHost

Partition = tuple[str, int]

NO_POLICY: Final = 1 << 62
"""flush.messages of a topic without flushes by count."""
LOOP_OPERATIONS_MAX: Final = 800
"""File operations of one event on the loop: a few milliseconds on a real disk with everything in memory."""
BURST_OPERATIONS_MAX: Final = 2000
"""The limit for events that bring requests: on a real node the clock ends the burst, but here it stands still."""
LOOP_BYTES_MAX: Final = 1 << 20
FINDINGS_MAX: Final = 20
"""A run stops collecting findings after this many."""


@dataclass(frozen=True, slots=True)
class Violation:
    """A broken law and a description of what happened."""

    law: str
    where: str
    text: str

    def __str__(self) -> str:
        return f"{self.law}: {self.where}: {self.text}"


@dataclass(slots=True, eq=False)
class ProducedBatch:
    """A batch that a producer sends to one partition."""

    session: str
    partition: Partition
    values: Sequence[str]
    raw: bytes
    idempotent: bool
    acks: int
    era: int
    """The era in which it was first sent."""
    ends: int
    """The number of processes that had ended by then."""
    attempts: int = 0
    offset: int = -1
    """The acknowledged offset of its first record."""
    acknowledged: bool = False
    heard_era: int = -1
    refused: str = ""


@dataclass(slots=True)
class Loss:
    """One power loss, with the durable offsets of the affected logs; other logs were on other machines."""

    floors: dict[Partition, int]

    def could_take(self, partition: Partition, offset: int) -> bool:
        """Whether this power loss could take the record at `offset`: it was at or beyond the log's durable offset."""
        return partition in self.floors and offset >= self.floors[partition]


@dataclass(slots=True)
class CommittedRead:
    """A request for committed offsets, with a lower bound for each answer."""

    group: str
    bounds: Mapping[Partition, int]
    era: int


@dataclass(slots=True)
class _Partition:
    batches: list[ProducedBatch] = field(default_factory=list)
    floor: int = 0
    """All records below it are durable."""
    facts: dict[int, tuple[str, int]] = field(default_factory=dict)
    """By offset: the value last observed, and the earliest era in which it is known to have been there."""
    final: list[tuple[int, str]] = field(default_factory=list)
    start: int = 0
    audited: bool = False


class Checker:
    """Judges one run."""

    def __init__(self, world: World, *, offsets_are_durable: bool = False, sole: bool = True) -> None:
        """`offsets_are_durable`: offset commits are flushed before they are acknowledged.

        `sole`: the cluster has one broker. With several, a replaced leader may continue for a while without knowing
        it. Its high watermarks and group offsets may be old, and an idempotent producer may have to start again.
        """
        self.world = world
        self.sole = sole
        self.findings: list[Violation] = []
        self.losses: list[Loss] = []
        self.policies: dict[str, int] = {}
        """flush.messages by topic."""
        self.is_rotten: Callable[[int], bool] = lambda _node_id: False
        """Whether that node's disk has bit rot: readers may receive data that fails its checksum."""
        self.operations_max = LOOP_OPERATIONS_MAX
        """File operations of an event that brings no request."""
        self.records_read = 0
        self.reads: dict[tuple[str, Partition], list[list[tuple[int, str]]]] = defaultdict(list)
        """By consumer and partition: runs of records; a new run starts whenever the consumer changes its position."""
        self.ends = 0
        """The number of processes that have ended."""
        self._offsets_are_durable = offsets_are_durable
        self._of: dict[Partition, _Partition] = defaultdict(_Partition)
        self._sent: dict[str, ProducedBatch] = {}
        self._session_era: dict[str, int] = {}
        self._watermarks: dict[tuple[str, Partition, int], tuple[int, int]] = {}
        self._commits_sent: dict[tuple[str, Partition], set[int]] = defaultdict(set)
        self.commit_bounds: dict[tuple[str, Partition], int] = {}
        self._go_back: set[Partition] = set()
        """Partitions with readers that had to start again: a group may commit a lower offset than before."""
        self._producer_ids: set[tuple[int, int]] = set()
        self._operations: list[HistoryOperation] = []
        self._audited: Partition | None = None

    def now(self) -> int:
        """The current era."""
        return len(self.losses)

    def broken(self, law: str, where: Partition | str, text: str) -> None:
        """Record a finding."""
        if len(self.findings) < FINDINGS_MAX:
            name = where if isinstance(where, str) else f"{where[0]}-{where[1]}"
            self.findings.append(Violation(law, name, text))
            self.world.note("checker", f"BROKEN {self.findings[-1]}")

    # -- the machines

    def spent(self, host: SimHost, spent: Spent, function: Callable[..., None]) -> None:
        """Check the cost of an event for the loop of a machine, except a start: the node does not serve yet."""
        name = getattr(function, "__qualname__", "")
        if name == "SimMachine._start":
            return
        operations_max = BURST_OPERATIONS_MAX if name.startswith("SimTransport.") else self.operations_max
        if spent.operations > operations_max or spent.bytes > LOOP_BYTES_MAX:
            self.broken(
                "loop", host.name, f"{spent.operations} disk operations, {spent.bytes} bytes {name_of(function)}"
            )
        if spent.waits:
            self.broken("loop", host.name, f"{spent.waits} writes would wait for the disk {name_of(function)}")
        if spent.checkpoints:
            self.broken("loop", host.name, f"{spent.checkpoints} checkpoints were fsynced {name_of(function)}")

    def power_lost(self, durable: Mapping[Partition, int]) -> None:
        """Note a power loss on a machine with these logs; every record below the offsets was fsynced."""
        for partition, offset in durable.items():
            self._of[partition].floor = max(self._of[partition].floor, offset)
        self.losses.append(Loss({partition: self._of[partition].floor for partition in durable}))
        if not self._offsets_are_durable:
            self.commit_bounds.clear()

    def stopped_cleanly(self, partitions: Iterable[Partition]) -> None:
        """Note that all acknowledged records of these logs which no earlier power loss has taken are durable."""
        for state in [self._of[partition] for partition in partitions]:
            acknowledged_batches = [batch for batch in state.batches if batch.acknowledged and batch.era == self.now()]
            ends = [batch.offset + len(batch.values) for batch in acknowledged_batches]
            state.floor = max([state.floor, *ends])

    def _taken(self, partition: Partition, offset: int, since: int, until: int | None = None) -> bool:
        """Whether a power loss in these eras could take the record."""
        return any(loss.could_take(partition, offset) for loss in self.losses[since:until])

    # -- producers

    def producer_id(self, who: str, producer_id: int, epoch: int) -> None:
        """A producer got an id."""
        if (producer_id, epoch) in self._producer_ids:
            self.broken("fence", who, f"producer id {producer_id} epoch {epoch} was assigned before")
        self._producer_ids.add((producer_id, epoch))

    def sending(
        self, session: str, partition: Partition, values: Sequence[str], raw: bytes, *, idempotent: bool, acks: int
    ) -> ProducedBatch:
        """A batch is about to be sent."""
        batch = ProducedBatch(session, partition, values, raw, idempotent, acks, self.now(), self.ends)
        self._of[partition].batches.append(batch)
        self._session_era.setdefault(session, self.now())
        for value in values:
            assert value not in self._sent, f"{value} is sent twice: the run cannot be judged"
            self._sent[value] = batch
        return batch

    def acknowledged(self, batch: ProducedBatch, offset: int) -> None:
        """Note that the batch is in the log from `offset` on; -1: at an unknown offset."""
        batch.acknowledged, batch.offset, batch.heard_era = True, offset, self.now()
        if offset < 0:
            return
        for place, value in enumerate(batch.values):
            self._fact(batch.partition, offset + place, value, batch.era, f"acknowledged to {batch.session}")
        flushed_by = self.policies.get(batch.partition[0], NO_POLICY)
        state = self._of[batch.partition]
        if batch.era == self.now():
            state.floor = max(state.floor, offset + len(batch.values) - (flushed_by - 1))

    def refused(self, batch: ProducedBatch, why: str) -> None:
        """Note that the batch is certainly in no log."""
        batch.refused = why

    def session_refused(self, batch: ProducedBatch, why: str) -> None:
        """Note that an idempotent producer's first unacknowledged batch was refused with `why`."""
        if self._session_era[batch.session] == self.now():
            self.broken("session", batch.partition, f"{batch.values[0]} was refused: {why}")

    # -- readers

    def _fact(self, partition: Partition, offset: int, value: str, asked: int, who: str) -> None:
        facts = self._of[partition].facts
        known = facts.get(offset)
        if known is None:
            facts[offset] = (value, asked)
        elif known[0] == value:
            facts[offset] = (value, max(known[1], asked))
        else:
            if not self._taken(partition, offset, known[1]):
                self.broken("unstable", partition, f"offset {offset} was {known[0]!r} and, {who}, {value!r}")
            facts[offset] = (value, asked)

    def read(
        self, partition: Partition, position: int, values: Sequence[tuple[int, str]], end: int, who: str, asked: int
    ) -> None:
        """Check the records and the high watermark `end` of a fetch from `position`."""
        self.records_read += len(values)
        for offset, value in values:
            if offset != position:
                self.broken("gap", partition, f"{who} asked for offset {position} and received {offset}")
            if offset >= end:
                self.broken("beyond", partition, f"{who} received offset {offset}, but the high watermark is {end}")
            position = offset + 1
            batch = self._sent.get(value)
            if batch is None or batch.partition != partition:
                self.broken("phantom", partition, f"{value!r}, read by {who} at offset {offset}, was never sent here")
            elif batch.refused and batch.attempts == 1:
                self.broken("phantom", partition, f"{value!r} at offset {offset} was refused: {batch.refused}")
            self._fact(partition, offset, value, asked, f"to {who}")
        if self._audited == partition:
            self._of[partition].final.extend(values)
        else:
            self._keep(self.reads[who, partition], position - len(values), values)

    @staticmethod
    def _keep(parts: list[list[tuple[int, str]]], position: int, values: Sequence[tuple[int, str]]) -> None:
        if values:
            if not parts or parts[-1][-1][0] + 1 != position:
                parts.append([])
            parts[-1].extend(values)

    def high_watermark(self, partition: Partition, offset: int, who: str, asked: int, leader_epoch: int) -> None:
        """Check a high watermark that a client received from the leader of that epoch; -1: of some epoch.

        A new leader has not yet heard the positions of all followers, so its high watermark may be lower.
        """
        if leader_epoch < 0 and not self.sole:
            return
        key = (who, partition, 0 if self.sole else leader_epoch)
        before, heard = self._watermarks.get(key, (-1, 0))
        if offset < before and not self._taken(partition, offset, heard):
            self.broken("watermark", partition, f"{who} saw the high watermark at {before}, then at {offset}")
        self._watermarks[key] = (offset, asked)

    def out_of_range(self, partition: Partition, position: int, who: str) -> None:
        """Note that a position the client had reached is not within the log; the client starts again at the log's
        start."""
        self._go_back.add(partition)
        if not any(loss.could_take(partition, position - 1) for loss in self.losses):
            self.broken("range", partition, f"{who} has read up to {position}, which is reported as out of range")

    # -- groups

    def committing(self, group: str, positions: Mapping[Partition, int]) -> None:
        """Note offsets that are about to be committed."""
        for partition, offset in positions.items():
            self._commits_sent[group, partition].add(offset)
            if partition in self._go_back and offset < self.commit_bounds.get((group, partition), -1):
                self.commit_bounds[group, partition] = offset

    def commit_done(self, group: str, positions: Mapping[Partition, int], asked: int) -> None:
        """Note that the offsets are committed."""
        if asked == self.now() or self._offsets_are_durable:
            for partition, offset in positions.items():
                self._raise_bound(group, partition, offset)

    def _raise_bound(self, group: str, partition: Partition, offset: int) -> None:
        key = (group, partition)
        self.commit_bounds[key] = max(self.commit_bounds.get(key, -1), offset)

    def expect_committed(self, group: str, partitions: Iterable[Partition]) -> CommittedRead:
        """Note the lower bounds; call this before the request is sent."""
        return CommittedRead(group, {p: self.commit_bounds.get((group, p), -1) for p in partitions}, self.now())

    def committed(
        self, asked: CommittedRead, found: Mapping[Partition, int], who: str, *, settled: bool = False
    ) -> None:
        """Check the committed offsets found; `settled`: by the only coordinator."""
        certain = asked.era == self.now() or self._offsets_are_durable
        for partition, offset in found.items():
            if offset >= 0 and offset not in self._commits_sent[asked.group, partition]:
                self.broken("offsets", partition, f"{who} read offset {offset} of {asked.group}: not committed")
            if certain and (self.sole or settled) and offset < asked.bounds[partition]:
                self.broken(
                    "offsets", partition,
                    f"{asked.group} had committed {asked.bounds[partition]}, but {who} read {offset}",
                )  # fmt: skip
            if certain:
                self._raise_bound(asked.group, partition, offset)

    # -- topics

    def operation(self, operation: HistoryOperation) -> None:
        """Note an administrator's call that has ended."""
        self._operations.append(operation)

    # -- the end

    def log_begins(self, partition: Partition, start: int) -> None:
        """Note that the auditor reads a log from its start; later reads of the partition form its final content."""
        state = self._of[partition]
        state.final, state.start, state.audited = [], start, True
        self._audited = partition

    def log_ends(self, partition: Partition, end: int) -> None:
        """Note that the auditor reached the given end; a request under way may have appended more since."""
        state = self._of[partition]
        if state.start + len(state.final) < end:
            self.broken("gap", partition, f"offsets {state.start} to {end}, but {len(state.final)} records")
        self._audited = None

    def final(self) -> dict[Partition, list[tuple[int, str]]]:
        """The audited logs."""
        return {partition: state.final for partition, state in self._of.items() if state.audited}

    def batches(self, partition: Partition) -> list[ProducedBatch]:
        """All batches sent to a partition."""
        return self._of[partition].batches

    def judge(self) -> list[Violation]:
        """All findings; call this after the audit."""
        for partition, state in self._of.items():
            if state.audited:
                self._judge_log(partition, state)
        for text in violations(self._operations, topic_model if self.sole else _at_least_once):
            self.broken("topics", "admin", text)
        return self.findings

    def _judge_log(self, partition: Partition, state: _Partition) -> None:
        final = dict(state.final)
        seen: dict[str, int] = {}
        sequences: dict[str, tuple[int, str]] = {}
        for offset, value in state.final:
            if value in seen:
                self.broken("duplicate", partition, f"{value!r} is at offsets {seen[value]} and {offset}")
                continue
            seen[value] = offset
            batch = self._sent.get(value)
            if batch is not None and batch.idempotent:
                place = int(value.rpartition(":")[2])
                before = sequences.get(batch.session, (-1, ""))
                if place < before[0]:
                    self.broken("reordered", partition, f"{value!r} at offset {offset} follows {before[1]!r}")
                sequences[batch.session] = (place, value)
        survivors = self._survivors(state, final)
        for batch in state.batches:
            if not batch.acknowledged or batch.offset < 0:
                continue
            for place, value in enumerate(batch.values):
                offset = batch.offset + place
                if final.get(offset) != value and not self._may_be_gone(partition, offset, batch.era, survivors):
                    self.broken("lost", partition, f"{value!r} was acknowledged to {batch.session} at offset {offset}")
                    break

    def _survivors(self, state: _Partition, final: Mapping[int, str]) -> list[int]:
        """For every power loss: the highest offset that was known before it and is in the final log."""
        highest = [-1] * len(self.losses)
        for batch in state.batches:
            if batch.acknowledged and batch.offset >= 0:
                last = batch.offset + len(batch.values) - 1
                if final.get(last) == batch.values[-1]:
                    for number in range(batch.heard_era, len(self.losses)):
                        highest[number] = max(highest[number], last)
        return highest

    def _may_be_gone(self, partition: Partition, offset: int, since: int, survivors: Sequence[int]) -> bool:
        return any(
            self.losses[number].could_take(partition, offset) and offset > survivors[number]
            for number in range(since, len(self.losses))
        )


def _at_least_once(state: Hashable, action: str, argument: Any) -> Iterable[tuple[Any, Hashable]]:
    """The topic model if a broker repeats a request after the response was lost, like Kafka's brokers: it may find its
    own effect."""
    for result, after in topic_model(state, action, argument):
        yield result, after
        if result in (CREATED, DELETED):
            yield EXISTS if result == CREATED else UNKNOWN, after


__all__ = ["NO_POLICY", "Checker", "CommittedRead", "Loss", "ProducedBatch", "Violation"]
