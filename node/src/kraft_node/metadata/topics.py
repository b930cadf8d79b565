"""Topics by name and by id, and their partitions: committed (`Topics`) and with an overlay (`OverlayTopics`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final, Protocol

from kraft_node.metadata.partitions import (
    COLUMN_LEADER,
    COLUMN_REPLICAS,
    MetadataError,
    PartitionLists,
    PartitionState,
    Topic,
    TopicView,
)
from kraft_node.metadata.sections import Touched
from kraft_protocol.ids import Uuid, uuid_text


class TopicChange:
    """The changes of one topic in a delta."""

    __slots__ = ("_below", "_some", "created", "deleted", "id", "name", "partition_count_before")

    def __init__(self, name: str, topic_id: Uuid, partition_count_before: int) -> None:
        self.name = name
        self.id = topic_id
        self.created = False
        self.deleted = False
        self._below = 0
        """All partitions below this are included: millions of partitions of a snapshot need no memory here."""
        self._some: set[int] = set()
        self.partition_count_before = partition_count_before
        """0 for a created topic; for a deleted topic its number of partitions."""

    @property
    def partitions(self) -> set[int]:
        """Created or changed partitions; their state is in the image."""
        return self._some.union(range(self._below)) if self._below else self._some

    def note(self, number: int) -> None:
        """Note that the partition was created or changed."""
        self._some.add(number)

    def note_all(self, first: int, end: int) -> None:
        """Note that the partitions from `first` up to `end` were created."""
        if first <= self._below:
            self._below = max(self._below, end)
        else:
            self._some.update(range(first, end))

    def clear(self) -> None:
        """Forget the noted partitions, because the topic is deleted."""
        self._below = 0
        self._some.clear()

    def __repr__(self) -> str:
        kind = "deleted" if self.deleted else "created" if self.created else "changed"
        return f"TopicChange({self.name} {kind} {sorted(self.partitions)})"


class TopicsView(Protocol):
    """The interface of all topics for readers, committed or in an overlay."""

    @property
    def partition_count(self) -> int:
        """The number of partitions of all topics."""
        ...

    def __len__(self) -> int: ...

    def __iter__(self) -> Iterator[TopicView]: ...

    def by_name(self, name: str) -> TopicView | None:
        """The topic of that name; None if it does not exist."""
        ...

    def by_id(self, topic_id: Uuid) -> TopicView | None:
        """The topic with that id; None if it does not exist."""
        ...

    def partition(self, topic_id: Uuid, number: int) -> PartitionState | None:
        """The state of a partition; None if the topic or the partition does not exist."""
        ...


class TopicStore(TopicsView, Protocol):
    """The interface of all topics for records, committed or in an overlay. Methods raise MetadataError for misfits."""

    def create(self, topic_id: Uuid, name: str) -> None:
        """Add a topic without partitions. Raises MetadataError if its id or its name exists."""
        ...

    def put_partition(self, topic_id: Uuid, number: int, state: PartitionState) -> None:
        """Create or replace a partition. Raises MetadataError if the topic does not exist."""
        ...

    def remove(self, topic_id: Uuid) -> str:
        """Delete a topic. Returns its name."""


class Topics:
    """The committed topics."""

    __slots__ = ("_by_id", "_by_name", "_frozen", "changes", "lists", "partition_count")

    def __init__(self) -> None:
        self.lists = PartitionLists()
        self.partition_count = 0
        self.changes: dict[Uuid, TopicChange] = {}
        self._by_id: dict[Uuid, Topic] = {}
        self._by_name: dict[str, Topic] = {}
        self._frozen: list[FrozenTopics] = []

    def __len__(self) -> int:
        return len(self._by_id)

    def __iter__(self) -> Iterator[Topic]:
        return iter(self._by_id.values())

    def by_name(self, name: str) -> Topic | None:
        """The committed topic of that name; None if it does not exist."""
        return self._by_name.get(name)

    def by_id(self, topic_id: Uuid) -> Topic | None:
        """The committed topic with that id; None if it does not exist."""
        return self._by_id.get(topic_id)

    def partition(self, topic_id: Uuid, number: int) -> PartitionState | None:
        """The committed state; None if the topic or the partition does not exist."""
        topic = self._by_id.get(topic_id)
        return None if topic is None else topic.partition(number)

    def create(self, topic_id: Uuid, name: str) -> None:
        """Add a topic without partitions. Raises MetadataError if its id or its name exists."""
        if topic_id in self._by_id or name in self._by_name:
            raise MetadataError(f"topic {name} with id {uuid_text(topic_id)} is created a second time")
        topic = Topic(name, topic_id, self.lists)
        self._by_id[topic_id] = topic
        self._by_name[name] = topic
        change = self.changes[topic_id] = TopicChange(name, topic_id, 0)
        change.created = True

    def put_partition(self, topic_id: Uuid, number: int, state: PartitionState) -> None:
        """Create or replace a partition. Raises MetadataError if the topic does not exist."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"partition {number} of a topic that does not exist: {uuid_text(topic_id)}")
        self._before(topic)
        self._change(topic).note(number)
        if topic.put(number, state):
            self.partition_count += 1

    def remove(self, topic_id: Uuid) -> str:
        """Delete a topic. Returns its name."""
        topic = self._by_id.get(topic_id)
        if topic is None:
            raise MetadataError(f"removing a topic that does not exist: {uuid_text(topic_id)}")
        self._before(topic)
        change = self._change(topic)
        change.deleted = True
        change.clear()
        del self._by_id[topic_id]
        del self._by_name[topic.name]
        self.partition_count -= sum(1 for _ in topic.partitions())
        topic.release_all()
        return topic.name

    def clear(self) -> None:
        """Remove all topics, before a snapshot fills in its own."""
        for topic_id in list(self._by_id):
            self.remove(topic_id)

    def _change(self, topic: Topic) -> TopicChange:
        change = self.changes.get(topic.id)
        if change is None:
            change = self.changes[topic.id] = TopicChange(topic.name, topic.id, len(topic))
        return change

    def _before(self, topic: Topic) -> None:
        for frozen in self._frozen:
            frozen.keep(topic)

    def take_changes(self) -> dict[Uuid, TopicChange]:
        """Return the changes since the last call, by topic id, and begin a new delta."""
        taken = self.changes
        if taken:
            self.changes = {}
        for change in taken.values():
            if change.created and not change.deleted:
                self._by_id[change.id].pack()
        return taken

    def led_by(self, broker_id: int) -> Iterator[tuple[Topic, int]]:
        """The partitions that a broker leads. Reads every partition, column by column."""
        return self._having(COLUMN_LEADER, {broker_id})

    def assigned_to(self, broker_id: int) -> Iterator[tuple[Topic, int]]:
        """The partitions that have a replica on a broker. Reads every partition, column by column."""
        return self._having(COLUMN_REPLICAS, self._lists_with(broker_id))

    def _lists_with(self, broker_id: int) -> set[int]:
        """The numbers of all lists of brokers that contain the broker."""
        return {number for number, brokers in enumerate(self.lists.brokers.values) if broker_id in brokers}

    def _having(self, column: int, wanted: set[int]) -> Iterator[tuple[Topic, int]]:
        """The partitions whose value in a column is one of `wanted`."""
        for topic in self._by_id.values():
            for number in topic.numbers_with(column, wanted):
                yield topic, number

    def freeze(self) -> FrozenTopics:
        """A view of the present topics that stays readable while they change; end it with `thaw`."""
        self.lists.pin()
        frozen = FrozenTopics(self, list(self._by_id.values()))
        self._frozen.append(frozen)
        return frozen

    def thaw(self, frozen: FrozenTopics) -> None:
        """End a view, which must not be read any more; allowed if it has ended already."""
        if frozen in self._frozen:
            self._frozen.remove(frozen)
            self.lists.unpin()


