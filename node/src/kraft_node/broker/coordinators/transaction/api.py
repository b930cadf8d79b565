"""InitProducerId (0-5; 6 is unstable), AddPartitionsToTxn (0-5), AddOffsetsToTxn (0-4) and EndTxn (0-5).

Clients send AddPartitionsToTxn up to version 3, for one transaction. Brokers send versions 4 and 5, for many
transactions, which they add partitions to or only verify. Clients of old versions do not know PRODUCER_FENCED; instead
they get INVALID_PRODUCER_EPOCH.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_node.broker.coordinators.transaction import rules
from kraft_node.broker.coordinators.transaction.rules import EPOCH_BUMPS, ProducerEpoch, Settled
from kraft_node.broker.coordinators.transaction.states import (
    NEVER,
    NO_EPOCH,
    NO_PRODUCER_ID,
    TopicPartition,
    TransactionState,
    Values,
)
from kraft_node.broker.metadata_cache import CONSUMER_OFFSETS, INTERNAL_TOPICS
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AddOffsetsToTxnResponse,
    AddPartitionsToTxnResponse,
    EndTxnResponse,
    InitProducerIdResponse,
)

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.transaction.config import TransactionConfig
    from kraft_node.broker.coordinators.transaction.decisions import Decisions
    from kraft_node.broker.coordinators.transaction.seams import TransactionClusterView

FIRST_INIT_VERSION_WITH_FENCED: Final = 4
FIRST_VERSION_WITH_FENCED: Final = 2
"""Of AddPartitionsToTxn, AddOffsetsToTxn and EndTxn."""
FIRST_ADD_VERSION_OF_BROKERS: Final = 4
FIRST_END_VERSION_WITH_BUMP: Final = 5

Codes: TypeAlias = "Mapping[TopicPartition, ErrorCode]"
Denies: TypeAlias = "Callable[[Iterable[str]], set[str]]"
"""Which of these topics the client may not write to."""


def _nothing_denied(_topics: Iterable[str]) -> set[str]:
    return set()


def _shown(error: KafkaError, *, knows_fenced: bool) -> ErrorCode:
    """The code of an error for a client that may not know PRODUCER_FENCED."""
    if error.code == ErrorCode.PRODUCER_FENCED and not knows_fenced:
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return error.code


class TransactionApi:
    """Handlers of producers' requests, and of brokers for them. `version()`: the cluster's transaction.version."""

    __slots__ = ("_cluster", "_config", "_decisions", "_version")

    def __init__(
        self,
        decisions: Decisions,
        cluster: TransactionClusterView,
        config: TransactionConfig,
        version: Callable[[], int],
    ) -> None:
        self._decisions = decisions
        self._cluster = cluster
        self._config = config
        self._version = version

    # -- InitProducerId

    def init_producer_id(self, ctx: RequestContext, request: Any) -> None:
        """An unused id for an idempotent producer; id and next epoch for a transactional producer (KIP-98,
        KIP-360)."""
        if (request.producer_id == NO_PRODUCER_ID) != (request.producer_epoch == NO_EPOCH):
            raise KafkaError(ErrorCode.INVALID_REQUEST, "producer id and epoch must be given together or not at all")
        name, decisions = request.transactional_id, self._decisions
        if name is None:
            decisions.take_id(partial(_answer_new_id, ctx))
            return
        timeout_ms = self._timeout(request)
        expected = None
        if request.producer_id != NO_PRODUCER_ID:
            expected = ProducerEpoch(request.producer_id, request.producer_epoch)

        def decide(transaction: Any, fresh_id: int | None) -> rules.Step:
            return rules.initialize(
                transaction,
                timeout_ms,
                expected,
                now_ms=decisions.clock.wall_ms(),
                version=self._version(),
                fresh_id=fresh_id,
            )

        def create(fresh_id: int) -> Values:
            return rules.created(fresh_id, timeout_ms, decisions.clock.wall_ms())

        decisions.run(name, decide, partial(_answer_initialized, ctx), create=create)

    def _timeout(self, request: Any) -> int:
        """The valid time-out of transactions. Raises KafkaError for requests that no state can satisfy."""
        config = self._config
        if not request.transactional_id:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        if request.enable2_pc and not config.two_phase_commit:
            text = "transaction.two.phase.commit.enable is false"
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, text)
        if request.keep_prepared_txn:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, "prepared transactions are not kept")
        if request.enable2_pc:
            return NEVER
        timeout_ms: int = request.transaction_timeout_ms
        if not 0 < timeout_ms <= config.max_timeout_ms:
            text = f"transaction timeout {timeout_ms} ms is not between 1 and {config.max_timeout_ms} ms"
            raise KafkaError(ErrorCode.INVALID_TRANSACTION_TIMEOUT, f"{text} (transaction.max.timeout.ms)")
        return timeout_ms

    # -- AddPartitionsToTxn, AddOffsetsToTxn

    def add_partitions(self, ctx: RequestContext, request: Any, denies: Denies = _nothing_denied) -> None:
        """Add partitions to a transaction, or to several transactions of a broker's clients."""
        if ctx.api_version < FIRST_ADD_VERSION_OF_BROKERS:
            self._add_one(ctx, request, denies)
            return
        collected: list[Any] = []
        left = len(request.transactions)
        if not left:
            ctx.respond(AddPartitionsToTxnResponse())

        def collect(name: str, results: list[Any]) -> None:
            row = AddPartitionsToTxnResponse.AddPartitionsToTxnResult
            collected.append(row(transactional_id=name, topic_results=results))
            if len(collected) == left:
                ctx.respond(AddPartitionsToTxnResponse(results_by_transaction=collected))

        for one in request.transactions:
            producer = ProducerEpoch(one.producer_id, one.producer_epoch)
            answer = partial(collect, one.transactional_id)
            partitions = _partitions(one.topics)
            if one.verify_only:
                answer(_topic_results(self.verify(one.transactional_id, producer, partitions)))
                continue
            codes = self._unusable(partitions, set())
            if codes:
                answer(_topic_results(codes))
            else:
                done = partial(_answer_added, one.topics, answer, knows_fenced=True)
                self._extend(one.transactional_id, producer, frozenset(partitions), EPOCH_BUMPS, done)

    def _add_one(self, ctx: RequestContext, request: Any, denies: Denies) -> None:
        topics = request.v3_and_below_topics
        partitions = _partitions(topics)
        names = dict.fromkeys(topic for topic, _ in partitions)
        denied = denies(names) | {name for name in names if name in INTERNAL_TOPICS}

        def answer(results: list[Any]) -> None:
            ctx.respond(AddPartitionsToTxnResponse(results_by_topic_v3_and_below=results))

        codes = self._unusable(partitions, denied)
        if codes:
            answer(_topic_results(codes))
            return
        producer = ProducerEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
        done = partial(_answer_added, topics, answer, knows_fenced=ctx.api_version >= FIRST_VERSION_WITH_FENCED)
        self._extend(request.v3_and_below_transactional_id, producer, frozenset(partitions), 0, done)

    def _unusable(self, partitions: Sequence[TopicPartition], denied: set[str]) -> dict[TopicPartition, ErrorCode]:
        """Codes of all partitions if any partition is denied or missing: then no partition is added."""
        cluster = self._cluster
        codes = {}
        for one in partitions:
            if one[0] in denied:
                codes[one] = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            elif not cluster.has_partition(*one):
                codes[one] = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return {one: codes.get(one, ErrorCode.OPERATION_NOT_ATTEMPTED) for one in partitions} if codes else {}

    def verify(self, name: str, producer: ProducerEpoch, partitions: Sequence[TopicPartition]) -> Codes:
        """The code of each partition: whether it is in the producer's transaction."""
        unusable = self._unusable(partitions, set())
        if unusable:
            return unusable
        try:
            if not name:
                raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
            transaction = self._decisions.transaction(name)
            if transaction is None:
                raise KafkaError(ErrorCode.INVALID_PRODUCER_ID_MAPPING, f"transactional id {name} is not known")
            missing = rules.missing_partitions(transaction, producer, frozenset(partitions))
        except KafkaError as error:
            return dict.fromkeys(partitions, error.code)
        return {one: ErrorCode.TRANSACTION_ABORTABLE if one in missing else ErrorCode.NONE for one in partitions}

    def _extend(
        self,
        name: str,
        producer: ProducerEpoch,
        partitions: frozenset[TopicPartition],
        client_version: int,
        done: Callable[[Values | Settled | KafkaError], None],
    ) -> None:
        if not name:
            done(KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty"))
            return
        clock = self._decisions.clock

        def decide(transaction: Any, _fresh_id: int | None) -> rules.Step:
            return rules.add_partitions(
                transaction, producer, partitions, client_version=client_version, now_ms=clock.wall_ms()
            )

        self._decisions.run(name, decide, done)

    def add_offsets(self, ctx: RequestContext, request: Any) -> None:
        """Add the partition of `__consumer_offsets` that holds a group's offsets."""
        count = self._cluster.partition_count(CONSUMER_OFFSETS)
        if count is None:
            # The end of a transaction drops markers of unknown partitions, so no partition may be added before it
            # exists.
            self._cluster.create_internal_topic(CONSUMER_OFFSETS, ctx)
            raise KafkaError(ErrorCode.COORDINATOR_NOT_AVAILABLE, f"{CONSUMER_OFFSETS} is being created")

        def done(result: Values | Settled | KafkaError) -> None:
            code = ErrorCode.NONE
            if isinstance(result, KafkaError):
                code = _shown(result, knows_fenced=ctx.api_version >= FIRST_VERSION_WITH_FENCED)
            ctx.respond(AddOffsetsToTxnResponse(error_code=code))

        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        partition = (CONSUMER_OFFSETS, partition_for(request.group_id, count))
        self._extend(request.transactional_id, producer, frozenset((partition,)), 0, done)

    # -- EndTxn

    def end(self, ctx: RequestContext, request: Any) -> None:
        """Commit or abort. The answer is sent when the result is stored; the markers follow."""
        name, decisions = request.transactional_id, self._decisions
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "the transactional id is empty")
        producer = ProducerEpoch(request.producer_id, request.producer_epoch)
        commit, bumps = request.committed, ctx.api_version >= FIRST_END_VERSION_WITH_BUMP

        def decide(transaction: Any, fresh_id: int | None) -> rules.Step:
            now_ms = decisions.clock.wall_ms()
            if bumps:
                return rules.end_with_bump(transaction, producer, commit=commit, now_ms=now_ms, fresh_id=fresh_id)
            return rules.end(transaction, producer, commit=commit, now_ms=now_ms)

        decisions.run(name, decide, partial(_answer_ended, ctx))


