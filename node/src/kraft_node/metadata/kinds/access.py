"""Access control entries (KIP-801)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, EntryFollower, FrozenImage, RecordKind, Stale
from kraft_node.metadata.partitions import MetadataError
from kraft_protocol.ids import uuid_text

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore
    from kraft_protocol.wire import stored
    from kraft_protocol.wire.classes import Message


def _put(store: MetadataStore, record: stored.AccessControlEntryRecord) -> None:
    store.acls.put(record.id, record)


def _remove(store: MetadataStore, record: stored.RemoveAccessControlEntryRecord) -> None:
    if record.id not in store.acls:
        raise MetadataError(f"removing an access control entry that does not exist: {uuid_text(record.id)}")
    store.acls.remove(record.id)


def _put_entry(entries: EntryFollower, record: stored.AccessControlEntryRecord) -> None:
    entries.put(record)


def _remove_entry(entries: EntryFollower, record: stored.RemoveAccessControlEntryRecord) -> None:
    entries.remove(record.id)


def _stale(record: stored.AccessControlEntryRecord | stored.RemoveAccessControlEntryRecord) -> Stale:
    return Stale(None, entry_id=record.id)


def _snapshot(image: FrozenImage) -> Iterator[Message]:
    return (record for _, record in image.cells("acls"))


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="AccessControlEntryRecord",
        versions=VERSION_0,
        mark=None,
        changes=("acls",),
        replay=_put,
        index=None,
        names=None,
        entries=_put_entry,
        stale=_stale,
        appended=None,
        snapshot=_snapshot,
    ),
    RecordKind(
        name="RemoveAccessControlEntryRecord",
        versions=VERSION_0,
        mark=None,
        changes=("acls",),
        replay=_remove,
        index=None,
        names=None,
        entries=_remove_entry,
        stale=_stale,
        appended=None,
        snapshot=None,
    ),
)
