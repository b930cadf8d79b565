"""Reads all metadata of a cluster in ZooKeeper as metadata records, batch by batch.

The records are those that Apache Kafka 3.9.2's controllers write for the same znodes, in the same order of kinds.
Topics are in the order of their names. Runs in ZooKeeper's lane.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, TypeAlias, TypeVar

from kraft_node.base.env import Rng
from kraft_node.migration.passwords import PasswordEncoder, is_password
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.access import RESOURCE_TYPES, SCRAM_MECHANISMS, read_acls, read_scram, read_token
from kraft_node.migration.tree.values import (
    PartitionValue,
    TopicValue,
    ZnodeError,
    read_config,
    read_partition,
    read_producer_block,
    read_topic,
)
from kraft_node.migration.zookeeper import ZooKeeper, names_below
from kraft_node.security.names import PatternType
from kraft_protocol.ids import random_uuid
from kraft_protocol.wire.stored import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    PartitionRecord,
    ProducerIdsRecord,
    TopicRecord,
)

log = logging.getLogger(__name__)

T = TypeVar("T")
Records: TypeAlias = "list[Any]"

BATCH_RECORDS: Final = 200
"""A batch has at least this many records, but for the last: `zookeeper.metadata.migration.min.batch.size`."""
TOPICS_AT_ONCE: Final = 100
PATHS_AT_ONCE: Final = 1000
TOPIC: Final = 2
BROKER: Final = 4
NO_EPOCH: Final = -1
_ANNOUNCED: Final = tuple(
    path.rpartition("/")[0] for path in (paths.CONFIG_CHANGE, paths.LITERAL_ACL_CHANGE, paths.EXTENDED_ACL_CHANGE)
)
"""Brokers delete old announcements, so only new ones mean changes."""


class MetadataReader:
    """Reads one cluster. `passwords` decrypts values of brokers, `rng` makes the ids of ACLs."""

    def __init__(self, zookeeper: ZooKeeper, passwords: PasswordEncoder, rng: Rng) -> None:
        self._zookeeper = zookeeper
        self._passwords = passwords
        self._rng = rng

    def batches(self) -> Iterator[Records]:
        """All records. Raises ZnodeError and NoAnswerError."""
        batch: Records = []
        for part in self._parts():
            batch += part
            if len(batch) >= BATCH_RECORDS:
                yield batch
                batch = []
        if batch:
            yield batch

    def _parts(self) -> Iterator[Records]:
        yield from self._topics()
        yield from self._brokers()
        yield from self._quotas()
        yield from self._producer_ids()
        yield from self._acls()
        yield from self._tokens()

    # Topics

    def _topics(self) -> Iterator[Records]:
        going = set(self._names(paths.DELETED_TOPICS))
        for name in sorted(going):
            log.info("topic is being deleted and is not migrated topic=%s", name)
        names = [name for name in self._names(paths.TOPICS) if name not in going]
        for some in _chunks(names, TOPICS_AT_ONCE):
            topics = read_topics(self._zookeeper, some)
            configs = self._configs([f"topics/{name}" for name in topics])
            states = self._states(topics)
            for name, topic in topics.items():
                records: Records = [TopicRecord(name, topic.topic_id)]
                records += [ConfigRecord(TOPIC, name, *item) for item in configs[f"topics/{name}"].items()]
                for number, assignment in topic.assignments.items():
                    state = states[name, number]
                    value, version = state or (_without_state(name, number, assignment.replicas), 0)
                    records.append(
                        PartitionRecord(
                            partition_id=number,
                            topic_id=topic.topic_id,
                            replicas=list(assignment.replicas),
                            isr=list(value.isr),
                            removing_replicas=list(assignment.removing),
                            adding_replicas=list(assignment.adding),
                            leader=value.leader,
                            leader_recovery_state=value.leader_recovering,
                            leader_epoch=value.leader_epoch,
                            partition_epoch=version,
                        )
                    )
                yield records

    def _states(self, topics: dict[str, TopicValue]) -> dict[tuple[str, int], tuple[PartitionValue, int] | None]:
        """(topic, partition) -> its state and the version of its znode, which is the partition's epoch."""
        keys = [(name, number) for name, topic in topics.items() for number in topic.assignments]
        found: dict[tuple[str, int], tuple[PartitionValue, int] | None] = {}
        for some in _chunks(keys, PATHS_AT_ONCE):
            wanted = [paths.partition_state(*key) for key in some]
            for key, path, znode in zip(some, wanted, self._zookeeper.get(wanted), strict=True):
                found[key] = None if znode is None else (read_partition(path, znode.data), znode.version)
        return found

    # Configurations and quotas

    def _configs(self, entity_paths: Sequence[str]) -> dict[str, dict[str, str]]:
        found = {}
        for some in _chunks(entity_paths, PATHS_AT_ONCE):
            wanted = [paths.config(one) for one in some]
            for entity_path, path, znode in zip(some, wanted, self._zookeeper.get(wanted), strict=True):
                found[entity_path] = {} if znode is None else read_config(path, znode.data)
        return found

    def _brokers(self) -> Iterator[Records]:
        names = self._names(paths.config("brokers"))
        configs = self._configs([f"brokers/{name}" for name in names])
        for name in names:
            path = paths.config(f"brokers/{name}")
            broker = "" if name == paths.DEFAULT else name
            yield [
                ConfigRecord(
                    BROKER, broker, key, self._passwords.decoded(path, key, value) if is_password(key) else value
                )
                for key, value in configs[f"brokers/{name}"].items()
            ]

    def _quotas(self) -> Iterator[Records]:
        users = self._names(paths.config("users"))
        yield from self._entities([((("user", name),), f"users/{name}") for name in users])
        clients = self._names(paths.config("clients"))
        yield from self._entities([((("client-id", name),), f"clients/{name}") for name in clients])
        of_users = [
            ((("user", user), ("client-id", client)), f"users/{user}/clients/{client}")
            for user, names in zip(
                users, self._children([f"{paths.config('users')}/{u}/clients" for u in users]), strict=True
            )
            for client in names
        ]
        yield from self._entities(of_users)
        addresses = self._names(paths.config("ips"))
        yield from self._entities([((("ip", name),), f"ips/{name}") for name in addresses])

    def _entities(self, entities: Sequence[tuple[tuple[tuple[str, str], ...], str]]) -> Iterator[Records]:
        """The quotas and credentials of entities: (type, encoded name) pairs, and where they are."""
        configs = self._configs([entity_path for _, entity_path in entities])
        for parts, entity_path in entities:
            path = paths.config(entity_path)
            names = [(kind, paths.decoded_name(part)) for kind, part in parts]
            records: Records = []
            for key, value in configs[entity_path].items():
                user = names[0][1]
                if key in SCRAM_MECHANISMS:
                    if user is not None:
                        records.append(read_scram(path, user, key, value))
                    continue
                entity = [ClientQuotaRecord.EntityData(kind, name) for kind, name in names]
                records.append(ClientQuotaRecord(entity, key, _quota(path, key, value), False))
            if records:
                yield records

    # The rest

    def _producer_ids(self) -> Iterator[Records]:
        (znode,) = self._zookeeper.get([paths.PRODUCER_IDS])
        if znode is not None and znode.data:  # empty: no block was ever given out
            block = read_producer_block(paths.PRODUCER_IDS, znode.data)
            yield [ProducerIdsRecord(block.broker_id, NO_EPOCH, block.last + 1)]

    def _acls(self) -> Iterator[Records]:
        for pattern in PatternType:
            folder = paths.acl_store(pattern)
            kinds = [name for name in self._names(folder) if name in RESOURCE_TYPES]
            keys = [
                (RESOURCE_TYPES[kind], name)
                for kind in kinds
                for name in names_below(self._zookeeper, f"{folder}/{kind}")
            ]
            for some in _chunks(keys, PATHS_AT_ONCE):
                wanted = [paths.acls(pattern, *key) for key in some]
                for (kind, name), path, znode in zip(some, wanted, self._zookeeper.get(wanted), strict=True):
                    entries = sorted(read_acls(path, znode.data)) if znode is not None else []
                    yield [
                        AccessControlEntryRecord(
                            random_uuid(self._rng),
                            kind,
                            name,
                            int(pattern),
                            e.principal,
                            e.host,
                            e.operation,
                            e.permission,
                        )
                        for e in entries
                    ]

    def _tokens(self) -> Iterator[Records]:
        for some in _chunks(self._names(paths.TOKENS), PATHS_AT_ONCE):
            wanted = [paths.token(name) for name in some]
            found = zip(wanted, self._zookeeper.get(wanted), strict=True)
            yield [read_token(path, znode.data) for path, znode in found if znode is not None]

    def _names(self, path: str) -> list[str]:
        """The children; none if the znode does not exist."""
        return self._children([path])[0]

    def _children(self, folders: Sequence[str]) -> list[list[str]]:
        return [names or [] for names in self._zookeeper.children(folders)]


