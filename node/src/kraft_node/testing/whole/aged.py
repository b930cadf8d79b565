"""Clients of a topic with a small `retention.ms`, which an administrator changes. Some records are backdated.

All laws of transactional logs hold for what is left (`transactions.judge`). Further laws:

- `aged`   a replica deletes a record only if the record is older than `retention.ms`. The replica's clock, with its
  drift and its jumps, and the metadata of its broker decide. Or another replica has deleted the record before it
- `space`  after all faults, with calendars that are right, each replica deletes all records that are too old

Retention deletes whole segments. So a record stays as long as its segment has a younger one.
"""

from __future__ import annotations

import random
from math import inf
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.log.log import Log
from kraft_node.testing.transactions.clients import final_log
from kraft_node.testing.transactions.judge import Judge
from kraft_node.testing.transactions.ledger import Ledger, ReadSpan, SentBatch
from kraft_node.testing.transactions.producer import ProducerProcess
from kraft_node.testing.transactions.writer import PlainWriter
from kraft_node.testing.whole.retained import RetainedReader, RetentionOperator
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.records.batch import check_batch

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.machine import SimMachine

TOPIC: Final = "aged"
PARTITION: Final = (TOPIC, 0)
KEY: Final = "retention.ms"
UNLIMITED: Final = -1
RETENTIONS_MS: Final = (1_000, 3_000, 8_000, UNLIMITED)
SEGMENT_BYTES: Final = 600
PAUSE_MS: Final = 150.0
"""The longest pause of a writer."""
BACKDATED_SHARE, BACKDATED_MAX_MS = 0.3, 6_000
FREED_MAX_MS: Final = 40_000.0
"""Without a record that is too young, retention has deleted all records within this time."""


def topics(seed: int) -> dict[str, tuple[int, dict[str, str]]]:
    """The topic; the seed draws its first retention."""
    return {TOPIC: (1, {"internal.segment.bytes": str(SEGMENT_BYTES), KEY: str(_first_retention(seed))})}


def _first_retention(seed: int) -> int:
    return random.Random(f"retention.ms of {seed}").choice(RETENTIONS_MS)


class _AgedLedger(Ledger):
    """Also knows the timestamp of each record with a known offset."""

    def __init__(self, checker: Checker) -> None:
        super().__init__(checker)
        self.times: dict[int, int] = {}
        """By offset."""

    def acknowledged(self, batch: SentBatch, offset: int) -> None:
        """The batch is in the log from `offset` on."""
        super().acknowledged(batch, offset)
        self._note_times(offset, batch.values)

    def read(self, span: ReadSpan, last_stable: int, high_watermark: int) -> None:
        """A reader has moved on."""
        super().read(span, last_stable, high_watermark)
        for offset, value in span.values:
            self._note_times(offset, [value])

    def _note_times(self, offset: int, values: Any) -> None:
        for place, value in enumerate(values):
            batch = self.sent.get(value)
            if batch is not None and offset >= 0:
                self.times[offset + place] = check_batch(batch.raw).max_timestamp


class _Backdating(ProducerProcess):
    """Some of its records are of a time before, so the last record of a segment is not always its newest."""

    def timestamp(self) -> int:
        """The timestamp of the next record."""
        is_late = self._rng.random() < BACKDATED_SHARE
        return super().timestamp() - (self._rng.randrange(BACKDATED_MAX_MS) if is_late else 0)


class _AgedWriter(PlainWriter):
    """A producer of the topic."""

    pause_ms = PAUSE_MS
    process = _Backdating


class _Watched:
    """What was last seen of a machine's log, and the machine's clock since then."""

    def __init__(self) -> None:
        self.log: Log | None = None
        """None: it is not open, or no process runs."""
        self.start = 0
        self.latest_ms = 0
        """The latest time of the machine's calendar since the log was last seen."""
        self.retention_ms: float = inf
        """In the broker's metadata when the log was last seen."""


