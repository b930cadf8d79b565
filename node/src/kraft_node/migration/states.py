"""The states of a migration: those of its driver, as released, and those of KIP-866's draft."""

from __future__ import annotations

from enum import IntEnum

from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds.zk_migration import MIGRATION, PRE_MIGRATION


class DriverState(IntEnum):
    """The states of the release."""

    UNINITIALIZED = 0
    INACTIVE = 1
    WAIT_FOR_CONTROLLER_QUORUM = 2
    WAIT_FOR_BROKERS = 3
    BECOME_CONTROLLER = 4
    ZK_MIGRATION = 5
    SYNC_KRAFT_TO_ZK = 6
    KRAFT_CONTROLLER_TO_BROKER_COMM = 7
    DUAL_WRITE = 8


class VisibleState(IntEnum):
    """The states of KIP-866's draft, for operators."""

    ZOOKEEPER = 1
    MIGRATION_ELIGIBLE = 2
    MIGRATION_READY = 3
    MIGRATION_ACTIVE = 4
    MIGRATION_FINISHED = 5
    KRAFT = 6


def visible_state(image: MetadataImage) -> VisibleState:
    """The state that a controller shows. The first two are those of a cluster without KRaft controllers."""
    if image.zk_migration_state == PRE_MIGRATION:
        return VisibleState.MIGRATION_READY
    if image.zk_migration_state != MIGRATION:
        return VisibleState.KRAFT
    on_zookeeper = any(one.is_migrating_zk_broker for one in image.brokers.values())
    return VisibleState.MIGRATION_ACTIVE if on_zookeeper else VisibleState.MIGRATION_FINISHED
