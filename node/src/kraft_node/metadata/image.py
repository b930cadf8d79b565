"""The committed metadata of the cluster, changed in place. There is one per process; only `loader` changes it.

`MetadataView` is the reading interface; `overlay.Overlay` has the same.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from kraft_node.metadata.brokers import BrokerRegistration, ControllerRegistration
from kraft_node.metadata.client_quotas import Entity
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.kinds import SECTION_NAMES, kind_of
from kraft_node.metadata.sections import Section, SectionView
from kraft_node.metadata.store import MetadataStore
from kraft_node.metadata.topics import Topics, TopicsView
from kraft_protocol.ids import Uuid


class MetadataView(Protocol):
    """The interface for controller and broker to read an image or an overlay."""

    @property
    def features(self) -> SectionView[str, int]:
        """Finalized level by feature name; features of level 0 are absent."""
        ...

    @property
    def brokers(self) -> SectionView[int, BrokerRegistration]:
        """Registrations by broker id, including fenced brokers."""
        ...

    @property
    def controllers(self) -> SectionView[int, ControllerRegistration]:
        """Registrations by controller id (KIP-919)."""
        ...

    @property
    def topics(self) -> TopicsView:
        """Topics by name and by id, with their partitions."""
        ...

    @property
    def configs(self) -> SectionView[tuple[int, str], Mapping[str, str]]:
        """{key: value} by (resource type, name); types: 2 topic, 4 broker, 16 client metrics, 32 group."""
        ...

    @property
    def quotas(self) -> SectionView[Entity, Mapping[str, float]]:
        """{key: value} by entity (KIP-546)."""
        ...

    @property
    def acls(self) -> SectionView[Uuid, Any]:
        """AccessControlEntryRecord by entry id."""
        ...

    @property
    def scram(self) -> SectionView[tuple[int, str], Any]:
        """UserScramCredentialRecord by (mechanism, user)."""
        ...

    @property
    def tokens(self) -> SectionView[str, Any]:
        """DelegationTokenRecord by token id."""
        ...

    @property
    def metadata_level(self) -> int:
        """The finalized metadata.version; the oldest supported version before it is finalized."""
        ...

    @property
    def next_producer_id(self) -> int:
        """The first producer id that no broker has got yet."""
        ...

    def feature_level(self, name: str) -> int:
        """The finalized level of a feature; 0 if it is not finalized."""
        ...


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
