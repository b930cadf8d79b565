"""A transactional producer, written from the protocol alone: every request, its retries, and what its errors mean.

Clients of transaction.version 0 and 1 add partitions and offsets themselves, and keep their epoch. Clients of version 2
(KIP-890) get a new epoch with each end, and brokers add the partitions. A producer learns the version from ApiVersions,
as Kafka's does, between two transactions.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import TRANSACTION_VERSION
from kraft_node.testing.workloads.producer import RETRIABLE
from kraft_node.testing.workloads.session import BOOTSTRAP, GROUP, PAUSE_MS, TRANSACTION, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.transactions.ledger import Ledger, SentBatch, SentTransaction

API_VERSIONS, INIT, ADD_PARTITIONS, ADD_OFFSETS = 4, 4, 3, 3
"""API versions that do not depend on the transaction.version."""
BUMPS: Final = 2
"""The transaction.version from which on each end of a transaction bumps the epoch."""
PRODUCE_OLD, PRODUCE_NEW, PRODUCE_BY_ID = 11, 12, 13
END_OLD, END_NEW = 4, 5
COMMIT_OLD, COMMIT_NEW = 4, 5
SOON_MS: Final = 20.0
"""The pause after CONCURRENT_TRANSACTIONS: markers are being written."""
VERSION_KNOWN_MS: Final = 5_000.0
"""After this time every broker knows a changed transaction.version."""
ROUNDS_MAX: Final = 12
"""How often batches are sent before the producer gives up its transaction."""

AWAY: Final = (
    ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
)  # fmt: skip
PASSING: Final = (
    *AWAY, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NETWORK_EXCEPTION,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_ENOUGH_REPLICAS,
)  # fmt: skip
"""Errors of coordinators after which the same request is sent again."""
FENCED: Final = (ErrorCode.PRODUCER_FENCED, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_ID_MAPPING)
"""Another producer has taken over, the coordinator has aborted an old transaction, or has removed an unused id."""
ABORTABLE: Final = (ErrorCode.INVALID_TXN_STATE, ErrorCode.TRANSACTION_ABORTABLE)
OUT_OF_THE_GROUP: Final = (
    ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.REBALANCE_IN_PROGRESS,
)  # fmt: skip


class Fenced(Exception):  # noqa: N818 - what has happened to the producer
    """The producer is over: a newer one has its transactional id, or its transaction took too long."""


class MustAbort(Exception):  # noqa: N818
    """The transaction can only be aborted."""


class ProducerProcess:
    """One producer process."""

    def __init__(
        self, session: ClusterSession, ledger: Ledger, transactional_id: str | None, timeout_ms: int, *, by_id: bool
    ) -> None:
        """`by_id`: name topics by id where the protocol can. Without a transactional id the producer is idempotent."""
        self.session = session
        self.ledger = ledger
        self.transactional_id = transactional_id
        self.acknowledged = 0
        self.is_newest = False
        """Whether no other process can have taken over the transactional id; False: unknown."""
        self._timeout_ms = timeout_ms
        self._by_id = by_id
        self._rng = session.world.rng
        self._transaction_version = 0
        self._learned_ms = 0.0
        """When the version was learned."""
        self._producer_id = self._epoch = -1
        self._sequences: dict[tuple[str, int], int] = {}
        self._count = 0
        self._coordinators: dict[tuple[int, str], int] = {}
        self._requested = -1
        """When the last request to a coordinator was sent."""
        self._must_bump = False
        """Whether a batch has an unknown outcome: the epoch must be bumped before the next transaction."""
        self.current: SentTransaction | None = None

    # -- requests to coordinators

    async def _ask(
        self, kind: int, key: str, api_key: ApiKey, version: int, request: Any, codes: Callable[[Any], Iterable[int]]
    ) -> tuple[Any, ErrorCode]:
        """Send a request to the coordinator of `key` until it has decided. Returns the response and its first error."""
        while True:
            node = self._coordinators.get((kind, key))
            if node is None:
                node = self._coordinators[kind, key] = await self.session.coordinator(key, kind)
            self._requested = self.session.world.events
            answer = await self.session.request(node, api_key, version, request)
            if answer is None:
                self._note(f"{api_key.name.lower()} {version}: no answer")
                self._coordinators.pop((kind, key), None)
                await self.session.sleep(PAUSE_MS)
                continue
            code = next((ErrorCode(code) for code in codes(answer) if code), ErrorCode.NONE)
            self._note(f"{api_key.name.lower()} {version}: {code.name}")
            if code not in PASSING:
                return answer, code
            if code in AWAY:
                self._coordinators.pop((kind, key), None)
            await self.session.sleep(SOON_MS if code == ErrorCode.CONCURRENT_TRANSACTIONS else PAUSE_MS)

    def _note(self, what: str) -> None:
        self.session.note(f"{what} (epoch {self._epoch} of {self._producer_id})")

    async def _ask_own(self, api_key: ApiKey, version: int, request: Any, codes: Any = None) -> tuple[Any, ErrorCode]:
        assert self.transactional_id is not None
        of_answer = codes or (lambda answer: (answer.error_code,))
        return await self._ask(TRANSACTION, self.transactional_id, api_key, version, request, of_answer)

    # -- beginning

    async def initialize(self, *, resume: bool = False) -> None:
        """Get a producer id and a new epoch; `resume`: as the same producer, after an error (KIP-360).

        Raises Fenced if another producer has taken over.
        """
        await self._learn_version()
        request = m.InitProducerIdRequest(
            transactional_id=self.transactional_id,
            transaction_timeout_ms=self._timeout_ms,
            producer_id=self._producer_id if resume else -1,
            producer_epoch=self._epoch if resume else -1,
        )
        if self.transactional_id is None:
            answer, code = await self._initialize_idempotent(request)
        else:
            answer, code = await self._ask_own(ApiKey.INIT_PRODUCER_ID, INIT, request)
        if resume and code in FENCED:
            raise Fenced(code.name)
        self.session.expect(code, ErrorCode.NONE, what="init producer id")
        self._adopt(answer.producer_id, answer.producer_epoch, first=not resume)
        self._must_bump = False

    async def _initialize_idempotent(self, request: Any) -> tuple[Any, ErrorCode]:
        while True:
            answer = await self.session.request(BOOTSTRAP, ApiKey.INIT_PRODUCER_ID, INIT, request)
            if answer is not None and answer.error_code == ErrorCode.NONE:
                return answer, ErrorCode.NONE
            if answer is not None:
                self.session.expect(answer.error_code, *PASSING, ErrorCode.NOT_CONTROLLER, what="init producer id")
            await self.session.sleep(PAUSE_MS)

    def _adopt(self, producer_id: int, epoch: int, *, first: bool = False) -> None:
        requested = self._requested
        self.ledger.begun(
            self.session.name, self.transactional_id, producer_id, epoch, requested=requested, first=first
        )
        self._producer_id, self._epoch = producer_id, epoch
        self._sequences.clear()

    async def _learn_version(self) -> None:
        if self.transactional_id is None:
            return
        request = m.ApiVersionsRequest(client_software_name="sim", client_software_version="1")
        answer = await self.session.request(BOOTSTRAP, ApiKey.API_VERSIONS, API_VERSIONS, request)
        if answer is not None and answer.error_code == ErrorCode.NONE:
            levels = {row.name: row.max_version_level for row in answer.finalized_features}
            self._transaction_version = levels.get(TRANSACTION_VERSION, 0)
            self._learned_ms = self.session.world.now_ms

    @property
    def is_initialized(self) -> bool:
        """Whether it has a producer id."""
        return self._producer_id >= 0

    @property
    def bumps(self) -> bool:
        """Whether each end of a transaction brings a new epoch."""
        return self._transaction_version >= BUMPS

    def begin(self) -> SentTransaction:
        """Begin a transaction; nothing is sent."""
        self._count += 1
        name = f"{self.session.name}:{self._count}"
        self.current = self.ledger.transaction(name, self.transactional_id, self._producer_id, self._epoch)
        return self.current

    # -- records

    def timestamp(self) -> int:
        """The timestamp of the next record."""
        return START_WALL_MS + int(self.session.world.now_ms)

    def make(self, partition: tuple[str, int], values: Sequence[str], key: bytes = b"k") -> SentBatch:
        """A batch of the present transaction; `values` must be unique."""
        assert self.current is not None
        sequence = self._sequences.get(partition, 0)
        self._sequences[partition] = sequence + len(values)
        raw = build_batch(
            [(key, value.encode()) for value in values],
            timestamp=self.timestamp(),
            compression=self._rng.choice((0, 0, 0, 4)),
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            base_sequence=sequence,
            transactional=self.transactional_id is not None,
        )
        return self.ledger.batch(self.current, partition, values, raw, key)

    async def send(self, batches: Sequence[SentBatch]) -> None:
        """Send batches and retry until all are acknowledged. Raises MustAbort."""
        if self.transactional_id is not None and not self.bumps:
            await self._add_partitions(sorted({batch.partition for batch in batches}))
        left = list(batches)
        for _ in range(ROUNDS_MAX):
            left = await self._send_once(left)
            if not left:
                return
            await self.session.sleep(PAUSE_MS)
        self._must_bump = True
        raise MustAbort("batches have no outcome")

    async def _send_once(self, batches: list[SentBatch]) -> list[SentBatch]:
        """Send all batches, in one event. Returns the batches to send again, in order."""
        leaders = [await self.session.leader(*batch.partition) for batch in batches]
        requests: dict[tuple[int, int], list[SentBatch]] = {}
        counts: dict[tuple[str, int], int] = {}
        for batch, leader in zip(batches, leaders, strict=True):
            place = counts.get(batch.partition, 0)
            counts[batch.partition] = place + 1
            requests.setdefault((place, leader), []).append(batch)
        version = self._produce_version()
        asked = []
        for (_, leader), some in sorted(requests.items()):
            for batch in some:
                self.ledger.sending(batch)
            moment = self.session.request(leader, ApiKey.PRODUCE, version, self._request(some, version))
            asked.append((some, moment))
        left: list[SentBatch] = []
        abort: MustAbort | None = None
        for some, moment in asked:
            answer = await moment
            rows = {} if answer is None else self._rows(answer, version)
            for batch in some:
                row = rows.get(batch.partition)
                code = ErrorCode.REQUEST_TIMED_OUT if row is None else ErrorCode(row.error_code)
                self._note(f"{batch.values[0]} of {batch.partition[0]}-{batch.partition[1]} by {version}: {code.name}")
                first = all(other.partition != batch.partition for other in left)
                try:
                    if not self._settle(batch, row, code, first=first):
                        left.append(batch)
                except MustAbort as why:
                    abort = abort or why
        if abort is not None:
            self._must_bump = True
            raise abort
        return [batch for batch in batches if batch in left]

    def _settle(self, batch: SentBatch, row: Any, code: ErrorCode, *, first: bool) -> bool:
        """Whether the batch is acknowledged; if not, it is sent again. Raises MustAbort."""
        if code == ErrorCode.NONE:
            self.acknowledged += 1
            self.ledger.acknowledged(batch, row.base_offset)
            return True
        if code in RETRIABLE or code in PASSING or (code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER and not first):
            self.session.forget_leader(*batch.partition)
            return False
        self.session.expect(
            code, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, *ABORTABLE, *FENCED, what=f"produce to {batch.partition}"
        )
        raise MustAbort(code.name)

    def _produce_version(self) -> int:
        if not self.bumps:
            return PRODUCE_BY_ID if self.transactional_id is None and self._by_id else PRODUCE_OLD
        return PRODUCE_BY_ID if self._by_id else PRODUCE_NEW

    def _request(self, batches: list[SentBatch], version: int) -> Any:
        by_topic: dict[str, list[Any]] = {}
        for batch in batches:
            data = m.ProduceRequest.PartitionProduceData(index=batch.partition[1], records=batch.raw)
            by_topic.setdefault(batch.partition[0], []).append(data)
        topics = []
        for name, rows in by_topic.items():
            known = {"topic_id": self.session.topic_ids[name]} if version >= PRODUCE_BY_ID else {"name": name}
            topics.append(m.ProduceRequest.TopicProduceData(partition_data=rows, **known))
        return m.ProduceRequest(transactional_id=self.transactional_id, acks=-1, timeout_ms=2000, topic_data=topics)

    def _rows(self, answer: Any, version: int) -> dict[tuple[str, int], Any]:
        names = {topic_id: name for name, topic_id in self.session.topic_ids.items()}
        found = {}
        for topic in answer.responses:
            name = names[topic.topic_id] if version >= PRODUCE_BY_ID else topic.name
            for row in topic.partition_responses:
                found[name, row.index] = row
        return found

    # -- the transaction

    async def _decided(self, asking: Awaitable[tuple[Any, ErrorCode]], *more: ErrorCode, what: str) -> Any:
        """The response to a request for the present transaction. Raises MustAbort, Fenced."""
        answer, code = await asking
        if code == ErrorCode.NONE:
            return answer
        if code in ABORTABLE or code in more:
            raise MustAbort(f"{what}: {code.name}")
        self.session.expect(code, *FENCED, what=what)
        raise Fenced(f"{what}: {code.name}")

    async def _add_partitions(self, partitions: Sequence[tuple[str, int]]) -> None:
        by_topic: dict[str, list[int]] = {}
        for topic, index in partitions:
            by_topic.setdefault(topic, []).append(index)
        kind = m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic
        request = m.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=self.transactional_id or "",
            v3_and_below_producer_id=self._producer_id,
            v3_and_below_producer_epoch=self._epoch,
            v3_and_below_topics=[kind(name=name, partitions=indexes) for name, indexes in by_topic.items()],
        )

        def codes(answer: Any) -> list[int]:
            return [row.partition_error_code for topic in answer.results_by_topic_v3_and_below
                    for row in topic.results_by_partition]  # fmt: skip

        asking = self._ask_own(ApiKey.ADD_PARTITIONS_TO_TXN, ADD_PARTITIONS, request, codes)
        await self._decided(asking, ErrorCode.OPERATION_NOT_ATTEMPTED, what="add partitions")

    async def send_offsets(
        self,
        group: str,
        offsets: Mapping[tuple[str, int], int],
        epochs: Mapping[tuple[str, int], int],
        *,
        generation: int = -1,
        member: str = "",
    ) -> None:
        """Commit the group's offsets, with the leader epochs of the records before them, in the transaction.

        Raises MustAbort, Fenced.
        """
        assert self.current is not None
        own = {"transactional_id": self.transactional_id, "producer_id": self._producer_id,
               "producer_epoch": self._epoch, "group_id": group}  # fmt: skip
        event = self.session.world.events
        self.ledger.checker.committing(group, offsets)
        if not self.bumps:
            request = m.AddOffsetsToTxnRequest(**own)  # type: ignore[arg-type]
            await self._decided(self._ask_own(ApiKey.ADD_OFFSETS_TO_TXN, ADD_OFFSETS, request), what="add offsets")
        by_topic: dict[str, list[Any]] = {}
        for (topic, index), offset in offsets.items():
            row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(
                partition_index=index,
                committed_offset=offset,
                committed_leader_epoch=epochs.get((topic, index), -1),
            )
            by_topic.setdefault(topic, []).append(row)
        kind = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic
        commit = m.TxnOffsetCommitRequest(
            **own,  # type: ignore[arg-type]
            generation_id=generation,
            member_id=member,
            topics=[kind(name=name, partitions=rows) for name, rows in by_topic.items()],
        )

        def codes(answer: Any) -> list[int]:
            return [row.error_code for topic in answer.topics for row in topic.partitions]

        version = COMMIT_NEW if self.bumps else COMMIT_OLD
        asking = self._ask(GROUP, group, ApiKey.TXN_OFFSET_COMMIT, version, commit, codes)
        await self._decided(asking, *OUT_OF_THE_GROUP, what="commit of offsets in a transaction")
        accepted = {(group, *partition): offset for partition, offset in offsets.items()}
        self.ledger.offsets_accepted(self.current, accepted, event)

    async def end(self, *, commit: bool) -> None:
        """Commit or abort, and be ready for the next transaction. Raises Fenced."""
        transaction = self.current
        assert transaction is not None
        if commit:
            self.ledger.committing(transaction)
        request = m.EndTxnRequest(
            transactional_id=self.transactional_id or "",
            producer_id=self._producer_id,
            producer_epoch=self._epoch,
            committed=commit,
        )
        bumps = self.bumps
        answer, code = await self._ask_own(ApiKey.END_TXN, END_NEW if bumps else END_OLD, request)
        if code == ErrorCode.INVALID_TXN_STATE:
            self.ledger.ended(transaction, commit=False)  # aborted for its age, or nothing has reached the coordinator
            if commit or bumps:
                raise Fenced(f"end: {code.name}")
        elif code:
            # A coordinator that aborts an old transaction bumps the epoch once, which does not fence this request. But
            # the cluster may have gone back to an earlier transaction.version that the producer does not know yet.
            is_level = self.ledger.version_asked_ms < self._learned_ms - VERSION_KNOWN_MS
            by_whom = (ErrorCode.INVALID_PRODUCER_ID_MAPPING,) if bumps and self.is_newest and is_level else FENCED
            self.session.expect(code, *by_whom, what="end of a transaction")
            raise Fenced(f"end: {code.name}")
        else:
            self.ledger.ended(transaction, commit=commit)
        self.current = None
        if bumps:
            self._adopt(answer.producer_id, answer.producer_epoch)
        elif self._must_bump:
            await self.initialize(resume=True)
        if not bumps or self._rng.random() < 0.2:
            await self._learn_version()
        if self.bumps and not bumps:
            # As Java's producer: with the former epoch, a leader that lacks the last marker would take the records of
            # the next transaction for the last one's.
            await self.initialize(resume=True)
