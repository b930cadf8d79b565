"""The partitions for which a broker is in sync, leads, or may lead, so that fencing it costs only its own partitions.

Only the controller needs this; `indexes` maintains it, on standbys too. ISR membership concerns every partition, so it
is stored in blocks (`blocks`). Partitions in unusual states are few, so they are sets with one int per topic (bit n is
partition n). Unusual: led by another than the preferred replica, without a leader, moving, or with eligible leaders.
No operation scans partitions that a change does not concern.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, TypeAlias

from kraft_node.controller.state.blocks import BLOCK_PARTITIONS, BrokerBlocks
from kraft_node.metadata.partitions import NO_LEADER, NO_LEADER_CHANGE, PartitionState, Topic
from kraft_node.metadata.topics import TopicsView
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from kraft_protocol.wire.stored import PartitionChangeRecord, PartitionRecord

PartitionSet: TypeAlias = dict[Uuid, int]
"""Topic id -> bit n set for partition n; a topic without partitions in the set is absent."""


def numbers(mask: int) -> Iterator[int]:
    """The positions of the set bits in `mask`, ascending."""
    while mask:
        lowest = mask & -mask
        yield lowest.bit_length() - 1
        mask ^= lowest


def _by_block(partitions: Callable[[], PartitionSet]) -> Iterator[tuple[Uuid, list[int]]]:
    """The members of a set by topic and block. Each block is read when it is its turn."""
    for topic_id in list(partitions()):
        first = 0
        while mask := partitions().get(topic_id, 0) >> first:
            yield topic_id, [first + number for number in numbers(mask & (1 << BLOCK_PARTITIONS) - 1)]
            first += BLOCK_PARTITIONS


def _add(partitions: PartitionSet, topic_id: Uuid, bit: int) -> None:
    partitions[topic_id] = partitions.get(topic_id, 0) | bit


def _discard(partitions: PartitionSet, topic_id: Uuid, bit: int) -> None:
    mask = partitions.get(topic_id, 0) & ~bit
    if mask:
        partitions[topic_id] = mask
    else:
        partitions.pop(topic_id, None)


class _ByBroker:
    """One set of partitions per broker."""

    __slots__ = ("sets",)

    def __init__(self) -> None:
        self.sets: dict[int, PartitionSet] = {}

    def of(self, broker_id: int) -> PartitionSet:
        return self.sets.get(broker_id) or {}

    def change(self, old: Sequence[int], new: Sequence[int], topic_id: Uuid, bit: int) -> None:
        """Move a partition from the sets of the `old` brokers to the sets of the `new` brokers."""
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
    """Blocks and sets. The kinds of records report each record before it is replayed."""

    __slots__ = ("_elr", "_in_sync", "_leaderless", "imbalanced", "reassigning")

    def __init__(self) -> None:
        self._in_sync = BrokerBlocks()
        self._elr = _ByBroker()
        self._leaderless: PartitionSet = {}
        self.imbalanced: PartitionSet = {}
        """Partitions that their preferred replica does not lead."""
        self.reassigning: PartitionSet = {}
        """Partitions with replicas being added or removed."""

    # Queries; `topics` must match the records that the index has seen

    def in_sync_on(self, broker_id: int, topics: TopicsView) -> Iterator[tuple[Uuid, list[int]]]:
        """Partitions with the broker in their ISR, by block; a block may be empty.

        Topics and index may change between two blocks. A partition that the broker joins meanwhile may be missing.
        """
        for topic_id, first in self._in_sync.of(broker_id):
            topic = topics.by_id(topic_id)
            found = [] if topic is None else topic.in_sync(broker_id, first, first + BLOCK_PARTITIONS)
            if not found:
                self._in_sync.discard(topic_id, first, broker_id)
            yield topic_id, found

    def leads_any(self, broker_id: int, topics: TopicsView, blocks_max: int) -> bool:
        """Whether the broker leads a partition, or may do so, because it is not known after `blocks_max` blocks.

        Leaders are always in the ISR.
        """
        for count, (topic_id, first) in enumerate(self._in_sync.of(broker_id)):
            if count >= blocks_max:
                return True
            topic = topics.by_id(topic_id)
            if topic is not None and topic.is_led_by(broker_id, first, first + BLOCK_PARTITIONS):
                return True
            if topic is None or not topic.in_sync(broker_id, first, first + BLOCK_PARTITIONS):
                self._in_sync.discard(topic_id, first, broker_id)
        return False

    def eligible_on(self, broker_id: int) -> Iterator[tuple[Uuid, list[int]]]:
        """Partitions with the broker in their ELR, by block, as `in_sync_on`."""
        return _by_block(lambda: self._elr.of(broker_id))

    def leaderless(self) -> Iterator[tuple[Uuid, list[int]]]:
        """Partitions without a leader, by block, as `in_sync_on`."""
        return _by_block(lambda: self._leaderless)

    def led_by_others(self) -> Iterator[tuple[Uuid, list[int]]]:
        """Partitions with a leader other than the preferred replica, by block, as `in_sync_on`."""
        return _by_block(lambda: self.imbalanced)

    # Changes

    def take_in(self, topic: Topic) -> None:
        """Add a topic with partitions that are in no set."""
        for first in range(0, len(topic), BLOCK_PARTITIONS):
            self._in_sync.add(topic.id, first, topic.in_sync_brokers(first, first + BLOCK_PARTITIONS))
        for number, state in topic.unusual():
            self._note(topic.id, 1 << number, state, state.adding or state.removing, state.elr)

    def _note(
        self,
        topic_id: Uuid,
        bit: int,
        now: PartitionState | PartitionRecord,
        moving: Sequence[int],
        elr: Sequence[int] | None,
    ) -> None:
        if elr:
            self._elr.change((), elr, topic_id, bit)
        if not now.replicas or now.leader != now.replicas[0]:
            _add(self.imbalanced, topic_id, bit)
        if now.leader == NO_LEADER:
            _add(self._leaderless, topic_id, bit)
        if moving:
            _add(self.reassigning, topic_id, bit)

    def _changed(self, old: PartitionState, record: PartitionChangeRecord, topics: TopicsView) -> None:
        topic_id = record.topic_id
        bit = 1 << record.partition_id
        leader = old.leader if record.leader == NO_LEADER_CHANGE else record.leader
        replicas = old.replicas if record.replicas is None else record.replicas
        isr = old.isr if record.isr is None else record.isr
        if isr is not old.isr:
            self._in_sync.add(topic_id, record.partition_id, isr)
        for broker_id in () if replicas is old.replicas else old.replicas:
            if broker_id not in replicas and broker_id not in isr:
                self._moved_away(broker_id, topic_id, record.partition_id, topics)
        if record.eligible_leader_replicas is not None:
            self._elr.change(old.elr, record.eligible_leader_replicas, topic_id, bit)
        (_discard if replicas and leader == replicas[0] else _add)(self.imbalanced, topic_id, bit)
        (_add if leader == NO_LEADER else _discard)(self._leaderless, topic_id, bit)
        if record.adding_replicas is not None or record.removing_replicas is not None:
            adding = old.adding if record.adding_replicas is None else record.adding_replicas
            removing = old.removing if record.removing_replicas is None else record.removing_replicas
            (_add if adding or removing else _discard)(self.reassigning, topic_id, bit)

    def _moved_away(self, broker_id: int, topic_id: Uuid, number: int, topics: TopicsView) -> None:
        """The broker no longer has partition `number` in sync: check whether its block holds another partition in
        sync."""
        first = number - number % BLOCK_PARTITIONS
        topic = topics.by_id(topic_id)
        if topic is None or not set(topic.in_sync(broker_id, first, first + BLOCK_PARTITIONS)) - {number}:
            self._in_sync.discard(topic_id, first, broker_id)

    def renew(self, topic_id: Uuid, topic: Topic | None) -> None:
        """Replace everything known about a topic by the state of `topic`; None: the topic does not exist."""
        if topic is None:
            self._in_sync.forget(topic_id)
        self._elr.forget_topic(topic_id)
        for partitions in (self._leaderless, self.imbalanced, self.reassigning):
            partitions.pop(topic_id, None)
        if topic is not None:
            self.take_in(topic)

    def topic_removed(self, topic_id: Uuid, topics: TopicsView) -> None:
        """Remove all partitions of a topic from the sets, before the topic leaves `topics`."""
        topic = topics.by_id(topic_id)
        if isinstance(topic, Topic):
            for first in range(0, len(topic), BLOCK_PARTITIONS):
                for broker_id in topic.in_sync_brokers(first, first + BLOCK_PARTITIONS):
                    self._in_sync.discard(topic_id, first, broker_id)
        self.renew(topic_id, None)

    def partition_created(self, record: PartitionRecord) -> None:
        """Add a new partition to the sets of its brokers and states, from its record alone."""
        moving = record.adding_replicas or record.removing_replicas
        self._in_sync.add(record.topic_id, record.partition_id, record.isr)
        self._note(record.topic_id, 1 << record.partition_id, record, moving, record.eligible_leader_replicas)

    def partition_changed(self, record: PartitionChangeRecord, topics: TopicsView) -> None:
        """Move a partition between sets. `topics` holds its state before the record; unknown ones are ignored."""
        old = topics.partition(record.topic_id, record.partition_id)
        if old is not None:
            self._changed(old, record, topics)

    def elr_cleared(self, topic_name: str, topics: TopicsView) -> None:
        """Remove a topic's partitions from the sets of eligible leaders; all topics if the name is empty."""
        if not topic_name:
            self._elr.sets.clear()
            return
        topic = topics.by_name(topic_name)
        if topic is not None:
            self._elr.forget_topic(topic.id)
