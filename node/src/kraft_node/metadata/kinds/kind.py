"""The form of the registry's entries: every question that a part of the node asks about a kind of metadata record."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, Protocol, TypeAlias, TypeVar

if TYPE_CHECKING:
    from kraft_node.base.ids import Uuid
    from kraft_node.metadata.snapshot import SnapshotCursor
    from kraft_node.metadata.store import MetadataStore
    from kraft_node.metadata.topics import TopicsView
    from kraft_node.wire.classes import Message
    from kraft_node.wire.stored import (
        PartitionChangeRecord,
        PartitionRecord,
        RegisterBrokerRecord,
    )

R = TypeVar("R", bound="Message")

VersionSteps: TypeAlias = tuple[tuple[int, int], ...]
"""(metadata.version level, record version) pairs, ascending: from that level on the record has that version."""

VERSION_0: Final[VersionSteps] = ((0, 0),)
"""Every level writes version 0."""

TOPICS: Final = "topics"
"""The part of a store that is not a keyed section."""


class TransactionMark(Enum):
    """What a record does to metadata transactions (KIP-868). `loader` and `overlay` act on it; it is not replayed."""

    BEGIN = "begins"
    END = "ends"
    ABORT = "is aborted"


class PartitionFollower(Protocol):
    """What the controller derives from partitions, as far as records change it. `topics`: before the replay."""

    def partition_created(self, record: PartitionRecord) -> None: ...

    def partition_changed(self, record: PartitionChangeRecord, topics: TopicsView) -> None: ...

    def topic_removed(self, topic_id: Uuid, topics: TopicsView) -> None: ...

    def elr_cleared(self, topic_name: str, topics: TopicsView) -> None:
        """An empty name stands for every topic."""


class NameFollower(Protocol):
    """The topic names that the controller keeps."""

    def add(self, name: str) -> None: ...

    def remove(self, name: str) -> None: ...


class AppendFollower(Protocol):
    """What only the active controller keeps: leases of brokers, its own configuration."""

    def broker_registered(self, record: RegisterBrokerRecord) -> None: ...

    def broker_fenced(self, broker_id: int, *, fenced: bool) -> None: ...

    def broker_unregistered(self, broker_id: int) -> None: ...

    def config_changed(self, resource_type: int, resource_name: str) -> None: ...


class Stale(NamedTuple):
    """What the controller derives anew if a record that it followed is never committed."""

    topic_id: Uuid | None
    """The topic; None: every topic."""
    name: str | None = None
    """A topic name that does not exist if the record is not committed."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RecordKind(Generic[R]):
    """One kind of record. No field has a default: None states that the kind does nothing there."""

    name: str
    """The name of the schema, which is that of the class in `stored`."""
    versions: VersionSteps
    """The versions in which it is written."""
    mark: TransactionMark | None
    changes: tuple[str, ...]
    """The parts of the store that it changes, and so the parts of the delta: keyed sections or TOPICS."""
    replay: Callable[[MetadataStore, R], None]
    """Change an image or an overlay. Raises MetadataError if the record does not fit what came before."""
    index: Callable[[PartitionFollower, R, TopicsView], None] | None
    """Tell the controller's partition index, before the replay."""
    names: Callable[[NameFollower, R, TopicsView], None] | None
    """Tell the controller's topic names, before the replay."""
    stale: Callable[[R], Stale] | None
    """Which of the above to derive anew after the record was followed in vain. Set if `index` or `names` is."""
    appended: Callable[[AppendFollower, R], None] | None
    """Tell the active controller that it has appended the record."""
    snapshot: Callable[[SnapshotCursor], Iterator[Message | bytes]] | None
    """The records that stand for the first of `changes` in a snapshot; one kind does that for each part. Bytes are
    encoded records."""

    def version(self, metadata_level: int) -> int:
        """The version in which a record of this kind is written at a metadata.version level."""
        found = 0
        for first_level, version in self.versions:
            if metadata_level < first_level:
                break
            found = version
        return found


AnyKind: TypeAlias = RecordKind[Any]
