"""The metadata as a tree of directories and files, with the names and texts of Apache Kafka's metadata shell.

Nodes are created on access; only the image is kept. A directory is a `Directory`, a file is its text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from datetime import UTC, datetime
from decimal import Decimal
from typing import Any, Final, TypeAlias

from kraft_node.base.config.describe import redacted
from kraft_node.base.version import COMPATIBLE_KAFKA_VERSION, VERSION
from kraft_node.metadata.features import METADATA_VERSION, metadata_version
from kraft_node.metadata.image import MetadataImage
from kraft_node.metadata.kinds.zk_migration import PRE_MIGRATION
from kraft_node.migration.gates import controller_blockers, registration_blockers
from kraft_node.migration.states import visible_state
from kraft_protocol.ids import Uuid, parse_uuid, uuid_text

Node: TypeAlias = "ShellDirectory | str"

RESOURCES: Final = {2: "TOPIC", 4: "BROKER", 16: "CLIENT_METRICS", 32: "GROUP"}
PROTOCOLS: Final = {0: "PLAINTEXT", 1: "SSL", 2: "SASL_PLAINTEXT", 3: "SASL_SSL"}
MECHANISMS: Final = {1: "SCRAM-SHA-256", 2: "SCRAM-SHA-512"}
ACL_RESOURCES: Final = ("UNKNOWN", "ANY", "TOPIC", "GROUP", "CLUSTER", "TRANSACTIONAL_ID", "DELEGATION_TOKEN", "USER")
ACL_PATTERNS: Final = ("UNKNOWN", "ANY", "MATCH", "LITERAL", "PREFIXED")
ACL_OPERATIONS: Final = (
    "UNKNOWN", "ANY", "ALL", "READ", "WRITE", "CREATE", "DELETE", "ALTER", "DESCRIBE", "CLUSTER_ACTION",
    "DESCRIBE_CONFIGS", "ALTER_CONFIGS", "IDEMPOTENT_WRITE", "CREATE_TOKENS", "DESCRIBE_TOKENS", "TWO_PHASE_COMMIT",
)  # fmt: skip
ACL_PERMISSIONS: Final = ("UNKNOWN", "ANY", "DENY", "ALLOW")


class ShellDirectory:
    """A node with children: their names, and a function that returns a child by name."""

    __slots__ = ("_child", "_names")

    def __init__(self, names: Callable[[], Iterable[str]], child: Callable[[str], Node | None]) -> None:
        self._names = names
        self._child = child

    def names(self) -> list[str]:
        """The names of the children, in alphabetical order. The children are not made."""
        return sorted(self._names())

    def child(self, name: str) -> Node | None:
        """The child of this name, a directory or the text of a file; None if it does not exist."""
        return self._child(name)

    def children(self) -> Iterator[tuple[str, Node]]:
        """Make the children one after another, in the order of `names`. A child that does not exist is left out."""
        for name in self.names():
            found = self._child(name)
            if found is not None:
                yield name, found


def fixed(**entries: Callable[[], Node]) -> ShellDirectory:
    """A directory with a few fixed children."""
    return ShellDirectory(lambda: entries, lambda name: entries[name]() if name in entries else None)


def root(image: MetadataImage) -> ShellDirectory:
    """The tree of an image."""
    return fixed(
        image=lambda: _image(image),
        **({"migration": lambda: _migration(image)} if image.zk_migration_state else {}),
        local=lambda: fixed(commitId=lambda: f"kraftcluster-{VERSION}", version=lambda: COMPATIBLE_KAFKA_VERSION),
    )


def _migration(image: MetadataImage) -> ShellDirectory:
    """The migration from ZooKeeper (KIP-866), as far as the metadata log knows it; not in Apache Kafka's shell.

    `blockers`: controllers and registered brokers that are not ready. Only the active controller looks at ZooKeeper.
    """
    brokers = list(image.brokers.values())
    controllers = [number for number, _ in image.controllers.items()]
    blockers = [*controller_blockers(image, controllers, -1, dict), *registration_blockers(image)]
    return fixed(
        blockers=lambda: "\n".join(blockers if image.zk_migration_state == PRE_MIGRATION else []),
        brokersWithZooKeeper=lambda: _list(one.id for one in brokers if one.is_migrating_zk_broker),
        brokersWithoutZooKeeper=lambda: _list(one.id for one in brokers if not one.is_migrating_zk_broker),
        recordedState=lambda: str(image.zk_migration_state),
        state=lambda: visible_state(image).name,
    )


def _image(image: MetadataImage) -> ShellDirectory:
    return fixed(
        acls=lambda: fixed(byId=lambda: _by_id(image.acls, _acl)),
        clientQuotas=lambda: _quotas(image),
        cluster=lambda: fixed(
            brokers=lambda: _by_number(image.brokers, _broker),
            controllers=lambda: _by_number(image.controllers, _controller),
        ),
        configs=lambda: _configs(image),
        delegationToken=lambda: _leaves({key: _token(token) for key, token in image.tokens.items()}),
        features=lambda: _features(image),
        producerIds=lambda: fixed(nextProducerId=lambda: str(image.next_producer_id or -1)),
        provenance=lambda: _provenance(image),
        scram=lambda: _scram(image),
        topics=lambda: fixed(byId=lambda: _topics_by_id(image), byName=lambda: _topics_by_name(image)),
    )


def _leaves(entries: dict[str, str]) -> ShellDirectory:
    return ShellDirectory(lambda: entries, entries.get)


def _by_number(section: Any, show: Callable[[Any], str]) -> ShellDirectory:
    def child(name: str) -> str | None:
        found = section.get(int(name)) if name.isdecimal() else None
        return None if found is None else show(found)

    return ShellDirectory(lambda: [str(number) for number, _ in section.items()], child)


def _by_id(section: Any, show: Callable[[Any], str]) -> ShellDirectory:
    def child(name: str) -> str | None:
        found = _find_id(section.get, name)
        return None if found is None else show(found)

    return ShellDirectory(lambda: [uuid_text(key) for key, _ in section.items()], child)


def _find_id(find: Callable[[Uuid], Any], text: str) -> Any:
    try:
        return find(parse_uuid(text))
    except ValueError:
        return None


def _list(values: Iterable[Any]) -> str:
    return f"[{', '.join(map(str, values))}]"


def _bool(value: bool) -> str:
    return "true" if value else "false"


def java_double(value: float) -> str:
    """A number as Java prints it: 1.5, 1.0E7."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return repr(float(value))
    sign, digits, exponent = Decimal(repr(float(value))).as_tuple()
    assert isinstance(exponent, int), "law: quotas are finite"
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = exponent + len(digits) - 1
    return f"{'-' if sign else ''}{text[0]}.{text[1:] or '0'}E{power}"


