"""Clients of a topic with a small retention, whose records an administrator also deletes (DeleteRecords).

All laws of transactional logs hold for what is left (`transactions.judge`). Further laws:

- `retained`  retention leaves as many bytes as the smallest `retention.bytes`, unless nothing was deleted. It holds
  without DeleteRecords. One segment is tolerated: an end that was truncated after a deletion
- `space`     after all faults, retention leaves no more than the last acknowledged `retention.bytes` and two segments
"""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.transactions.clients import final_log
from kraft_node.testing.transactions.eraser import Eraser
from kraft_node.testing.transactions.judge import Judge
from kraft_node.testing.transactions.ledger import Ledger
from kraft_node.testing.transactions.reading import CommittedFetcher, GrouplessReader, TransactionalFetcher
from kraft_node.testing.transactions.writer import PlainWriter
from kraft_node.testing.whole.operators import ChangesOperator
from kraft_node.testing.workloads.session import PAUSE_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraft_node.testing.cluster_scenario import ClusterScenario

TOPIC: Final = "kept"
SEGMENT_BYTES: Final = 600
RETENTIONS: Final = (2_400, 4_000, 9_000)
BATCH_MAX: Final = 400
"""A batch is smaller: a segment may exceed its limit by so much."""
ALTER: Final = 1
LIST_OFFSETS, EARLIEST = 7, -2
CHANGES_MS: Final = 3_000.0
FREED_MAX_MS: Final = 40_000.0
ERASED_SHARE: Final = 0.5
KEYS: Final = {"log.retention.check.interval.ms": "700", "log.initial.task.delay.ms": "500"}
"""Of nodes with this topic."""

Partition = tuple[str, int]


