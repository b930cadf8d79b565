"""Chooses the assignor that most members prefer, and prepares what it gets: at once here, or for `own_targets`."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from kraft_node.broker.coordinators.group.consumer.assignors.own import (
    AssignorTask,
    GroupMember,
    GroupTopic,
    OwnAssignor,
)
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Assignor, Subscriber, Target
from kraft_node.broker.coordinators.group.consumer.group import ConsumerGroup
from kraft_node.broker.coordinators.group.consumer.member import MemberData
from kraft_node.broker.coordinators.group.consumer.rules import GroupTopicsView
from kraft_protocol.ids import Uuid

NOTHING: Target = {}


def preferred_assignor(votes: Counter[str], configured: Sequence[str]) -> str:
    """The configured name with most votes; the first configured name wins a tie, or without votes."""
    return max(configured, key=lambda name: votes[name])


def votes_of(members: Iterable[tuple[MemberData, Target]]) -> Counter[str]:
    """How many members prefer each assignor."""
    return Counter(member.assignor for member, _ in members if member.assignor is not None)


def compute_target(
    group: ConsumerGroup, members: Iterable[tuple[MemberData, Target]], topics: GroupTopicsView, assign: Assignor
) -> dict[str, Target]:
    """The target of each of `members` (with its earlier target), which are the group's members from now on."""
    ids: dict[frozenset[str], frozenset[Uuid]] = {}
    counts: dict[Uuid, int] = {}
    subscribers = []
    for member, earlier in members:
        names = group.topics_of(member)
        topic_ids = ids.get(names)
        if topic_ids is None:
            topic_ids = ids[names] = _existing(names, topics, counts)
        subscribers.append(Subscriber(member.member_id, member.instance_id, topic_ids, earlier))
    return assign(subscribers, counts)


def own_task(
    group: ConsumerGroup,
    epoch: int,
    members: Iterable[tuple[MemberData, Target]],
    topics: GroupTopicsView,
    assignor: OwnAssignor,
) -> AssignorTask:
    """The input of an own assignor."""
    ids: dict[str, Uuid] = {}
    described: dict[str, GroupTopic] = {}
    found: dict[str, GroupMember] = {}
    existing: dict[frozenset[str], frozenset[str]] = {}
    for member, earlier in members:
        names = group.topics_of(member)
        if names not in existing:
            existing[names] = frozenset(name for name in names if topics.partition_count(name))
        for name in existing[names] - ids.keys():
            topic_id, count = topics.topic_id(name), topics.partition_count(name)
            assert topic_id is not None, f"law: topic {name} with partitions has an id"
            assert count is not None, f"law: topic {name} with an id has partitions"
            ids[name] = topic_id
            described[name] = GroupTopic(count, tuple(map(frozenset, topics.partition_racks(name))))
        held = ((topics.topic_name(topic), numbers) for topic, numbers in earlier.items())
        partitions = {name: frozenset(numbers) for name, numbers in held if name is not None}
        found[member.member_id] = GroupMember(
            member.member_id, member.instance_id, member.rack_id, existing[names], partitions
        )
    return AssignorTask(assignor, epoch, found, described, ids)


def _existing(names: frozenset[str], topics: GroupTopicsView, counts: dict[Uuid, int]) -> frozenset[Uuid]:
    found = []
    for name in names:
        topic_id, count = topics.topic_id(name), topics.partition_count(name)
        if topic_id is not None and count:
            counts[topic_id] = count
            found.append(topic_id)
    return frozenset(found)
