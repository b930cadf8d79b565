"""Records that change no part of the metadata: marks of metadata transactions (KIP-868), NoOpRecord (KIP-835)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, RecordKind, TransactionMark
from kraft_node.metadata.partitions import MetadataError

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore
    from kraft_protocol.wire import stored
    from kraft_protocol.wire.classes import Message


def _no_op(store: MetadataStore, record: stored.NoOpRecord) -> None:
    """Moves the high watermark only."""


def _not_replayed(_: MetadataStore, record: Message) -> None:
    raise MetadataError(f"a {type(record).__name__} cannot be replayed: it is in a snapshot or inside a transaction")


def _mark(name: str, mark: TransactionMark) -> AnyKind:
    return RecordKind(
        name=name,
        versions=VERSION_0,
        mark=mark,
        changes=(),
        replay=_not_replayed,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=None,
    )


KINDS: Final[tuple[AnyKind, ...]] = (
    _mark("BeginTransactionRecord", TransactionMark.BEGIN),
    _mark("EndTransactionRecord", TransactionMark.END),
    _mark("AbortTransactionRecord", TransactionMark.ABORT),
    RecordKind(
        name="NoOpRecord",
        versions=VERSION_0,
        mark=None,
        changes=(),
        replay=_no_op,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=None,
    ),
)
