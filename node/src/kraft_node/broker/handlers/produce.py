"""Produce (0), versions 3-13: append batches to partitions and return their offsets.

Versions: 7 zstd; 8 per-record errors (KIP-467); 9 flexible; 10 leader hints (KIP-951); 11, 12 transactions
(KIP-890); 13 topic ids (KIP-516). Versions 0-2 are advertised because librdkafka needs them (KAFKA-18659), and refused.

Deviations: transactional batches are refused while there is no transaction coordinator.
"""

from __future__ import annotations

import logging
from collections import deque
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft_node.base.turns import Turns
from kraft_node.broker.handlers.long_checks import LongChecks
from kraft_node.broker.leader_hints import hint_at_leaders
from kraft_node.broker.metadata_cache import is_internal
from kraft_node.log.recovery.background import LogIsRecovering
from kraft_node.log.validate import Checked, LongCheck, LongRecode
from kraft_node.log.waiting.write_budget import AppendLater
from kraft_node.partition.acks import ACKS_ALL, Appended, appended, is_acknowledged, when_acknowledged
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ProduceResponse

if TYPE_CHECKING:
    from kraft_node.base.env import Timer
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.table import TopicKey

log = logging.getLogger("kraft_node.broker.handlers.produce")

RECODING_LANE: Final = "recoding"
TOPIC_IDS_VERSION: Final = 13
LEADER_HINT_VERSION: Final = 10
ZSTD_VERSION: Final = 7
ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka lets the client with this id write internal topics."""
LOG_OVERHEAD: Final = 12
LEGACY_OVERHEAD: Final = 14
"""The minimum length of a message in any format."""
LENGTH_MAX: Final = 2**31 - 1 - LOG_OVERHEAD
"""The largest batch length that Java can represent."""
MAGIC_OFFSET: Final = 16
ATTRIBUTES_OFFSET: Final = 21
CODEC_MASK: Final = 7
ZSTD: Final = 4
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
OPENED_AT_ONCE: Final = 8
"""Partitions without an open log that a request opens at once: each costs some tenths of a millisecond."""
APPENDED_AT_ONCE: Final = 500
"""Batches that a request appends at once; the rest are appended in turns."""
WAITING_MAX: Final = 20_000
"""Produce requests that may wait for replication; further requests get a retriable error."""
# Only these failed appends report the log start offset, as in Kafka.
_SILENT: Final = frozenset(
    (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    )
)


class _Refused(KafkaError):  # noqa: N818 - an answer, not a fault
    """Refused before the log is involved; `words` go into the response."""

    def __init__(self, code: ErrorCode, message: str, words: str | None = None) -> None:
        super().__init__(code, message)
        self.words = words


class _LateAppend(NamedTuple):
    """A batch that is appended in a later turn; `row` is its index in the response."""

    key: TopicKey
    row: Any
    records: bytes | None
    partition: Partition | None = None
    """None: the partition must be looked up first, which may open its log."""
    work: LongCheck | LongRecode | AppendLater | None = None
    """Work to do, or to wait for, before the append."""


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

    __slots__ = ("ctx", "failed", "request", "topics", "unreplicated", "wrong_leader")

    def __init__(
        self,
        ctx: RequestContext,
        request: Any,
        topics: list[Any],
        unreplicated: list[tuple[Appended, Any]] | None,
        wrong_leader: list[tuple[Any, Any]] | None,
        *,
        failed: bool,
    ) -> None:
        self.ctx = ctx
        self.request = request
        self.topics = topics
        self.unreplicated = unreplicated
        self.wrong_leader = wrong_leader
        self.failed = failed


class ProduceHandler:
    """Appends batches, and owns the requests that wait for replication."""

    def __init__(self, broker: Broker) -> None:
        self.broker = broker
        self.replicas = broker.replicas
        self.clock = broker.env.clock
        self.waiting: set[WaitingProduce] = set()
        self.turns = Turns(broker.env)
        """Runs the rest of requests with very many partitions."""
        self.long_checks = LongChecks(Turns(broker.env))
        self.background = broker.env.background

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        if self.broker.fence.fenced:
            self.broker.fence.check()
        acks = request.acks
        by_topic_id = ctx.api_version >= TOPIC_IDS_VERSION
        valid_acks = -1 <= acks <= 1
        now_ms = self.clock.wall_ms()
        topics: list[Any] = []
        answers: dict[TopicKey, list[Any]] = {}
        unreplicated: list[tuple[Appended, Any]] | None = None
        wrong_leader: list[tuple[Any, Any]] | None = None
        late: list[_LateAppend] = []
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
                    late.append(_LateAppend(key, row, None if data.records is None else bytes(data.records)))
                elif not valid_acks:
                    row = _row(index, ErrorCode.INVALID_REQUIRED_ACKS)
                else:
                    try:
                        partition = self.replicas.leader(key, index)
                        records = self._check(ctx, partition, data.records, request.transactional_id)
                        info = partition.append(records, acks, now_ms)
                    except (LongCheck, LongRecode, AppendLater) as work:
                        row = _row(index, ErrorCode.NONE)
                        late.append(_LateAppend(key, row, bytes(records), partition, work))
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
        outcome = _Outcome(ctx, request, topics, unreplicated, wrong_leader, failed=failed)
        if not late:
            return self._answer(outcome)
        ctx.connection.bar()
        self._append_later(outcome, deque(late))
        return None

    def _answer(self, outcome: _Outcome) -> Any:
        """The response; None while the request waits for replicas, or if no response is wanted."""
        ctx, request = outcome.ctx, outcome.request
        if request.acks == 0:
            self._end_unanswered(ctx, failed=outcome.failed)
            return None
        response = ProduceResponse(outcome.topics)
        if outcome.wrong_leader is not None and ctx.api_version >= LEADER_HINT_VERSION:
            hint_at_leaders(self.broker.metadata, ctx.listener, outcome.wrong_leader, response)
        if outcome.unreplicated is not None:
            WaitingProduce(self, ctx, request, response, outcome.unreplicated)
            return None
        return response

    def _append_later(self, outcome: _Outcome, late: deque[_LateAppend]) -> None:
        """Open, check, compress and append the batches in `late` one after another, then respond."""
        first = late[0]

        def ended(result: Checked | BaseException | None) -> None:
            try:
                more = self._append_late(outcome, first, result)
                if more is None:
                    late.popleft()
                else:
                    late[0] = more
                if late:
                    self._append_later(outcome, late)
                    return
                response = self._answer(outcome)
            except Exception:  # the connection must not stay blocked
                log.exception("request failed request=%r", outcome.ctx)
                outcome.ctx.close_connection()
                return
            outcome.ctx.connection.unbar()
            if response is not None:
                outcome.ctx.respond(response)

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
            self.background.submit(RECODING_LANE, partial(work.work, records), ended)

    def _append_late(
        self, outcome: _Outcome, late: _LateAppend, result: Checked | BaseException | None
    ) -> _LateAppend | None:
        """Append a batch and note the outcome. Returns the batch if it must wait again, else None."""
        acks = outcome.request.acks
        row, partition, records = late.row, late.partition, late.records
        try:
            if isinstance(result, BaseException):
                raise result
            if partition is None:
                if self.broker.fence.fenced:
                    self.broker.fence.check()
                partition = self.replicas.leader(late.key, row.index)
                records = self._check(outcome.ctx, partition, records, outcome.request.transactional_id)
            assert records is not None, "law: a batch without records is refused"
            info = partition.append(records, acks, self.clock.wall_ms(), checked=result)
        except (LongCheck, LongRecode, AppendLater) as work:
            assert records is not None, "law: what is to be checked or compressed is there"
            return late._replace(partition=partition, records=bytes(records), work=work)
        except KafkaError as error:
            outcome.failed = True
            if isinstance(error, LogIsRecovering) and records is not None:
                error.refuses(records)
            failed = self._failed(late.key, row.index, error)
            for name in row._fields:
                setattr(row, name, getattr(failed, name))
            if error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
                outcome.wrong_leader = outcome.wrong_leader or []
                outcome.wrong_leader.append(((late.key, row.index), row))
            return None
        row.base_offset, row.log_append_time_ms = info.base_offset, info.log_append_time_ms
        row.log_start_offset = info.log_start_offset
        if acks and not is_acknowledged(partition, info.last_offset + 1, acks):
            outcome.unreplicated = outcome.unreplicated or []
            outcome.unreplicated.append((appended(partition, info.last_offset + 1), row))
        return None

    def _check(self, ctx: RequestContext, partition: Partition, records: Any, transactional_id: str | None) -> Any:
        """The single batch in `records`, after the checks that precede the log's. Raises KafkaError."""
        if is_internal(partition.topic) and ctx.client_id != ADMIN_CLIENT_ID:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot append to internal topic {partition.topic}")
        size = 0 if records is None else len(records)
        version = ctx.api_version
        if size <= MAGIC_OFFSET or records[MAGIC_OFFSET] != 2 or int.from_bytes(records[8:12], "big") + 12 != size:
            records = _only_batch(records, size, version)
            size = len(records)
        if size <= ATTRIBUTES_OFFSET + 1:
            raise _Refused(ErrorCode.CORRUPT_MESSAGE, f"{size} bytes are less than a record batch")
        attributes = records[ATTRIBUTES_OFFSET] << 8 | records[ATTRIBUTES_OFFSET + 1]
        if attributes & CODEC_MASK == ZSTD and version < ZSTD_VERSION:
            raise _Refused(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use ZStandard compression",
            )
        if attributes & CODEC_MASK > ZSTD:
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown compression type id: {attributes & CODEC_MASK}")
        if attributes & CONTROL_BIT:
            raise KafkaError(ErrorCode.INVALID_RECORD, "Clients are not allowed to write control records")
        if attributes & TRANSACTIONAL_BIT:
            if transactional_id is None:
                raise _Refused(
                    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "transactional records without a transactional id"
                )
            raise _Refused(
                ErrorCode.INVALID_TXN_STATE, "no transaction coordinator has added this partition to a transaction"
            )
        return records

    def _failed(self, key: TopicKey, index: int, error: KafkaError) -> Any:
        row = _row(index, error.code)
        if isinstance(error, _Refused):
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