def _answer_new_id(ctx: RequestContext, producer_id: int | KafkaError) -> None:
    if isinstance(producer_id, KafkaError):
        ctx.respond(InitProducerIdResponse(error_code=producer_id.code, producer_epoch=NO_EPOCH))
    else:
        ctx.respond(InitProducerIdResponse(producer_id=producer_id, producer_epoch=0))


def _answer_initialized(ctx: RequestContext, result: Values | Settled | KafkaError) -> None:
    if isinstance(result, KafkaError):
        code = _shown(result, knows_fenced=ctx.api_version >= FIRST_INIT_VERSION_WITH_FENCED)
    elif isinstance(result, Values) and result.state is TransactionState.PREPARE_ABORT:
        code = (
            ErrorCode.CONCURRENT_TRANSACTIONS
        )  # the present producer is fenced: the client retries until the abort is done
    else:
        ctx.respond(InitProducerIdResponse(producer_id=result.producer_id, producer_epoch=result.epoch))
        return
    ctx.respond(InitProducerIdResponse(error_code=code, producer_epoch=NO_EPOCH))


def _answer_ended(ctx: RequestContext, result: Values | Settled | KafkaError) -> None:
    if isinstance(result, KafkaError):
        code = _shown(result, knows_fenced=ctx.api_version >= FIRST_VERSION_WITH_FENCED)
        ctx.respond(EndTxnResponse(error_code=code))
        return
    producer = rules.answered(result) if isinstance(result, Values) else result
    ctx.respond(EndTxnResponse(producer_id=producer.producer_id, producer_epoch=producer.epoch))


def _answer_added(
    topics: Iterable[Any],
    answer: Callable[[list[Any]], None],
    result: Values | Settled | KafkaError,
    *,
    knows_fenced: bool,
) -> None:
    """The same code for each partition, as often as the request names it."""
    code = _shown(result, knows_fenced=knows_fenced) if isinstance(result, KafkaError) else ErrorCode.NONE
    row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    answer(
        [
            AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(
                topic.name, [row(number, code) for number in topic.partitions]
            )
            for topic in topics
        ]
    )


def _partitions(topics: Iterable[Any]) -> list[TopicPartition]:
    """All partitions of the request, each once."""
    return list(dict.fromkeys((topic.name, number) for topic in topics for number in topic.partitions))


def _topic_results(codes: Codes) -> list[Any]:
    by_topic: dict[str, list[Any]] = {}
    row = AddPartitionsToTxnResponse.AddPartitionsToTxnPartitionResult
    for (topic, number), code in codes.items():
        by_topic.setdefault(topic, []).append(row(number, code))
    return [AddPartitionsToTxnResponse.AddPartitionsToTxnTopicResult(name, rows) for name, rows in by_topic.items()]
