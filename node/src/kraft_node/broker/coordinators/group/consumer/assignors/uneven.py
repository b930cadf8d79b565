"""The uniform assignor for members with different subscriptions.

Topics with the same subscribers form a class; a class is balanced as a whole. Members keep what they still subscribe
to. Free partitions go to the least loaded subscriber, the classes with most partitions per subscriber first. Then
partitions move from the most to the least loaded subscriber of a class, until the loads differ by at most one within
every class, or until `MAX_ROUNDS`. Then partitions move along chains: a member gives a partition to a second member,
which gives a partition of another class to a third member. If no chain connects loads that differ by two, no assignment
is more even. At last, members get partitions back that were moved needlessly.
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Iterator, Mapping
from typing import Final

from kraft_node.broker.coordinators.group.consumer.assignors.spec import Subscriber, Target
from kraft_protocol.ids import Uuid

MAX_ROUNDS: Final = 16
"""Balancing one class may unbalance another: after this many rounds only chains are left."""
MAX_CHAINS: Final = 1_000
"""The remaining differences of a larger group stay."""


class _Class:
    """The topics with one set of subscribers; members are numbers."""

    __slots__ = ("free", "members", "topics")

    def __init__(self, members: list[int]) -> None:
        self.members = members
        self.topics: set[Uuid] = set()
        self.free: list[tuple[Uuid, int]] = []


def assign(members: list[Subscriber], partitions: Mapping[Uuid, int]) -> dict[str, Target]:
    """Balance as far as the subscriptions allow, with few moves."""
    return _Balance(members, partitions).result()


class _Balance:
    def __init__(self, members: list[Subscriber], partitions: Mapping[Uuid, int]) -> None:
        self._members = members
        self._owned: list[dict[Uuid, set[int]]] = [{} for _ in members]
        self._load = [0] * len(members)
        self._counts = partitions
        self._classes = self._by_subscribers(partitions)
        self._keep(partitions)
        for group in self._classes:
            self._hand_out(group)
        for _ in range(MAX_ROUNDS):
            moved = [self._level(group) for group in self._classes]
            if not any(moved):
                break
        self._even_out()
        self._give_back()

    def result(self) -> dict[str, Target]:
        return {
            member.member_id: member.earlier if owned == member.earlier else owned
            for member, owned in zip(self._members, self._owned, strict=True)
        }

    def _by_subscribers(self, partitions: Mapping[Uuid, int]) -> list[_Class]:
        """The classes, in the order in which they are handed out.

        Members with equal subscriptions are handled together: few subscriptions differ.
        """
        members: dict[frozenset[Uuid], list[int]] = defaultdict(list)
        for number, member in enumerate(self._members):
            members[member.topics].append(number)
        subscriptions = list(members)
        subscribed: dict[Uuid, list[int]] = defaultdict(list)
        for index, topics in enumerate(subscriptions):
            for topic in topics:
                subscribed[topic].append(index)
        classes: dict[tuple[int, ...], _Class] = {}
        for topic in partitions.keys() & subscribed.keys():
            indexes = tuple(subscribed[topic])
            found = classes.get(indexes)
            if found is None:
                ids = sorted(number for index in indexes for number in members[subscriptions[index]])
                found = classes[indexes] = _Class(ids)
            found.topics.add(topic)

        def order(group: _Class) -> tuple[float, int, Uuid]:
            total = sum(partitions[topic] for topic in group.topics)
            return -total / len(group.members), len(group.members), min(group.topics)

        return sorted(classes.values(), key=order)

    def _keep(self, partitions: Mapping[Uuid, int]) -> None:
        """Members keep their partitions of topics to which they still subscribe; the rest is free."""
        free = {topic: set(range(count)) for topic, count in partitions.items()}
        for number, member in enumerate(self._members):
            for topic, numbers in member.earlier.items():
                if topic in member.topics and topic in free:
                    kept = free[topic].intersection(numbers)
                    if kept:
                        free[topic] -= kept
                        self._owned[number][topic] = kept
                        self._load[number] += len(kept)
        for group in self._classes:
            group.free = [(topic, number) for topic in sorted(group.topics) for number in sorted(free[topic])]

    def _hand_out(self, group: _Class) -> None:
        load = self._load
        least = [(load[number], number) for number in group.members]
        heapq.heapify(least)
        for topic, partition in group.free:
            _, number = least[0]
            self._owned[number].setdefault(topic, set()).add(partition)
            load[number] += 1
            heapq.heapreplace(least, (load[number], number))

    def _level(self, group: _Class) -> bool:
        """Move partitions of the class until its subscribers' loads differ by at most one, or none can be moved.

        Loads in a heap may be out of date; they are corrected when they come to the top.
        """
        load = self._load
        loads = [load[number] for number in group.members]
        if max(loads) - min(loads) <= 1:
            return False
        stock = {number: self._stock(number, group) for number in group.members}
        most = [(-load[number], number) for number, held in stock.items() if held]
        least = [(load[number], number) for number in group.members]
        heapq.heapify(most)
        heapq.heapify(least)
        moved = False
        while most:
            negative, donor = most[0]
            below, receiver = least[0]
            if not stock[donor]:
                heapq.heappop(most)
            elif -negative != load[donor]:
                heapq.heapreplace(most, (-load[donor], donor))
            elif below != load[receiver]:
                heapq.heapreplace(least, (load[receiver], receiver))
            elif load[donor] - below <= 1:
                break
            else:
                _, topic, partition = stock[donor].pop()
                self._move(donor, receiver, topic, partition)
                moved = True
        return moved

    def _stock(self, number: int, group: _Class) -> list[tuple[bool, Uuid, int]]:
        """The partitions of the class that a member holds; the last partitions, which it has only now, are given away
        first."""
        owned, earlier = self._owned[number], self._members[number].earlier
        held = group.topics.intersection(owned)
        return sorted(
            (partition not in earlier.get(topic, ()), topic, partition) for topic in held for partition in owned[topic]
        )

    def _even_out(self) -> None:
        """Move partitions along chains, from the most loaded members on.

        No chain begins, ends or passes at the `closed` members: a search from them has found no member with two
        partitions less.
        """
        load = self._load
        class_of = {topic: group for group in self._classes for topic in group.topics}
        closed: set[int] = set()
        most = [(-count, number) for number, count in enumerate(load)]
        heapq.heapify(most)
        chains = 0
        while most and chains < MAX_CHAINS:
            negative, start = heapq.heappop(most)
            if -negative != load[start] or start in closed:
                continue
            chain, reached = self._chain(start, class_of, closed)
            if not chain:
                closed |= reached
                continue
            chains += 1
            for donor, receiver, group in chain:
                topic, partition = self._stock(donor, group)[-1][1:]
                self._move(donor, receiver, topic, partition)
            for number in (start, chain[0][1]):
                heapq.heappush(most, (-load[number], number))

    def _chain(
        self, start: int, class_of: Mapping[Uuid, _Class], closed: set[int]
    ) -> tuple[list[tuple[int, int, _Class]], set[int]]:
        """The shortest chain to a member with two partitions less, from its end to `start`; and the members seen."""
        came: dict[int, tuple[int, _Class]] = {}
        seen, queue = {start}, [start]
        classes: set[int] = set()
        for donor in queue:
            for topic in self._owned[donor]:
                group = class_of[topic]
                if id(group) in classes:
                    continue
                classes.add(id(group))
                for other in group.members:
                    if other in seen or other in closed:
                        continue
                    seen.add(other)
                    came[other] = donor, group
                    queue.append(other)
                    if self._load[start] - self._load[other] > 1:
                        return _back(came, other), seen
        return [], seen

    def _give_back(self) -> None:
        """Return partitions to their earlier owners, alone or for others, without making loads less even."""
        away = [(number, *part) for number in range(len(self._members)) for part in self._away(number)]
        if not away:
            return
        holders = {
            (topic, partition): holder
            for holder, owned in enumerate(self._owned)
            for topic, numbers in owned.items()
            for partition in numbers
        }
        load = self._load
        for number, topic, partition in away:
            holder = holders[topic, partition]
            if partition in self._members[holder].earlier.get(topic, ()):
                continue  # both had it earlier
            if load[holder] <= load[number]:
                other = self._foreign(number, self._members[holder].topics)
                if other is None:
                    continue
                self._move(number, holder, *other)
                holders[other] = holder
            self._move(holder, number, topic, partition)
            holders[topic, partition] = number

    def _away(self, number: int) -> Iterator[tuple[Uuid, int]]:
        """The partitions that the member had, could keep, and does not have now."""
        member, owned = self._members[number], self._owned[number]
        for topic, numbers in member.earlier.items():
            if topic in member.topics:
                lost = numbers - owned.get(topic, frozenset())
                yield from ((topic, partition) for partition in sorted(lost) if partition < self._counts.get(topic, 0))

    def _foreign(self, number: int, topics: frozenset[Uuid]) -> tuple[Uuid, int] | None:
        """A partition of these topics that the member holds and did not hold earlier; None without one."""
        owned, earlier = self._owned[number], self._members[number].earlier
        for topic in sorted(owned.keys() & topics):
            new = owned[topic].difference(earlier.get(topic, ()))
            if new:
                return topic, min(new)
        return None

    def _move(self, donor: int, receiver: int, topic: Uuid, partition: int) -> None:
        held = self._owned[donor][topic]
        held.discard(partition)
        if not held:
            del self._owned[donor][topic]
        self._owned[receiver].setdefault(topic, set()).add(partition)
        self._load[donor] -= 1
        self._load[receiver] += 1


def _back(came: Mapping[int, tuple[int, _Class]], end: int) -> list[tuple[int, int, _Class]]:
    """The moves (donor, receiver, class) on the way to `end`, the last move first."""
    chain = []
    while end in came:
        donor, group = came[end]
        chain.append((donor, end, group))
        end = donor
    return chain
