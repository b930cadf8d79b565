"""The parts of the metadata that ZooKeeper keeps in znodes of their own, and what each of them should be.

An entity is a topic, a configuration or quota, the ACLs of a resource, a delegation token, or the block of producer
ids. `changed` names the entities of a delta, `of_image` all of them, `wanted` takes their state from the image: plain
data that ZooKeeper's lane compares with the znodes (`writing`).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Final, TypeAlias

from kraft_node.metadata.client_quotas import Entity
from kraft_node.metadata.delta import MetadataDelta
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.partitions import PartitionState
from kraft_node.metadata.store import PRODUCER_IDS
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.access import SCRAM_MECHANISMS, AclEntry, scram_text
from kraft_node.migration.tree.values import Assignment, PartitionValue, ProducerBlock, TopicValue

AclZnode: TypeAlias = tuple[int, int, str]
"""Pattern type, resource type, name."""

TOPIC: Final = 2
BROKER: Final = 4
BLOCK_IDS: Final = 1000
"""Producer ids in a block."""
_MECHANISM_NAMES: Final = {number: name for name, number in SCRAM_MECHANISMS.items()}


@dataclass
class Entities:
    """Names of entities."""

    topics: dict[str, set[int] | None] = field(default_factory=dict)
    """Topic -> its partitions that count; None: all."""
    configs: set[str] = field(default_factory=set)
    """The paths of entities, as in ZooKeeper's notifications: `topics/a`, `users/b/clients/<default>`."""
    resources: set[AclZnode] = field(default_factory=set)
    tokens: set[str] = field(default_factory=set)
    producer_ids: bool = False

    def update(self, other: Entities) -> None:
        """Add the entities of `other`."""
        for name, partitions in other.topics.items():
            mine = self.topics.get(name, set())
            self.topics[name] = None if partitions is None or mine is None else mine | partitions
        self.configs |= other.configs
        self.resources |= other.resources
        self.tokens |= other.tokens
        self.producer_ids |= other.producer_ids

    def parts(self, size: int) -> Iterator[Entities]:
        """The same entities, at most `size` of a kind at once."""
        topics, configs = iter(sorted(self.topics)), iter(sorted(self.configs))
        resources, tokens = iter(sorted(self.resources)), iter(sorted(self.tokens))
        producer_ids = self.producer_ids
        while True:
            part = Entities(
                {name: self.topics[name] for name in islice(topics, size)},
                set(islice(configs, size)),
                set(islice(resources, size)),
                set(islice(tokens, size)),
                producer_ids,
            )
            if not part:
                return
            producer_ids = False
            yield part

    def __bool__(self) -> bool:
        return bool(self.topics or self.configs or self.resources or self.tokens or self.producer_ids)


@dataclass
class WantedZnodes:
    """The state of some entities; None: the entity does not exist."""

    topics: dict[str, WantedTopic | None] = field(default_factory=dict)
    configs: dict[str, dict[str, str | float] | None] = field(default_factory=dict)
    """Numbers are quotas. None or empty: nothing is configured."""
    acls: dict[AclZnode, frozenset[AclEntry]] = field(default_factory=dict)
    tokens: dict[str, Any] = field(default_factory=dict)
    """Token id -> DelegationTokenRecord or None."""
    producer_block: ProducerBlock | None = None
    """None: not among these entities, or never given out."""


@dataclass
class WantedTopic:
    """A topic: all its assignments, and the states of the partitions that count."""

    value: TopicValue
    states: dict[int, PartitionValue]
    all_states: Mapping[int, PartitionState]
    """All partitions as in the image, in case the topic must be created."""


def config_path(resource_type: int, name: str) -> str | None:
    """The entity of a configuration; None if ZooKeeper keeps none of its kind."""
    if resource_type == TOPIC:
        return f"topics/{name}"
    if resource_type == BROKER:
        return f"brokers/{name or paths.DEFAULT}"
    return None


def quota_path(entity: Entity) -> str | None:
    """The entity of a client quota; None if ZooKeeper keeps none of its kind."""
    parts = {kind: paths.encoded_name(name) for kind, name in entity}
    kinds = set(parts)
    if kinds == {"user", "client-id"}:
        return f"users/{parts['user']}/clients/{parts['client-id']}"
    folders = {"user": "users", "client-id": "clients", "ip": "ips"}
    if len(kinds) == 1 and kinds <= set(folders):
        (kind,) = kinds
        return f"{folders[kind]}/{parts[kind]}"
    return None


def user_path(user: str) -> str:
    """The entity of a user: its quotas and its SCRAM credentials."""
    return f"users/{paths.encoded_name(user)}"


def acl_znode_of(record: Any) -> AclZnode:
    """The znode that holds an AccessControlEntryRecord."""
    return (record.pattern_type, record.resource_type, record.resource_name)


