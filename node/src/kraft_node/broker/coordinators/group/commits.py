"""OffsetCommit, OffsetFetch and OffsetDelete on the shard that has the group.

Topics arrive here as names; the caller has resolved topic ids and refused unknown topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.broker.coordinators.group.classic import ClassicState
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
from kraft_node.broker.coordinators.group.offsets import CommittedOffset, TopicOffsets
from kraft_node.broker.coordinators.group.records import SHARE, Change, OffsetChange
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.messages import OffsetFetchResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.broker.coordinators.group.classic import ClassicGroup
    from kraft_node.broker.coordinators.group.consumer.member import Current
    from kraft_node.broker.coordinators.group.rebalance import Rebalancer
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_protocol.wire.messages import OffsetCommitRequest

FIRST_COMMIT_VERSION_NAMING_MISSING_GROUP: Final = 9
FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH: Final = 9
NO_OFFSET: Final = -1

Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions
Topics = OffsetFetchResponse.OffsetFetchResponseTopics


class RequestedTopic(NamedTuple):
    """Partitions of one topic in a client's request; the id is zero if the request has a name."""

    name: str
    topic_id: Uuid
    partitions: list[int]


def check_commit(
    shard: Shard,
    rebalancer: Rebalancer,
    request: OffsetCommitRequest,
    version: int,
    partitions: Iterable[tuple[Uuid, int]],
) -> None:
    """Raise KafkaError unless the request may commit `partitions` for the group (a commit creates a missing group).

    Members commit with their generation or epoch. Consumers without membership commit with generation -1, which is
    allowed only while the group has no members.
    """
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    foreign = shard.foreign.get(request.group_id)
    if foreign is not None:
        _check_foreign_commit(foreign.kind, generation)
        return
    consumer_group = shard.consumers.get(request.group_id)
    if consumer_group is not None:
        if generation >= 0 or consumer_group.members:
            check_member_commit(consumer_group, member_id, generation, version, partitions)
        return
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation < 0:
            return
        missing = version >= FIRST_COMMIT_VERSION_NAMING_MISSING_GROUP
        code = ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"group {request.group_id} not found")
    if generation < 0 and group.state is ClassicState.EMPTY:
        return
    if generation >= 0 or member_id or request.group_instance_id is not None:
        group.validate_member(member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} is at {group.generation}, not {generation}"
            )
    elif group.state is not ClassicState.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has members: only they may commit")
    if group.state is ClassicState.COMPLETING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} waits for its assignment")
    if group.state in {ClassicState.STABLE, ClassicState.PREPARING}:
        rebalancer.touch(group, group.members[member_id])


def check_member_commit(
    group: ConsumerGroup, member_id: str, epoch: int, version: int, partitions: Iterable[tuple[Uuid, int]]
) -> None:
    """Raise KafkaError unless a member of a consumer group may commit.

    An older epoch is enough for partitions that the member holds since then (KIP-1251).
    """
    member = group.member(member_id)
    if member.classic is None and version < FIRST_COMMIT_VERSION_WITH_MEMBER_EPOCH:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            "OffsetCommit version 9 or above must be used by members using the modern group protocol",
        )
    current = group.holds(member_id)
    if epoch == current.epoch:
        return
    if epoch > current.epoch or not all(_held_since(current, *partition, epoch) for partition in partitions):
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"member {member_id} of {group.group_id} is at epoch {current.epoch}, not {epoch}")


def _held_since(current: Current, topic: Uuid, number: int, epoch: int) -> bool:
    """Whether the member has held the partition since `epoch` or earlier."""
    for held in (current.assigned, current.revoking):
        given = held.get(topic, {}).get(number)
        if given is not None:
            return given <= epoch
    return False


def check_fetch(shard: Shard, group_id: str, member_id: str | None, epoch: int) -> None:
    """Raise KafkaError unless offsets may be fetched: members of consumer groups name their present epoch."""
    group = shard.consumers.get(group_id)
    if group is None or (member_id is None and epoch < 0):
        return
    member = group.member(member_id or "")
    current = group.holds(member.member_id)
    if epoch != current.epoch:
        code = ErrorCode.STALE_MEMBER_EPOCH if member.classic is None else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"member {member_id} of {group_id} is at epoch {current.epoch}, not {epoch}")


def _check_foreign_commit(kind: str, generation: int) -> None:
    if kind == SHARE:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, "share groups have no committed offsets")
    if generation >= 0:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, "the group has no members here")


def metadata_too_large(metadata: str | None, limit: int) -> bool:
    """Whether a commit's metadata exceeds offset.metadata.max.bytes, which counts UTF-16 units as Java does."""
    if not metadata or len(metadata) * 2 <= limit:
        return False
    units = len(metadata) if metadata.isascii() else len(metadata.encode("utf-16-be", "surrogatepass")) // 2
    return units > limit


def fetch(shard: Shard, group_id: str, wanted: list[RequestedTopic] | None, *, require_stable: bool) -> list[Topics]:
    """The requested committed offsets, or all if `wanted` is None; -1 without a committed offset.

    With `require_stable` a partition in an open transaction gives UNSTABLE_OFFSET_COMMIT, so that the client retries
    after the transaction (KIP-447).
    """
    table = shard.offsets
    is_known = shard.exists(group_id)
    if wanted is None:
        offsets: TopicOffsets = table.all_committed(group_id) if is_known else {}
        wanted = [RequestedTopic(name, ZERO_UUID, list(partitions)) for name, partitions in offsets.items()]
    topics = []
    for topic in wanted:
        partitions = []
        for index in topic.partitions:
            if require_stable and table.is_pending(group_id, topic.name, index):
                partitions.append(no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = table.committed(group_id, topic.name, index) if is_known else None
            if value is None or _is_of_another_topic(value, topic.topic_id):
                partitions.append(no_offset(index))
                continue
            partitions.append(
                Partitions(
                    partition_index=index,
                    committed_offset=value.offset,
                    committed_leader_epoch=value.leader_epoch,
                    metadata=value.metadata,
                )
            )
        topics.append(Topics(name=topic.name, topic_id=topic.topic_id, partitions=partitions))
    return topics


def _is_of_another_topic(value: CommittedOffset, topic_id: Uuid) -> bool:
    """Whether the offset was committed for a deleted topic of the same name."""
    return ZERO_UUID not in {value.topic_id, topic_id} and value.topic_id != topic_id


def no_offset(partition: int, code: ErrorCode = ErrorCode.NONE) -> Partitions:
    """The row of OffsetFetch for a partition without a committed offset, or with an error."""
    return Partitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def check_offset_delete(shard: Shard, group_id: str) -> ClassicGroup | ConsumerGroup | None:
    """Raise KafkaError unless offsets of the group may be deleted. None for a group of a type that is not served here.

    Offsets of topics that the group does not consume may be deleted in a group of consumers; other groups must be
    empty.
    """
    if group_id in shard.foreign:
        return None
    consumer_group = shard.consumers.get(group_id)
    if consumer_group is not None:
        return consumer_group
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} not found")
    if group.state is not ClassicState.EMPTY and not group.uses_consumer_protocol:
        raise KafkaError(ErrorCode.NON_EMPTY_GROUP, f"group {group_id} is {group.state.value}")
    return group


def offset_removals(shard: Shard, group_id: str, topic: str, partitions: list[int]) -> list[Change]:
    """Tombstones for the partitions that have an offset."""
    table = shard.offsets
    return [
        OffsetChange(group_id, topic, p, None)
        for p in partitions
        if table.get(group_id, topic, p) is not None or table.is_pending(group_id, topic, p)
    ]
