"""Which partitions a broker leads, is in sync for, or may still lead, so that fencing it costs its partitions only.

The controller alone needs this; `derived` keeps it, on standbys too. A set of partitions is one int a topic (bit n
stands for partition n): small topics cost no memory beyond the dict entry, and nothing here scans what a change does
not concern.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TypeAlias

from kraft_node.base.ids import Uuid
from kraft_node.metadata.partitions import NO_LEADER, NO_LEADER_CHANGE, PartitionState
from kraft_node.metadata.topics import TopicsView

PartitionSet: TypeAlias = dict[Uuid, int]
"""Topic id -> bit n set for partition n; a topic without partitions in the set is absent."""


def numbers(mask: int) -> Iterator[int]:
    """The positions of the bits set in `mask`, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def members(partitions: PartitionSet) -> Iterator[tuple[Uuid, int]]:
    """Every (topic id, partition) of a set. The set must not change meanwhile."""
    for topic_id, mask in partitions.items():
        for number in numbers(mask):
            yield topic_id, number


def _add(partitions: PartitionSet, topic_id: Uuid, bit: int) -> None:
    partitions[topic_id] = partitions.get(topic_id, 0) | bit


def _discard(partitions: PartitionSet, topic_id: Uuid, bit: int) -> None:
    mask = partitions.get(topic_id, 0) & ~bit
    if mask:
        partitions[topic_id] = mask
    else:
        partitions.pop(topic_id, None)


class _ByBroker:
    """One set of partitions a broker."""

    __slots__ = ("sets",)

    def __init__(self) -> None:
        self.sets: dict[int, PartitionSet] = {}

    def of(self, broker_id: int) -> PartitionSet:
        return self.sets.get(broker_id) or {}

    def change(self, old: Sequence[int], new: Sequence[int], topic_id: Uuid, bit: int) -> None:
        """A partition that was in the sets of `old` is to be in those of `new`."""
        sets = self.sets
        for broker in old:
            if broker not in new:
                partitions = sets[broker]
                _discard(partitions, topic_id, bit)
                if not partitions:
                    del sets[broker]
        for broker in new:
            if broker not in old:
                found = sets.get(broker)
                if found is None:
                    found = sets[broker] = {}
                found[topic_id] = found.get(topic_id, 0) | bit

    def forget_topic(self, topic_id: Uuid) -> None:
        for broker in [b for b, partitions in self.sets.items() if topic_id in partitions]:
            partitions = self.sets[broker]
            del partitions[topic_id]
            if not partitions:
                del self.sets[broker]


class PartitionIndex:
    """The sets; `follow` is told of each record before it is replayed."""

    __slots__ = ("_elr", "_isr", "_leads", "imbalanced", "reassigning")

    def __init__(self) -> None:
        self._isr = _ByBroker()
        self._leads = _ByBroker()
        self._elr = _ByBroker()
        self.imbalanced: PartitionSet = {}
        """Partitions that are not led by their preferred replica."""
        self.reassigning: PartitionSet = {}
        """Partitions with replicas being added or removed."""

    def in_sync_on(self, broker_id: int) -> Iterator[tuple[Uuid, int]]:
        """Partitions whose ISR holds the broker."""
        return members(self._isr.of(broker_id))

    def eligible_on(self, broker_id: int) -> Iterator[tuple[Uuid, int]]:
        """Partitions whose ELR holds the broker."""
        return members(self._elr.of(broker_id))

    def leaderless(self) -> Iterator[tuple[Uuid, int]]:
        return members(self._leads.of(NO_LEADER))

    def leads_any(self, broker_id: int) -> bool:
        return broker_id in self._leads.sets

    def put(self, topic_id: Uuid, number: int, state: PartitionState) -> None:
        """Take in a partition that is not yet in the index."""
        self._created(topic_id, number, state, state.adding or state.removing, state.elr)

    def _created(self, topic_id: Uuid, number: int, now: Any, moving: Sequence[int], elr: Sequence[int] | None) -> None:
        """`now`: a PartitionState or a PartitionRecord, whose lists have the same names."""
        bit = 1 << number
        self._isr.change((), now.isr, topic_id, bit)
        self._leads.change((), (now.leader,), topic_id, bit)
        if elr:
            self._elr.change((), elr, topic_id, bit)
        if not now.replicas or now.leader != now.replicas[0]:
            _add(self.imbalanced, topic_id, bit)
        if moving:
            _add(self.reassigning, topic_id, bit)

    def _changed(self, old: PartitionState, record: Any) -> None:
        topic_id = record.topic_id
        bit = 1 << record.partition_id
        leader = old.leader if record.leader == NO_LEADER_CHANGE else record.leader
        replicas = old.replicas if record.replicas is None else record.replicas
        if record.isr is not None:
            self._isr.change(old.isr, record.isr, topic_id, bit)
        if leader != old.leader:
            self._leads.change((old.leader,), (leader,), topic_id, bit)
        if record.eligible_leader_replicas is not None:
            self._elr.change(old.elr, record.eligible_leader_replicas, topic_id, bit)
        (_discard if replicas and leader == replicas[0] else _add)(self.imbalanced, topic_id, bit)
        if record.adding_replicas is not None or record.removing_replicas is not None:
            adding = old.adding if record.adding_replicas is None else record.adding_replicas
            removing = old.removing if record.removing_replicas is None else record.removing_replicas
            (_add if adding or removing else _discard)(self.reassigning, topic_id, bit)

    def forget_topic(self, topic_id: Uuid) -> None:
        for sets in (self._isr, self._leads, self._elr):
            sets.forget_topic(topic_id)
        self.imbalanced.pop(topic_id, None)
        self.reassigning.pop(topic_id, None)

    def follow(self, record: Any, topics: TopicsView) -> None:
        """Note what `record` changes; `topics` must not have replayed it yet."""
        kind = type(record).__name__
        if kind == "PartitionRecord":
            moving = record.adding_replicas or record.removing_replicas
            self._created(record.topic_id, record.partition_id, record, moving, record.eligible_leader_replicas)
        elif kind == "PartitionChangeRecord":
            old = topics.partition(record.topic_id, record.partition_id)
            if old is not None:
                self._changed(old, record)
        elif kind == "RemoveTopicRecord":
            self.forget_topic(record.topic_id)
        elif kind == "ClearElrRecord":
            self._clear_elr(record.topic_name, topics)

    def _clear_elr(self, name: str, topics: TopicsView) -> None:
        if not name:
            self._elr.sets.clear()
            return
        topic = topics.by_name(name)
        if topic is not None:
            self._elr.forget_topic(topic.id)
