"""The committed metadata of the cluster, changed in place. There is one per process; only `loader` changes it.

Reading interface (the same in `overlay.Overlay`): features name -> level; levels of 0 are absent. `metadata_level`,
`feature_level(name)` brokers id -> BrokerRegistration controllers id -> ControllerRegistration topics by_name, by_id,
partition(topic_id, number), led_by, assigned_to configs (resource type, name) -> {key: value}; types 2 topic, 4 broker,
16 client-metrics, 32 group quotas entity -> {key: value} producer_ids `next_producer_id` acls id ->
AccessControlEntryRecord scram (mechanism, user) -> UserScramCredentialRecord tokens token id -> DelegationTokenRecord
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.delta import Entity, MetadataDelta
from kraft_node.metadata.kinds import SECTION_NAMES, kind_of
from kraft_node.metadata.sections import Section, SectionView
from kraft_node.metadata.store import MetadataStore
from kraft_node.metadata.topics import Topics, TopicsView
from kraft_protocol.ids import Uuid


class MetadataView(Protocol):
    """The interface for controller and broker to read an image or an overlay."""

    @property
    def features(self) -> SectionView[str, int]: ...

    @property
    def brokers(self) -> SectionView[int, BrokerRegistration]: ...

    @property
    def controllers(self) -> SectionView[int, ControllerRegistration]: ...

    @property
    def topics(self) -> TopicsView: ...

    @property
    def configs(self) -> SectionView[tuple[int, str], Mapping[str, str]]: ...

    @property
    def quotas(self) -> SectionView[Entity, Mapping[str, float]]: ...

    @property
    def acls(self) -> SectionView[Uuid, Any]: ...

    @property
    def scram(self) -> SectionView[tuple[int, str], Any]: ...

    @property
    def tokens(self) -> SectionView[str, Any]: ...

    @property
    def metadata_level(self) -> int: ...

    @property
    def next_producer_id(self) -> int: ...

    def feature_level(self, name: str) -> int: ...


class MetadataImage(MetadataStore):
    """All committed metadata up to and including the record at `offset`."""

    __slots__ = ("_sections", "epoch", "offset", "timestamp_ms", "topics", *SECTION_NAMES)

    topics: Topics

    def __init__(self) -> None:
        self.offset = -1
        """Offset of the last record that counts (records of an open metadata transaction do not count yet)."""
        self.epoch = -1
        """Leader epoch of the record at the offset."""
        self.timestamp_ms = -1
        """Append time of the record at the offset."""
        self.topics = Topics()
        self._sections: tuple[tuple[str, Section[Any, Any]], ...] = tuple((name, Section()) for name in SECTION_NAMES)
        for name, section in self._sections:
            setattr(self, name, section)

    def section(self, name: str) -> Section[Any, Any]:
        """The keyed section with a name of SECTION_NAMES."""
        found: Section[Any, Any] = getattr(self, name)
        return found

    def replay(self, record: Any) -> None:
        """Apply a committed record. Raises MetadataError if the record does not fit."""
        kind_of(record).replay(self, record)

    def moved_to(self, offset: int, epoch: int, timestamp_ms: int) -> None:
        """Note that everything up to and including `offset` was replayed."""
        assert offset >= self.offset, f"law: the offset of the image never decreases (from {self.offset} to {offset})"
        self.offset = offset
        self.epoch = epoch
        self.timestamp_ms = timestamp_ms

    def clear(self) -> None:
        """Remove everything: a snapshot from the leader will be loaded instead."""
        self.topics.clear()
        for _, section in self._sections:
            section.clear()

    def take_delta(self) -> MetadataDelta:
        """The changes since the last call."""
        delta = MetadataDelta()
        delta.last_offset = self.offset
        delta.epoch = self.epoch
        delta.topics = self.topics.take_changes()
        for name, section in self._sections:
            if section.changes:
                setattr(delta, name, section.take_changes())
        return delta
