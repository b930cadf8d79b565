"""ProducerIdsRecord: the first producer id that no broker has (KIP-730)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind
from kraft_node.metadata.store import PRODUCER_IDS

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore
    from kraft_protocol.wire import stored
    from kraft_protocol.wire.classes import Message


def _replay(store: MetadataStore, record: stored.ProducerIdsRecord) -> None:
    store.producer_ids.put(PRODUCER_IDS, record)


def _snapshot(image: FrozenImage) -> Iterator[Message]:
    return (record for _, record in image.cells("producer_ids"))


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="ProducerIdsRecord",
        versions=VERSION_0,
        mark=None,
        changes=("producer_ids",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
)