def _only_batch(records: Any, size: int, version: int) -> Any:
    """The single batch in `records`; up to a few bytes after it are ignored.

    Raises KafkaError unless there is exactly one batch in the current format.
    """
    end = _batch_end(records, 0, size)
    said = f"Produce requests with version {version}"
    if end < 0:
        raise _Refused(ErrorCode.INVALID_RECORD, f"{said} must have at least one record batch per partition")
    if _batch_end(records, end, size) >= 0:
        raise _Refused(
            ErrorCode.INVALID_RECORD, f"{said} are only allowed to contain exactly one record batch per partition"
        )
    if records[MAGIC_OFFSET] != 2:
        raise _Refused(
            ErrorCode.INVALID_RECORD, f"{said} are only allowed to contain record batches with magic version 2"
        )
    return records[:end]


def _batch_end(records: Any, start: int, size: int) -> int:
    """The end of the batch at `start`; -1 if no whole batch is there (Kafka's ByteBufferLogInputStream)."""
    if size - start < LOG_OVERHEAD:
        return -1
    length = int.from_bytes(records[start + 8 : start + 12], "big", signed=True)
    if length < LEGACY_OVERHEAD:
        why = f"Record size {length} is less than the minimum record overhead ({LEGACY_OVERHEAD})"
        raise _Refused(ErrorCode.CORRUPT_MESSAGE, why, None if start else why)
    if size - start <= MAGIC_OFFSET:
        return -1
    magic = records[start + MAGIC_OFFSET]
    if magic > 2:
        why = f"Invalid magic found in record: {magic - 256 if magic > 127 else magic}"
        raise _Refused(ErrorCode.CORRUPT_MESSAGE, why, None if start else why)
    if length > LENGTH_MAX:
        raise _Refused(ErrorCode.UNKNOWN_SERVER_ERROR, f"a batch of {length} bytes")
    end = start + LOG_OVERHEAD + length
    return end if end <= size else -1


