"""The range assignor: contiguous partitions of every topic, so that topics with equal partition counts are co-located.

It is not sticky. Static members come first, by instance id, then the others by member id: a restart of static members
does not move their ranges.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping

from kraft_node.broker.coordinators.group.consumer.assignors.spec import Subscriber, Target
from kraft_protocol.ids import Uuid


def assign(members: list[Subscriber], partitions: Mapping[Uuid, int]) -> dict[str, Target]:
    """Divide each topic among its subscribers; the first subscribers get one partition more if it does not divide
    evenly."""
    ordered = sorted(members, key=_place)
    result: dict[str, dict[Uuid, frozenset[int]]] = {member.member_id: {} for member in members}
    subscribers: dict[Uuid, list[str]] = defaultdict(list)
    for member in ordered:
        for topic in member.topics:
            subscribers[topic].append(member.member_id)
    ranges: dict[tuple[int, int], list[frozenset[int]]] = {}
    for topic, ids in subscribers.items():
        count = partitions.get(topic, 0)
        parts = ranges.get((count, len(ids)))
        if parts is None:
            parts = ranges[count, len(ids)] = _ranges(count, len(ids))
        for member_id, part in zip(ids, parts, strict=False):
            result[member_id][topic] = part
    return dict(result)


def _place(member: Subscriber) -> tuple[bool, str]:
    """Members with an instance id first."""
    if member.instance_id is not None:
        return False, member.instance_id
    return True, member.member_id


def _ranges(partitions: int, members: int) -> list[frozenset[int]]:
    """The non-empty ranges, longer ranges first."""
    quota, extra = divmod(partitions, members)
    parts = []
    start = 0
    for i in range(min(members, partitions)):
        end = start + quota + (i < extra)
        parts.append(frozenset(range(start, end)))
        start = end
    return parts
