"""One seeded run of a cluster with transactions: producers, applications that copy, and readers, under all faults.

It is a `ClusterScenario` with other clients. The seed also draws the transaction.version, which an operator may change
during the run, and the time-outs. Once the faults are over, all transactions must end: by their producers, or by their
time-outs. Then the logs are read and judged (`judge`, `node_laws`).
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import TRANSACTION_VERSION
from kraft_node.testing.cluster_scenario import OFFSETS, ClusterScenario
from kraft_node.testing.lost_appends import AppendRefusals
from kraft_node.testing.script import Script
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
from kraft_node.testing.workloads.reassignments import ReassignmentOperator
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_node.testing.workloads.voters import VotersOperator
from kraft_protocol.records.batch import iter_headers, iter_records

if TYPE_CHECKING:
    from kraft_node.testing.world import World

STATE: Final = "__transaction_state"
SOURCE, COMPACTED, ERASED, TARGET = "t", "k", "d", "out"
EVENTS: Final = 2_500
"""The number of events during which faults begin: transactions take longer than single batches."""
VERSIONS: Final = (2, 2, 2, 1, 0)
CHANGED_SHARE, SMALL_SEGMENT_SHARE, EXPIRED_SHARE, ERASED_SHARE = 0.3, 0.5, 0.15, 0.3
REFUSED_SHARE: Final = 0.3
"""Share of the seeds in which appends of coordinators fail now and then."""
WARM_SHARE, WARM_BATCHES, WARM_MAX_MS = 0.7, 10, 5_000.0
"""In this share of the seeds the faults begin after so many batches: the internal topics exist by then."""
ENDS_MAX_MS: Final = 90_000.0
"""After all faults, and with all producers gone, every transaction has ended within this time."""
READ_BYTES: Final = 4_000
PAUSES_MS: Final = (400.0, 4000.0, 7000.0)
"""Pauses of members of the copying group; the longer ones outlast a session."""


class TransactionScenario(ClusterScenario):
    """A cluster and clients that use transactions."""

    kind = "transactions"
    compacted = frozenset((OFFSETS, STATE, COMPACTED))

    def __init__(self, world: World, story: Any) -> None:
        super().__init__(world, story)
        rng = random.Random(f"topics of {world.seed}")
        small = {"internal.segment.bytes": str(rng.choice((400, 1200)))} if rng.random() < SMALL_SEGMENT_SHARE else {}
        compacted = {"cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0", "internal.segment.bytes": "1000",
                     "delete.retention.ms": str(rng.choice((0, 1000, 86_400_000)))}  # fmt: skip
        self.topics = {SOURCE: (2, small), "u": (1, {}), COMPACTED: (1, compacted), TARGET: (2, small)}
        self._erases = rng.random() < ERASED_SHARE
        if self._erases:
            self.topics[ERASED] = (1, small)
        self.checker.policies.clear()
        self.ledger = Ledger(self.checker)
        self.troubles.events = EVENTS
        self.writers: list[TransactionWriter] = []
        self.plain: list[PlainWriter] = []
        self.copiers: list[SoleCopier] = []
        self.group: list[GroupCopier] = []
        self.readers: list[GroupReader | GrouplessReader] = []

    def more_overrides(self, seed: int) -> dict[str, str]:
        """Intervals and limits of the transaction coordinator, drawn by a generator of its own."""
        rng = random.Random(f"transactions of {seed}")
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

    def features(self, seed: int) -> dict[str, int]:
        """The transaction.version of the formatted disks, from VERSIONS."""
        return {TRANSACTION_VERSION: random.Random(f"transaction.version of {seed}").choice(VERSIONS)}

    @property
    def acknowledged(self) -> int:
        """Batches acknowledged to all kinds of producers of this scenario."""
        producers: list[Any] = [*self.writers, *self.plain, *self.copiers, *self.group]
        return sum(one.acknowledged for one in producers)

    @property
    def workers(self) -> list[Any]:
        """Writers, copiers, readers and operators; the clients of `ClusterScenario` are absent."""
        return [*self.writers, *self.plain, *self.copiers, *self.group, *self.readers, *self.operators]

    def _start_clients(self) -> None:
        world, cluster, ledger = self.world, self.cluster, self.ledger
        rng = random.Random(f"clients of {world.seed}")
        sources = [(topic, index) for topic in (SOURCE, "u") for index in range(self.topics[topic][0])]
        target = [(TARGET, index) for index in range(self.topics[TARGET][0])]
        written = [*sources, (COMPACTED, 0), *[(ERASED, 0)] * self._erases]
        counts = {topic: self.topics[topic][0] for topic in (SOURCE, "u")}
        timeouts = (800, 3000, 10_000)
        for number in range(rng.randint(1, 3)):
            abandons = rng.random() < 0.5
            writer = TransactionWriter(cluster, ledger, f"w{number}", written, rng.choice(timeouts), abandons=abandons)
            self.writers.append(writer)
        if rng.random() < 0.5:
            self.plain.append(PlainWriter(cluster, ledger, "plain", written))
        self.copiers.append(SoleCopier(cluster, ledger, "sole", "sole", sources, target, rng.choice(timeouts)))
        for number in range(rng.randint(0, 2)):
            timeout_ms = rng.choice(timeouts)
            self.group.append(GroupCopier(cluster, ledger, f"g{number}", "shared", counts, target, timeout_ms))
        self.readers.append(GrouplessReader(cluster, ledger, "all", [*written, *target], committed=False))
        self.readers.append(GrouplessReader(cluster, ledger, "committed", [*written, *target], committed=True))
        if rng.random() < 0.5:
            sessions = rng.random() < 0.5
            self.readers.append(GroupReader(cluster, ledger, "reader", "readers", {TARGET: 2}, sessions=sessions))
        if self._erases:
            self.operators.append(Eraser(cluster, ledger, "eraser", (ERASED, 0)))  # type: ignore[arg-type]
        if rng.random() < CHANGED_SHARE:
            changes = random.Random(f"changes of {world.seed}")
            self.operators.append(TransactionVersionOperator(cluster, ledger, "v1", changes))
        if rng.random() < 0.4:
            self.operators.append(ReassignmentOperator(cluster, "o0", [*self.partitions, (STATE, 0), (OFFSETS, 0)]))
        if cluster.dynamic:
            self.operators.append(VotersOperator(cluster, "v0"))
        for worker in self.workers:
            self.scripts.append(Script(world, worker.session.name, worker.run(), worker.session.host))
        for copier in self.group:
            world.at(rng.random() * 3000, self._pause, copier, rng)
        AppendRefusals(self, lambda broker: [broker.transactions.runtime, broker.groups.runtime], REFUSED_SHARE)
        if rng.random() < WARM_SHARE:
            self.world.run(lambda: bool(self.checker.findings) or self.acknowledged >= WARM_BATCHES, WARM_MAX_MS)

    def _pause(self, copier: GroupCopier, rng: random.Random) -> None:
        """Pause a member of the copying group now and then: another member takes its partitions."""
        if copier.stopping:
            return
        pause_ms = rng.choice(PAUSES_MS)
        copier.session.note(f"is paused for {pause_ms:.0f} ms")
        copier.session.host.paused_until_ms = self.world.now_ms + pause_ms
        self.world.at(pause_ms + rng.random() * 6000, self._pause, copier, rng)

    # -- the end

    def _audit(self) -> None:
        if "jump" in self.troubles.done:
            # By a calendar an hour ahead or behind, no transaction ends in time: successors abort what is open.
            for number, writer in enumerate(self.writers):
                self._finish(self._script("cleaner", self._abort_open(writer.transactional_id, f"cleaner{number}")))
            for number, member in enumerate(self.group):
                self._finish(self._script("cleaner", self._abort_open(member.transactional_id, f"cleaner{number + 5}")))
        self._until_ended()
        for copier in self.copiers:
            self._finish(self._script("copier", copier.finish()))
        self._until_ended()
        for kind in (TransactionalFetcher, CommittedFetcher):
            self._finish(self._script("auditor", self._read_all(kind)))
        self._until_settled()
        logs = {partition: self._final_log(partition) for partition in self.partitions}
        judge = Judge(self.ledger, logs)
        judge.judge()
        groups = ["sole", "shared"] if self.group else ["sole"]
        for group in groups:
            found: dict[tuple[str, int], int] = {}
            self._finish(self._script("auditor", self._read_offsets(group, found)))
            judge.judge_copies(group, found)
        judge_aborted(self.checker, self.cluster.brokers, logs)

    async def _abort_open(self, transactional_id: str, name: str) -> None:
        session = ClusterSession(self.cluster, name)
        await ProducerProcess(session, self.ledger, transactional_id, 60_000, by_id=False).initialize()

    def _until_ended(self) -> None:
        brokers = self.cluster.brokers
        ended = self.world.run(
            lambda: bool(self.checker.findings) or (self.world.events % 16 == 0 and unfinished(brokers) is None),
            ENDS_MAX_MS,
        )
        why = unfinished(brokers)
        if not ended and why is not None:
            self.checker.broken("hanging", "cluster", f"{ENDS_MAX_MS / 1000:.0f} s after all producers {why}")
        self._stop_if_broken()

    async def _read_all(self, kind: type[TransactionalFetcher]) -> None:
        session = ClusterSession(self.cluster, "auditor")
        fetcher = kind(session, self.checker, sessions=False)
        fetcher.ledger = self.ledger
        fetcher.assign(dict.fromkeys(self.partitions, 0))
        while fetcher.high_watermarks != fetcher.positions:
            await fetcher.fetch(max_wait_ms=0, max_bytes=READ_BYTES)

    async def _read_offsets(self, group: str, found: dict[tuple[str, int], int]) -> None:
        session = ClusterSession(self.cluster, "auditor")
        sources = [(topic, index) for topic in (SOURCE, "u") for index in range(self.topics[topic][0])]
        while not found:
            coordinator = await session.coordinator(group)
            found.update(await fetch_committed(session, coordinator, group, sources) or {})
            if not found:
                await session.sleep(PAUSE_MS)

    def _final_log(self, partition: tuple[str, int]) -> FinalLog:
        """The log of the partition's leader."""
        for machine in self.cluster.brokers:
            assert machine.node is not None
            assert machine.node.broker is not None
            for replica in machine.node.broker.replicas.opened():
                if (replica.topic, replica.index) == partition and replica.is_leader:
                    return FinalLog(
                        _entries(replica.log), replica.log.start_offset, is_compacted=partition[0] == COMPACTED
                    )
        raise AssertionError(f"{partition} has no leader")


def _entries(log: Any) -> list[LogEntry]:
    entries = []
    position = log.start_offset
    while position < log.high_watermark:
        found = log.read(position, 1 << 20, limit_offset=log.high_watermark)
        raw = memoryview(found.records if isinstance(found.records, bytes) else found.records.read())
        before = position
        for header in iter_headers(raw):
            marker = marker_of(raw, header) if header.is_control else None
            for record in iter_records(raw, header):
                own = (record.offset, header.producer_id, header.producer_epoch, header.is_transactional)
                value = None if header.is_control else (record.value or b"").decode()
                entries.append(LogEntry(*own, marker, value))
            position = header.last_offset + 1
        assert position > before, f"the log cannot be read at {before}"
    return entries
