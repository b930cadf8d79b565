"""The life of brokers and controllers: registration, heartbeats, fencing, shutdown (KIP-631, KIP-841, KIP-858).

BrokerRegistration (62) v0-4, BrokerHeartbeat (63) v0-2, UnregisterBroker (64) v0, ControllerRegistration (70) v0.

Intended difference from Apache Kafka: a broker process that registers with a directory id of its registered predecessor
replaces the predecessor at once. Kafka answers DUPLICATE_BROKER_REGISTRATION until the predecessor's lease has expired.
A process locks its log directories, so a process that has the directory id proves that the predecessor is dead.
`broker.session.replace.on.restart=false` selects Kafka's behaviour.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from typing import Any, Final

from kraft_node.controller.long_plans.departures import FENCE, UNFENCE, Departures, broker_change
from kraft_node.controller.migration import ControllerMigration
from kraft_node.controller.partitions.leaders import Leaders
from kraft_node.controller.plan import Plan, Steps, next_plan, preceded
from kraft_node.controller.state.controller_state import ControllerState
from kraft_node.controller.state.sessions import ControlState, Link
from kraft_node.metadata.brokers import BrokerRegistration
from kraft_node.metadata.features import (
    CONTROLLER_REGISTRATION_SUPPORTED,
    CORDONED_LOG_DIRS_SUPPORTED,
    DIRECTORY_ASSIGNMENT_SUPPORTED,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from kraft_node.metadata.own_fields import promises_renewal, snapshot_end_of
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import RESERVED_DIRECTORY_IDS, uuid_text
from kraft_protocol.wire.messages import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from kraft_protocol.wire.stored import (
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

LED_BLOCKS_MAX: Final = 1_000
"""How many blocks are searched for a partition that a broker leads. With more blocks, the broker counts as a leader and
stops like one."""

REPLACED_MAX: Final = 8
"""Incarnations of a broker that are remembered. A request is under way for seconds, so few processes end meanwhile."""


class Brokers:
    """Answers requests of brokers about themselves, and fences silent brokers."""

    __slots__ = ("_cluster", "_departures", "_leaders", "_migration", "_replaced", "on_snapshot_reported")

    def __init__(self, cluster: ControllerState, leaders: Leaders, migration: ControllerMigration) -> None:
        self._cluster = cluster
        self._migration = migration
        self._leaders = leaders
        self._departures = Departures(cluster, leaders)
        self._replaced: dict[int, deque[bytes]] = {}
        """The last incarnations of each broker that others have replaced: their requests may still be under way."""
        self.on_snapshot_reported: Callable[[int, int | None], None] = lambda _broker_id, _end_offset: None
        """Called on each heartbeat with the end offset of that broker's latest metadata snapshot; None: not reported.
        """

    # Registration

    def register(
        self,
        request: BrokerRegistrationRequest,
        api_version: int,
        next_offset: Callable[[], int],
        kraft_version: Callable[[], int],
    ) -> Steps:
        """Register a broker. Its epoch is the offset of its registration record, also behind other records. So a
        broker that has replayed up to this epoch has seen its registration.

        `next_offset` returns the offset of the next record; `kraft_version` the level, which the raft layer knows.
        """
        broker_id = request.broker_id
        records: list[Any] | None = None
        while records is None:
            existing = self._cluster.broker(broker_id)
            self._check_cluster(request)
            self._check_incarnation(request, existing)
            record = self._registration(request, kraft_version())
            if existing is not None and existing.incarnation_id == request.incarnation_id:
                record.fenced = existing.fenced
                record.in_controlled_shutdown = existing.in_controlled_shutdown
                record.broker_epoch = existing.epoch
                records = []
                break
            clean = api_version >= 3 and existing is not None and request.previous_broker_epoch == existing.epoch
            turns = self._leaders.broker_restarted(broker_id, clean, record.log_dirs)
            epoch = self._departures.epoch_of(broker_id)
            records = yield from self._departures.out_of_isrs(broker_id, epoch, turns)
            if records is not None:
                # Directories and features may have changed between the turns. That the predecessor is replaced is
                # decided: it has left ISRs.
                record = self._registration(request, kraft_version())
                record.broker_epoch = next_offset() + len(records)
        records.append(record)
        return Plan(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records, atomic=False)

    def _check_cluster(self, request: BrokerRegistrationRequest) -> None:
        cluster_id = self._cluster.cluster_id
        if request.cluster_id != cluster_id:
            message = f"Expected cluster ID {cluster_id}, but got cluster ID {request.cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)

    def _registration(self, request: BrokerRegistrationRequest, kraft_version: int) -> RegisterBrokerRecord:
        """The record of a new incarnation, still without its epoch."""
        is_on_zookeeper = request.is_migrating_zk_broker
        self._migration.check_registration(request.broker_id, is_on_zookeeper=is_on_zookeeper)
        with_directories = self._cluster.level >= DIRECTORY_ASSIGNMENT_SUPPORTED
        if with_directories:
            self._check_directories(request)
        return RegisterBrokerRecord(
            broker_id=request.broker_id,
            is_migrating_zk_broker=is_on_zookeeper,
            incarnation_id=request.incarnation_id,
            rack=request.rack,
            end_points=[
                RegisterBrokerRecord.BrokerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=self._check_features(request, kraft_version),
            log_dirs=list(request.log_dirs) if with_directories else [],
        )

    def _check_incarnation(self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None) -> None:
        if existing is None or existing.incarnation_id == request.incarnation_id:
            return
        replaced = self._replaced.setdefault(existing.id, deque(maxlen=REPLACED_MAX))
        if request.incarnation_id in replaced:
            raise KafkaError(
                ErrorCode.DUPLICATE_BROKER_REGISTRATION, "A later process of that broker has registered meanwhile."
            )
        self._check_predecessor(request, existing)
        if existing.incarnation_id not in replaced:
            replaced.append(existing.incarnation_id)

    def _check_predecessor(self, request: BrokerRegistrationRequest, existing: BrokerRegistration) -> None:
        if not self._cluster.sessions.is_valid(existing.id, existing.epoch, self._cluster.clock.monotonic_ms()):
            return
        if self._cluster.replaces_on_restart and set(request.log_dirs or ()) & set(existing.directories):
            return
        raise KafkaError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            "Another broker is registered with that broker id. If the broker was recently restarted this should "
            "self-resolve once the heartbeat manager expires the broker's session.",
        )

    def _check_directories(self, request: BrokerRegistrationRequest) -> None:
        directories = request.log_dirs or []
        if not directories:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
        if any(int.from_bytes(directory, "big") < RESERVED_DIRECTORY_IDS for directory in directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
        if len(set(directories)) != len(directories):
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
        shown = set(directories)
        for broker in self._cluster.view.brokers.values():
            taken = shown.intersection(broker.directories)
            if broker.id != request.broker_id and taken:
                message = f"Broker {broker.id} is already registered with directory {uuid_text(min(taken))}"
                raise KafkaError(ErrorCode.INVALID_REGISTRATION, message)

    def _check_features(self, request: BrokerRegistrationRequest, kraft_version: int) -> list[Any]:
        """The features field of the record. Raises unless the broker supports every finalized level."""
        view = self._cluster.view
        supported = {f.name: (f.min_supported_version, f.max_supported_version) for f in request.features}
        finalized = {
            **dict(view.features.items()),
            METADATA_VERSION: self._cluster.level,
            KRAFT_VERSION: kraft_version,
        }
        for name, (lowest, highest) in supported.items():
            _check_range(name, finalized.get(name, 0), lowest, highest)
        if METADATA_VERSION not in supported:
            raise KafkaError(ErrorCode.INVALID_REGISTRATION, "Request features do not contain 'metadata.version'")
        for name, level in finalized.items():
            if name not in supported:
                _check_range(name, level, 0, 0)
        return [
            RegisterBrokerRecord.BrokerFeature(name=name, min_supported_version=lowest, max_supported_version=highest)
            for name, (lowest, highest) in supported.items()
        ]

    def unregister(self, request: UnregisterBrokerRequest) -> Steps:
        """Plan the removal of a broker's registration. Raises BROKER_ID_NOT_REGISTERED."""
        while True:
            broker = self._cluster.broker(request.broker_id)
            if broker is None:
                message = f"Broker ID {request.broker_id} is not currently registered"
                raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
            turns = self._leaders.broker_unregistered(broker.id)
            records = yield from self._departures.out_of_isrs(broker.id, broker.epoch, turns)
            if records is not None:
                records.append(UnregisterBrokerRecord(broker_id=broker.id, broker_epoch=broker.epoch))
                return Plan(UnregisterBrokerResponse(), records, atomic=False)

    def register_controller(self, request: ControllerRegistrationRequest) -> Plan:
        """Store the endpoints and supported features of another controller (KIP-919)."""
        if self._cluster.level < CONTROLLER_REGISTRATION_SUPPORTED:
            message = "The current MetadataVersion is too old to support controller registrations."
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
        record = RegisterControllerRecord(
            controller_id=request.controller_id,
            incarnation_id=request.incarnation_id,
            zk_migration_ready=request.zk_migration_ready,
            end_points=[
                RegisterControllerRecord.ControllerEndpoint(
                    name=listener.name,
                    host=listener.host,
                    port=listener.port,
                    security_protocol=listener.security_protocol,
                )
                for listener in request.listeners
            ],
            features=[
                RegisterControllerRecord.ControllerFeature(
                    name=feature.name,
                    min_supported_version=feature.min_supported_version,
                    max_supported_version=feature.max_supported_version,
                )
                for feature in request.features
            ],
        )
        return Plan(ControllerRegistrationResponse(), (record,))

    # Heartbeats

    def heartbeat(self, request: BrokerHeartbeatRequest, link: Link | None = None) -> Plan:
        """Renew the lease, and move the broker to the wanted state if this is safe."""
        cluster = self._cluster
        broker = cluster.check_epoch(request.broker_id, request.broker_epoch)
        now_ms = cluster.clock.monotonic_ms()
        cluster.sessions.contact(broker.id, broker.epoch, now_ms, link, renews=promises_renewal(request))
        self.on_snapshot_reported(broker.id, snapshot_end_of(request))
        before = cluster.sessions.state(broker.id)
        after = self._next_state(before, request)
        records: list[Any] = []
        may_change = not self._migration.is_reading  # otherwise with a later heartbeat
        if may_change and cluster.level >= DIRECTORY_ASSIGNMENT_SUPPORTED and request.offline_log_dirs:
            self._directories_offline(broker, request.offline_log_dirs, records)
        if records and after is ControlState.UNFENCED:
            after = before  # with the next heartbeat: until then the lost directories count as usable
        entered = Plan(None) if after is before else next_plan(self._enter(broker, before, after))
        records += entered.records
        cluster.sessions.touch(broker.id, after.fenced, request.current_metadata_offset)
        if cluster.level >= CORDONED_LOG_DIRS_SUPPORTED and request.cordoned_log_dirs is not None:
            self._directories_cordoned(broker, request.cordoned_log_dirs, records)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=after.fenced,
            should_shut_down=after is ControlState.SHUTDOWN_NOW and entered.rest is None,
        )
        plan = Plan(response, records, atomic=False)
        plan.appended, plan.rest = entered.appended, entered.rest
        return plan

    def _next_state(self, before: ControlState, request: BrokerHeartbeatRequest) -> ControlState:
        if self._departures.is_leaving(request.broker_id) or self._migration.is_reading:
            return before  # once its partitions have moved, or all metadata is read, the next heartbeat continues
        if before is ControlState.FENCED:
            if request.want_shut_down:
                return ControlState.SHUTDOWN_NOW
            # A broker that has replayed its own registration knows all decisions about its predecessor.
            ready = not request.want_fence and request.current_metadata_offset >= request.broker_epoch
            return ControlState.UNFENCED if ready else ControlState.FENCED
        if before is ControlState.UNFENCED and not request.want_shut_down:
            return ControlState.FENCED if request.want_fence else ControlState.UNFENCED
        if before is ControlState.UNFENCED:
            must_wait = not request.want_fence and self._may_lead_any(request.broker_id)
        else:  # it has left all ISRs, and may not join one again
            must_wait = not self._cluster.sessions.may_leave(request.broker_id)
        return ControlState.CONTROLLED_SHUTDOWN if must_wait else ControlState.SHUTDOWN_NOW

    def _may_lead_any(self, broker_id: int) -> bool:
        return self._cluster.index.leads_any(broker_id, self._cluster.view.topics, LED_BLOCKS_MAX)

    def _enter(self, broker: BrokerRegistration, before: ControlState, state: ControlState) -> Steps:
        if state is ControlState.UNFENCED:
            first = [broker_change(broker, fenced=UNFENCE)]
            records = yield from preceded(first, self._leaders.broker_unfenced(broker.id))
            return Plan(None, records, atomic=False)
        if state is ControlState.CONTROLLED_SHUTDOWN:
            return (yield from self._departures.shut_down(broker))
        if before is ControlState.CONTROLLED_SHUTDOWN:
            return Plan(None, [broker_change(broker, fenced=FENCE)])
        if broker.fenced:
            return Plan(None)
        return (yield from self._departures.fence(broker))

    def fence_one_stale(self) -> Plan | None:
        """Begin to fence a broker with an expired lease; None if no lease has expired."""
        cluster = self._cluster
        expired = cluster.sessions.take_expired(cluster.clock.monotonic_ms())
        if expired is None:
            return None
        broker = cluster.broker(expired[0])
        if broker is None or broker.epoch != expired[1] or broker.fenced:
            return Plan(None)
        return next_plan(self._departures.fence(broker))

    # Directories

    def _directories_offline(self, broker: BrokerRegistration, offline: list[Any], records: list[Any]) -> None:
        newly = set(broker.directories).intersection(offline)
        if not newly:
            return
        records += self._leaders.directories_lost(broker.id, newly)
        remaining = [directory for directory in broker.directories if directory not in newly]
        records.append(broker_change(broker, log_dirs=remaining))

    def _directories_cordoned(self, broker: BrokerRegistration, cordoned: list[Any], records: list[Any]) -> None:
        if set(cordoned) != set(broker.cordoned_directories or ()):
            records.append(broker_change(broker, cordoned_log_dirs=list(cordoned)))


def _check_range(name: str, level: int, lowest: int, highest: int) -> None:
    if not lowest <= level <= highest:
        message = (
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {lowest} and {highest}, inclusive."
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