class FrozenTopics:
    """The topics at the time of `freeze`, and a copy of each topic that was changed since."""

    __slots__ = ("_kept", "topics")

    def __init__(self, topics: Topics, of_then: list[Topic]) -> None:
        del topics
        self.topics = of_then
        self._kept: dict[Uuid, Topic] = {}

    def keep(self, topic: Topic) -> None:
        """Copy the topic as it was at `freeze`: called before each change, the first call counts."""
        if topic.id not in self._kept:
            self._kept[topic.id] = topic.copy()

    def topic(self, index: int) -> Topic:
        """The topic at that index of `topics`, as it was at `freeze`."""
        topic = self.topics[index]
        return self._kept.get(topic.id, topic)


_DELETED: Final = object()


class OverlayTopic:
    """A topic with uncommitted partitions; other partitions are read from the committed topic."""

    __slots__ = ("_partitions", "_topics", "id", "name")

    def __init__(self, name: str, topic_id: Uuid, topics: OverlayTopics) -> None:
        self.name = name
        self.id = topic_id
        self._topics = topics
        self._partitions: dict[Any, tuple[int, Any]] = {}

    def _committed(self) -> Topic | None:
        return self._topics.base.by_id(self.id)

    def __len__(self) -> int:
        committed = self._committed()
        count = 0 if committed is None else len(committed)
        return max(count, max(self._partitions, default=-1) + 1)

    def partition(self, number: int) -> PartitionState | None:
        """The state of a partition with the uncommitted changes; None if it does not exist."""
        cell = self._partitions.get(number)
        if cell is not None:
            state: PartitionState = cell[1]
            return state
        committed = self._committed()
        return None if committed is None else committed.partition(number)

    def leader(self, number: int) -> int:
        """The leader with the uncommitted changes. A hole in the numbers raises IndexError, too."""
        state = self.partition(number)
        if state is None:
            raise IndexError(number)
        return state.leader

    def partitions(self) -> Iterator[tuple[int, PartitionState]]:
        """Every partition with the uncommitted changes, ascending; holes in the numbers are skipped."""
        for number in range(len(self)):
            state = self.partition(number)
            if state is not None:
                yield number, state

    def in_sync(self, broker_id: int, first: int, end: int) -> list[int]:
        """The partitions from `first` up to `end` with the broker in their ISR, ascending, with the uncommitted
        changes.
        """
        committed, changed = self._committed(), self._partitions
        found = [] if committed is None else committed.in_sync(broker_id, first, end)
        if not changed:
            return found
        own = [number for number, state in self._changed(first, end) if broker_id in state.isr]
        return sorted([number for number in found if number not in changed] + own)

    def is_led_by(self, broker_id: int, first: int, end: int) -> bool:
        """Whether the broker leads a partition from `first` up to `end`, with the uncommitted changes."""
        if any(state.leader == broker_id for _, state in self._changed(first, end)):
            return True
        committed, changed = self._committed(), self._partitions
        if committed is None or not committed.is_led_by(broker_id, first, end):
            return False
        numbers = range(first, min(end, len(committed)))
        return any(number not in changed and committed.leader(number) == broker_id for number in numbers)

    def _changed(self, first: int, end: int) -> Iterator[tuple[int, PartitionState]]:
        cells = self._partitions
        for number in range(first, end) if len(cells) > end - first else list(cells):
            cell = cells.get(number)
            if cell is not None and first <= number < end:
                yield number, cell[1]


