"""Claims ZooKeeper for a KRaft controller: `/controller`, `/controller_epoch` and `/migration` in one transaction.

Each claim raises the controller's epoch. A controller whose claim is over fails at its next write, because each write
checks the versions of `/controller_epoch` and `/migration`. Runs in ZooKeeper's lane.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import Final

from kraft_node.migration.tree import paths
from kraft_node.migration.tree.values import (
    ControllerValue,
    MigrationValue,
    controller_data,
    migration_data,
    read_controller,
    read_epoch,
    read_migration,
)
from kraft_node.migration.zookeeper import Check, Create, Delete, Operation, SetData, Znode, ZooKeeper

NO_KRAFT_CONTROLLER: Final = -1


class ClaimError(Exception):
    """ZooKeeper must not be claimed; the message says why."""


@dataclass(frozen=True)
class ControllerClaim:
    """A claim that held when it was read."""

    epoch: int
    """The epoch in `/controller_epoch`: brokers that use ZooKeeper follow the controller with the highest."""
    epoch_version: int
    migration_version: int
    value: MigrationValue
    """The content of `/migration`."""


def read_progress(zookeeper: ZooKeeper) -> MigrationValue | None:
    """The content of `/migration`; None if no migration has begun."""
    (znode,) = zookeeper.get([paths.MIGRATION])
    return None if znode is None else read_migration(paths.MIGRATION, znode.data)


def claim(
    zookeeper: ZooKeeper, controller_id: int, kraft_epoch: int, now_ms: int, *, is_migrated: bool = False
) -> ControllerClaim:
    """Become the controller of ZooKeeper's brokers.

    `is_migrated`: the metadata log has the migration, so `/migration` must exist.

    Raises ClaimError if a later KRaft controller has claimed it, if it was given back to its brokers, or if ZooKeeper
    has no controller's epoch; TransactionError if anything changed meanwhile.
    """
    controller, epoch, migration = zookeeper.get([paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.MIGRATION])
    if epoch is None:
        raise ClaimError(f"{paths.CONTROLLER_EPOCH} does not exist: no broker of this ZooKeeper was ever a controller")
    if is_migrated and migration is None:
        raise ClaimError(
            f"{paths.MIGRATION} does not exist, but the metadata log has the migration: ZooKeeper was given back to "
            "its brokers. Stop this controller; another migration needs controllers that are formatted anew"
        )
    _require_older(controller, migration, kraft_epoch)
    number = read_epoch(paths.CONTROLLER_EPOCH, epoch.data) + 1
    before = MigrationValue() if migration is None else read_migration(paths.MIGRATION, migration.data)
    value = before._replace(controller_id=controller_id, controller_epoch=kraft_epoch)
    operations: list[Operation] = [SetData(paths.CONTROLLER_EPOCH, str(number).encode(), epoch.version)]
    if migration is None:
        operations.append(Create(paths.MIGRATION, migration_data(value)))
    else:
        operations.append(SetData(paths.MIGRATION, migration_data(value), migration.version))
    if controller is not None:
        operations.append(Delete(paths.CONTROLLER, controller.version))
    operations.append(Create(paths.CONTROLLER, controller_data(ControllerValue(controller_id, kraft_epoch), now_ms)))
    zookeeper.commit(operations)
    return ControllerClaim(number, epoch.version + 1, 0 if migration is None else migration.version + 1, value)


def _require_older(controller: Znode | None, migration: Znode | None, kraft_epoch: int) -> None:
    """Refuse if ZooKeeper knows a KRaft controller of a later epoch."""
    epochs = []
    if controller is not None:
        epochs.append(read_controller(paths.CONTROLLER, controller.data).kraft_epoch)
    if migration is not None:
        epochs.append(read_migration(paths.MIGRATION, migration.data).controller_epoch)
    latest = max(epochs, default=NO_KRAFT_CONTROLLER)
    if latest > kraft_epoch:
        raise ClaimError(
            f"a KRaft controller of epoch {latest} has claimed ZooKeeper, this one is of epoch {kraft_epoch}"
        )


def claimed_again(zookeeper: ZooKeeper, former: ControllerClaim) -> ControllerClaim | None:
    """The claim after a session was lost; None if another controller has claimed ZooKeeper meanwhile.

    The last transaction of the former session may have been carried out or not.
    """
    epoch, migration = zookeeper.get([paths.CONTROLLER_EPOCH, paths.MIGRATION])
    if epoch is None or migration is None or epoch.version != former.epoch_version:
        return None
    value = read_migration(paths.MIGRATION, migration.data)
    return ControllerClaim(former.epoch, former.epoch_version, migration.version, value)


def is_interrupted(zookeeper: ZooKeeper, voters: Collection[int], kraft_epoch: int) -> bool:
    """Whether a controller of this quorum has claimed ZooKeeper, up to this epoch, and has written nothing since.

    If the metadata log is before its migration, the end of that controller has interrupted the migration.
    """
    held = read_progress(zookeeper)
    if held is None or held.controller_id not in voters:
        return False
    return held.offset < 0 and held.controller_epoch <= kraft_epoch


def undo(zookeeper: ZooKeeper, held: ControllerClaim) -> None:
    """Give ZooKeeper back to its brokers: without `/controller` and `/migration` they elect one of their own.

    Only before the metadata log has the migration. The epoch stays, so that brokers refuse our former requests.
    """
    controller, migration = zookeeper.get([paths.CONTROLLER, paths.MIGRATION])
    operations: list[Operation] = [Check(paths.CONTROLLER_EPOCH, held.epoch_version)]
    if migration is not None:
        operations.append(Delete(paths.MIGRATION, held.migration_version))
    if controller is not None:
        operations.append(Delete(paths.CONTROLLER, controller.version))
    zookeeper.commit(operations)


def release(zookeeper: ZooKeeper) -> bool:
    """Give ZooKeeper back to its brokers after a migration began: the revert, once no KRaft controller runs.

    Returns False if ZooKeeper is not claimed. `/controller` stays if a broker is the controller. Raises
    TransactionError if anything changed meanwhile: a controller still runs.
    """
    controller, epoch, migration = zookeeper.get([paths.CONTROLLER, paths.CONTROLLER_EPOCH, paths.MIGRATION])
    operations: list[Operation] = []
    if migration is not None:
        operations.append(Delete(paths.MIGRATION, migration.version))
    if controller is not None and read_controller(paths.CONTROLLER, controller.data).kraft_epoch >= 0:
        operations.append(Delete(paths.CONTROLLER, controller.version))
    if not operations:
        return False
    if epoch is not None:
        operations.insert(0, Check(paths.CONTROLLER_EPOCH, epoch.version))
    zookeeper.commit(operations)
    return True
