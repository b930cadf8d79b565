"""ZkMigrationStateRecord: how far a cluster's migration from ZooKeeper has come (KIP-866)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, FrozenImage, RecordKind
from kraft_node.metadata.store import ZK_MIGRATION
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore

MIGRATION: Final = 1
PRE_MIGRATION: Final = 2
POST_MIGRATION: Final = 3
"""The states in the metadata log; 0 is a cluster that never had a ZooKeeper."""


def _replay(store: MetadataStore, record: stored.ZkMigrationStateRecord) -> None:
    store.zk_migration.put(ZK_MIGRATION, record.zk_migration_state)


def _snapshot(image: FrozenImage) -> Iterator[stored.ZkMigrationStateRecord]:
    for _, state in image.cells("zk_migration"):
        if state:
            yield stored.ZkMigrationStateRecord(zk_migration_state=state)


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="ZkMigrationStateRecord",
        versions=VERSION_0,
        mark=None,
        changes=("zk_migration",),
        replay=_replay,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=None,
        snapshot=_snapshot,
    ),
)