# The cluster


def _listeners(endpoints: Any) -> str:
    return _list(_endpoint(endpoint) for _, endpoint in sorted(endpoints.items()))


def _endpoint(endpoint: Any) -> str:
    protocol = PROTOCOLS.get(endpoint.security_protocol, endpoint.security_protocol)
    return (
        f"Endpoint(listenerName='{endpoint.name}', securityProtocol={protocol}, host='{endpoint.host}', "
        f"port={endpoint.port})"
    )


def _supported(features: Any) -> str:
    ranges = (f"{name}: {low if low == high else f'{low}-{high}'}" for name, (low, high) in sorted(features.items()))
    return "{" + ", ".join(ranges) + "}"


def _broker(broker: Any) -> str:
    cordoned = broker.cordoned_directories
    return (
        f"BrokerRegistration(id={broker.id}, epoch={broker.epoch}, incarnationId={uuid_text(broker.incarnation_id)}, "
        f"listeners={_listeners(broker.endpoints)}, supportedFeatures={_supported(broker.features)}, "
        f"rack={'Optional.empty' if broker.rack is None else f'Optional[{broker.rack}]'}, "
        f"fenced={_bool(broker.fenced)}, inControlledShutdown={_bool(broker.in_controlled_shutdown)}, "
        f"isMigratingZkBroker={_bool(broker.is_migrating_zk_broker)}, "
        f"directories={_list(map(uuid_text, broker.directories))}, "
        f"cordonedDirectories={'null' if cordoned is None else _list(map(uuid_text, cordoned))})"
    )


def _controller(controller: Any) -> str:
    return (
        f"ControllerRegistration(id={controller.id}, incarnationId={uuid_text(controller.incarnation_id)}, "
        f"zkMigrationReady={_bool(controller.zk_migration_ready)}, listeners={_listeners(controller.endpoints)}, "
        f"supportedFeatures={_supported(controller.features)})"
    )


def _features(image: MetadataImage) -> ShellDirectory:
    prefix = "finalized_"

    def child(name: str) -> str | None:
        if name == "metadataVersion":
            level = image.features.get(METADATA_VERSION)
            return "Optional.empty" if level is None else f"Optional[{metadata_version(level).name}]"
        if name.startswith(prefix):
            return str(image.feature_level(name.removeprefix(prefix)))
        return None

    def names() -> list[str]:
        return ["metadataVersion", *(prefix + name for name, _ in image.features.items() if name != METADATA_VERSION)]

    return ShellDirectory(names, child)