def _row(index: int, code: int) -> Any:
    return ProduceResponse.PartitionProduceResponse(index, code, -1)


class WaitingProduce:
    """A request that is appended but must not be answered yet.

    With acks=all, an in-sync replica lacks records (Kafka's DelayedProduce). With acks=1, a flush for `flush.messages`
    is under way; it has no time limit, because Kafka's append would block until it ends.
    """

    __slots__ = ("ctx", "handler", "pending", "response", "timer")

    def __init__(
        self,
        handler: ProduceHandler,
        ctx: RequestContext,
        request: Any,
        response: Any,
        unreplicated: list[tuple[Appended, Any]],
    ) -> None:
        self.handler = handler
        self.ctx = ctx
        self.response = response
        self.pending: set[_PendingAck] = set()
        self.timer: Timer | None = None
        if len(handler.waiting) >= WAITING_MAX:
            for _, row in unreplicated:
                _fail(row, ErrorCode.REQUEST_TIMED_OUT)
            ctx.respond(response)
            return
        handler.waiting.add(self)
        acks = [(_PendingAck(self, each.partition, row), each) for each, row in unreplicated]
        self.pending.update(ack for ack, _ in acks)
        if request.acks == ACKS_ALL:
            self.timer = handler.broker.env.scheduler.call_later(request.timeout_ms, self._expired)
        for ack, each in acks:
            when_acknowledged(each, request.acks, ack)

    def settled(self, ack: _PendingAck) -> None:
        if ack not in self.pending:
            return  # too late: already answered
        self.pending.discard(ack)
        if not self.pending:
            self._finish()

    def _expired(self) -> None:
        for ack in self.pending:
            ack.partition.forget_ack(ack)
            _fail(ack.row, ErrorCode.REQUEST_TIMED_OUT)
        self.pending.clear()
        self._finish()

    def _finish(self) -> None:
        if self.timer is not None:
            self.timer.cancel()
        self.handler.waiting.discard(self)
        self.ctx.respond(self.response)


class _PendingAck:
    """One partition of a waiting request; called when it is decided."""

    __slots__ = ("owner", "partition", "row")

    def __init__(self, owner: WaitingProduce, partition: Partition, row: Any) -> None:
        self.owner = owner
        self.partition = partition
        self.row = row

    def __call__(self, code: ErrorCode) -> None:
        if code:
            _fail(self.row, code)
        self.owner.settled(self)


def _fail(row: Any, code: ErrorCode) -> None:
    """Fail a row; as in Kafka, it keeps the offsets of the append even if replication failed."""
    row.error_code = code
