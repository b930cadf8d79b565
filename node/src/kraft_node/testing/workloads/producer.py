"""A producer: batches of unique values to a few partitions, one at a time or several at once."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.workloads.acks_law import AcksLaw
from kraft_node.testing.workloads.session import BOOTSTRAP, PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker, ProducedBatch
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.workloads.acks_law import RequestedProcess

ACKS_ALL: Final = -1
BY_NAME, BY_ID = 9, 13
"""Versions of Produce."""
UNDER_WAY_MAX: Final = 5
"""Unanswered batches of an idempotent session: as many as a broker remembers of a producer."""
RECORDS_MAX: Final = 6

RETRIABLE: Final = frozenset(
    (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.NOT_ENOUGH_REPLICAS, ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR,
    )
)  # fmt: skip
MAYBE_APPENDED: Final = frozenset(
    (ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.KAFKA_STORAGE_ERROR)
)
"""Errors after which the batch may be in a log. A disk that fails after a write may have passed the batch to
followers."""
LED_NO_MORE: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION))
"""Errors sent before the batch is checked, or while it waits for followers. Some followers may then have it."""

UNNOTED: Final = frozenset((ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS))
"""Errors before the batch reaches a log. The log may then accept the producer's next batch first, as in Kafka."""


class WorkloadProducer:
    """Sends batches until it is stopped."""

    fillers: tuple[int, ...] = (0, 0, 0, 700)
    """Bytes that follow each value of a batch; one is drawn for a batch."""
    codecs: tuple[int, ...] = (0, 0, 0, 1, 2, 3, 4)
    under_way_min = 1
    """Batches that an idempotent producer sends at once, at least."""
    pause_ms = 200.0
    """The longest pause between two rounds."""

    def __init__(
        self,
        cluster: SimCluster,
        checker: Checker,
        name: str,
        partitions: Sequence[tuple[str, int]],
        *,
        acks: int,
        idempotent: bool,
        by_id: bool,
    ) -> None:
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.partitions = partitions
        self.acks = ACKS_ALL if idempotent else acks
        self.idempotent = idempotent
        self.version = BY_ID if by_id else BY_NAME
        self.stopping = False
        self.acknowledged = 0
        self._acks_law = AcksLaw(cluster, checker)
        self._rng = cluster.world.rng
        self._incarnation = 0
        self._producer_id = self._producer_epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}

    async def run(self) -> None:
        """Send batches until stopped; an idempotent producer retries its last round to the end."""
        session, rng = self.session, self._rng
        while not self.stopping:
            if self.idempotent and self._producer_id < 0:
                await self._new_session()
            if not self.idempotent:
                await self._send_once(self._make(rng.choice(self.partitions)))
            else:
                chosen = [rng.choice(self.partitions) for _ in range(rng.randint(self.under_way_min, UNDER_WAY_MAX))]
                await self._send_until_known([self._make(partition) for partition in chosen])
            await session.sleep(rng.random() * self.pause_ms)

    async def _new_session(self) -> None:
        while True:
            request = m.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000)
            answer = await self.session.request(BOOTSTRAP, ApiKey.INIT_PRODUCER_ID, 4, request)
            if answer is not None and answer.error_code == 0:
                self.checker.producer_id(self.session.name, answer.producer_id, answer.producer_epoch)
                self._producer_id, self._producer_epoch = answer.producer_id, answer.producer_epoch
                self._incarnation += 1
                self._sequences.clear()
                return
            if answer is not None:
                self.session.expect(
                    answer.error_code, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE,
                    ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_CONTROLLER, what="init producer id",
                )  # fmt: skip
            await self.session.sleep(PAUSE_MS)

    def _make(self, partition: tuple[str, int]) -> ProducedBatch:
        rng = self._rng
        sequence = self._sequences.get(partition, 0)
        count = rng.randint(1, RECORDS_MAX)
        self._sequences[partition] = sequence + count
        name = f"{self.session.name}.{self._incarnation}"
        values = [f"{name}:{partition[0]}-{partition[1]}:{sequence + i}" for i in range(count)]
        filler = "." * rng.choice(self.fillers)
        who: dict[str, int] = {}
        if self.idempotent:
            who = {
                "producer_id": self._producer_id,
                "producer_epoch": self._producer_epoch,
                "base_sequence": sequence,
            }
        raw = build_batch(
            [(b"k", f"{value}{filler}".encode()) for value in values],
            timestamp=START_WALL_MS + int(self.session.world.now_ms),
            compression=rng.choice(self.codecs),
            **who,  # type: ignore[arg-type]
        )
        return self.checker.sending(name, partition, values, raw, idempotent=self.idempotent, acks=self.acks)

    def _request(self, batch: ProducedBatch) -> Any:
        topic, index = batch.partition
        batch.attempts += 1
        data = m.ProduceRequest.PartitionProduceData(index=index, records=batch.raw)
        known = {"name": topic} if self.version == BY_NAME else {"topic_id": self.session.topic_ids[topic]}
        return m.ProduceRequest(
            acks=self.acks,
            timeout_ms=2000,
            topic_data=[m.ProduceRequest.TopicProduceData(partition_data=[data], **known)],
        )

    async def _send_once(self, batch: ProducedBatch) -> None:
        """Plain producer: send once; without a response the outcome is unknown."""
        leader = await self.session.leader(*batch.partition)
        request = self._request(batch)
        if self.acks == 0:
            self.session.send_one_way(leader, ApiKey.PRODUCE, self.version, request)
            return
        process = self._acks_law.process_of(leader)
        answer = await self.session.request(leader, ApiKey.PRODUCE, self.version, request)
        if answer is None:
            self.session.forget_leader(*batch.partition)
            return
        row = answer.responses[0].partition_responses[0]
        if row.error_code == ErrorCode.NONE:
            self._acknowledged(batch, row, process)
            return
        self.session.expect(row.error_code, *sorted(RETRIABLE), what=f"produce to {batch.partition}")
        self.session.forget_leader(*batch.partition)
        maybe = row.error_code in MAYBE_APPENDED or (row.error_code in LED_NO_MORE and not self.checker.sole)
        if not maybe:
            self.checker.refused(batch, ErrorCode(row.error_code).name)

    def _acknowledged(self, batch: ProducedBatch, row: Any, process: RequestedProcess) -> None:
        self.acknowledged += 1
        if self.acks == ACKS_ALL and row.base_offset >= 0:
            self._acks_law.acknowledged(process, batch.partition, row.base_offset + len(batch.values))
        # A leader may lose the batch if its followers lack it, so the batch has no certain offset yet.
        certain = self.acks == ACKS_ALL or self.checker.sole
        self.checker.acknowledged(batch, row.base_offset if certain else -1)

    async def _send_until_known(self, batches: list[ProducedBatch]) -> None:
        """Idempotent producer: send all batches at once, and resend the unacknowledged batches in order until all are
        acknowledged."""
        all_batches = list(batches)
        unnoted: list[ProducedBatch] = []
        noted: list[ProducedBatch] = []
        """Batches that may have reached a log."""
        while batches:
            # As in a real client, one leader for all batches of a partition, though two nodes may name different ones.
            leaders = {
                partition: await self.session.leader(*partition)
                for partition in dict.fromkeys(batch.partition for batch in batches)
            }
            asked = []
            # All in one event, so that batches for one node use one connection, in order.
            for batch in batches:
                leader = leaders[batch.partition]
                process = self._acks_law.process_of(leader)
                moment = self.session.request(leader, ApiKey.PRODUCE, self.version, self._request(batch))
                asked.append((batch, process, moment))
            left: list[ProducedBatch] = []
            for batch, process, moment in asked:
                answer = await moment
                row = None if answer is None else answer.responses[0].partition_responses[0]
                code = ErrorCode.REQUEST_TIMED_OUT if row is None else ErrorCode(row.error_code)
                first = all(other.partition != batch.partition for other in left)
                (unnoted if code in UNNOTED else noted).append(batch)
                if code == ErrorCode.NONE:
                    self._acknowledged(batch, row, process)
                elif code in RETRIABLE or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not first):
                    self.session.forget_leader(*batch.partition)
                    left.append(batch)
                elif code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER:
                    # A producer snapshot holds only the last batch, as in Kafka: after a restart, an older batch that
                    # is sent again is not recognised.
                    others = [other for other in batches if other is not batch and other.partition == batch.partition]
                    later = all_batches[all_batches.index(batch) + 1 :]
                    is_overtaken = batch in unnoted and any(
                        other.partition == batch.partition and other in noted for other in later
                    )
                    if not is_overtaken and (not others or batch.ends == self.checker.ends):
                        self.checker.session_refused(batch, code.name)
                    self._producer_id = -1
                    return
                else:
                    self.session.expect(code, what=f"produce to {batch.partition}")
            batches = left
            if batches:
                await self.session.sleep(PAUSE_MS)
