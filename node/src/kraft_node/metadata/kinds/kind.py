"""The form of the registry's entries: all properties of a kind of metadata record that parts of the node need."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kraft_node.metadata.bulk import RowWriter
    from kraft_node.metadata.store import MetadataStore
    from kraft_node.metadata.topics import FrozenTopics, TopicsView
    from kraft_protocol.ids import Uuid
    from kraft_protocol.wire.classes import Message
    from kraft_protocol.wire.stored import (
        AccessControlEntryRecord,
        PartitionChangeRecord,
        PartitionRecord,
        RegisterBrokerRecord,
    )

R = TypeVar("R", bound="Message")

VersionSteps: TypeAlias = tuple[tuple[int, int], ...]
"""(metadata.version level, record version) pairs, ascending: from that level on, the record has that version."""

VERSION_0: Final[VersionSteps] = ((0, 0),)
"""Version 0 at every level."""

TOPICS: Final = "topics"
"""The part of a store that is not a keyed section."""


class FrozenImage(Protocol):
    """The metadata at one moment, for a snapshot of it; `snapshot.SnapshotCursor` implements it."""

    metadata_level: int
    """The finalized metadata.version, which decides about fields and records."""
    topics: FrozenTopics
    writer: RowWriter | None
    """Encodes partitions in bulk; None if records are wanted as objects."""

    def cells(self, name: str) -> Iterator[tuple[Any, Any]]:
        """The keys and values of a keyed section."""
        ...


class TransactionMark(Enum):
    """The effect of a record on metadata transactions (KIP-868).

    `loader` and `overlay` handle it; it is not replayed.
    """

    BEGIN = "begins"
    END = "ends"
    ABORT = "is aborted"


class PartitionFollower(Protocol):
    """The data that the controller derives from partitions. `topics`: the state before the replay."""

    def partition_created(self, record: PartitionRecord) -> None:
        """A PartitionRecord creates the partition; its topic exists already."""
        ...

    def partition_changed(self, record: PartitionChangeRecord, topics: TopicsView) -> None:
        """A PartitionChangeRecord changes the partition; `topics` has its state before."""
        ...

    def topic_removed(self, topic_id: Uuid, topics: TopicsView) -> None:
        """A RemoveTopicRecord removes the topic and its partitions, which `topics` still has."""
        ...

    def elr_cleared(self, topic_name: str, topics: TopicsView) -> None:
        """An empty name means every topic."""


class NameFollower(Protocol):
    """The topic names that the controller stores."""

    def add(self, name: str) -> None:
        """A topic of that name is created."""
        ...

    def remove(self, name: str) -> None:
        """The topic of that name is removed."""
        ...


class EntryFollower(Protocol):
    """The access control entries that the controller keeps by resource."""

    def put(self, record: AccessControlEntryRecord) -> None:
        """An entry is created; its key is the record's id."""
        ...

    def remove(self, acl_id: Uuid) -> None:
        """The entry with that id is removed."""
        ...


class AppendFollower(Protocol):
    """The data that only the active controller keeps: leases of brokers, its own configuration."""

    def broker_registered(self, record: RegisterBrokerRecord) -> None:
        """A registration was appended: the lease of this broker epoch begins."""
        ...

    def broker_fenced(self, broker_id: int, *, fenced: bool) -> None:
        """The broker was fenced, or (`fenced` False) unfenced."""
        ...

    def broker_unregistered(self, broker_id: int) -> None:
        """The registration was removed: the lease ends."""
        ...

    def config_changed(self, resource_type: int, resource_name: str) -> None:
        """A key of the resource was set or removed; one call for each ConfigRecord."""
        ...


class Stale(NamedTuple):
    """The data that the controller must derive again if a record that it followed is never committed."""

    topic_id: Uuid | None
    """The topic; None: every topic, unless an entry is named."""
    name: str | None = None
    """A topic name that does not exist unless the record is committed."""
    entry_id: Uuid | None = None
    """An access control entry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind(Generic[R]):
    """One kind of record. Fields have no defaults: None states that the kind has no effect there."""

    name: str
    """The name of the schema, and of the class in `stored`."""
    versions: VersionSteps
    """The versions in which the record is written."""
    mark: TransactionMark | None
    changes: tuple[str, ...]
    """The changed parts of the store, and so of the delta: keyed sections or TOPICS."""
    replay: Callable[[MetadataStore, R], None]
    """Changes an image or an overlay. Raises MetadataError if the record does not fit."""
    index: Callable[[PartitionFollower, R, TopicsView], None] | None
    """Notifies the controller's partition index, before the replay."""
    names: Callable[[NameFollower, R, TopicsView], None] | None
    """Notifies the controller's topic names, before the replay."""
    entries: Callable[[EntryFollower, R], None] | None
    """Notifies the controller's index of access control entries, before the replay."""
    stale: Callable[[R], Stale] | None
    """The data to derive again if the record is never committed. Set if `index`, `names` or `entries` is."""
    appended: Callable[[AppendFollower, R], None] | None
    """Notifies the active controller after an append of the record."""
    snapshot: Callable[[FrozenImage], Iterator[Message | bytes]] | None
    """The records of the first of `changes` in a snapshot; one kind per part does this. Bytes are encoded records."""

    def version(self, metadata_level: int) -> int:
        """The record version at a metadata.version level."""
        found = 0
        for first_level, version in self.versions:
            if metadata_level < first_level:
                break
            found = version
        return found


AnyKind: TypeAlias = RecordKind[Any]
