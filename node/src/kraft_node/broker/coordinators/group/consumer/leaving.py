"""Plans of members that leave or are lost, and of groups that are removed."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.group.consumer.changes import (
    ConsumerChange,
    CurrentChange,
    EpochChange,
    GroupEpoch,
    MemberChange,
    OldTopicsChange,
    PatternChange,
    TargetChange,
    TargetEpochChange,
    member_removal,
)
from kraft_node.broker.coordinators.group.consumer.heartbeat import check_static, hash_of
from kraft_node.broker.coordinators.group.consumer.member import LEAVING_FOR_A_WHILE, MemberData

if TYPE_CHECKING:
    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.rules import GroupTopicsView
    from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest


def leaver(group: ConsumerGroup, request: ConsumerGroupHeartbeatRequest) -> MemberData:
    """The member that leaves with the request. Raises KafkaError."""
    instance_id = request.instance_id
    if instance_id is None:
        return group.member(request.member_id)
    return check_static(group.static_member(instance_id), request.member_id, instance_id)


def away(group: ConsumerGroup, member: MemberData) -> ConsumerChange:
    """The change if a static member leaves for a while."""
    held = group.holds(member.member_id)._replace(epoch=LEAVING_FOR_A_WHILE, revoking={})
    return CurrentChange(group.group_id, member.member_id, held)


def fence(group: ConsumerGroup, members: list[MemberData], topics: GroupTopicsView) -> list[ConsumerChange]:
    """The changes that remove members: their records, regular expressions that only they used, and the next epoch."""
    name = group.group_id
    changes = [change for member in members for change in member_removal(name, member.member_id)]
    for pattern, count in Counter(member.pattern for member in members if member.pattern).items():
        if group.patterns[pattern] <= count:
            changes.append(PatternChange(name, pattern, None))
    hashed = hash_of(group.topics_after(members, None), topics)
    changes.append(EpochChange(name, GroupEpoch(group.epoch + 1, hashed)))
    return changes


def removal(group: ConsumerGroup) -> list[ConsumerChange]:
    """The tombstones of all records of a group, from the dependent records to the group's record."""
    name = group.group_id
    changes: list[ConsumerChange] = [CurrentChange(name, member_id, None) for member_id in group.current]
    changes += [TargetChange(name, member_id, None) for member_id in group.targets]
    changes.append(TargetEpochChange(name, None))
    changes += [MemberChange(name, member_id, None) for member_id in group.members]
    changes += [PatternChange(name, pattern, None) for pattern in group.resolved]
    if group.has_old_topics:
        changes.append(OldTopicsChange(name))
    changes.append(EpochChange(name, None))
    return changes
