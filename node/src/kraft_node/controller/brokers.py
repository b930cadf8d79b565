"""The life of brokers and controllers: registration, heartbeats, fencing, shutdown (KIP-631, KIP-841, KIP-858).

BrokerRegistration (62) v0-4, BrokerHeartbeat (63) v0-2, UnregisterBroker (64) v0, ControllerRegistration (70) v0.

Intended difference from Apache Kafka: a broker process that registers with a directory id of its registered predecessor
replaces the predecessor at once. Kafka answers DUPLICATE_BROKER_REGISTRATION until the predecessor's lease has expired.
A process locks its log directories, so a process that has the directory id proves that the predecessor is dead.
`broker.session.replace.on.restart=false` selects Kafka's behaviour.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any, Final

from kraft_node.controller.cluster import Cluster
from kraft_node.controller.leaders import Leaders
from kraft_node.controller.plan import Plan
from kraft_node.controller.sessions import ControlState, Link
from kraft_node.metadata.brokers import BrokerRegistration
from kraft_node.metadata.features import (
    CONTROLLER_REGISTRATION_SUPPORTED,
    CORDONED_LOG_DIRS_SUPPORTED,
    DIRECTORY_ASSIGNMENT_SUPPORTED,
    KRAFT_VERSION,
    METADATA_VERSION,
)
from kraft_node.metadata.snapshot_state import told_snapshot
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
    BrokerRegistrationChangeRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    UnregisterBrokerRecord,
)

FENCE: Final = 1
UNFENCE: Final = -1
IN_CONTROLLED_SHUTDOWN: Final = 1


class Brokers:
    """Answers requests of brokers about themselves, and fences silent brokers."""

    __slots__ = ("_cluster", "_leaders", "on_snapshot_told")

    def __init__(self, cluster: Cluster, leaders: Leaders) -> None:
        self._cluster = cluster
        self._leaders = leaders
        self.on_snapshot_told: Callable[[int, int | None], None] = lambda _broker_id, _end_offset: None
        """Called on each heartbeat with the end offset of that broker's latest metadata snapshot; None: not reported.
        """

    # Registration

    def register(
        self, request: BrokerRegistrationRequest, api_version: int, next_offset: int, kraft_version: int
    ) -> Plan:
        """Register a broker. Its epoch is the offset of its registration record, whatever records precede it: a broker
        that has replayed up to this epoch has seen its registration.

        `next_offset` is the offset of the first record; `kraft_version` is the current level, which the raft layer
        knows.
        """
        cluster = self._cluster
        if request.cluster_id != cluster.cluster_id:
            message = f"Expected cluster ID {cluster.cluster_id}, but got cluster ID {request.cluster_id}"
            raise KafkaError(ErrorCode.INCONSISTENT_CLUSTER_ID, message)
        existing = cluster.broker(request.broker_id)
        self._check_incarnation(request, existing)
        if request.is_migrating_zk_broker:
            message = "Controller does not support registering ZK brokers."
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
        with_directories = cluster.level >= DIRECTORY_ASSIGNMENT_SUPPORTED
        if with_directories:
            self._check_directories(request)
        record = RegisterBrokerRecord(
            broker_id=request.broker_id,
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
        records: list[Any] = []
        if existing is not None and existing.incarnation_id == request.incarnation_id:
            record.fenced = existing.fenced
            record.in_controlled_shutdown = existing.in_controlled_shutdown
            record.broker_epoch = existing.epoch
        else:
            clean = api_version >= 3 and existing is not None and request.previous_broker_epoch == existing.epoch
            self._leaders.broker_restarted(request.broker_id, clean, records)
            record.broker_epoch = next_offset + len(records)
        records.append(record)
        return Plan(BrokerRegistrationResponse(broker_epoch=record.broker_epoch), records, atomic=False)

    def _check_incarnation(self, request: BrokerRegistrationRequest, existing: BrokerRegistration | None) -> None:
        if existing is None or existing.incarnation_id == request.incarnation_id:
            return
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

    def unregister(self, request: UnregisterBrokerRequest) -> Plan:
        """Plan the removal of a broker's registration. Raises BROKER_ID_NOT_REGISTERED."""
        broker = self._cluster.broker(request.broker_id)
        if broker is None:
            message = f"Broker ID {request.broker_id} is not currently registered"
            raise KafkaError(ErrorCode.BROKER_ID_NOT_REGISTERED, message)
        records: list[Any] = []
        self._leaders.broker_unregistered(broker.id, records)
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
        """Renew the lease, and move the broker to the state that it wants if that is safe."""
        cluster = self._cluster
        broker = cluster.check_epoch(request.broker_id, request.broker_epoch)
        cluster.sessions.contact(broker.id, broker.epoch, cluster.clock.monotonic_ms(), link)
        self.on_snapshot_told(broker.id, told_snapshot(request))
        before = cluster.sessions.state(broker.id)
        after = self._next_state(before, request)
        records: list[Any] = []
        if cluster.level >= DIRECTORY_ASSIGNMENT_SUPPORTED and request.offline_log_dirs:
            self._directories_offline(broker, request.offline_log_dirs, records)
        if records and after is ControlState.UNFENCED:
            after = before  # with the next heartbeat: until then the lost directories count as usable
        if after is not before:
            self._enter(broker, after, records)
        cluster.sessions.touch(broker.id, after.fenced, request.current_metadata_offset)
        if cluster.level >= CORDONED_LOG_DIRS_SUPPORTED and request.cordoned_log_dirs is not None:
            self._directories_cordoned(broker, request.cordoned_log_dirs, records)
        response = BrokerHeartbeatResponse(
            is_caught_up=request.current_metadata_offset >= broker.epoch,
            is_fenced=after.fenced,
            should_shut_down=after is ControlState.SHUTDOWN_NOW,
        )
        plan = Plan(response, records, atomic=False)
        if after is ControlState.CONTROLLED_SHUTDOWN:
            plan.appended = partial(cluster.sessions.start_shutdown, broker.id)
        return plan

    def _next_state(self, before: ControlState, request: BrokerHeartbeatRequest) -> ControlState:
        if before is ControlState.FENCED:
            if request.want_shut_down:
                return ControlState.SHUTDOWN_NOW
            # A broker that has replayed its own registration knows all decisions about its predecessor.
            ready = not request.want_fence and request.current_metadata_offset >= request.broker_epoch
            return ControlState.UNFENCED if ready else ControlState.FENCED
        if before is ControlState.UNFENCED and not request.want_shut_down:
            return ControlState.FENCED if request.want_fence else ControlState.UNFENCED
        leads = self._cluster.index.leads_any(request.broker_id, self._cluster.view.topics)
        if before is ControlState.UNFENCED:
            return ControlState.CONTROLLED_SHUTDOWN if leads and not request.want_fence else ControlState.SHUTDOWN_NOW
        if leads or not self._cluster.sessions.may_leave(request.broker_id):
            return ControlState.CONTROLLED_SHUTDOWN
        return ControlState.SHUTDOWN_NOW

    def _enter(self, broker: BrokerRegistration, state: ControlState, records: list[Any]) -> None:
        if state is ControlState.UNFENCED:
            records.append(_change(broker, fenced=UNFENCE))
            self._leaders.broker_unfenced(broker.id, records)
        elif state is ControlState.CONTROLLED_SHUTDOWN:
            if not broker.in_controlled_shutdown:
                records.append(_change(broker, in_controlled_shutdown=IN_CONTROLLED_SHUTDOWN))
            self._leaders.broker_leaves_isrs(broker.id, records)
        elif not broker.fenced:
            self.fence(broker, records)

    def fence(self, broker: BrokerRegistration, records: list[Any]) -> None:
        """Add the records that fence a broker and take it out of all ISRs."""
        self._leaders.broker_leaves_isrs(broker.id, records)
        records.append(_change(broker, fenced=FENCE))

    def fence_one_stale(self) -> Plan | None:
        """Fence one broker whose lease has expired; None if there is none. One at a time, because each plan may be
        large.
        """
        cluster = self._cluster
        expired = cluster.sessions.take_expired(cluster.clock.monotonic_ms())
        if expired is None:
            return None
        broker = cluster.broker(expired[0])
        if broker is None or broker.epoch != expired[1] or broker.fenced:
            return Plan(None)
        records: list[Any] = []
        self.fence(broker, records)
        return Plan(None, records, atomic=False)

    # Directories

    def _directories_offline(self, broker: BrokerRegistration, offline: list[Any], records: list[Any]) -> None:
        newly = set(broker.directories).intersection(offline)
        if not newly:
            return
        self._leaders.directories_lost(broker.id, newly, records)
        remaining = [directory for directory in broker.directories if directory not in newly]
        records.append(_change(broker, log_dirs=remaining))

    def _directories_cordoned(self, broker: BrokerRegistration, cordoned: list[Any], records: list[Any]) -> None:
        if set(cordoned) != set(broker.cordoned_directories or ()):
            records.append(_change(broker, cordoned_log_dirs=list(cordoned)))


def _change(broker: BrokerRegistration, **fields: Any) -> BrokerRegistrationChangeRecord:
    return BrokerRegistrationChangeRecord(broker_id=broker.id, broker_epoch=broker.epoch, **fields)


def _check_range(name: str, level: int, lowest: int, highest: int) -> None:
    if not lowest <= level <= highest:
        message = (
            f"Unable to register because the broker does not support finalized version {level} of {name}. "
            f"The broker wants a version between {lowest} and {highest}, inclusive."
        )
        raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, message)
