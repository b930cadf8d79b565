"""The clients of transactions in a cluster, and the judgement at the end: writers, copiers, readers, an eraser."""

from __future__ import annotations

import random
from collections.abc import Coroutine
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.replica_laws import batches_in
from kraft_node.testing.transactions.copier import GroupCopier, SoleCopier
from kraft_node.testing.transactions.eraser import Eraser
from kraft_node.testing.transactions.judge import FinalLog, Judge, LogEntry
from kraft_node.testing.transactions.ledger import Ledger
from kraft_node.testing.transactions.node_laws import judge_aborted, unfinished
from kraft_node.testing.transactions.producer import ProducerProcess
from kraft_node.testing.transactions.reading import (
    CommittedFetcher,
    GrouplessReader,
    GroupReader,
    TransactionalFetcher,
    marker_of,
)
from kraft_node.testing.transactions.versions import TransactionVersionOperator
from kraft_node.testing.transactions.writer import PlainWriter, TransactionWriter
from kraft_node.testing.workloads.consumer import fetch_committed
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.records.batch import iter_records

if TYPE_CHECKING:
    from kraft_node.testing.cluster_scenario import ClusterScenario
    from kraft_node.testing.machine import SimMachine

STATE: Final = "__transaction_state"
SOURCE, OTHER, COMPACTED, ERASED, TARGET = "t", "u", "k", "d", "out"
VERSIONS: Final = (2, 2, 2, 1, 0)
CHANGED_SHARE, SMALL_SEGMENT_SHARE, EXPIRED_SHARE, ERASED_SHARE = 0.3, 0.5, 0.15, 0.3
TIMEOUTS_MS: Final = (800, 3000, 10_000)
ENDS_MAX_MS: Final = 90_000.0
"""After all faults, and with all producers gone, every transaction has ended within this time."""
READ_BYTES: Final = 4_000
PAUSES_MS: Final = (400.0, 4000.0, 7000.0)
"""Pauses of members of the copying group; the longer ones outlast a session."""


def transaction_settings(rng: random.Random) -> dict[str, str]:
    """Intervals and limits of the transaction coordinator."""
    expired = rng.random() < EXPIRED_SHARE
    return {
        "transaction.state.log.replication.factor": "3",
        "transaction.state.log.min.isr": "2",
        "transaction.state.log.num.partitions": str(rng.choice((1, 3))),
        "transaction.abort.timed.out.transaction.cleanup.interval.ms": str(rng.choice((200, 1000))),
        "transactional.id.expiration.ms": str(rng.choice((1000, 5000)) if expired else 604_800_000),
        "transaction.remove.expired.transaction.cleanup.interval.ms": "700",
        "request.timeout.ms": str(rng.choice((1500, 30_000))),
        "log.cleaner.backoff.ms": "500",
        "group.coordinator.append.linger.ms": str(rng.choice((-1, 0, 5))),
    }


