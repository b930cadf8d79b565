"""Data that the controller derives from topics and access control entries, maintained on standbys, too.

A failover must not scan all partitions.

A standby follows each committed record. The active controller follows each record that it appends
(`ControllerState.apply`), and undoes uncommitted records if it loses leadership. After a snapshot, or at start, the
data is rebuilt in slices between other work. If the node becomes leader meanwhile, the rest is built at once.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final

from kraft_node.controller.partitions.topic_names import TopicNames
from kraft_node.controller.state.partition_index import PartitionIndex
from kraft_node.metadata.kinds import kind_of
from kraft_node.security.entries import EntryIndex
from kraft_protocol.ids import Uuid

if TYPE_CHECKING:
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.metadata.topics import Topics, TopicsView
    from kraft_protocol.wire.classes import Message

SLICE_PARTITIONS: Final = 5_000
"""Partitions, or access control entries, per slice: some 3 ms."""


class Indexes:
    """The partition index, the topic names and the access control entries of one controller."""

    __slots__ = ("_pending", "_pending_entries", "entries", "index", "is_followed", "names")

    def __init__(self) -> None:
        self.index = PartitionIndex()
        self.names = TopicNames()
        self.entries = EntryIndex()
        self.is_followed = False
        """Whether `follow` is called for every committed record; otherwise everything is built when leadership comes.
        """
        self._pending: dict[Uuid, None] = {}
        """Topics with partitions that are still missing. They are read in the state that they have then."""
        self._pending_entries: list[Uuid] = []

    @property
    def is_complete(self) -> bool:
        """Whether `build` has nothing left to do: the indexes hold every topic and entry."""
        return not self._pending and not self._pending_entries

    def begin(self, image: MetadataImage) -> None:
        """Drop everything, and rebuild it: in slices by `build`, or at once by `finish`."""
        self.entries = EntryIndex()
        self._pending_entries = list(image.acls)
        self._begin_topics(image.topics)

    def _begin_topics(self, topics: Topics) -> None:
        self.index = PartitionIndex()
        self.names = TopicNames()
        self._pending = {}
        for topic in topics:
            self._pending[topic.id] = None
            self.names.add(topic.name)

    def build(self, image: MetadataImage, budget: int = SLICE_PARTITIONS) -> bool:
        """Add topics with some `budget` partitions, or as many entries. Returns whether nothing is missing."""
        while self._pending and budget > 0:
            topic_id = next(iter(self._pending))
            budget -= 1 + self._take_in(topic_id, image.topics)
        while self._pending_entries and budget > 0:
            budget -= 1
            self._renew_entry(self._pending_entries.pop(), image)
        return self.is_complete

    def finish(self, image: MetadataImage) -> None:
        """Add all missing topics and entries."""
        while not self.build(image):
            pass

    def _renew_entry(self, acl_id: Uuid, image: MetadataImage) -> None:
        self.entries.remove(acl_id)
        record = image.acls.get(acl_id)
        if record is not None:
            self.entries.put(record)

    def _take_in(self, topic_id: Uuid, topics: Topics) -> int:
        self._pending.pop(topic_id, None)
        topic = topics.by_id(topic_id)
        if topic is None:
            return 0
        self.index.take_in(topic)
        return len(topic)

    def follow(self, record: Message, topics: TopicsView) -> None:
        """Note the changes of `record`; `topics` must not have replayed it yet."""
        kind = kind_of(record)
        if kind.names is not None:
            kind.names(self.names, record, topics)
        if kind.entries is not None:
            kind.entries(self.entries, record)
        if kind.index is None:
            return
        if self._pending and kind.stale is not None and kind.stale(record).topic_id in self._pending:
            return  # `build` will read it from `topics`
        kind.index(self.index, record, topics)

    def take_back(self, records: Iterable[Message], image: MetadataImage) -> None:
        """Undo `records`, which were followed but will not be committed: their topics and entries are as in `image`."""
        topics = image.topics
        touched: dict[Uuid, None] = {}
        all_topics = False
        for record in records:
            stale_of = kind_of(record).stale
            if stale_of is None:
                continue
            stale = stale_of(record)
            if stale.entry_id is not None:
                self._renew_entry(stale.entry_id, image)
                continue
            if stale.topic_id is None:
                all_topics = True
                continue
            touched[stale.topic_id] = None
            if stale.name is not None:
                self.names.remove(stale.name)
        if all_topics:
            self._begin_topics(topics)
            return
        for topic_id in touched:
            topic = topics.by_id(topic_id)
            if topic is not None:
                self.names.remove(topic.name)
                self.names.add(topic.name)
            if topic_id not in self._pending:
                self.index.renew(topic_id, topic)