def changed(delta: MetadataDelta, image: MetadataImage) -> Entities:
    """The entities of a delta; `image` is the state after it."""
    found = Entities(producer_ids=bool(delta.producer_ids))
    for change in delta.topics.values():
        is_whole = change.created or change.deleted or change.name in found.topics
        found.topics[change.name] = None if is_whole else set(change.partitions)
        if change.deleted:
            found.configs.add(f"topics/{change.name}")
    found.configs |= {path for key in delta.configs if (path := config_path(*key)) is not None}
    found.configs |= {path for entity in delta.quotas if (path := quota_path(entity)) is not None}
    found.configs |= {user_path(user) for _, user in delta.scram}
    for acl_id, before in delta.acls.items():
        found.resources |= {acl_znode_of(one) for one in (before, image.acls.get(acl_id)) if one is not None}
    found.tokens |= set(delta.tokens)
    return found


def of_image(image: MetadataImage) -> Entities:
    """All entities of the image."""
    found = Entities(producer_ids=True)
    found.topics = {topic.name: None for topic in image.topics}
    found.configs |= {path for key in image.configs if (path := config_path(*key)) is not None}
    found.configs |= {path for entity in image.quotas if (path := quota_path(entity)) is not None}
    found.configs |= {user_path(user) for _, user in image.scram}
    found.resources |= {acl_znode_of(record) for record in image.acls.values()}
    found.tokens |= set(image.tokens)
    return found


class ImageReader:
    """Takes the state of entities from an image, of any number of parts of the same image."""

    def __init__(self, image: MetadataImage) -> None:
        self._image = image
        self._quotas: dict[str, Mapping[str, float]] | None = None
        self._scram: dict[str, dict[str, str]] | None = None
        self._acls: dict[AclZnode, set[AclEntry]] | None = None

    def wanted(self, entities: Entities) -> WantedZnodes:
        """The state of these entities."""
        found = WantedZnodes()
        for name, partitions in entities.topics.items():
            found.topics[name] = self._topic(name, partitions)
        for path in entities.configs:
            found.configs[path] = self._config(path)
        for resource in entities.resources:
            found.acls[resource] = frozenset(self._of_resource().get(resource, ()))
        for token_id in entities.tokens:
            found.tokens[token_id] = self._image.tokens.get(token_id)
        record = self._image.producer_ids.get(PRODUCER_IDS) if entities.producer_ids else None
        if record is not None:
            next_id = record.next_producer_id
            found.producer_block = ProducerBlock(record.broker_id, max(0, next_id - BLOCK_IDS), next_id - 1)
        return found

    def _topic(self, name: str, partitions: set[int] | None) -> WantedTopic | None:
        topic = self._image.topics.by_name(name)
        if topic is None:
            return None
        states = dict(topic.partitions())
        value = TopicValue(
            topic.id, {number: Assignment(one.replicas, one.adding, one.removing) for number, one in states.items()}
        )
        chosen = states if partitions is None else {number: states[number] for number in partitions & states.keys()}
        return WantedTopic(value, {number: state_value(one) for number, one in chosen.items()}, states)

    def _config(self, path: str) -> dict[str, str | float] | None:
        kind, _, name = path.partition("/")
        values: dict[str, str | float] = {}
        if kind == "topics":
            if self._image.topics.by_name(name) is None:
                return None
            values.update(self._image.configs.get((TOPIC, name)) or {})
        elif kind == "brokers":
            values.update(self._image.configs.get((BROKER, "" if name == paths.DEFAULT else name)) or {})
        else:
            values.update(self._of_quota().get(path, {}))
            values.update(self._of_user().get(path, {}))
        return values

    def _of_quota(self) -> dict[str, Mapping[str, float]]:
        if self._quotas is None:
            items = ((quota_path(entity), values) for entity, values in self._image.quotas.items())
            self._quotas = {path: values for path, values in items if path is not None}
        return self._quotas

    def _of_user(self) -> dict[str, dict[str, str]]:
        if self._scram is None:
            found: dict[str, dict[str, str]] = defaultdict(dict)
            for (mechanism, user), record in self._image.scram.items():
                found[user_path(user)][_MECHANISM_NAMES[mechanism]] = scram_text(record)
            self._scram = dict(found)
        return self._scram

    def _of_resource(self) -> dict[AclZnode, set[AclEntry]]:
        if self._acls is None:
            found: dict[AclZnode, set[AclEntry]] = defaultdict(set)
            for record in self._image.acls.values():
                entry = AclEntry(record.principal, record.host, record.operation, record.permission_type)
                found[acl_znode_of(record)].add(entry)
            self._acls = dict(found)
        return self._acls


def state_value(state: PartitionState) -> PartitionValue:
    """The state of a partition as ZooKeeper has it."""
    return PartitionValue(state.leader, state.leader_epoch, state.isr, state.leader_recovering)
