"""ConsumerGroupDescribe (0-1): the members of consumer groups with their assignments."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING

from kraft_node.broker.coordinators.group.consumer.targets import NOTHING, preferred_assignor
from kraft_protocol.wire.messages import ConsumerGroupDescribeResponse

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
    from kraft_node.broker.coordinators.group.consumer.member import Current
    from kraft_node.broker.coordinators.group.consumer.rules import GroupTopicsView
    from kraft_protocol.ids import Uuid

CLASSIC_MEMBER, CONSUMER_MEMBER = 0, 1

DescribedGroup = ConsumerGroupDescribeResponse.DescribedGroup
Row = ConsumerGroupDescribeResponse.Member
Assignment = ConsumerGroupDescribeResponse.Assignment
TopicPartitions = ConsumerGroupDescribeResponse.TopicPartitions


def describe(group: ConsumerGroup, topics: GroupTopicsView, assignors: Sequence[str]) -> DescribedGroup:
    """The group with all members."""
    return DescribedGroup(
        group_id=group.group_id,
        group_state=group.state.value,
        group_epoch=group.epoch,
        assignment_epoch=group.target_epoch.epoch,
        assignor_name=preferred_assignor(group.assignors, assignors),
        members=[_member(group, member_id, topics) for member_id in sorted(group.members)],
    )


def _member(group: ConsumerGroup, member_id: str, topics: GroupTopicsView) -> Row:
    member, current = group.members[member_id], group.holds(member_id)
    return Row(
        member_id=member_id,
        instance_id=member.instance_id,
        rack_id=member.rack_id,
        member_epoch=current.epoch,
        client_id=member.client_id,
        client_host=member.client_host,
        subscribed_topic_names=sorted(member.names),
        subscribed_topic_regex=member.pattern,
        assignment=_assignment(_used(current), topics),
        target_assignment=_assignment(group.targets.get(member_id, NOTHING), topics),
        member_type=CONSUMER_MEMBER if member.classic is None else CLASSIC_MEMBER,
    )


def _used(current: Current) -> dict[Uuid, set[int]]:
    """The partitions that the member may still use."""
    used: dict[Uuid, set[int]] = {}
    for held in (current.assigned, current.revoking):
        for topic_id, numbers in held.items():
            used.setdefault(topic_id, set()).update(numbers)
    return used


def _assignment(held: Mapping[Uuid, Collection[int]], topics: GroupTopicsView) -> Assignment:
    """Deleted topics are left out."""
    rows = []
    for topic_id in sorted(held):
        name = topics.topic_name(topic_id)
        if name is not None:
            rows.append(TopicPartitions(topic_id=topic_id, topic_name=name, partitions=sorted(held[topic_id])))
    return Assignment(topic_partitions=rows)
