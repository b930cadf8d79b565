"""The contents of Kafka's znodes: JSON to plain data and back.

A reader raises ZnodeError with the path if a field is missing or has another type. Unknown fields are ignored, as
Kafka does.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeVar

from kraft_protocol.ids import Uuid, parse_uuid, uuid_text

T = TypeVar("T")

RECOVERED: Final = 0
MISSING: Final = object()
_DIGITS: Final = re.compile(r"[0-9]{1,19}")


class ZnodeError(Exception):
    """A znode does not contain what Kafka writes there."""

    def __init__(self, path: str, fault: str) -> None:
        super().__init__(f"znode {path}: {fault}")


class Assignment(NamedTuple):
    """The replicas of a partition, and the replicas that a reassignment adds and removes."""

    replicas: tuple[int, ...]
    adding: tuple[int, ...] = ()
    removing: tuple[int, ...] = ()


class TopicValue(NamedTuple):
    """`/brokers/topics/NAME`."""

    topic_id: Uuid
    assignments: Mapping[int, Assignment]


class PartitionValue(NamedTuple):
    """`/brokers/topics/NAME/partitions/N/state`, without the epoch of the controller that wrote it."""

    leader: int
    leader_epoch: int
    isr: tuple[int, ...]
    leader_recovering: int = RECOVERED


class DraftReadiness(NamedTuple):
    """`kraftMigration` of a registration of version 6, which is in KIP-866's draft. No release of Kafka writes it."""

    is_ready: bool
    cluster_id: str
    ibp: str


class BrokerValue(NamedTuple):
    """`/brokers/ids/ID`: what the migration shows of a broker's registration."""

    version: int
    endpoints: tuple[str, ...]
    features: Mapping[str, Any]
    readiness: DraftReadiness | None = None


class ControllerValue(NamedTuple):
    """`/controller`."""

    broker_id: int
    kraft_epoch: int
    """-1: a controller that itself uses ZooKeeper."""


class MigrationValue(NamedTuple):
    """`/migration`: which KRaft controller writes to ZooKeeper, and up to which offset ZooKeeper has the metadata."""

    controller_id: int = -1
    controller_epoch: int = -1
    offset: int = -1
    epoch: int = -1


class ZnodeFields:
    """The object in a znode, read field by field."""

    def __init__(self, path: str, data: bytes) -> None:
        self.path = path
        try:
            value = json.loads(data)
        except ValueError as e:
            raise ZnodeError(path, f"not JSON ({e})") from None
        if not isinstance(value, dict):
            raise ZnodeError(path, "not a JSON object")
        self.all: dict[str, Any] = value

    def get(self, name: str, kind: type[T], default: Any = MISSING) -> T:
        """The field of this type. Raises ZnodeError; a missing field is `default`, if that is given."""
        value = self.all.get(name, default)
        if value is MISSING:
            raise ZnodeError(self.path, f"the field {name} is missing")
        if value is not default and (not isinstance(value, kind) or (kind is int and isinstance(value, bool))):
            raise ZnodeError(self.path, f"the field {name} is {value!r}, not of type {kind.__name__}")
        return value  # type: ignore[no-any-return]

    def number(self, name: str, default: Any = MISSING) -> int:
        """An integer that may be written as text."""
        value = self.all.get(name, default)
        if isinstance(value, str) and _DIGITS.fullmatch(value.removeprefix("-")):
            return int(value)
        return self.get(name, int, default)

    def numbers(self, name: str, value: Any) -> tuple[int, ...]:
        """`value`, a part of the field `name`, as a list of integers."""
        if not isinstance(value, list) or not all(isinstance(item, int) for item in value):
            raise ZnodeError(self.path, f"the field {name} must have a list of broker ids, not {value!r}")
        return tuple(value)


def _text(value: Mapping[str, Any]) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


def read_topic(path: str, data: bytes) -> TopicValue:
    """Parse `/brokers/topics/TOPIC`. Raises ZnodeError if a field is missing or malformed."""
    fields = ZnodeFields(path, data)
    text = fields.get("topic_id", str)
    try:
        topic_id = parse_uuid(text)
    except ValueError as e:
        raise ZnodeError(path, f"the field topic_id: {e}") from None
    lists = {name: fields.get(name, dict, {}) for name in ("partitions", "adding_replicas", "removing_replicas")}
    found = {}
    for key, replicas in lists["partitions"].items():
        if not _DIGITS.fullmatch(key):
            raise ZnodeError(path, f"the field partitions: {key!r} is not the number of a partition")
        found[int(key)] = Assignment(
            fields.numbers("partitions", replicas),
            fields.numbers("adding_replicas", lists["adding_replicas"].get(key, [])),
            fields.numbers("removing_replicas", lists["removing_replicas"].get(key, [])),
        )
    return TopicValue(topic_id, dict(sorted(found.items())))


def topic_data(topic: TopicValue) -> bytes:
    """The data of `/brokers/topics/TOPIC`, version 3."""
    assignments = topic.assignments.items()
    return _text(
        {
            "version": 3,
            "partitions": {str(number): list(one.replicas) for number, one in assignments},
            "adding_replicas": {str(number): list(one.adding) for number, one in assignments if one.adding},
            "removing_replicas": {str(number): list(one.removing) for number, one in assignments if one.removing},
            "topic_id": uuid_text(topic.topic_id),
        }
    )


