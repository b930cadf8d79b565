"""Expired offsets and groups (KIP-211), and offsets of deleted topics.

An offset expires `offsets.retention.minutes` after
- the group became empty, if the group had members;
- its last commit, if it was committed without membership or in a consumer group, or if an active group of consumers no
  longer consumes its topic.

An empty group is removed with its last offset. An offset with its own retention time (OffsetCommit v2 to v4) uses that
time.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.group.classic import ClassicGroup, ClassicState
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup, GroupState
from kraft_node.broker.coordinators.group.records import SHARE, Change, OffsetChange
from kraft_protocol.ids import ZERO_UUID, Uuid

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.broker.coordinators.group.offsets import CommittedOffset
    from kraft_node.broker.coordinators.group.shard_state import ShardState


def expired(shard: ShardState, group_id: str) -> list[Change]:
    """Tombstones for the expired offsets of one group, and for the group itself if nothing is left of it."""
    group = shard.groups.get(group_id) or shard.consumers.get(group_id)
    foreign = shard.foreign.get(group_id)
    if foreign is not None and foreign.kind == SHARE:
        return []
    table = shard.offsets
    changes: list[Change] = []
    offsets = table.groups.get(group_id)
    nothing_left = not table.has_open_transactions(group_id)
    if offsets is not None:
        base = _base_time(group)
        if base is None:
            return []
        now = shard.clock.wall_ms()
        retention = shard.config.offsets_retention_ms
        for topic, partitions in offsets.items():
            if group is not None and group.is_subscribed_to(topic):
                nothing_left = False
                continue
            for partition, value in partitions.items():
                due = base(value) + retention if value.expire_ms is None else value.expire_ms
                if now >= due and not table.is_pending(group_id, topic, partition):
                    changes.append(OffsetChange(group_id, topic, partition, None))
                else:
                    nothing_left = False
    if nothing_left and (group is None or group.state in {ClassicState.EMPTY, GroupState.EMPTY}):
        changes += shard.removal_of(group_id)
    return changes


def _base_time(group: ClassicGroup | ConsumerGroup | None) -> Callable[[CommittedOffset], int] | None:
    """The start of an offset's retention time; None if the group's offsets must not expire."""

    def commit_time(value: CommittedOffset) -> int:
        return value.commit_ms

    if group is None or isinstance(group, ConsumerGroup) or group.protocol_type is None:
        return commit_time
    if group.state is ClassicState.EMPTY:
        since = group.state_since_ms
        return commit_time if since is None else lambda _: since
    if group.state is ClassicState.STABLE and group.uses_consumer_protocol and group.subscribed is not None:
        return commit_time
    return None


def of_deleted_topics(shard: ShardState, deleted: dict[str, Uuid], group_id: str) -> list[Change]:
    """Tombstones for the group's offsets of the deleted topics; offsets of a newer topic with the same name stay."""
    changes: list[Change] = []
    table = shard.offsets
    for topic, partition in table.keys(group_id):
        topic_id = deleted.get(topic)
        if topic_id is None:
            continue
        value = table.get(group_id, topic, partition)
        if value is None or value.topic_id in {ZERO_UUID, topic_id}:
            changes.append(OffsetChange(group_id, topic, partition, None))
    return changes
