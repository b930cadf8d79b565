"""SCRAM credentials of users (KIP-900)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore
    from kraft_protocol.wire import stored
    from kraft_protocol.wire.classes import Message


def _put(store: MetadataStore, record: stored.UserScramCredentialRecord) -> None:
    store.scram.put((record.mechanism, record.name), record)


def _remove(store: MetadataStore, record: stored.RemoveUserScramCredentialRecord) -> None:
    store.scram.remove((record.mechanism, record.name))


def _snapshot(image: FrozenImage) -> Iterator[Message]:
    return (record for _, record in image.cells("scram"))


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="UserScramCredentialRecord",
        versions=VERSION_0,
        mark=None,
        changes=("scram",),
        replay=_put,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
    RecordKind(
        name="RemoveUserScramCredentialRecord",
        versions=VERSION_0,
        mark=None,
        changes=("scram",),
        replay=_remove,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=None,
    ),
)