def _provenance(image: MetadataImage) -> str:
    moment = datetime.fromtimestamp(max(0, image.timestamp_ms) // 1000, UTC)
    millis = f".{image.timestamp_ms % 1000:03d}".rstrip("0").rstrip(".")
    return f"offset {image.offset}, epoch {image.epoch}, time {moment:%Y-%m-%dT%H:%M:%S}{millis}Z[UTC]"


# Topics


def _topics_by_name(image: MetadataImage) -> ShellDirectory:
    def child(name: str) -> ShellDirectory | None:
        topic = image.topics.by_name(name)
        return None if topic is None else _topic(topic)

    return ShellDirectory(lambda: [topic.name for topic in image.topics], child)


def _topics_by_id(image: MetadataImage) -> ShellDirectory:
    def child(name: str) -> ShellDirectory | None:
        topic = _find_id(image.topics.by_id, name)
        return None if topic is None else _topic(topic)

    return ShellDirectory(lambda: [uuid_text(topic.id) for topic in image.topics], child)


def _topic(topic: Any) -> ShellDirectory:
    def child(name: str) -> str | None:
        if name == "name":
            return str(topic.name)
        if name == "id":
            return uuid_text(topic.id)
        state = topic.partition(int(name)) if name.isdecimal() else None
        return None if state is None else _partition(state)

    return ShellDirectory(lambda: ["name", "id", *(str(number) for number, _ in topic.partitions())], child)


def _partition(state: Any) -> str:
    return (
        f"PartitionRegistration(replicas={_list(state.replicas)}, "
        f"directories={_list(map(uuid_text, state.directories))}, isr={_list(state.isr)}, "
        f"removingReplicas={_list(state.removing)}, addingReplicas={_list(state.adding)}, elr={_list(state.elr)}, "
        f"lastKnownElr={_list(state.last_known_elr)}, leader={state.leader}, "
        f"leaderRecoveryState={'RECOVERING' if state.leader_recovering else 'RECOVERED'}, "
        f"leaderEpoch={state.leader_epoch}, partitionEpoch={state.partition_epoch})"
    )


# Configurations, quotas, secrets


def _configs(image: MetadataImage) -> ShellDirectory:
    entries: dict[str, Any] = {}
    for (kind, name), values in image.configs.items():
        resource = RESOURCES.get(kind, str(kind))
        shown = {key: redacted(kind, key, value) for key, value in values.items()}
        entries[f"{resource}:{name}" if name else resource] = shown
    return ShellDirectory(lambda: entries, lambda name: _leaves(dict(entries[name])) if name in entries else None)


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace("(", "\\(").replace(")", "\\)")


def _quotas(image: MetadataImage) -> ShellDirectory:
    labels = {"client-id": "clientId", "ip": "ip", "user": "user"}
    entries: dict[str, Any] = {}
    for entity, values in image.quotas.items():
        parts = sorted((labels.get(kind, kind), name) for kind, name in entity)
        # A default entity has no name; Apache's shell leaves it out.
        entries["_".join(f"{label}({_escaped(name or '')})" for label, name in parts)] = values

    def child(name: str) -> ShellDirectory | None:
        values = entries.get(name)
        return None if values is None else _leaves({key: java_double(value) for key, value in values.items()})

    return ShellDirectory(lambda: entries, child)


def _scram(image: MetadataImage) -> ShellDirectory:
    def users(number: int) -> ShellDirectory:
        found = {user: entry for (mechanism, user), entry in image.scram.items() if mechanism == number}
        return _leaves({user: _credential(entry) for user, entry in found.items()})

    numbers = {name: number for number, name in MECHANISMS.items()}
    return ShellDirectory(lambda: numbers, lambda name: users(numbers[name]) if name in numbers else None)


def _credential(entry: Any) -> str:
    return (
        f"ScramCredentialData(salt={bytes(entry.salt).hex()}, storedKey={bytes(entry.stored_key).hex()}, "
        f"serverKey={bytes(entry.server_key).hex()}, iterations={entry.iterations})"
    )


def _token(token: Any) -> str:
    return (
        f"DelegationTokenDatatokenId={token.token_id}(owner={token.owner}(tokenRequester={token.requester}"
        f"(renewers={' '.join(token.renewers)}, issueTimestamp={token.issue_timestamp}, "
        f"maxTimestamp={token.max_timestamp}), expiryTimestamp={token.expiration_timestamp}"
    )


def _named(names: tuple[str, ...], number: int) -> str:
    """The name of a number; unknown numbers have the first name."""
    return names[number] if 0 <= number < len(names) else names[0]


def _acl(entry: Any) -> str:
    return (
        f"StandardAcl[resourceType={_named(ACL_RESOURCES, entry.resource_type)}, resourceName={entry.resource_name}, "
        f"patternType={_named(ACL_PATTERNS, entry.pattern_type)}, principal={entry.principal}, host={entry.host}, "
        f"operation={_named(ACL_OPERATIONS, entry.operation)}, "
        f"permissionType={_named(ACL_PERMISSIONS, entry.permission_type)}]"
    )
