"""OffsetCommit, OffsetFetch and OffsetDelete on the shard that has the group.

Topics arrive here as names; the caller has resolved topic ids and refused unknown topics.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from kraft_node.broker.coordinators.group.classic import State
from kraft_node.broker.coordinators.group.offsets import CommittedOffset, TopicOffsets
from kraft_node.broker.coordinators.group.records import SHARE, Change, OffsetChange
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.messages import OffsetFetchResponse

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.classic import ClassicGroup
    from kraft_node.broker.coordinators.group.rebalance import Rebalancer
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_protocol.wire.messages import OffsetCommitRequest

FIRST_COMMIT_VERSION_NAMING_MISSING_GROUP: Final = 9
NO_OFFSET: Final = -1

Partitions = OffsetFetchResponse.OffsetFetchResponsePartitions
Topics = OffsetFetchResponse.OffsetFetchResponseTopics


class WantedTopic(NamedTuple):
    """Partitions of one topic in a client's request; the id is zero if the request has a name."""

    name: str
    topic_id: Uuid
    partitions: list[int]


def check_commit(shard: Shard, rebalancer: Rebalancer, request: OffsetCommitRequest, version: int) -> None:
    """Raise KafkaError unless the request may commit for the group (a missing group is created by the commit).

    Members commit with their generation. Consumers without membership commit with generation -1, which is allowed only
    while the group has no members.
    """
    generation, member_id = request.generation_id_or_member_epoch, request.member_id
    foreign = shard.foreign.get(request.group_id)
    if foreign is not None:
        _check_foreign_commit(foreign.kind, generation)
        return
    group = shard.groups.get(request.group_id)
    if group is None:
        if generation < 0:
            return
        missing = version >= FIRST_COMMIT_VERSION_NAMING_MISSING_GROUP
        code = ErrorCode.GROUP_ID_NOT_FOUND if missing else ErrorCode.ILLEGAL_GENERATION
        raise KafkaError(code, f"group {request.group_id} not found")
    if generation < 0 and group.state is State.EMPTY:
        return
    if generation >= 0 or member_id or request.group_instance_id is not None:
        group.validate_member(member_id, request.group_instance_id)
        if generation != group.generation:
            raise KafkaError(
                ErrorCode.ILLEGAL_GENERATION, f"group {group.group_id} is at {group.generation}, not {generation}"
            )
    elif group.state is not State.EMPTY:
        raise KafkaError(ErrorCode.UNKNOWN_MEMBER_ID, f"group {group.group_id} has members: only they may commit")
    if group.state is State.COMPLETING:
        raise KafkaError(ErrorCode.REBALANCE_IN_PROGRESS, f"group {group.group_id} waits for its assignment")
    if group.state in {State.STABLE, State.PREPARING}:
        rebalancer.touch(group, group.members[member_id])


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


def fetch(shard: Shard, group_id: str, wanted: list[WantedTopic] | None, *, require_stable: bool) -> list[Topics]:
    """The requested committed offsets, or all if `wanted` is None; -1 if there is none.

    With `require_stable` a partition in an open transaction gives UNSTABLE_OFFSET_COMMIT, so that the client retries
    after the transaction (KIP-447).
    """
    table = shard.offsets
    exists = group_id in shard.groups or group_id in shard.foreign
    offsets: TopicOffsets = table.all_committed(group_id) if exists else {}
    if wanted is None:
        wanted = [WantedTopic(name, ZERO_UUID, list(partitions)) for name, partitions in offsets.items()]
    topics = []
    for topic in wanted:
        found = offsets.get(topic.name, {})
        partitions = []
        for index in topic.partitions:
            if require_stable and table.is_pending(group_id, topic.name, index):
                partitions.append(no_offset(index, ErrorCode.UNSTABLE_OFFSET_COMMIT))
                continue
            value = found.get(index)
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
    return Partitions(
        partition_index=partition,
        committed_offset=NO_OFFSET,
        committed_leader_epoch=-1,
        metadata="",
        error_code=code,
    )


def check_offset_delete(shard: Shard, group_id: str) -> ClassicGroup | None:
    """Raise KafkaError unless offsets of the group may be deleted. None for a group that is not classic.

    Offsets of topics that the group does not consume may be deleted in a group of consumers; other groups must be
    empty.
    """
    if group_id in shard.foreign:
        return None
    group = shard.groups.get(group_id)
    if group is None:
        raise KafkaError(ErrorCode.GROUP_ID_NOT_FOUND, f"group {group_id} not found")
    if group.state is not State.EMPTY and not group.uses_consumer_protocol:
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
