"""Produce (0), versions 3-13: append batches to partitions and return their offsets.

Versions: 7 zstd; 8 per-record errors (KIP-467); 9 flexible; 10 leader hints (KIP-951); 11, 12 transactions
(KIP-890); 13 topic ids (KIP-516). Versions 0-2 are advertised because librdkafka needs them (KAFKA-18659), and refused.

A transactional batch is appended like any other while its transaction is open in the partition: the log knows. If it
begins one there, it waits until the transaction coordinator has agreed (`producing.opening`).
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.turns import Turns
from kraft_node.broker.handlers.long_checks import LongChecks
from kraft_node.broker.leader_hints import hint_at_leaders
from kraft_node.broker.metadata_cache import is_internal
from kraft_node.broker.producing.batches import BatchRefused, check_whole, single_batch
from kraft_node.broker.producing.opening import (
    ADDING_VERSION,
    InPlace,
    LateAppend,
    Opening,
    check_one_producer,
    forgetting,
    refusal,
)
from kraft_node.broker.producing.waiting import WaitingProduce
from kraft_node.log.producers.verification import VERIFIED, Guard, Unverified
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_node.log.validate import Checked, LongCheck, LongRecode
from kraft_node.log.waiting.write_budget import AppendLater
from kraft_node.partition.acknowledged import Appended, appended, is_acknowledged
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ProduceResponse

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.base.env import Env
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.broker.self_fencing import SelfFence
    from kraft_node.broker.transactions.verifier import Verifier
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.table import TopicKey

log = logging.getLogger("kraft_node.broker.handlers.produce")

RECODING_LANE: Final = "recoding"
TOPIC_IDS_VERSION: Final = 13
LEADER_HINT_VERSION: Final = 10
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka lets the client with this id write internal topics."""
OPENED_AT_ONCE: Final = 8
"""Partitions without an open log that a request opens at once: each costs some tenths of a millisecond."""
APPENDED_AT_ONCE: Final = 500
"""Batches that a request appends at once; the rest are appended in turns."""
# Only these failed appends report the log start offset, as in Kafka.
_UNKNOWN: Final = frozenset((ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID))
_SILENT: Final = _UNKNOWN | frozenset(
    (
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class _Share:
    """The work that a request may do at once."""

    __slots__ = ("_appends", "_openings", "_replicas")

    def __init__(self, replicas: ReplicaManager) -> None:
        self._replicas = replicas
        self._openings = OPENED_AT_ONCE
        self._appends = APPENDED_AT_ONCE

    def is_used_up(self, key: TopicKey, index: int) -> bool:
        """Count an append to this partition. Returns whether it must wait for a turn."""
        self._appends -= 1
        if self._replicas.peek((key, index)) is None:
            self._openings -= 1
        return self._openings < 0 or self._appends < 0


class _Outcome:
    """The state of a request: rows decided so far."""

    __slots__ = ("ctx", "failed", "guard", "request", "topics", "unreplicated", "unverified", "wrong_leader")

    def __init__(
        self,
        ctx: RequestContext,
        request: Any,
        topics: list[Any],
        unreplicated: list[tuple[Appended, Any]] | None,
        wrong_leader: list[tuple[Any, Any]] | None,
        guard: Guard | None,
        *,
        failed: bool,
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.topics = topics
        self.unreplicated = unreplicated
        self.wrong_leader = wrong_leader
        self.unverified: list[LateAppend] = []
        """Batches that begin a transaction in their partition."""
        self.guard = guard
        """What the log gets for other batches."""
        self.failed = failed


class ProduceHandler:
    """Appends batches, and owns the requests that wait for replication."""

    def __init__(
        self, env: Env, replicas: ReplicaManager, metadata: MetadataCache, fence: SelfFence, verifier: Verifier
    ) -> None:
        self.env = env
        self.replicas = replicas
        self.metadata = metadata
        self.fence = fence
        self.clock = env.clock
        self.scheduler = env.scheduler
        self.waiting: set[WaitingProduce] = set()
        self.turns = Turns(env)
        """Runs the rest of requests with very many partitions."""
        self.long_checks = LongChecks(Turns(env))
        self.background = env.background
        self.verifier = verifier

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        if self.fence.fenced:
            self.fence.check()
        try:
            check_whole(
                request.topic_data, ctx.api_version, self._has, is_transactional=request.transactional_id is not None
            )
        except BatchRefused as refused:
            return self._refuse(ctx, request, refused)
        return self._append(ctx, request)

    def _append(self, ctx: RequestContext, request: Any) -> Any:
        """Append the batches. Returns the response, None if it comes later or none is wanted."""
        acks, valid_acks = request.acks, -1 <= request.acks <= 1
        by_topic_id = ctx.api_version >= TOPIC_IDS_VERSION
        now_ms = self.clock.wall_ms()
        guard = None if request.transactional_id is None else self._check_transaction(ctx, request, now_ms)
        topics: list[Any] = []
        answers: dict[TopicKey, list[Any]] = {}
        unreplicated: list[tuple[Appended, Any]] | None = None
        wrong_leader: list[tuple[Any, Any]] | None = None
        late: list[LateAppend] = []
        failed = False
        share: _Share | None = None
        for topic in request.topic_data:
            key: TopicKey = topic.topic_id if by_topic_id else topic.name
            rows = answers.setdefault(key, [])
            if topic.partition_data and not rows:
                topics.append(ProduceResponse.TopicProduceResponse(topic.name, topic.topic_id, rows))
            if share is None and len(topics) + len(topic.partition_data) > OPENED_AT_ONCE and valid_acks:
                share = _Share(self.replicas)
            for data in topic.partition_data:
                index = data.index
                if share is not None and share.is_used_up(key, index):
                    row = _row(index, ErrorCode.NONE)
                    late.append(LateAppend(key, row, None if data.records is None else bytes(data.records)))
                elif not valid_acks:
                    row = self._not_appended(ctx, key, data)
                else:
                    try:
                        partition = self.replicas.leader(key, index)
                        records = self._check(ctx, partition, data.records)
                        info = partition.append(records, acks, now_ms, guard=guard)
                    except (Unverified, LongCheck, LongRecode, AppendLater) as work:
                        row = _row(index, ErrorCode.NONE)
                        late.append(LateAppend(key, row, bytes(records), partition, forgetting(work)))
                    except KafkaError as error:
                        failed = True
                        if isinstance(error, LogIsRecovering) and data.records is not None:
                            error.refuses(data.records)
                        row = self._failed(key, index, error)
                        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                            wrong_leader = wrong_leader or []
                            wrong_leader.append(((key, index), row))
                    else:
                        row = ProduceResponse.PartitionProduceResponse(
                            index, 0, info.base_offset, info.log_append_time_ms, info.log_start_offset, []
                        )
                        if acks and not is_acknowledged(partition, info.last_offset + 1, acks):
                            unreplicated = unreplicated or []
                            unreplicated.append((appended(partition, info.last_offset + 1), row))
                rows.append(row)
        if acks and unreplicated is None and wrong_leader is None and not late:
            return ProduceResponse(topics)
        outcome = _Outcome(ctx, request, topics, unreplicated, wrong_leader, guard, failed=failed)
        if not late:
            return self._answer(outcome)
        ctx.connection.bar()
        self._go_on(outcome, deque(late))
        return None

    def _answer(self, outcome: _Outcome) -> Any:
        """The response; None while the request waits for replicas, or if no response is wanted."""
        ctx, request = outcome.ctx, outcome.request
        if request.acks == 0:
            self._end_unanswered(ctx, failed=outcome.failed)
            return None
        response = ProduceResponse(outcome.topics)
        if outcome.wrong_leader is not None and ctx.api_version >= LEADER_HINT_VERSION:
            hint_at_leaders(self.metadata, ctx.listener, outcome.wrong_leader, response)
        if outcome.unreplicated is not None:
            WaitingProduce(self.waiting, self.scheduler, ctx, request, response, outcome.unreplicated)
            return None
        return response

    def _go_on(self, outcome: _Outcome, late: deque[LateAppend], before: Callable[[], None] | None = None) -> None:
        """Append the batches in `late`, then the batches that begin transactions, then respond. The connection is
        barred.

        `before` comes first.
        """
        try:
            if before is not None:
                before()
            while late and isinstance(late[0].work, Unverified):
                outcome.unverified.append(late.popleft()._replace(work=None))
            if late:
                self._append_later(outcome, late)
                return
            if outcome.unverified:
                self._verify(outcome)
                return
            response = self._answer(outcome)
        except Exception:  # the connection must not stay blocked
            log.exception("request failed request=%r", outcome.ctx)
            outcome.ctx.close_connection()
            return
        outcome.ctx.connection.unbar()
        if response is not None:
            outcome.ctx.respond(response)

    def _append_later(self, outcome: _Outcome, late: deque[LateAppend]) -> None:
        """Open, check, compress and append the first batch in `late`, then go on with the others."""
        first = late.popleft()

        def ended(result: Checked | BaseException | None) -> None:
            def append() -> None:
                more = self._append_late(outcome, first, first.checked if result is None else result)
                if more is not None:
                    late.appendleft(more)

            self._go_on(outcome, late, append)

        work, records = first.work, first.records
        if work is None:

            def step() -> bool:
                ended(None)
                return False

            self.turns.add(step)
            return
        assert records is not None, "law: what is checked or compressed is there"
        if isinstance(work, LongCheck):
            self.long_checks.add(work.steps(records), ended)
        elif isinstance(work, AppendLater):
            work.budget.wait(len(records), partial(ended, None))
        else:
            assert isinstance(work, LongRecode), "law: `_go_on` takes out what is not verified"
            self.background.submit(RECODING_LANE, partial(work.work, records), ended)

    def _verify(self, outcome: _Outcome) -> None:
        """Verify the batches that begin transactions with the coordinator, append the allowed batches, and go on."""
        batches, outcome.unverified = outcome.unverified, []
        version = outcome.ctx.api_version

        def verified(results: list[tuple[LateAppend, ErrorCode]]) -> None:
            late: deque[LateAppend] = deque()

            def append() -> None:
                for number, (batch, code) in enumerate(results):
                    if code:
                        self._fail(outcome, batch, refusal(code, version))
                        continue
                    more = self._append_late(outcome, batch, batch.checked) if number < APPENDED_AT_ONCE else batch
                    if more is not None:
                        late.append(more)

            self._go_on(outcome, late, append)

        Opening(self.env, self.verifier, outcome.request.transactional_id, version, batches, verified).start()

    def _append_late(
        self, outcome: _Outcome, late: LateAppend, result: Checked | BaseException | None
    ) -> LateAppend | None:
        """Append a batch and note the outcome. Returns the batch if it must wait again, else None."""
        acks = outcome.request.acks
        row, partition, records = late.row, late.partition, late.records
        checked: Checked | None = None
        try:
            if isinstance(result, BaseException):
                raise result
            checked = result
            if (partition is None or late.guard is not None) and self.fence.fenced:
                self.fence.check()
            if partition is None:
                partition = self.replicas.leader(late.key, row.index)
                records = self._check(outcome.ctx, partition, records)
            assert records is not None, "law: a batch without records is refused"
            guard = late.guard or outcome.guard
            info = partition.append(records, acks, self.clock.wall_ms(), checked=checked, guard=guard)
        except Unverified:
            assert records is not None, "law: the log has seen it"
            outcome.unverified.append(
                late._replace(partition=partition, records=bytes(records), work=None, checked=checked)
            )
            return None
        except (LongCheck, LongRecode, AppendLater) as work:
            assert records is not None, "law: what is to be checked or compressed is there"
            return late._replace(partition=partition, records=bytes(records), work=forgetting(work), checked=checked)
        except KafkaError as error:
            self._fail(outcome, late, error)
            return None
        row.base_offset, row.log_append_time_ms = info.base_offset, info.log_append_time_ms
        row.log_start_offset = info.log_start_offset
        if acks and not is_acknowledged(partition, info.last_offset + 1, acks):
            outcome.unreplicated = outcome.unreplicated or []
            outcome.unreplicated.append((appended(partition, info.last_offset + 1), row))
        return None

    def _fail(self, outcome: _Outcome, late: LateAppend, error: KafkaError) -> None:
        """Note in the response that a late batch was not appended."""
        outcome.failed = True
        row = late.row
        if isinstance(error, LogIsRecovering) and late.records is not None:
            error.refuses(late.records)
        failed = self._failed(late.key, row.index, error)
        for name in row._fields:
            setattr(row, name, getattr(failed, name))
        if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            outcome.wrong_leader = outcome.wrong_leader or []
            outcome.wrong_leader.append(((late.key, row.index), row))

    def _check_transaction(self, ctx: RequestContext, request: Any, now_ms: int) -> Guard | None:
        """Check a request with a transactional id, and return what the log gets as the guard of its batches."""
        check_one_producer(request.topic_data)
        if ctx.api_version >= ADDING_VERSION:
            return None
        if not self.verifier.is_enabled:
            return VERIFIED
        return InPlace(self.verifier, request.transactional_id, ctx.api_version, now_ms)

    def _check(self, ctx: RequestContext, partition: Partition, records: Any) -> Any:
        """The single batch in `records`, after the checks that precede the log's. Raises KafkaError."""
        if is_internal(partition.topic) and ctx.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
        return single_batch(records, ctx.api_version)

    def _has(self, topic: Any, index: int) -> bool:
        """Whether the topic of a request by names has this partition."""
        return self.metadata.partition(topic.name, index) is not None

    def _refuse(self, ctx: RequestContext, request: Any, error: BatchRefused) -> Any:
        """The response to a request of which nothing is appended."""
        if request.acks == 0:
            self._end_unanswered(ctx, failed=True)
            return None
        return ProduceResponse(
            [
                ProduceResponse.TopicProduceResponse(
                    topic.name,
                    topic.topic_id,
                    [self._failed(topic.name, data.index, error) for data in topic.partition_data],
                )
                for topic in request.topic_data
            ]
        )

    def _not_appended(self, ctx: RequestContext, key: TopicKey, data: Any) -> Any:
        """The row of a partition in a request with invalid `acks`: unknown partitions and invalid batches come first,
        as in Kafka.
        """
        try:
            if self.metadata.partition(key, data.index) is None:
                self.replicas.leader(key, data.index)  # raises the error
            single_batch(data.records, ctx.api_version)
        except KafkaError as error:
            if isinstance(error, BatchRefused) or error.code in _UNKNOWN:
                return self._failed(key, data.index, error)
        return _row(data.index, ErrorCode.INVALID_REQUIRED_ACKS)

    def _failed(self, key: TopicKey, index: int, error: KafkaError) -> Any:
        row = _row(index, error.code)
        if isinstance(error, BatchRefused):
            row.error_message = error.words
        elif error.code not in _SILENT:
            partition = self.replicas.peek((key, index))
            if partition is not None:
                row.log_start_offset = partition.log.start_offset
        bad_records = getattr(error, "record_errors", None)
        if bad_records:
            row.record_errors = [
                ProduceResponse.BatchIndexAndErrorMessage(batch_index, message) for batch_index, message in bad_records
            ]
            row.error_message = error.message
        return row

    def _end_unanswered(self, ctx: RequestContext, *, failed: bool) -> None:
        """acks=0: send no response. After a failure, close the connection: the producer gets no other sign."""
        ctx.respond(None)
        if failed:
            close = getattr(ctx.connection, "close", None)
            if close is not None:
                close()


def _row(index: int, code: int) -> Any:
    return ProduceResponse.PartitionProduceResponse(index, code, -1)