class ContentMarks:
    """Notices changes of ZooKeeper since it was made, by the names of znodes: one call, whatever the number of topics.

    Brokers announce each change of configurations, quotas, credentials and ACLs by a znode with the next number. The
    states of partitions are not looked at: each write of them checks the controller's epoch.
    """

    def __init__(self, zookeeper: ZooKeeper) -> None:
        """Raises NoAnswerError."""
        self._names = self._read(zookeeper)

    def require_unchanged(self, zookeeper: ZooKeeper) -> None:
        """Raise ZnodeError if something has changed. Raises NoAnswerError."""
        for folder, names in self._read(zookeeper).items():
            before = self._names[folder]
            changed = names - before if folder in _ANNOUNCED else names ^ before
            if changed:
                raise ZnodeError(folder, f"{min(changed)} has changed while the metadata was read")

    @staticmethod
    def _read(zookeeper: ZooKeeper) -> dict[str, set[str]]:
        folders = [*_ANNOUNCED, paths.TOPICS, paths.DELETED_TOPICS, paths.TOKENS]
        return {path: set(names or ()) for path, names in zip(folders, zookeeper.children(folders), strict=True)}


def read_topics(zookeeper: ZooKeeper, names: Sequence[str]) -> dict[str, TopicValue]:
    """The topics of these names that exist."""
    wanted = [paths.topic(name) for name in names]
    found = zip(names, wanted, zookeeper.get(wanted), strict=True)
    return {name: read_topic(path, znode.data) for name, path, znode in found if znode is not None}


def _without_state(name: str, number: int, replicas: tuple[int, ...]) -> PartitionValue:
    """The state of a partition that no controller has initialized yet; as Kafka migrates it."""
    if not replicas:
        raise ZnodeError(paths.topic(name), f"partition {number} has no replicas")
    log.warning("partition has no state in ZooKeeper and is initialized topic=%s partition=%d", name, number)
    return PartitionValue(replicas[0], 0, replicas)


def _quota(path: str, key: str, text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise ZnodeError(path, f"the quota {key} is {text!r}, not a number") from None


def _chunks(items: Iterable[T], size: int) -> Iterator[list[T]]:
    iterator = iter(items)
    while chunk := list(islice(iterator, size)):
        yield chunk
