"""What the controller does while its cluster migrates from ZooKeeper (KIP-866).

Before the migration it registers brokers and controllers, and refuses all other changes with NOT_CONTROLLER. While the
transaction of the migration is open, the log takes nothing else: an abort drops all that is in it. So registrations
are refused too, brokers repeat them, and heartbeats renew leases without changing states.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.zookeeper import MIGRATION_KEY, migrates
from kraft_node.controller.plan import Plan
from kraft_node.metadata.features import METADATA_TRANSACTIONS_SUPPORTED, MIGRATION_SUPPORTED, metadata_version
from kraft_node.metadata.kinds.zk_migration import MIGRATION, POST_MIGRATION, PRE_MIGRATION
from kraft_node.metadata.partitions import MetadataError
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.stored import ZkMigrationStateRecord

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.env import Scheduler
    from kraft_node.controller.state.controller_state import ControllerState
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataView

log = logging.getLogger(__name__)

BEFORE: Final = frozenset(
    {
        ApiKey.BROKER_REGISTRATION,
        ApiKey.BROKER_HEARTBEAT,
        ApiKey.UNREGISTER_BROKER,
        ApiKey.CONTROLLER_REGISTRATION,
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
    }
)
"""The planned APIs that are served before the migration."""
OF_BROKERS: Final = BEFORE | {
    ApiKey.ALTER_PARTITION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS,
    ApiKey.ALLOCATE_PRODUCER_IDS,
}
"""The planned APIs that are served while ZooKeeper is too far behind: a cluster without them stops serving clients."""
REMIND_MS: Final = 60_000
"""How often an active controller names the key that it must have."""


class ControllerMigration:
    """Owned by the controller. The driver of the migration, if this node has one, appends through it."""

    def __init__(
        self,
        config: NodeConfig,
        cluster: ControllerState,
        scheduler: Scheduler,
        write: Callable[[Plan], None],
        elect: Callable[[], None],
    ) -> None:
        """`write` appends records of a plan; it raises KafkaError. `elect` finds leaders for partitions without one."""
        self.is_enabled = migrates(config)
        self.is_behind: Callable[[], bool] = lambda: False
        """Whether ZooKeeper is so far behind that changes must wait."""
        self._cluster = cluster
        self._scheduler = scheduler
        self._write_plan = write
        self._elect = elect
        self.begun_at: int | None = None
        """The offset of the last of the first records of this epoch, -1 without any; None: this node does not lead."""
        self.missing_key: str | None = None
        """Why this active controller must have the key; None if it need not, or is not active."""
        self._reminder = 0
        self._committed = -1
        self._awaited: deque[tuple[int, Callable[[], None]]] = deque()
        self._unfinished: list[int] = []

    # The gate of requests

    @property
    def is_reading(self) -> bool:
        """Whether the transaction of the migration is open in this controller's epoch."""
        return self._cluster.view.in_transaction

    def check(self, key: ApiKey) -> None:
        """Raise NOT_CONTROLLER if the migration does not allow this request now. Its sender repeats it."""
        state = self._cluster.view.zk_migration_state
        if state == PRE_MIGRATION:
            if key not in BEFORE:
                raise _refused("The metadata is still in ZooKeeper.")
            if self.is_reading and key != ApiKey.BROKER_HEARTBEAT:
                raise _refused("The metadata is being read from ZooKeeper.")
        elif state == MIGRATION and key not in OF_BROKERS:
            if not self.is_enabled:
                names = ", ".join(map(str, self._unfinished))
                raise _refused(f"{MIGRATION_KEY} is false, but brokers {names} use ZooKeeper.")
            if self.is_behind():
                raise _refused("ZooKeeper is too far behind the metadata.")

    def check_registration(self, broker_id: int, *, is_on_zookeeper: bool) -> None:
        """Raise BROKER_ID_NOT_REGISTERED if a broker of this kind must not register now."""
        state = self._cluster.view.zk_migration_state
        if is_on_zookeeper and not (self.is_enabled and state in (PRE_MIGRATION, MIGRATION)):
            message = "Controller does not support registering ZK brokers."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
        if not is_on_zookeeper and state == PRE_MIGRATION:
            log.warning("broker waits for the migration and is not registered id=%d", broker_id)
            message = (
                "Controller is in pre-migration mode and cannot register KRaft brokers until the metadata migration "
                "is complete."
            )
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)

    # Appends of the driver

    def append(self, records: Sequence[Any], committed: Callable[[], None]) -> None:
        """Append in this order; `committed` is called later, once the records are committed in this epoch.

        Raises KafkaError if the controller cannot append them.
        """
        self._write(records, lambda offset: self.when_committed(offset, committed))

    def _write(self, records: Sequence[Any], appended: Callable[[int], None] | None = None) -> None:
        if self.begun_at is None:
            raise KafkaError(ErrorCode.NOT_CONTROLLER)
        plan = Plan(None, records, atomic=False)
        plan.appended = appended
        self._write_plan(plan)

    def when_committed(self, offset: int, then: Callable[[], None]) -> None:
        """Call `then` once everything up to `offset` is committed in this epoch."""
        self._awaited.append((offset, then))
        self._call_due()

    def committed(self, offset: int) -> None:
        """Everything up to `offset` is committed, and in the image unless a transaction holds it."""
        self._committed = offset
        self._call_due()

    def _call_due(self) -> None:
        awaited = self._awaited
        while awaited and awaited[0][0] <= self._committed:
            self._scheduler.call_soon(awaited.popleft()[1])

    def lost(self) -> None:
        """This node leads no more."""
        self._awaited.clear()
        self._unfinished = []
        self.missing_key = None
        self.begun_at = None

    # Begin and end

    def first_records(self, *, is_empty: bool, level: int) -> list[Any]:
        """The records of a new active controller: the start on an empty log, or the end of a migration.

        `level`: the metadata.version of the bootstrap records if the log is empty. Raises MetadataError if a migration
        needs a higher one: once the log has records, these controllers cannot migrate any more.
        """
        state = self._cluster.view.zk_migration_state
        if is_empty and self.is_enabled:
            _require_level(level)
            return [ZkMigrationStateRecord(PRE_MIGRATION)]
        if self.is_enabled and state not in (PRE_MIGRATION, MIGRATION):
            reason = "the migration is finished" if state == POST_MIGRATION else "this cluster never had a ZooKeeper"
            log.error("key has no effect, remove it key=%s reason=%s", MIGRATION_KEY, reason)
        if not self.is_enabled and state == PRE_MIGRATION:
            self._name_missing_key(
                "nothing is migrated yet, and changes are refused; ZooKeeper's brokers have no controller if another "
                "controller has claimed ZooKeeper before"
            )
        return self._end(self._cluster.view.base)

    def moved(self, delta: MetadataDelta) -> None:
        """The image has changed, in this controller's epoch."""
        if delta.zk_migration and self._cluster.view.zk_migration_state == MIGRATION:
            self._elect()  # brokers may have come back just before ZooKeeper was claimed, without a change since
        if delta.brokers and self._unfinished:
            self._scheduler.call_soon(self._finish)  # perhaps no broker uses ZooKeeper any more

    def _name_missing_key(self, reason: str) -> None:
        """Log that this controller must not lead without the key, now and again until it does not."""
        self.missing_key = reason
        self._reminder += 1
        self._remind(self._reminder)

    def _remind(self, number: int) -> None:
        if self.missing_key is not None and number == self._reminder:
            log.error("set %s=true here, and restart this controller: %s", MIGRATION_KEY, self.missing_key)
            self._scheduler.call_later(REMIND_MS, self._remind, number)

    def _finish(self) -> None:
        if self._unfinished and (records := self._end(self._cluster.view.base)):
            try:
                self._write(records)
            except KafkaError as e:
                log.warning("migration is not finished error=%s", e)

    def _end(self, image: MetadataView) -> list[Any]:
        before, self._unfinished = self._unfinished, []
        if self.is_enabled or self._cluster.view.zk_migration_state != MIGRATION:
            return []
        self._unfinished = sorted(one.id for one in image.brokers.values() if one.is_migrating_zk_broker)
        if self._unfinished:
            if self._unfinished != before:
                names = ", ".join(map(str, self._unfinished))
                self._name_missing_key(f"brokers {names} still use ZooKeeper, and changes are refused")
            return []
        self.missing_key = None
        log.info("migration is finished: nothing is written to ZooKeeper any more")
        return [ZkMigrationStateRecord(POST_MIGRATION)]


def _require_level(level: int) -> None:
    if level < MIGRATION_SUPPORTED:
        raise MetadataError(
            f"{MIGRATION_KEY} is true, but metadata.version {metadata_version(level).name} has no migration: delete "
            "the directories of the controllers, and format them with kafka-storage format --release-version "
            f"{metadata_version(METADATA_TRANSACTIONS_SUPPORTED).name} or later"
        )


def _refused(message: str) -> KafkaError:
    return KafkaError(ErrorCode.NOT_CONTROLLER, message)


def check_znode_name(cluster: ControllerState, name: str | None, *, is_encoded: bool = False) -> None:
    """Raise INVALID_REQUEST during a migration if no znode can have this name: ZooKeeper gets each change.

    With a slash, the path would be the znode of another name. `is_encoded`: paths have the name percent-encoded.
    """
    if cluster.view.zk_migration_state != MIGRATION:
        return
    from kraft_node.migration.tree.paths import encoded_name, is_name  # noqa: PLC0415  (0.4 MiB with its imports)

    if not is_name(encoded_name(name) if is_encoded or name is None else name):
        message = f"Until the migration from ZooKeeper is finished, the name {name!r} is invalid: no znode can have it."
        raise KafkaError(ErrorCode.INVALID_REQUEST, message)
