"""What each kind of metadata record does: one implementation, for the committed image and for overlays.

`replay(store, record)` looks at the record's class name (`TopicRecord`) and changes `store`, whose sections offer
`get`, `put` and `remove`. It raises `MetadataError` when the record does not fit what came before, naming both.
Metadata transactions are not its business: `loader` and `overlay` decide what reaches it, and when.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, TypeAlias

from kraft_node.base.ids import uuid_text
from kraft_node.metadata.brokers import BrokerRegistration, broker_of_record, controller_of_record
from kraft_node.metadata.features import KRAFT_VERSION, METADATA_VERSION, metadata_version
from kraft_node.metadata.partitions import MetadataError, PartitionState

Store: TypeAlias = Any
"""A MetadataImage or an Overlay: writing goes through the sections, whose types differ."""

RESOURCE_TOPIC: Final = 2
PRODUCER_IDS: Final = "next"
ZK_MIGRATION: Final = "state"


def replay(store: Store, record: Any) -> None:
    """Change `store` as `record` says."""
    kind = type(record).__name__
    rule = _RULES.get(kind)
    if rule is None:
        raise MetadataError(f"nobody knows how to replay a {kind}")
    rule(store, record)


def _feature_level(store: Store, record: Any) -> None:
    if record.name == METADATA_VERSION:
        try:
            metadata_version(record.feature_level)
        except ValueError as e:
            raise MetadataError(str(e)) from None
    if record.name == KRAFT_VERSION:
        return
    if record.feature_level == 0:
        store.features.remove(record.name)
    else:
        store.features.put(record.name, record.feature_level)


def _topic(store: Store, record: Any) -> None:
    store.topics.create(record.topic_id, record.name)


def _remove_topic(store: Store, record: Any) -> None:
    name = store.topics.remove(record.topic_id)
    store.configs.remove((RESOURCE_TOPIC, name))


def _partition(store: Store, record: Any) -> None:
    store.topics.put_partition(record.topic_id, record.partition_id, PartitionState.of_record(record))


def _partition_change(store: Store, record: Any) -> None:
    before = store.topics.partition(record.topic_id, record.partition_id)
    if before is None:
        where = f"{uuid_text(record.topic_id)}-{record.partition_id}"
        raise MetadataError(f"changing a partition that does not exist: {where}")
    store.topics.put_partition(record.topic_id, record.partition_id, before.changed_by(record))


def _clear_elr(store: Store, record: Any) -> None:
    if record.topic_name:
        topic = store.topics.by_name(record.topic_name)
        if topic is None:
            raise MetadataError(f"clearing the eligible leaders of a topic that does not exist: {record.topic_name}")
        topics = [topic]
    else:
        topics = list(store.topics)
    for topic in topics:
        for number, state in list(topic.partitions()):
            if state.elr or state.last_known_elr:
                store.topics.put_partition(topic.id, number, state.without_elr())


def _register_broker(store: Store, record: Any) -> None:
    store.brokers.put(record.broker_id, broker_of_record(record))


def _unregister_broker(store: Store, record: Any) -> None:
    _registered(store, record.broker_id, record.broker_epoch)
    store.brokers.remove(record.broker_id)


def _fence_broker(store: Store, record: Any) -> None:
    store.brokers.put(record.id, _registered(store, record.id, record.epoch)._replace(fenced=True))


def _unfence_broker(store: Store, record: Any) -> None:
    store.brokers.put(record.id, _registered(store, record.id, record.epoch)._replace(fenced=False))


def _change_broker(store: Store, record: Any) -> None:
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


def _registered(store: Store, broker_id: int, epoch: int) -> BrokerRegistration:
    broker: BrokerRegistration | None = store.brokers.get(broker_id)
    if broker is None:
        raise MetadataError(f"a record speaks of broker {broker_id}, which is not registered")
    if broker.epoch != epoch:
        raise MetadataError(f"a record speaks of broker {broker_id} in epoch {epoch}, which is in epoch {broker.epoch}")
    return broker


def _register_controller(store: Store, record: Any) -> None:
    store.controllers.put(record.controller_id, controller_of_record(record))


def _config(store: Store, record: Any) -> None:
    key = (record.resource_type, record.resource_name)
    values = dict(store.configs.get(key) or {})
    if record.value is None:
        values.pop(record.name, None)
    else:
        values[record.name] = record.value
    _put_or_remove(store.configs, key, values)


def _client_quota(store: Store, record: Any) -> None:
    entity = tuple(sorted(((e.entity_type, e.entity_name) for e in record.entity), key=lambda pair: pair[0]))
    values = dict(store.quotas.get(entity) or {})
    if record.remove:
        values.pop(record.key, None)
    else:
        values[record.key] = record.value
    _put_or_remove(store.quotas, entity, values)


def _put_or_remove(section: Any, key: Any, values: Mapping[str, Any]) -> None:
    if values:
        section.put(key, values)
    else:
        section.remove(key)


def _producer_ids(store: Store, record: Any) -> None:
    store.producer_ids.put(PRODUCER_IDS, record)


def _acl(store: Store, record: Any) -> None:
    store.acls.put(record.id, record)


def _remove_acl(store: Store, record: Any) -> None:
    if record.id not in store.acls:
        raise MetadataError(f"removing an access control entry that does not exist: {uuid_text(record.id)}")
    store.acls.remove(record.id)


def _scram(store: Store, record: Any) -> None:
    store.scram.put((record.mechanism, record.name), record)


def _remove_scram(store: Store, record: Any) -> None:
    store.scram.remove((record.mechanism, record.name))


def _token(store: Store, record: Any) -> None:
    store.tokens.put(record.token_id, record)


def _remove_token(store: Store, record: Any) -> None:
    store.tokens.remove(record.token_id)


def _zk_migration(store: Store, record: Any) -> None:
    store.zk_migration.put(ZK_MIGRATION, record.zk_migration_state)


def _nothing(store: Store, record: Any) -> None:
    """NoOp: moves the high watermark and nothing else."""


_RULES: Final[dict[str, Callable[[Store, Any], None]]] = {
    "RegisterBrokerRecord": _register_broker,
    "UnregisterBrokerRecord": _unregister_broker,
    "TopicRecord": _topic,
    "PartitionRecord": _partition,
    "ConfigRecord": _config,
    "PartitionChangeRecord": _partition_change,
    "FenceBrokerRecord": _fence_broker,
    "UnfenceBrokerRecord": _unfence_broker,
    "RemoveTopicRecord": _remove_topic,
    "DelegationTokenRecord": _token,
    "UserScramCredentialRecord": _scram,
    "FeatureLevelRecord": _feature_level,
    "ClientQuotaRecord": _client_quota,
    "ProducerIdsRecord": _producer_ids,
    "BrokerRegistrationChangeRecord": _change_broker,
    "AccessControlEntryRecord": _acl,
    "RemoveAccessControlEntryRecord": _remove_acl,
    "NoOpRecord": _nothing,
    "ZkMigrationStateRecord": _zk_migration,
    "RemoveUserScramCredentialRecord": _remove_scram,
    "RemoveDelegationTokenRecord": _remove_token,
    "RegisterControllerRecord": _register_controller,
    "ClearElrRecord": _clear_elr,
}