class AgeLaw:
    """The law `aged`: looks at the replicas after each event."""

    def __init__(
        self, checker: Checker, machines: list[SimMachine], times: dict[int, int], requested: set[int]
    ) -> None:
        """`times`: timestamps of records by offset; `requested`: all retentions so far."""
        self._checker = checker
        self._machines = [(machine, _Watched()) for machine in machines]
        self._times = times
        self._requested = requested
        self.deleted_to = 0
        """The records before it may be gone."""
        self.deletions = 0

    def look(self) -> None:
        """Look at all machines."""
        for machine, seen in self._machines:
            self._look_at(machine, seen)

    def _look_at(self, machine: SimMachine, seen: _Watched) -> None:
        now_ms = wall_ms(machine)
        node = machine.node
        storage = None if node is None else node.storage
        log = None if storage is None else storage.logs.entry(*PARTITION)
        if not isinstance(log, Log):
            seen.log, seen.latest_ms = None, max(seen.latest_ms, now_ms)
            return
        retention_ms = _retention_in(machine)
        if log.start_offset > self.deleted_to and (log is not seen.log or log.start_offset != seen.start):
            if log is seen.log:
                self._judge(machine, log.start_offset, now_ms, min(retention_ms, seen.retention_ms))
            else:
                # The process that deleted it may have died before this look, or the log was closed since.
                least = min((each for each in self._requested if each >= 0), default=inf)
                self._judge(machine, log.start_offset, max(seen.latest_ms, now_ms), min(retention_ms, least))
        seen.log, seen.start, seen.latest_ms, seen.retention_ms = log, log.start_offset, now_ms, retention_ms

    def _judge(self, machine: SimMachine, start: int, now_ms: int, retention_ms: float) -> None:
        for offset in range(self.deleted_to, start):
            written_ms = self._times.get(offset)
            if written_ms is not None and now_ms - written_ms <= retention_ms:
                text = f"{machine.name} begins at {start}: the record at {offset} was {now_ms - written_ms} ms old, "
                self._checker.broken("aged", PARTITION, f"{text}{KEY} is {retention_ms}")
                break
        self._checker.world.note(machine.name, f"has deleted {TOPIC} up to {start}, {KEY} {retention_ms}")
        self.deleted_to = start
        self.deletions += 1


def wall_ms(machine: SimMachine) -> int:
    """The calendar of a machine."""
    return START_WALL_MS + machine.host.wall_shift_ms + int(machine.world.now_ms * machine.host.rate)


def _retention_in(machine: SimMachine) -> float:
    """The retention in the metadata of a broker; infinite without one."""
    broker = None if machine.node is None else machine.node.broker
    configs = {} if broker is None else broker.image.configs.get((TOPIC_RESOURCE, TOPIC)) or {}
    found = int(configs.get(KEY, UNLIMITED))
    return inf if found < 0 else found


class AgedClients:
    """All clients of the topic."""

    def __init__(self, scenario: ClusterScenario) -> None:
        cluster, rng = scenario.cluster, random.Random(f"aged of {scenario.world.seed}")
        self._scenario = scenario
        self.ledger = _AgedLedger(scenario.checker)
        self.writers = [_AgedWriter(cluster, self.ledger, f"gw{number}", [PARTITION]) for number in range(2)]
        self.readers = [
            RetainedReader(cluster, self.ledger, f"gr{number}", [PARTITION], committed=bool(number))
            for number in range(rng.randint(1, 2))
        ]
        self.retention = RetentionOperator(scenario, "age", rng, TOPIC, KEY, RETENTIONS_MS)
        self.retention.requested.add(_first_retention(scenario.world.seed))
        self.law = AgeLaw(scenario.checker, cluster.brokers, self.ledger.times, self.retention.requested)
        self._before, scenario.world.watcher = scenario.world.watcher, self._watch

    @property
    def workers(self) -> list[Any]:
        """All of them."""
        return [*self.writers, *self.readers, self.retention]

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return sum(writer.acknowledged for writer in self.writers)

    def _watch(self) -> None:
        self.law.look()
        if self._before is not None:
            self._before()

    def judge(self) -> None:
        """Judge what is left, then wait until it is deleted. The cluster must be at rest."""
        scenario, checker = self._scenario, self._scenario.checker
        log = final_log(scenario.cluster.brokers, PARTITION)
        Judge(self.ledger, {PARTITION: log}).judge()
        if self._newest_retention() != RETENTIONS_MS[0]:  # an earlier request without an answer took effect later
            scenario._finish(scenario._script("age", self.retention.restore()))
        scenario.world.note("world", "the calendars of all machines are set right")
        lag_ms = 0.0
        for machine in scenario.cluster.brokers:
            machine.host.wall_shift_ms = 0
            lag_ms = max(lag_ms, (START_WALL_MS + scenario.world.now_ms - wall_ms(machine)) / machine.host.rate)
        scenario.world.run(lambda: not any(self._left().values()) or bool(checker.findings), FREED_MAX_MS + lag_ms)
        left = self._left()
        if any(left.values()) and self._newest_retention() == RETENTIONS_MS[0]:
            text = f"{KEY} of {RETENTIONS_MS[0]} has left {left} records, all older by {FREED_MAX_MS / 1000:.0f} s"
            checker.broken("space", PARTITION, text)

    def _newest_retention(self) -> float:
        return min(map(_retention_in, self._scenario.cluster.brokers))

    def _left(self) -> dict[str, int]:
        """The records of each replica, by machine."""
        found = {}
        for machine in self._scenario.cluster.brokers:
            node = machine.node
            opened = () if node is None or node.broker is None else node.broker.replicas.opened()
            for replica in opened:
                if (replica.topic, replica.index) == PARTITION:
                    found[machine.name] = replica.log.end_offset - replica.log.start_offset
        return found


__all__ = ["TOPIC", "AgeLaw", "AgedClients", "topics", "wall_ms"]
