"""Registered brokers: registration, fencing, shutdown, log directories (KIP-631, KIP-841, KIP-858, KIP-1066)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata import features as levels
from kraft_node.metadata.brokers import BrokerRegistration, broker_of_record, flat_features
from kraft_node.metadata.kinds.kind import VERSION_0, AnyKind, AppendFollower, FrozenImage, RecordKind
from kraft_node.metadata.partitions import MetadataError
from kraft_protocol.wire import stored

if TYPE_CHECKING:
    from kraft_node.metadata.store import MetadataStore


def _registered(store: MetadataStore, broker_id: int, epoch: int) -> BrokerRegistration:
    broker = store.brokers.get(broker_id)
    if broker is None:
        raise MetadataError(f"a record names broker {broker_id}, which is not registered")
    if broker.epoch != epoch:
        raise MetadataError(f"a record names broker {broker_id} in epoch {epoch}, but its epoch is {broker.epoch}")
    return broker


def _register(store: MetadataStore, record: stored.RegisterBrokerRecord) -> None:
    store.brokers.put(record.broker_id, broker_of_record(record))


def _register_appended(active: AppendFollower, record: stored.RegisterBrokerRecord) -> None:
    active.broker_registered(record)


def _unregister(store: MetadataStore, record: stored.UnregisterBrokerRecord) -> None:
    _registered(store, record.broker_id, record.broker_epoch)
    store.brokers.remove(record.broker_id)


def _unregister_appended(active: AppendFollower, record: stored.UnregisterBrokerRecord) -> None:
    active.broker_unregistered(record.broker_id)


def _fence(store: MetadataStore, record: stored.FenceBrokerRecord) -> None:
    store.brokers.put(record.id, _registered(store, record.id, record.epoch)._replace(fenced=True))


def _fence_appended(active: AppendFollower, record: stored.FenceBrokerRecord) -> None:
    active.broker_fenced(record.id, fenced=True)


def _unfence(store: MetadataStore, record: stored.UnfenceBrokerRecord) -> None:
    store.brokers.put(record.id, _registered(store, record.id, record.epoch)._replace(fenced=False))


def _unfence_appended(active: AppendFollower, record: stored.UnfenceBrokerRecord) -> None:
    active.broker_fenced(record.id, fenced=False)


def _change(store: MetadataStore, record: stored.BrokerRegistrationChangeRecord) -> None:
    before = _registered(store, record.broker_id, record.broker_epoch)
    changes: dict[str, Any] = {}
    if record.fenced:
        changes["fenced"] = record.fenced > 0
    if record.in_controlled_shutdown:
        changes["in_controlled_shutdown"] = record.in_controlled_shutdown > 0
    if record.log_dirs:
        changes["directories"] = tuple(record.log_dirs)
    if record.cordoned_log_dirs is not None:
        changes["cordoned_directories"] = tuple(record.cordoned_log_dirs)
    store.brokers.put(record.broker_id, before._replace(**changes))


def _change_appended(active: AppendFollower, record: stored.BrokerRegistrationChangeRecord) -> None:
    if record.fenced:
        active.broker_fenced(record.broker_id, fenced=record.fenced > 0)


def _snapshot(image: FrozenImage) -> Iterator[stored.RegisterBrokerRecord]:
    for _, broker in image.cells("brokers"):
        yield _record(broker, image.metadata_level)


def _record(broker: BrokerRegistration, level: int) -> stored.RegisterBrokerRecord:
    kind = stored.RegisterBrokerRecord
    record = kind(
        broker_id=broker.id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.epoch,
        end_points=[kind.BrokerEndpoint(*endpoint) for endpoint in broker.endpoints.values()],
        features=[kind.BrokerFeature(*triple) for triple in flat_features(broker.features)],
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
    )
    if broker.is_migrating_zk_broker and level >= levels.MIGRATION_SUPPORTED:
        record.is_migrating_zk_broker = True
    if level >= levels.DIRECTORY_ASSIGNMENT_SUPPORTED:
        record.log_dirs = list(broker.directories)
    if level >= levels.CORDONED_LOG_DIRS_SUPPORTED and broker.cordoned_directories is not None:
        record.cordoned_log_dirs = list(broker.cordoned_directories)
    return record


KINDS: Final[tuple[AnyKind, ...]] = (
    RecordKind(
        name="RegisterBrokerRecord",
        versions=((7, 1), (8, 2), (17, 3), (30, 4)),
        mark=None,
        changes=("brokers",),
        replay=_register,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_register_appended,
        snapshot=_snapshot,
    ),
    RecordKind(
        name="UnregisterBrokerRecord",
        versions=VERSION_0,
        mark=None,
        changes=("brokers",),
        replay=_unregister,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_unregister_appended,
        snapshot=None,
    ),
    RecordKind(
        name="FenceBrokerRecord",
        versions=VERSION_0,
        mark=None,
        changes=("brokers",),
        replay=_fence,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_fence_appended,
        snapshot=None,
    ),
    RecordKind(
        name="UnfenceBrokerRecord",
        versions=VERSION_0,
        mark=None,
        changes=("brokers",),
        replay=_unfence,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_unfence_appended,
        snapshot=None,
    ),
    RecordKind(
        name="BrokerRegistrationChangeRecord",
        versions=((7, 1), (17, 2), (30, 3)),
        mark=None,
        changes=("brokers",),
        replay=_change,
        index=None,
        names=None,
        entries=None,
        stale=None,
        appended=_change_appended,
        snapshot=None,
    ),
)
