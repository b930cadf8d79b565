"""The metadata of a registered broker or controller. Values are immutable and replaced on change."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from typing import TYPE_CHECKING, NamedTuple

from kraft_protocol.ids import DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED, Uuid

if TYPE_CHECKING:
    from kraft_protocol.wire.stored import RegisterBrokerRecord, RegisterControllerRecord


class Endpoint(NamedTuple):
    """The address of a node's listener."""

    name: str
    host: str
    port: int
    security_protocol: int
    """Kafka's number: 0 PLAINTEXT, 1 SSL, 2 SASL_PLAINTEXT, 3 SASL_SSL."""


class BrokerRegistration(NamedTuple):
    """A broker: its RegisterBrokerRecord, updated by later records."""

    id: int
    epoch: int
    incarnation_id: Uuid
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]
    rack: str | None
    fenced: bool
    in_controlled_shutdown: bool
    is_migrating_zk_broker: bool
    directories: tuple[Uuid, ...]
    """The online log directories; empty if the record version or metadata.version lacks them."""
    cordoned_directories: tuple[Uuid, ...] | None

    @property
    def active(self) -> bool:
        """Whether the broker may lead partitions and is shown to clients."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        """The advertised address on a listener; None if the broker does not have the listener."""
        return self.endpoints.get(listener)

    def has_online_directory(self, directory: Uuid) -> bool:
        """Whether a replica in `directory` can be served."""
        return is_online(directory, self.directories)


def is_online(directory: Uuid, online: Collection[Uuid]) -> bool:
    """Whether a broker with the directories `online` can serve a replica in `directory`.

    It can if it registered without directories, or if the replica is not assigned to a directory (KIP-858).
    """
    return not online or directory in (DIRECTORY_MIGRATING, DIRECTORY_UNASSIGNED) or directory in online


class ControllerRegistration(NamedTuple):
    """A controller, from its RegisterControllerRecord."""

    id: int
    incarnation_id: Uuid
    zk_migration_ready: bool
    endpoints: Mapping[str, Endpoint]
    features: Mapping[str, tuple[int, int]]


def _endpoints(record: RegisterBrokerRecord | RegisterControllerRecord) -> dict[str, Endpoint]:
    return {e.name: Endpoint(e.name, e.host, e.port, e.security_protocol) for e in record.end_points}


def _features(record: RegisterBrokerRecord | RegisterControllerRecord) -> dict[str, tuple[int, int]]:
    return {f.name: (f.min_supported_version, f.max_supported_version) for f in record.features}


def flat_features(features: Mapping[str, tuple[int, int]]) -> Iterator[tuple[str, int, int]]:
    """(name, lowest level, highest level) for each feature of a registration."""
    return ((name, low, high) for name, (low, high) in features.items())


def broker_of_record(record: RegisterBrokerRecord) -> BrokerRegistration:
    """The registration in a RegisterBrokerRecord."""
    cordoned = record.cordoned_log_dirs
    return BrokerRegistration(
        record.broker_id,
        record.broker_epoch,
        record.incarnation_id,
        _endpoints(record),
        _features(record),
        record.rack,
        record.fenced,
        record.in_controlled_shutdown,
        record.is_migrating_zk_broker,
        tuple(record.log_dirs or ()),
        None if cordoned is None else tuple(cordoned),
    )


def controller_of_record(record: RegisterControllerRecord) -> ControllerRegistration:
    """The registration in a RegisterControllerRecord."""
    return ControllerRegistration(
        record.controller_id,
        record.incarnation_id,
        record.zk_migration_ready,
        _endpoints(record),
        _features(record),
    )