def topics() -> dict[str, tuple[int, dict[str, str]]]:
    """The topic."""
    configs = {"internal.segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(RETENTIONS[0])}
    return {TOPIC: (1, configs)}


class _Restarting:
    """Mixed into a fetcher: asks the leader where the log begins after a position that is out of range."""

    positions: dict[Partition, int]
    _session: Any
    _gone: set[Partition]

    def _begin_again(self, partition: Partition, position: int) -> int:
        if not hasattr(self, "_gone"):
            self._gone = set()
        self._gone.add(partition)
        return position

    async def fetch(self, *, max_wait_ms: int, max_bytes: int = 1 << 20) -> None:
        """As a fetcher."""
        for partition in sorted(getattr(self, "_gone", ())):
            start = await self._start(partition)
            if start is not None:
                self.positions[partition] = start
                self._gone.discard(partition)
        await super().fetch(max_wait_ms=max_wait_ms, max_bytes=max_bytes)  # type: ignore[misc]

    async def _start(self, partition: Partition) -> int | None:
        """Where the log begins; None without an answer."""
        topic, index = partition
        leader = await self._session.leader(topic, index)
        request = m.ListOffsetsRequest
        row = request.ListOffsetsPartition(partition_index=index, timestamp=EARLIEST)
        asked = request(replica_id=-1, topics=[request.ListOffsetsTopic(name=topic, partitions=[row])])
        answer = await self._session.request(leader, ApiKey.LIST_OFFSETS, LIST_OFFSETS, asked)
        if answer is not None and answer.topics[0].partitions[0].error_code == ErrorCode.NONE:
            return int(answer.topics[0].partitions[0].offset)
        self._session.forget_leader(topic, index)
        await self._session.sleep(PAUSE_MS)
        return None


class _AllFetcher(_Restarting, TransactionalFetcher):
    """Reads all records."""


class _CommittedFetcher(_Restarting, CommittedFetcher):
    """Reads committed records."""


class RetainedReader(GrouplessReader):
    """Reads what retention leaves."""

    fetchers = (_AllFetcher, _CommittedFetcher)


class RetentionOperator(ChangesOperator):
    """Changes the retention of a topic."""

    def __init__(
        self, scenario: ClusterScenario, name: str, rng: random.Random, topic: str, key: str, values: Sequence[int]
    ) -> None:
        """`key`: `retention.bytes` or `retention.ms`; in the end it has the first of `values`."""
        super().__init__(scenario.cluster, name, rng, CHANGES_MS)
        self._topic, self._key, self._values = topic, key, values
        self.requested: set[int] = set()

    async def change(self) -> None:
        """Request another retention."""
        await self.ask(*self._request(self._rng.choice(self._values)))

    async def restore(self) -> None:
        """Set the first retention."""
        await self.ask_surely(*self._request(self._values[0]))

    def _request(self, retention: int) -> Any:
        request = m.IncrementalAlterConfigsRequest
        self.requested.add(retention)
        self.session.note(f"{self._key} of {self._topic} to {retention}")
        row = request.AlterableConfig(name=self._key, config_operation=0, value=str(retention))
        resource = request.AlterConfigsResource(resource_type=2, resource_name=self._topic, configs=[row])
        made = request(resources=[resource], validate_only=False)
        return ApiKey.INCREMENTAL_ALTER_CONFIGS, ALTER, made, lambda answer: answer.responses[0].error_code


class RetainedClients:
    """All clients of the topic."""

    def __init__(self, scenario: ClusterScenario) -> None:
        cluster, rng = scenario.cluster, random.Random(f"retained of {scenario.world.seed}")
        self._scenario = scenario
        self._partition = (TOPIC, 0)
        self.ledger = Ledger(scenario.checker)
        self.writers = [PlainWriter(cluster, self.ledger, f"rw{number}", [self._partition]) for number in range(2)]
        for writer in self.writers:
            writer.pause_ms = 120.0
        self.readers = [
            RetainedReader(cluster, self.ledger, f"rr{number}", [self._partition], committed=bool(number))
            for number in range(rng.randint(1, 2))
        ]
        self.retention = RetentionOperator(scenario, "retention", rng, TOPIC, "retention.bytes", RETENTIONS)
        self.erasers = [Eraser(cluster, self.ledger, "re", self._partition)] if rng.random() < ERASED_SHARE else []

    @property
    def workers(self) -> list[Any]:
        """All of them."""
        return [*self.writers, *self.readers, self.retention, *self.erasers]

    @property
    def acknowledged(self) -> int:
        """Batches that were acknowledged."""
        return sum(writer.acknowledged for writer in self.writers)

    def judge(self) -> None:
        """Judge what is left. The cluster must be at rest."""
        scenario, checker = self._scenario, self._scenario.checker
        log = final_log(scenario.cluster.brokers, self._partition)
        Judge(self.ledger, {self._partition: log}).judge()
        sizes = self._sizes()
        least = RETENTIONS[0] - SEGMENT_BYTES - BATCH_MAX
        if not self.erasers and log.start and min(sizes.values()) < least:
            checker.broken("retained", self._partition, f"{sizes} bytes are left, the log begins at {log.start}")
        most = RETENTIONS[0] + 2 * (SEGMENT_BYTES + BATCH_MAX)
        scenario.world.run(lambda: max(self._sizes().values()) <= most or bool(checker.findings), FREED_MAX_MS)
        if max(self._sizes().values()) > most:
            checker.broken("space", self._partition, f"retention of {RETENTIONS[0]} has left {self._sizes()} bytes")

    def _sizes(self) -> dict[str, int]:
        """The bytes of the segments of each replica, by machine."""
        found = {}
        for machine in self._scenario.cluster.brokers:
            opened = (
                () if machine.node is None or machine.node.broker is None else machine.node.broker.replicas.opened()
            )
            for replica in opened:
                if (replica.topic, replica.index) == self._partition:
                    found[machine.name] = int(replica.log.size_bytes)
        return found


__all__ = ["KEYS", "TOPIC", "RetainedClients", "RetainedReader", "RetentionOperator", "topics"]