class TransactionClients:
    """The clients of transactions of one run, and their topics."""

    def __init__(self, scenario: ClusterScenario, prefix: str = "") -> None:
        """`prefix`: of the names of topics."""
        self._scenario = scenario
        self._checker = scenario.checker
        rng = random.Random(f"topics of {scenario.world.seed}")
        small = {"internal.segment.bytes": str(rng.choice((400, 1200)))} if rng.random() < SMALL_SEGMENT_SHARE else {}
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "1000",
                     "delete.retention.ms": str(rng.choice((0, 1000, 86_400_000)))}  # fmt: skip
        self._source, self._other, self._target = f"{prefix}{SOURCE}", f"{prefix}{OTHER}", f"{prefix}{TARGET}"
        self._compacted, self._erased = f"{prefix}{COMPACTED}", f"{prefix}{ERASED}"
        self.topics: dict[str, tuple[int, dict[str, str]]] = {
            self._source: (2, small), self._other: (1, {}), self._compacted: (1, compacted), self._target: (2, small)
        }  # fmt: skip
        """Partitions and configuration of each topic."""
        self._erases = rng.random() < ERASED_SHARE
        if self._erases:
            self.topics[self._erased] = (1, small)
        self.ledger = Ledger(scenario.checker)
        self.writers: list[TransactionWriter] = []
        self.plain: list[PlainWriter] = []
        self.copiers: list[SoleCopier] = []
        self.group: list[GroupCopier] = []
        self.readers: list[GroupReader | GrouplessReader] = []
        self.operators: list[Eraser | TransactionVersionOperator] = []

    @property
    def partitions(self) -> list[tuple[str, int]]:
        """All partitions of the topics."""
        return [(topic, index) for topic, (count, _) in self.topics.items() for index in range(count)]

    @property
    def acknowledged(self) -> int:
        """Batches acknowledged to all kinds of producers."""
        producers: list[Any] = [*self.writers, *self.plain, *self.copiers, *self.group]
        return sum(one.acknowledged for one in producers)

    @property
    def workers(self) -> list[Any]:
        """Writers, copiers and readers, without the operators."""
        return [*self.writers, *self.plain, *self.copiers, *self.group, *self.readers]

    def make(self, rng: random.Random) -> None:
        """Make all clients."""
        cluster, ledger = self._scenario.cluster, self.ledger
        sources, target = self._of(self._source, self._other), self._of(self._target)
        written = [*sources, (self._compacted, 0), *[(self._erased, 0)] * self._erases]
        counts = {topic: self.topics[topic][0] for topic in (self._source, self._other)}
        for number in range(rng.randint(1, 3)):
            abandons = rng.random() < 0.5
            timeout_ms = rng.choice(TIMEOUTS_MS)
            self.writers.append(
                TransactionWriter(cluster, ledger, f"w{number}", written, timeout_ms, abandons=abandons)
            )
        if rng.random() < 0.5:
            self.plain.append(PlainWriter(cluster, ledger, "plain", written))
        self.copiers.append(SoleCopier(cluster, ledger, "sole", "sole", sources, target, rng.choice(TIMEOUTS_MS)))
        for number in range(rng.randint(0, 2)):
            timeout_ms = rng.choice(TIMEOUTS_MS)
            self.group.append(GroupCopier(cluster, ledger, f"g{number}", "shared", counts, target, timeout_ms))
        self.readers.append(GrouplessReader(cluster, ledger, "all", [*written, *target], committed=False))
        self.readers.append(GrouplessReader(cluster, ledger, "committed", [*written, *target], committed=True))
        if rng.random() < 0.5:
            sessions = rng.random() < 0.5
            self.readers.append(GroupReader(cluster, ledger, "reader", "readers", {self._target: 2}, sessions=sessions))
        if self._erases:
            self.operators.append(Eraser(cluster, ledger, "eraser", (self._erased, 0)))
        if rng.random() < CHANGED_SHARE:
            changes = random.Random(f"changes of {self._scenario.world.seed}")
            self.operators.append(TransactionVersionOperator(cluster, ledger, "v1", changes))

    def _of(self, *topics: str) -> list[tuple[str, int]]:
        return [(topic, index) for topic in topics for index in range(self.topics[topic][0])]

    def pause_some(self, rng: random.Random) -> None:
        """Pause each member of the copying group now and then."""
        for copier in self.group:
            self._scenario.world.at(rng.random() * 3000, self._pause, copier, rng)

    def _pause(self, copier: GroupCopier, rng: random.Random) -> None:
        """Pause a member of the copying group: another member takes its partitions."""
        world = self._scenario.world
        if copier.stopping:
            return
        pause_ms = rng.choice(PAUSES_MS)
        copier.session.note(f"is paused for {pause_ms:.0f} ms")
        copier.session.pause(pause_ms)
        world.at(pause_ms + rng.random() * 6000, self._pause, copier, rng)

    # -- the end

    def audit(self) -> None:
        """Wait until all transactions have ended, read all logs, and judge them."""
        if "jump" in self._scenario.troubles.done:
            # By a calendar an hour ahead or behind, no transaction ends in time: successors abort what is open.
            fenced = [one.transactional_id for one in self.writers]
            fenced += [one.transactional_id for one in self.group]
            names = [f"cleaner{number}" for number in (*range(len(self.writers)), *range(5, 5 + len(self.group)))]
            for transactional_id, name in zip(fenced, names, strict=True):
                self._finish("cleaner", self._abort_open(transactional_id, name))
        self._until_ended()
        for copier in self.copiers:
            self._finish("copier", copier.finish())
        self._until_ended()
        for kind in (TransactionalFetcher, CommittedFetcher):
            self._finish("auditor", self._read_all(kind))
        self._scenario._until_settled()
        brokers = self._scenario.cluster.brokers
        logs = {
            partition: final_log(brokers, partition, is_compacted=partition[0] == self._compacted)
            for partition in self.partitions
        }
        judge = Judge(self.ledger, logs)
        judge.judge()
        groups = ["sole", "shared"] if self.group else ["sole"]
        for group in groups:
            found: dict[tuple[str, int], int] = {}
            self._finish("auditor", self._read_offsets(group, found))
            judge.judge_copies(group, found)
        judge_aborted(self._checker, brokers, logs)

    def _finish(self, name: str, work: Coroutine[Any, Any, None]) -> None:
        self._scenario._finish(self._scenario._script(name, work))

    async def _abort_open(self, transactional_id: str, name: str) -> None:
        session = ClusterSession(self._scenario.cluster, name)
        await ProducerProcess(session, self.ledger, transactional_id, 60_000, by_id=False).initialize()

    def _until_ended(self) -> None:
        brokers = self._scenario.cluster.brokers
        ended = self._scenario.world.run(
            lambda: (
                bool(self._checker.findings) or (self._scenario.world.events % 16 == 0 and unfinished(brokers) is None)
            ),
            ENDS_MAX_MS,
        )
        why = unfinished(brokers)
        if not ended and why is not None:
            self._checker.broken("hanging", "cluster", f"{ENDS_MAX_MS / 1000:.0f} s after all producers {why}")
        self._scenario._stop_if_broken()

    async def _read_all(self, kind: type[TransactionalFetcher]) -> None:
        session = ClusterSession(self._scenario.cluster, "auditor")
        fetcher = kind(session, self._checker, sessions=False)
        fetcher.ledger = self.ledger
        fetcher.assign(dict.fromkeys(self.partitions, 0))
        while fetcher.high_watermarks != fetcher.positions:
            await fetcher.fetch(max_wait_ms=0, max_bytes=READ_BYTES)

    async def _read_offsets(self, group: str, found: dict[tuple[str, int], int]) -> None:
        session = ClusterSession(self._scenario.cluster, "auditor")
        sources = [(topic, index) for topic in (self._source, self._other) for index in range(self.topics[topic][0])]
        while not found:
            coordinator = await session.coordinator(group)
            found.update(await fetch_committed(session, coordinator, group, sources) or {})
            if not found:
                await session.sleep(PAUSE_MS)


def final_log(machines: list[SimMachine], partition: tuple[str, int], *, is_compacted: bool = False) -> FinalLog:
    """The log of the partition's leader, once the cluster is at rest."""
    for machine in machines:
        assert machine.node is not None
        assert machine.node.broker is not None
        for replica in machine.node.broker.replicas.opened():
            if (replica.topic, replica.index) == partition and replica.is_leader:
                return FinalLog(_entries(replica.log), replica.log.start_offset, is_compacted=is_compacted)
    raise AssertionError(f"{partition} has no leader")


def _entries(log: Any) -> list[LogEntry]:
    entries, end, reached = [], log.high_watermark, log.start_offset
    for raw, header in batches_in(log, reached, end):
        marker = marker_of(raw, header) if header.is_control else None
        for record in iter_records(raw, header):
            own = (record.offset, header.producer_id, header.producer_epoch, header.is_transactional)
            value = None if header.is_control else (record.value or b"").decode()
            entries.append(LogEntry(*own, marker, value))
        reached = header.last_offset + 1
    assert reached >= end, f"the log cannot be read at {reached}"
    return entries