class OverlayTopics:
    """The topics with the overlay's records."""

    __slots__ = ("_by_id", "_by_name", "_touched", "base")

    def __init__(self, base: Topics, touched: Touched) -> None:
        self.base = base
        self._touched = touched
        self._by_id: dict[Any, tuple[int, Any]] = {}
        self._by_name: dict[Any, tuple[int, Any]] = {}

    @property
    def partition_count(self) -> int:
        """The number with the uncommitted changes; costs O(changed topics)."""
        count = self.base.partition_count
        for topic_id, (_, topic) in self._by_id.items():
            committed = self.base.by_id(topic_id)
            before = 0 if committed is None else len(committed)
            count += (0 if topic is _DELETED else len(topic)) - before
        return count

    def __len__(self) -> int:
        difference = 0
        for topic_id, (_, topic) in self._by_id.items():
            difference += (topic is not _DELETED) - (self.base.by_id(topic_id) is not None)
        return len(self.base) + difference

    def __iter__(self) -> Iterator[TopicView]:
        changed = self._by_id
        for topic in self.base:
            if topic.id not in changed:
                yield topic
        for _, changed_topic in changed.values():
            if changed_topic is not _DELETED:
                yield changed_topic

    def by_name(self, name: str) -> TopicView | None:
        """The topic with the uncommitted changes; None if it does not exist."""
        cell = self._by_name.get(name)
        if cell is not None:
            return None if cell[1] is _DELETED else self.by_id(cell[1])
        committed = self.base.by_name(name)
        return None if committed is None else self.by_id(committed.id)

    def by_id(self, topic_id: Uuid) -> TopicView | None:
        """The topic with the uncommitted changes; None if it does not exist."""
        cell = self._by_id.get(topic_id)
        if cell is not None:
            return None if cell[1] is _DELETED else cell[1]
        return self.base.by_id(topic_id)

    def partition(self, topic_id: Uuid, number: int) -> PartitionState | None:
        """The state with the uncommitted changes; None if the topic or the partition does not exist."""
        topic = self.by_id(topic_id)
        return None if topic is None else topic.partition(number)

    def create(self, topic_id: Uuid, name: str) -> None:
        """Add a topic in the overlay. Raises MetadataError if its id or its name exists."""
        if self.by_id(topic_id) is not None or self.by_name(name) is not None:
            raise MetadataError(f"topic {name} with id {uuid_text(topic_id)} is created a second time")
        self._set(topic_id, OverlayTopic(name, topic_id, self))
        self._name(name, topic_id)

    def put_partition(self, topic_id: Uuid, number: int, state: PartitionState) -> None:
        """Create or replace a partition in the overlay. Raises MetadataError if the topic does not exist."""
        topic = self.by_id(topic_id)
        if topic is None:
            raise MetadataError(f"partition {number} of a topic that does not exist: {uuid_text(topic_id)}")
        if not isinstance(topic, OverlayTopic):
            topic = OverlayTopic(topic.name, topic_id, self)
        self._set(topic_id, topic)
        topic._partitions[number] = (self._touched.offset, state)
        self._touched.note(topic._partitions, number)

    def remove(self, topic_id: Uuid) -> str:
        """Delete a topic in the overlay and return its name. Raises MetadataError if it does not exist."""
        topic = self.by_id(topic_id)
        if topic is None:
            raise MetadataError(f"removing a topic that does not exist: {uuid_text(topic_id)}")
        self._set(topic_id, _DELETED)
        self._name(topic.name, _DELETED)
        return topic.name

    def _set(self, topic_id: Uuid, value: Any) -> None:
        self._by_id[topic_id] = (self._touched.offset, value)
        self._touched.note(self._by_id, topic_id)

    def _name(self, name: str, value: Any) -> None:
        self._by_name[name] = (self._touched.offset, value)
        self._touched.note(self._by_name, name)
