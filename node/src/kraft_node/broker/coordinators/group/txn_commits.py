"""TxnOffsetCommit (28), versions 0-5: offsets that become effective with a transaction (KIP-98, KIP-447, KIP-890).

The offsets wait in the group's partition until the transaction's marker arrives there (`offsets.OffsetTable`).

Versions: 2 leader epochs; 3 flexible, and the member that commits; 4 TRANSACTION_ABORTABLE; 5 adds the group's
partition to the transaction, which clients of earlier versions do themselves (AddOffsetsToTxn).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.coordinators.group import commits
from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.offsets import CommittedOffset
from kraft_node.broker.coordinators.group.records import SHARE, Change, OffsetChange
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_node.broker.coordinators.runtime.machine import PlannedWrite, TransactionalProducer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.base.env import Clock
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.seams import ClusterView, Transactions
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.broker.coordinators.runtime.engine import Runtime
    from kraft_node.log.producers.verification import Guard

FIRST_VERSION_WITHOUT_OLD_PRODUCERS: Final = 2
"""Producers before Kafka 2.3 crash on COORDINATOR_LOAD_IN_PROGRESS (KAFKA-7296)."""
FIRST_VERSION_WITH_ABORTABLE: Final = 4
FIRST_VERSION_THAT_ADDS: Final = 5

Topic = TxnOffsetCommitResponse.TxnOffsetCommitResponseTopic
Partition = TxnOffsetCommitResponse.TxnOffsetCommitResponsePartition


class TxnCommitApi:
    """Handler of the request."""

    __slots__ = ("_clock", "_cluster", "_config", "_runtime", "_transactions")

    def __init__(
        self,
        runtime: Runtime[Shard],
        cluster: ClusterView,
        config: GroupConfig,
        clock: Clock,
        transactions: Transactions,
    ) -> None:
        self._runtime = runtime
        self._cluster = cluster
        self._config = config
        self._clock = clock
        self._transactions = transactions

    def txn_offset_commit(self, ctx: RequestContext, request: TxnOffsetCommitRequest) -> Any:
        """Write the offsets once the transaction's coordinator has agreed. Unknown partitions are refused."""
        version = ctx.api_version
        accepted: list[Partition] = []
        changes: list[Change] = []
        topics: dict[str, list[Partition]] = {}
        for topic in request.topics:
            rows = topics.setdefault(topic.name, [])
            for asked in topic.partitions:
                row = Partition(asked.partition_index)
                rows.append(row)
                if not self._cluster.has_partition(topic.name, asked.partition_index):
                    row.error_code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
                    continue
                accepted.append(row)
                change = self._change(request.group_id, topic.name, asked)
                if change is None:
                    row.error_code = ErrorCode.OFFSET_METADATA_TOO_LARGE
                else:
                    changes.append(change)
        response = TxnOffsetCommitResponse(topics=[Topic(name, rows) for name, rows in topics.items()])
        if not accepted:
            return response

        def written(result: TxnOffsetCommitResponse | KafkaError) -> None:
            if isinstance(result, KafkaError):
                _refuse(accepted, result, version)
            ctx.respond(response)

        def verified(guard: Guard | KafkaError | None) -> None:
            if isinstance(guard, KafkaError):
                _refuse(accepted, guard, version)
                ctx.respond(response)
                return
            producer = TransactionalProducer(request.producer_id, request.producer_epoch, guard)

            def commit(shard: Shard) -> PlannedWrite[Change, TxnOffsetCommitResponse]:
                check_commit(shard, request, self._ids(changes))
                return PlannedWrite(changes, response, producer)

            self._runtime.write(request.group_id, commit, written)

        try:
            partition = self._partition_of(request.group_id)
        except KafkaError as error:
            _refuse(accepted, error, version)
            return response
        self._transactions.verify(
            partition,
            request.transactional_id,
            TransactionalProducer(request.producer_id, request.producer_epoch),
            verified,
            adds=version >= FIRST_VERSION_THAT_ADDS,
            names_abortable=version >= FIRST_VERSION_WITH_ABORTABLE,
        )
        return None

    def _ids(self, changes: list[Change]) -> list[tuple[Uuid, int]]:
        """The partitions by the ids of their topics."""
        found = []
        for change in changes:
            assert isinstance(change, OffsetChange), "law: only offsets are committed"
            found.append((self._cluster.topic_id(change.topic) or ZERO_UUID, change.partition))
        return found

    def _partition_of(self, group_id: str) -> int:
        """The group's partition, if it is coordinated here. Raises KafkaError."""
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID, "the group id is empty")
        return self._runtime.shard_of(group_id).partition

    def _change(self, group_id: str, topic: str, asked: Any) -> Change | None:
        """The record of a partition's offset; None if its metadata is too large."""
        if commits.metadata_too_large(asked.committed_metadata, self._config.offset_metadata_max_bytes):
            return None
        now_ms = self._clock.wall_ms()
        value = CommittedOffset(
            asked.committed_offset, asked.committed_leader_epoch, asked.committed_metadata or "", now_ms
        )
        return OffsetChange(group_id, topic, asked.partition_index, value)


def check_commit(shard: Shard, request: TxnOffsetCommitRequest, partitions: Iterable[tuple[Uuid, int]]) -> None:
    """Raise KafkaError unless the request may commit `partitions` for the group (a commit creates a missing group).

    A producer that does not know the consumer (before version 3) names no member. It may commit in every state.
    """
    generation, member_id = request.generation_id, request.member_id
    foreign = shard.foreign.get(request.group_id)
    if foreign is not None:
        if foreign.kind == SHARE:
            raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "share groups have no committed offsets")
        if generation >= 0:
            raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no members here")
        return
    names_member = generation >= 0 or bool(member_id) or request.group_instance_id is not None
    consumers = shard.consumers.get(request.group_id)
    if consumers is not None:
        if names_member and (generation >= 0 or consumers.members):
            _check_member(consumers, member_id, generation, partitions)
        return
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation >= 0:
            raise KafkaError(ErrorCode.ILLEGAL_GENERATION, f"group {request.group_id} not found")
        return
    if generation < 0 and group.state is ClassicState.EMPTY:
        return
    if names_member:
        group.validate_member(member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} is at {group.generation}, not {generation}"
            )


def _check_member(group: ConsumerGroup, member_id: str, epoch: int, partitions: Iterable[tuple[Uuid, int]]) -> None:
    """As for a plain commit; but the producer knows generations only."""
    try:
        commits.check_member_commit(group, member_id, epoch, commits.FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH, partitions)
    except KafkaError as error:
        if error.code != ErrorCode.STALE_MEMBER_EPOCH:
            raise
        raise KafkaError(ErrorCode.ILLEGAL_GENERATION, error.message) from error


def _refuse(partitions: list[Partition], error: KafkaError, version: int) -> None:
    code = client_error(error)
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS and version < FIRST_VERSION_WITHOUT_OLD_PRODUCERS:
        code = ErrorCode.COORDINATOR_NOT_AVAILABLE
    for row in partitions:
        row.error_code = code
