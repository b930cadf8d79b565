"""Makes ZooKeeper's znodes equal to the wanted state of entities, by checked transactions. Runs in ZooKeeper's lane.

`ZnodeWriter.write` compares the znodes with the wanted state and changes what differs, so it may be repeated after any
failure, and the first synchronization is the same as every later change. Each transaction checks that no other
controller has claimed ZooKeeper meanwhile. The last transaction of a write moves the offset in `/migration`.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from kraft_node.metadata.partitions import PartitionState
from kraft_node.migration.claim import ControllerClaim
from kraft_node.migration.entities import AclZnode, Entities, WantedTopic, WantedZnodes, state_value
from kraft_node.migration.passwords import PasswordEncoder, is_password
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.access import (
    RESOURCE_TYPES,
    acl_change_data,
    acls_data,
    read_acls,
    read_token,
    token_data,
)
from kraft_node.migration.tree.values import (
    MigrationValue,
    config_change_data,
    config_data,
    migration_data,
    partition_data,
    producer_block_data,
    read_config,
    read_partition,
    read_producer_block,
    read_topic,
    topic_data,
)
from kraft_node.migration.zookeeper import (
    Check,
    Create,
    Delete,
    Operation,
    SetData,
    Znode,
    ZooKeeper,
    names_below,
)
from kraft_node.security.names import PatternType

log = logging.getLogger(__name__)

OPERATIONS_MAX: Final = 500
BYTES_MAX: Final = 256 * 1024
"""The bounds of a transaction. ZooKeeper refuses requests of 1 MiB."""
WHOLE_QUOTAS: Final = frozenset({"producer_byte_rate", "consumer_byte_rate", "connection_creation_rate"})
"""Quotas that Kafka writes as whole numbers."""


class ZnodeWriter:
    """Writes for one claim. `claim` moves on with each transaction."""

    def __init__(self, zookeeper: ZooKeeper, claim: ControllerClaim, passwords: PasswordEncoder) -> None:
        self._zookeeper = zookeeper
        self._passwords = passwords
        self.claim = claim

    def write(self, wanted: WantedZnodes, reached: MigrationValue | None) -> int:
        """Bring the znodes to the wanted state. Returns how many operations that took.

        `reached`: what `/migration` says afterwards; None: more is to come before its offset is reached. Raises
        TransactionError (another controller wrote), NoAnswerError and ZnodeError.
        """
        operations = self._with_parents([*self._operations(wanted)])
        parts = [*_transactions(operations)]
        if reached is not None and not parts:
            parts = [[]]
        for index, part in enumerate(parts):
            self._commit(part, reached if index == len(parts) - 1 else None)
        return len(operations)

    def _commit(self, operations: Sequence[Operation], reached: MigrationValue | None) -> None:
        claim = self.claim
        guard: list[Operation] = [Check(paths.CONTROLLER_EPOCH, claim.epoch_version)]
        if reached is None:
            guard.append(Check(paths.MIGRATION, claim.migration_version))
        else:
            guard.append(SetData(paths.MIGRATION, migration_data(reached), claim.migration_version))
        self._zookeeper.commit([*guard, *operations])
        if reached is not None:
            self.claim = replace(claim, migration_version=claim.migration_version + 1, value=reached)

    def existing(self) -> Entities:
        """The entities that ZooKeeper has, or is deleting."""
        found = Entities(producer_ids=True)
        found.topics = dict.fromkeys((*self._names(paths.TOPICS), *self._names(paths.DELETED_TOPICS)), None)
        for kind in ("topics", "brokers", "users", "clients", "ips"):
            found.configs |= {f"{kind}/{name}" for name in self._names(paths.config(kind))}
        users = sorted(path for path in found.configs if path.startswith("users/"))
        of_users = self._zookeeper.children([f"{paths.config(path)}/clients" for path in users])
        found.configs |= {
            f"{u}/clients/{name}" for u, names in zip(users, of_users, strict=True) for name in names or ()
        }
        for pattern in PatternType:
            for kind in self._names(paths.acl_store(pattern)):
                if kind in RESOURCE_TYPES:
                    names = names_below(self._zookeeper, f"{paths.acl_store(pattern)}/{kind}")
                    found.resources |= {(int(pattern), RESOURCE_TYPES[kind], name) for name in names}
        found.tokens |= set(self._names(paths.TOKENS))
        return found

    def _names(self, path: str) -> list[str]:
        return self._zookeeper.children([path])[0] or []

    def _operations(self, wanted: WantedZnodes) -> Iterator[Operation]:
        yield from self._topics(wanted.topics)
        yield from self._configs(wanted.configs)
        yield from self._acls(wanted.acls)
        yield from self._tokens(wanted.tokens)
        block = wanted.producer_block
        if block is not None:
            (znode,) = self._zookeeper.get([paths.PRODUCER_IDS])
            if znode is None or not znode.data or _last(znode) < block.last:
                yield _put(paths.PRODUCER_IDS, znode, producer_block_data(block))

    # Topics

    def _topics(self, topics: Mapping[str, WantedTopic | None]) -> Iterator[Operation]:
        names = sorted(topics)
        for name, znode in zip(names, self._zookeeper.get([paths.topic(name) for name in names]), strict=True):
            topic = topics[name]
            path = paths.topic(name)
            if topic is None:
                yield from self._deleted(name)
                continue
            existing = None if znode is None else read_topic(path, znode.data)
            if existing is not None and existing.topic_id != topic.value.topic_id:
                yield from self._deleted(name)  # a topic of the same name from before
                existing = None
            if existing is None:
                yield Create(path, topic_data(topic.value))
                yield Create(paths.partitions(name))
                yield from self._created(name, topic.all_states)
                continue
            if dict(existing.assignments) != dict(topic.value.assignments):
                yield SetData(path, topic_data(topic.value))
            yield from self._states(name, {number: topic.all_states[number] for number in topic.states})

    def _created(self, name: str, states: Mapping[int, PartitionState]) -> Iterator[Operation]:
        for number, state in states.items():
            yield Create(paths.partition(name, number))
            yield from self._state(paths.partition_state(name, number), None, state)

    def _states(self, name: str, states: Mapping[int, PartitionState]) -> Iterator[Operation]:
        numbers = sorted(states)
        places = [paths.partition_state(name, number) for number in numbers]
        for number, path, znode in zip(numbers, places, self._zookeeper.get(places), strict=True):
            if znode is None and self._zookeeper.get([paths.partition(name, number)])[0] is None:
                yield Create(paths.partition(name, number))
            yield from self._state(path, znode, states[number])

    def _state(self, path: str, znode: Znode | None, state: PartitionState) -> Iterator[Operation]:
        """Write the state of a partition until the znode's version is at least the partition's epoch.

        A write may bring several changes of a partition. After the migration goes back, a controller with ZooKeeper
        sends the version as the epoch, and a broker that has followed the controllers ignores an older epoch.
        """
        value = state_value(state)
        data = partition_data(value, self.claim.epoch)
        version = 0 if znode is None else znode.version
        if znode is None:
            yield Create(path, data)
        differs = znode is not None and read_partition(path, znode.data) != value
        for _ in range(max(int(differs), state.partition_epoch - version)):
            yield SetData(path, data)

    def _deleted(self, name: str) -> Iterator[Operation]:
        """Everything of a topic but its configuration."""
        yield from self._removed(paths.topic(name))
        deleting = f"{paths.DELETED_TOPICS}/{name}"
        if self._zookeeper.get([deleting])[0] is not None:
            yield Delete(deleting)

    def _removed(self, path: str) -> Iterator[Operation]:
        """A znode and all below it, the lowest first."""
        levels = [[path] if self._zookeeper.get([path])[0] is not None else []]
        while levels[-1]:
            below = self._zookeeper.children(levels[-1])
            levels.append(
                [f"{one}/{name}" for one, names in zip(levels[-1], below, strict=True) for name in names or ()]
            )
        for level in reversed(levels):
            yield from map(Delete, level)

    # Configurations

    def _configs(self, configs: Mapping[str, dict[str, str | float] | None]) -> Iterator[Operation]:
        names = sorted(configs)
        for name, znode in zip(names, self._zookeeper.get([paths.config(name) for name in names]), strict=True):
            path = paths.config(name)
            before = {} if znode is None else read_config(path, znode.data)
            values = configs[name]
            after = {key: self._text(path, key, value, before.get(key)) for key, value in (values or {}).items()}
            is_notified = before != after
            if name.partition("/")[0] in {"topics", "brokers"} and not after:
                if znode is not None and (values is None or before):
                    yield Delete(path)
                elif znode is None and values is not None and name.startswith("topics/"):
                    yield Create(path, config_data({}))
            elif before != after or (znode is None and after):
                yield _put(path, znode, config_data(after))
            if is_notified and values is not None:
                yield Create(paths.CONFIG_CHANGE, config_change_data(name), sequential=True)

    def _text(self, path: str, key: str, value: str | float, before: str | None) -> str:
        """The value as ZooKeeper has it; as `before` if that means the same."""
        if isinstance(value, str):
            if not is_password(key) or not path.startswith(paths.config("brokers/")):
                return value
            if before is not None and self._passwords.decoded(path, key, before) == value:
                return before
            return self._passwords.encoded(value)
        if before is not None and _number(before) == value:
            return before
        return str(round(value)) if key in WHOLE_QUOTAS else repr(float(value))

    # ACLs and tokens

    def _acls(self, acls: Mapping[AclZnode, Any]) -> Iterator[Operation]:
        resources = []
        for resource in sorted(acls):
            path = paths.acls(*resource)
            if paths.is_usable(path):
                resources.append(resource)
            else:
                log.error("ZooKeeper cannot have these ACLs path=%r", path)
        places = [paths.acls(*resource) for resource in resources]
        for resource, path, znode in zip(resources, places, self._zookeeper.get(places), strict=True):
            entries = acls[resource]
            before = frozenset() if znode is None else read_acls(path, znode.data)
            if before == entries:
                continue
            if entries:
                yield _put(path, znode, acls_data(entries))
            elif self._names(path):
                yield SetData(path, b"")  # the parent of a resource whose name contains `/`
            else:
                yield Delete(path)
            yield Create(paths.acl_change(resource[0]), acl_change_data(*resource), sequential=True)

    def _tokens(self, tokens: Mapping[str, Any]) -> Iterator[Operation]:
        names = sorted(tokens)
        for name, znode in zip(names, self._zookeeper.get([paths.token(name) for name in names]), strict=True):
            path, record = paths.token(name), tokens[name]
            before = None if znode is None else read_token(path, znode.data)
            if before == record:
                continue
            yield Delete(path) if record is None else _put(path, znode, token_data(record))
            yield Create(paths.TOKEN_CHANGE, name.encode(), sequential=True)

    def _with_parents(self, operations: list[Operation]) -> list[Operation]:
        """The operations, after the creation of folders that ZooKeeper lacks."""
        made = {one.path for one in operations if isinstance(one, Create) and not one.sequential}
        parents = {parent for one in operations if isinstance(one, Create) for parent in _parents(one.path)} - made
        wanted = sorted(parents)
        missing = [path for path, znode in zip(wanted, self._zookeeper.get(wanted), strict=True) if znode is None]
        return [*map(Create, missing), *operations]


def _last(block: Znode) -> int:
    return read_producer_block(paths.PRODUCER_IDS, block.data).last


def _put(path: str, znode: Znode | None, data: bytes) -> Operation:
    return Create(path, data) if znode is None else SetData(path, data)


def _parents(path: str) -> Iterator[str]:
    while path := path.rpartition("/")[0]:
        yield path


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _transactions(operations: Iterable[Operation]) -> Iterator[list[Operation]]:
    """The operations in order, in transactions that ZooKeeper accepts."""
    part: list[Operation] = []
    size = 0
    for one in operations:
        length = len(one.path) + len(getattr(one, "data", b""))
        if part and (len(part) >= OPERATIONS_MAX or size + length > BYTES_MAX):
            yield part
            part, size = [], 0
        part.append(one)
        size += length
    if part:
        yield part
