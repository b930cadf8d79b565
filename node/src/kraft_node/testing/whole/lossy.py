"""Clients of a topic with unclean elections (`unclean.leader.election.enable`), and the laws that still hold.

Acknowledged records may be lost, and a high watermark may go back. Still:

- `phantom`    a record that is read or in a log was sent
- `duplicate`  a record that its producer sent once is in the log once
- `reordered`  leader epochs of a log's batches never fall
- `beyond`     no record at or beyond the high watermark is served
- `same`       after all faults, all replicas hold the same records at the same offsets
- `lost`       without an unclean election, records acknowledged with acks=all are there
- `alive`      after all faults, the topic has a leader, all replicas are in sync, and clients finish
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.partitions import NO_LEADER
from kraft_node.testing.replica_laws import batches_in
from kraft_node.testing.whole.operators import ChangesOperator
from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.producer import BY_NAME, RETRIABLE
from kraft_node.testing.workloads.session import BOOTSTRAP, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch, iter_records
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraft_node.metadata.partitions import PartitionState
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.replica_laws import ReplicaLaws

TOPIC: Final = "lossy"
PARTITIONS: Final = 2
CONFIGS: Final = {"unclean.leader.election.enable": "true", "min.insync.replicas": "1"}
ACKS_ALL: Final = -1
RECORDS_MAX: Final = 4
ELECT, UNCLEAN = 2, 1
"""API version, and type of election."""
ELECTS_MS: Final = 5_000.0

Partition = tuple[str, int]
Entry = tuple[int, str, int]
"""Offset, value and leader epoch of a record."""


class LossyLedger:
    """What was sent to the topic."""

    def __init__(self, checker: Checker) -> None:
        self.checker = checker
        self.sent: dict[str, Partition] = {}
        self.acknowledged: dict[Partition, dict[int, str]] = {}
        """By partition: records acknowledged with acks=all, by offset."""

    def origin(self, partition: Partition, value: str, where: str) -> None:
        """Judge where a record comes from."""
        if self.sent.get(value) != partition:
            self.checker.broken("phantom", partition, f"{value!r} {where} was never sent here")


class LossyWriter:
    """Sends each batch once, with any acks."""

    def __init__(self, cluster: SimCluster, ledger: LossyLedger, name: str, rng: random.Random) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self.acknowledged = 0
        self._ledger = ledger
        self._rng = rng
        self._number = 0

    async def run(self) -> None:
        """Send batches until stopped."""
        while not self.stopping:
            await self._send((TOPIC, self._rng.randrange(PARTITIONS)), self._rng.choice((0, 1, ACKS_ALL, ACKS_ALL)))
            await self.session.sleep(self._rng.random() * 200)

    async def _send(self, partition: Partition, acks: int) -> None:
        session = self.session
        leader = await session.leader(*partition)
        values = [f"{session.name}:{self._number + place}" for place in range(self._rng.randint(1, RECORDS_MAX))]
        self._number += len(values)
        self._ledger.sent.update(dict.fromkeys(values, partition))
        timestamp = START_WALL_MS + int(session.world.now_ms)
        raw = build_batch([(b"k", value.encode()) for value in values], timestamp=timestamp)
        data = m.ProduceRequest.PartitionProduceData(index=partition[1], records=raw)
        topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
        request = m.ProduceRequest(acks=acks, timeout_ms=2000, topic_data=[topic])
        if not acks:
            session.send_one_way(leader, ApiKey.PRODUCE, BY_NAME, request)
            return
        answer = await session.request(leader, ApiKey.PRODUCE, BY_NAME, request)
        if answer is None:
            session.forget_leader(*partition)
            return
        row = answer.responses[0].partition_responses[0]
        if row.error_code:
            session.expect(row.error_code, *sorted(RETRIABLE), what=f"produce to {TOPIC}")
            session.forget_leader(*partition)
            return
        self.acknowledged += 1
        if acks == ACKS_ALL and row.base_offset >= 0:
            known = self._ledger.acknowledged.setdefault(partition, {})
            known.update((row.base_offset + place, value) for place, value in enumerate(values))


class _LossyFetcher(PartitionReader):
    """Begins again at 0 if its position is gone: an unclean leader may have less."""

    ledger: LossyLedger

    def _begin_again(self, partition: Partition, position: int) -> int:  # noqa: ARG002
        return 0

    def _take_records(self, partition: Partition, data: Any, asked: int, leader: int) -> None:  # noqa: ARG002
        position = self.positions[partition]
        for header in self._sound(partition, data.records or b"", leader):
            for record in iter_records(data.records, header):
                if record.offset < position:
                    continue
                if record.offset >= data.high_watermark:
                    text = f"offset {record.offset} was served, the high watermark is {data.high_watermark}"
                    self.ledger.checker.broken("beyond", partition, text)
                value = (record.value or b"").decode()
                self.ledger.origin(partition, value, f"read by {self._session.name} at {record.offset}")
                self.ledger.checker.records_read += 1
                position = record.offset + 1
        self.positions[partition] = position


class LossyReader:
    """Reads all partitions until it is stopped."""

    def __init__(self, cluster: SimCluster, ledger: LossyLedger, name: str, rng: random.Random) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._rng = rng
        self._fetcher = _LossyFetcher(self.session, ledger.checker, sessions=rng.random() < 0.5)
        self._fetcher.ledger = ledger

    async def run(self) -> None:
        """Fetch until stopped."""
        self._fetcher.assign({(TOPIC, index): 0 for index in range(PARTITIONS)})
        while not self.stopping:
            await self._fetcher.fetch(max_wait_ms=self._rng.choice((0, 200)))
            await self.session.sleep(self._rng.random() * 300)


class UncleanOperator(ChangesOperator):
    """Requests unclean elections; the controllers refuse those that no partition needs."""

    async def change(self) -> None:
        """Elect any live replica of both partitions."""
        row = m.ElectLeadersRequest.TopicPartitions(topic=TOPIC, partitions=list(range(PARTITIONS)))
        request = m.ElectLeadersRequest(election_type=UNCLEAN, topic_partitions=[row], timeout_ms=2000)
        answer = await self.session.request(BOOTSTRAP, ApiKey.ELECT_LEADERS, ELECT, request)
        self.session.note(f"elects uncleanly: {'no answer' if answer is None else ErrorCode(answer.error_code).name}")


class LossyClients:
    """All clients of the topic."""

    def __init__(self, cluster: SimCluster, checker: Checker, laws: ReplicaLaws) -> None:
        rng = random.Random(f"lossy of {cluster.world.seed}")
        self.ledger = LossyLedger(checker)
        self.writers = [LossyWriter(cluster, self.ledger, f"lw{number}", rng) for number in range(rng.randint(1, 2))]
        self.readers = [LossyReader(cluster, self.ledger, "lr", rng)]
        self.operators = [UncleanOperator(cluster, "unclean", rng, ELECTS_MS)]
        self._cluster = cluster
        self._offset = -1
        self._states: dict[int, PartitionState] = {}
        """The newest state of each partition."""
        self._uncleanly_led: set[int] = set()
        """Partitions that may have had an unclean leader."""
        laws.unclean = frozenset((TOPIC,))
        look, cluster.world.watcher = cluster.world.watcher, self._watch
        self._look = look

    @property
    def workers(self) -> list[Any]:
        """All of them."""
        return [*self.writers, *self.readers, *self.operators]

    def _watch(self) -> None:
        """Follow the leaders of the topic after each event; two changes in one event count as an unclean election."""
        for machine in self._cluster.controllers:
            image = None if machine.node is None or machine.node.raft is None else machine.node.raft.image
            topic = None if image is None or image.offset <= self._offset else image.topics.by_name(TOPIC)
            if image is None or topic is None:
                continue
            self._offset = image.offset
            for index, state in topic.partitions():
                before = self._states.get(index, state)
                is_next = state.partition_epoch <= before.partition_epoch + 1
                in_sync = state.leader in (NO_LEADER, before.leader, *before.isr, *before.elr)
                if not is_next or not in_sync or state.leader_recovering:
                    self._uncleanly_led.add(index)
                self._states[index] = state
        if self._look is not None:
            self._look()

    def judge(self) -> None:
        """Judge the final logs of all replicas. The cluster must be at rest."""
        for index in range(PARTITIONS):
            self._judge_partition((TOPIC, index))

    def _judge_partition(self, partition: Partition) -> None:
        checker, logs = self.ledger.checker, self._logs(partition)
        first_name, first = next(iter(logs.items()))
        for name, entries in logs.items():
            if entries != first:
                extra = sorted(set(entries) ^ set(first))[:4]
                checker.broken("same", partition, f"{first_name} and {name} hold different records: {extra}")
        seen: set[str] = set()
        epoch = -1
        for offset, value, leader_epoch in first:
            self.ledger.origin(partition, value, f"at offset {offset}")
            if value in seen:
                checker.broken("duplicate", partition, f"{value!r} is there again at offset {offset}")
            seen.add(value)
            if leader_epoch < epoch:
                checker.broken("reordered", partition, f"epoch {leader_epoch} follows {epoch} at offset {offset}")
            epoch = leader_epoch
        if partition[1] in self._uncleanly_led:
            return
        there = {offset: value for offset, value, _ in first}
        for offset, value in self.ledger.acknowledged.get(partition, {}).items():
            if there.get(offset) != value:
                text = (
                    f"{value!r} was acknowledged at {offset}, there is {there.get(offset)!r}; no election was unclean"
                )
                checker.broken("lost", partition, text)

    def _logs(self, partition: Partition) -> dict[str, list[Entry]]:
        """The records of each replica, by machine."""
        found: dict[str, list[Entry]] = {}
        for machine in self._cluster.brokers:
            opened = (
                () if machine.node is None or machine.node.broker is None else machine.node.broker.replicas.opened()
            )
            for replica in opened:
                if (replica.topic, replica.index) == partition:
                    found[machine.name] = _entries(replica.log)
        return found


def _entries(log: Any) -> list[Entry]:
    entries: list[Entry] = []
    reached = log.start_offset
    for raw, header in batches_in(log, reached, log.end_offset):
        entries += [
            (record.offset, (record.value or b"").decode(), header.partition_leader_epoch)
            for record in iter_records(raw, header)
        ]
        reached = header.last_offset + 1
    assert reached >= log.end_offset, f"the log cannot be read at {reached}"
    return entries


def topics(rng: random.Random) -> dict[str, tuple[int, dict[str, str]]]:
    """The topic, with small segments in some seeds."""
    small: dict[str, str] = {"internal.segment.bytes": "500"} if rng.random() < 0.5 else {}
    return {TOPIC: (PARTITIONS, {**CONFIGS, **small})}


def partitions() -> Sequence[Partition]:
    """The partitions of the topic."""
    return [(TOPIC, index) for index in range(PARTITIONS)]


__all__ = ["TOPIC", "LossyClients", "partitions", "topics"]
