"""The uniform assignor: numbers of partitions that differ by at most one, and few moves.

All members with the same subscription: `_homogeneous`. Otherwise `uneven.assign`.
"""

from __future__ import annotations

from collections.abc import Mapping

from kraft_node.broker.coordinators.group.consumer.assignors import uneven
from kraft_node.broker.coordinators.group.consumer.assignors.spec import Subscriber, Target, is_homogeneous
from kraft_protocol.ids import Uuid


def assign(members: list[Subscriber], partitions: Mapping[Uuid, int]) -> dict[str, Target]:
    """Balance the partitions of all topics together."""
    if not members:
        return {}
    if is_homogeneous(members):
        topics = members[0].topics
        return _homogeneous(members, {topic: count for topic, count in partitions.items() if topic in topics})
    return uneven.assign(members, partitions)


def _homogeneous(members: list[Subscriber], partitions: Mapping[Uuid, int]) -> dict[str, Target]:
    """Each member keeps its partitions up to the quota; the rest fills members below it.

    The members that own more than the quota keep one partition more, as long as the division leaves partitions over.
    This moves the fewest partitions that a balanced assignment allows.
    """
    quota, extra = divmod(sum(partitions.values()), len(members))
    owned, free = _still_owned(members, partitions)
    sizes = {member_id: sum(map(len, topics.values())) for member_id, topics in owned.items()}
    larger = [member.member_id for member in members if sizes[member.member_id] > quota][:extra]
    if len(larger) < extra:
        taken = set(larger)
        others = [member.member_id for member in members if member.member_id not in taken]
        larger += others[: extra - len(larger)]
    has_extra = set(larger)
    result: dict[str, Target] = {}
    hungry: list[tuple[str, int]] = []
    for member in members:
        member_id = member.member_id
        room = quota + (member_id in has_extra) - sizes[member_id]
        if room < 0:
            _give_up(owned[member_id], -room, free)
        elif room > 0:
            hungry.append((member_id, room))
        kept = owned[member_id]
        result[member_id] = member.earlier if kept == member.earlier else kept
    _fill(result, hungry, free)
    return result


def _still_owned(
    members: list[Subscriber], partitions: Mapping[Uuid, int]
) -> tuple[dict[str, dict[Uuid, set[int]]], dict[Uuid, set[int]]]:
    """What members own of the existing partitions, each partition once, and the partitions without an owner."""
    free = {topic: set(range(count)) for topic, count in partitions.items()}
    owned: dict[str, dict[Uuid, set[int]]] = {}
    for member in members:
        kept = owned[member.member_id] = {}
        for topic, numbers in member.earlier.items():
            left = free.get(topic)
            if left:
                still = left.intersection(numbers)
                if still:
                    left -= still
                    kept[topic] = still
    return owned, free


def _give_up(kept: dict[Uuid, set[int]], surplus: int, free: dict[Uuid, set[int]]) -> None:
    """Move `surplus` partitions from `kept` to `free`: the highest numbers of the topics with most partitions."""
    while surplus:
        topic = max(kept, key=lambda t: (len(kept[t]), t))
        number = max(kept[topic])
        kept[topic].discard(number)
        free[topic].add(number)
        if not kept[topic]:
            del kept[topic]
        surplus -= 1


def _fill(result: dict[str, Target], hungry: list[tuple[str, int]], free: dict[Uuid, set[int]]) -> None:
    rest = iter([(topic, number) for topic in sorted(free) for number in sorted(free[topic])])
    for member_id, room in hungry:
        filled = {topic: set(numbers) for topic, numbers in result[member_id].items()}
        for _ in range(room):
            topic, number = next(rest)
            filled.setdefault(topic, set()).add(number)
        result[member_id] = filled