def read_partition(path: str, data: bytes) -> PartitionValue:
    """Parse the `state` of a partition. Raises ZnodeError if a field is missing or malformed."""
    fields = ZnodeFields(path, data)
    return PartitionValue(
        fields.get("leader", int),
        fields.get("leader_epoch", int),
        fields.numbers("isr", fields.get("isr", list)),
        fields.get("leader_recovery_state", int, RECOVERED),
    )


def partition_data(partition: PartitionValue, controller_epoch: int) -> bytes:
    """The data of a partition's `state`, version 1."""
    value: dict[str, Any] = {
        "version": 1,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "controller_epoch": controller_epoch,
        "isr": list(partition.isr),
    }
    if partition.leader_recovering != RECOVERED:
        value["leader_recovery_state"] = partition.leader_recovering
    return _text(value)


def read_config(path: str, data: bytes) -> dict[str, str]:
    """A dynamic configuration, or the quotas and SCRAM credentials of an entity. Empty data is an empty one."""
    if not data:
        return {}
    values = ZnodeFields(path, data).get("config", dict)
    for name, value in values.items():
        if not isinstance(value, str):
            raise ZnodeError(path, f"the value of {name} is {value!r}, not text")
    return dict(values)


def config_data(values: Mapping[str, str]) -> bytes:
    """The data of a configuration's znode, version 1; inverse of `read_config`."""
    return _text({"version": 1, "config": dict(values)})


def config_change_data(entity_path: str) -> bytes:
    """The data of a change of configuration, version 2. `entity_path` is as in `paths.config`."""
    return _text({"version": 2, "entity_path": entity_path})


def read_broker(path: str, data: bytes) -> BrokerValue:
    """Parse `/brokers/ids/ID`. Raises ZnodeError if the version is missing or a field is malformed."""
    fields = ZnodeFields(path, data)
    readiness = None
    if "kraftMigration" in fields.all:
        of = ZnodeFields(path, json.dumps(fields.get("kraftMigration", dict)).encode())
        readiness = DraftReadiness(of.get("isReady", bool), of.get("clusterId", str), of.get("ibp", str))
    version, endpoints = fields.get("version", int), tuple(fields.get("endpoints", list, []))
    return BrokerValue(version, endpoints, fields.get("features", dict, {}), readiness)


def read_controller(path: str, data: bytes) -> ControllerValue:
    """Parse `/controller`; the KRaft epoch is -1 if the field is missing. Raises ZnodeError."""
    fields = ZnodeFields(path, data)
    return ControllerValue(fields.get("brokerid", int), fields.get("kraftControllerEpoch", int, -1))


def controller_data(controller: ControllerValue, now_ms: int) -> bytes:
    """The data of `/controller`, version 2, which only a migrating controller writes."""
    return _text(
        {
            "version": 2,
            "brokerid": controller.broker_id,
            "timestamp": str(now_ms),
            "kraftControllerEpoch": controller.kraft_epoch,
        }
    )


def read_epoch(path: str, data: bytes) -> int:
    """Parse `/controller_epoch`, a decimal number without JSON. Raises ZnodeError."""
    try:
        return int(data)
    except ValueError:
        raise ZnodeError(path, f"{data!r} is not a number") from None


def read_migration(path: str, data: bytes) -> MigrationValue:
    """Parse `/migration`. Raises ZnodeError for an unknown version, and if a field is missing or malformed."""
    fields = ZnodeFields(path, data)
    version = fields.get("version", int)
    if version != 0:
        raise ZnodeError(path, f"version {version} is unknown: only version 0 exists")
    return MigrationValue(
        fields.get("kraft_controller_id", int),
        fields.get("kraft_controller_epoch", int),
        fields.get("kraft_metadata_offset", int),
        fields.get("kraft_metadata_epoch", int),
    )


def migration_data(migration: MigrationValue) -> bytes:
    """The data of `/migration`, version 0."""
    return _text(
        {
            "version": 0,
            "kraft_metadata_offset": migration.offset,
            "kraft_controller_id": migration.controller_id,
            "kraft_metadata_epoch": migration.epoch,
            "kraft_controller_epoch": migration.controller_epoch,
        }
    )


def read_cluster_id(path: str, data: bytes) -> str:
    """Parse `/cluster/id`. Returns the id as text; raises ZnodeError if it is missing."""
    return ZnodeFields(path, data).get("id", str)


class ProducerBlock(NamedTuple):
    """`/latest_producer_id_block`: the block of producer ids that was given out last, both ends included."""

    broker_id: int
    first: int
    last: int


def read_producer_block(path: str, data: bytes) -> ProducerBlock:
    """Parse `/latest_producer_id_block`, whose ends are numbers in text. Raises ZnodeError."""
    fields = ZnodeFields(path, data)
    return ProducerBlock(fields.get("broker", int), fields.number("block_start"), fields.number("block_end"))


def producer_block_data(block: ProducerBlock) -> bytes:
    """The data of `/latest_producer_id_block`, version 1; inverse of `read_producer_block`."""
    return _text(
        {"version": 1, "broker": block.broker_id, "block_start": str(block.first), "block_end": str(block.last)}
    )


def read_texts(path: str, name: str, values: Sequence[Any]) -> list[str]:
    """`values`, a part of the field `name`, as a list of texts."""
    for value in values:
        if not isinstance(value, str):
            raise ZnodeError(path, f"the field {name} must have text, not {value!r}")
    return list(values)
