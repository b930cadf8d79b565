"""Delegation tokens (KIP-48, in KRaft KIP-900). Records have no HMAC: each node computes it (`security.tokens`)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore
    from kraft_protocol.wire import stored
    from kraft_protocol.wire.classes import Message


def _put(store: MetadataStore, record: stored.DelegationTokenRecord) -> None:
    store.tokens.put(record.token_id, record)


def _remove(store: MetadataStore, record: stored.RemoveDelegationTokenRecord) -> None:
    store.tokens.remove(record.token_id)


def _snapshot(image: FrozenImage) -> Iterator[Message]:
    return (record for _, record in image.cells("tokens"))


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="DelegationTokenRecord",
        versions=VERSION_0,
        mark=None,
        changes=("tokens",),
        replay=_put,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
    RecordKind(
        name="RemoveDelegationTokenRecord",
        versions=VERSION_0,
        mark=None,
        changes=("tokens",),
        replay=_remove,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=None,
    ),
)
