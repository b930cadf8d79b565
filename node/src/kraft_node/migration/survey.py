"""What a running cluster with ZooKeeper has, and what keeps it from migrating: for `kraftcluster migrate check`.

`survey` reads ZooKeeper as the migration will, without writing. `findings` judges it together with the brokers'
configurations. A finding names its subject, the reason, and what to do.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from kraft_node.base.config.zookeeper import ACL_KEY, MIGRATION_KEY
from kraft_node.base.env import Rng
from kraft_node.metadata.features import (
    DIRECTORY_ASSIGNMENT_SUPPORTED,
    METADATA_TRANSACTIONS_SUPPORTED,
    metadata_version,
    parse_metadata_version,
)
from kraft_node.migration.gates import LAST_OF_ZOOKEEPER, ZooKeeperView, look
from kraft_node.migration.passwords import MARK, PasswordEncoder
from kraft_node.migration.reading import MetadataReader
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.values import (
    ControllerValue,
    DraftReadiness,
    ZnodeError,
    read_broker,
    read_controller,
)
from kraft_node.migration.zookeeper import ZooKeeper
from kraft_protocol.wire.api import ApiKey

BLOCKER: Final = "blocker"
"""The migration cannot begin."""
PREPARATION: Final = "preparation"
"""A setting of brokers that `kraftcluster migrate start` writes."""
WARNING: Final = "warning"
"""The controllers need a setting, too, or something is not migrated."""

VERSION_KEY: Final = "inter.broker.protocol.version"
VOTERS_KEY: Final = "controller.quorum.voters"
CONTROLLER_LISTENERS_KEY: Final = "controller.listener.names"
AUTHORIZER_KEY: Final = "authorizer.class.name"
OLD_AUTHORIZER: Final = "kafka.security.authorizer.AclAuthorizer"
SECRETS: Final = {
    "password.encoder.secret": "broker configurations have encrypted passwords",
    "delegation.token.secret.key": "delegation tokens are signed with it",
    "delegation.token.master.key": "delegation tokens are signed with it",
}
NEEDED_VERSIONS: Final = {ApiKey.UPDATE_METADATA: 8, ApiKey.LEADER_AND_ISR: 7, ApiKey.STOP_REPLICA: 4}
"""Kafka 3.4: requests of a KRaft controller to brokers with ZooKeeper."""
KINDS: Final = {
    "TopicRecord": "topics",
    "PartitionRecord": "partitions",
    "ConfigRecord": "configurations",
    "ClientQuotaRecord": "quotas",
    "UserScramCredentialRecord": "scramCredentials",
    "ProducerIdsRecord": "producerIdBlocks",
    "AccessControlEntryRecord": "acls",
    "DelegationTokenRecord": "delegationTokens",
}


class Finding(NamedTuple):
    """An action that the administrator must or should take."""

    kind: str
    subject: str
    reason: str
    fix: str


@dataclass(frozen=True)
class BrokerFacts:
    """A broker as it describes itself. `problem`: why its configuration is unknown."""

    configs: Mapping[str, str | None] = field(default_factory=dict)
    """Values; None: secret or empty."""
    chosen: frozenset[str] = frozenset()
    """The keys whose values are not defaults."""
    versions: Mapping[int, int] = field(default_factory=dict)
    """API key -> its highest version."""
    problem: str | None = None


class Survey(NamedTuple):
    """ZooKeeper's content."""

    view: ZooKeeperView
    controller: ControllerValue | None
    endpoints: dict[int, tuple[str, ...]]
    """Live broker -> its listeners, `NAME://host:port`."""
    counts: dict[str, int]
    """Kind -> how many records the migration makes."""
    encrypted: int
    """Configurations of brokers that are encrypted passwords."""
    deleting: list[str]
    """Topics that are being deleted."""
    faults: list[str]
    """Znodes that cannot be read."""
    readiness: dict[int, DraftReadiness]
    """Live broker -> its readiness, if it has registered as in KIP-866's draft."""


class _Sealed(PasswordEncoder):
    """Leaves passwords encrypted, and counts them."""

    def __init__(self, rng: Rng) -> None:
        super().__init__(None, rng)
        self.count = 0

    def decoded(self, path: str, key: str, text: str) -> str:
        del path, key
        self.count += MARK in text
        return text


def survey(zookeeper: ZooKeeper, rng: Rng) -> Survey:
    """Read everything that the migration reads. Raises NoAnswerError, and ZnodeError for what the gates need."""
    view = look(zookeeper)
    (controller,) = zookeeper.get([paths.CONTROLLER])
    faults = []
    endpoints, readiness = {}, {}
    live = sorted(view.live)
    places = [f"{paths.BROKER_IDS}/{broker}" for broker in live]
    for broker, path, znode in zip(live, places, zookeeper.get(places), strict=True):
        try:
            value = None if znode is None else read_broker(path, znode.data)
            endpoints[broker] = () if value is None else value.endpoints
            if value is not None and value.readiness is not None:
                readiness[broker] = value.readiness
        except ZnodeError as e:
            faults.append(str(e))
    sealed = _Sealed(rng)
    counts: Counter[str] = Counter()
    try:
        for batch in MetadataReader(zookeeper, sealed, rng).batches():
            counts.update(KINDS[type(record).__name__] for record in batch)
    except ZnodeError as e:
        faults.append(str(e))
    (deleting,) = zookeeper.children([paths.DELETED_TOPICS])
    return Survey(
        view,
        None if controller is None else read_controller(paths.CONTROLLER, controller.data),
        endpoints,
        {name: counts[name] for name in KINDS.values()},
        sealed.count,
        deleting or [],
        faults,
        readiness,
    )


def findings(found: Survey, brokers: Mapping[int, BrokerFacts]) -> list[Finding]:
    """All actions before a migration. `brokers`: the live brokers."""
    return [*_of_zookeeper(found), *_of_brokers(found, brokers), *_of_cluster(found, brokers)]


def _of_zookeeper(found: Survey) -> Iterator[Finding]:
    view, controller = found.view, found.controller
    if view.cluster_id is None:
        reason = f"{paths.CLUSTER_ID} does not exist: no broker of Kafka was ever started here"
        yield Finding(BLOCKER, "ZooKeeper", reason, "check the address and the chroot of --zookeeper")
        return
    for fault in found.faults:
        yield Finding(BLOCKER, "ZooKeeper", fault, "correct or remove this znode; the migration would be aborted")
    if controller is None:
        yield Finding(BLOCKER, "ZooKeeper", "no broker is the controller", "start the brokers, and check their logs")
    elif controller.kraft_epoch >= 0:
        reason = f"KRaft controller {controller.broker_id} has claimed this cluster: the migration has begun"
        yield Finding(WARNING, "ZooKeeper", reason, "follow it with kraftcluster migrate status")
    if view.progress is not None and (controller is None or controller.kraft_epoch < 0):
        reason = f"{paths.MIGRATION} is left of a former migration (controller {view.progress.controller_id})"
        yield Finding(BLOCKER, "ZooKeeper", reason, "run kraftcluster migrate revert")
    if not view.live:
        yield Finding(BLOCKER, "ZooKeeper", "no broker is registered", "start the brokers")
    for topic in found.deleting:
        reason = "it is being deleted, and is not migrated"
        yield Finding(WARNING, f"topic {topic}", reason, "wait until it is gone; its offline replicas delay that")


def _of_brokers(found: Survey, brokers: Mapping[int, BrokerFacts]) -> Iterator[Finding]:
    view = found.view
    for broker in sorted(view.live | view.assigned.keys()):
        name = f"broker {broker}"
        if broker not in view.live:
            topics = ", ".join(view.assigned[broker])
            fix = "start it, or move its replicas away"
            yield Finding(BLOCKER, name, f"it is offline, but has {topics}", fix)
            continue
        facts = brokers.get(broker, BrokerFacts(problem="it was not asked"))
        if facts.problem is not None:
            fix = "make a listener reachable from here, or pass --command-config with its security"
            yield Finding(BLOCKER, name, f"its configuration cannot be read: {facts.problem}", fix)
            continue
        yield from _of_broker(name, facts)
        if broker in found.readiness:
            yield from _of_readiness(name, found.readiness[broker], view.cluster_id, facts)


def _of_readiness(
    name: str, readiness: DraftReadiness, cluster_id: str | None, facts: BrokerFacts
) -> Iterator[Finding]:
    restart = "restart the broker with the right configuration"
    if not readiness.is_ready:
        yield Finding(PREPARATION, name, "its registration says that it is not ready", "run kraftcluster migrate start")
    if readiness.cluster_id != cluster_id:
        reason = f"its registration has the cluster id {readiness.cluster_id}, ZooKeeper has {cluster_id}"
        yield Finding(BLOCKER, name, reason, restart)
    try:
        level = parse_metadata_version(readiness.ibp).level
    except ValueError:
        level = None
    if level is None or level != level_of(facts):
        reason = f"its registration has the ibp {readiness.ibp}, its {VERSION_KEY} is {facts.configs.get(VERSION_KEY)}"
        yield Finding(BLOCKER, name, reason, restart)


def _of_broker(name: str, facts: BrokerFacts) -> Iterator[Finding]:
    if any(facts.versions.get(key, -1) < version for key, version in NEEDED_VERSIONS.items()):
        reason = "it is older than Apache Kafka 3.4, or does not use ZooKeeper"
        yield Finding(BLOCKER, name, reason, "upgrade it to Apache Kafka 3.9")
        return
    first, last = metadata_version(METADATA_TRANSACTIONS_SUPPORTED).name, metadata_version(LAST_OF_ZOOKEEPER).name
    level = level_of(facts)
    if level is None or not METADATA_TRANSACTIONS_SUPPORTED <= level <= LAST_OF_ZOOKEEPER:
        reason = f"{VERSION_KEY}={facts.configs.get(VERSION_KEY)} is not from {first} to {last}"
        yield Finding(BLOCKER, name, reason, f"set {VERSION_KEY} there, and restart it")
    elif (count := _directories(facts)) > 1 and level < DIRECTORY_ASSIGNMENT_SUPPORTED:
        reason = f"log.dirs has {count} directories, and a migration with {metadata_version(level).name} supports one"
        needed = metadata_version(DIRECTORY_ASSIGNMENT_SUPPORTED).name
        yield Finding(BLOCKER, name, reason, f"set {VERSION_KEY}={needed} or later there, and restart it")
    if (facts.configs.get(MIGRATION_KEY) or "false").lower() != "true":
        yield Finding(PREPARATION, name, f"{MIGRATION_KEY} is not true", "run kraftcluster migrate start")
    for key in (VOTERS_KEY, CONTROLLER_LISTENERS_KEY):
        if not facts.configs.get(key):
            yield Finding(PREPARATION, name, f"{key} is not set", "run kraftcluster migrate start")
    authorizer = facts.configs.get(AUTHORIZER_KEY) or ""
    if authorizer not in ("", OLD_AUTHORIZER):
        reason = f"{AUTHORIZER_KEY}={authorizer} does not keep its rules in ZooKeeper: they are not migrated"
        yield Finding(WARNING, name, reason, "add its rules to the new cluster by hand")


def _directories(facts: BrokerFacts) -> int:
    """How many log directories the broker has."""
    text = facts.configs.get("log.dirs") or facts.configs.get("log.dir") or ""
    return sum(bool(part.strip()) for part in text.split(","))


def _of_cluster(found: Survey, brokers: Mapping[int, BrokerFacts]) -> Iterator[Finding]:
    known = {broker: facts for broker, facts in brokers.items() if facts.problem is None}
    for key in (VERSION_KEY, VOTERS_KEY, CONTROLLER_LISTENERS_KEY, AUTHORIZER_KEY, ACL_KEY):
        values = {broker: facts.configs.get(key) or "" for broker, facts in known.items()}
        if len(set(values.values())) > 1:
            each = ", ".join(f"{broker}: {value or 'not set'}" for broker, value in sorted(values.items()))
            yield Finding(BLOCKER, "brokers", f"{key} differs ({each})", "set the same value on all brokers")
    if any((facts.configs.get(ACL_KEY) or "").lower() == "true" for facts in known.values()):
        yield Finding(WARNING, "controllers", f"brokers have {ACL_KEY}=true", f"{ACL_KEY}=true is needed here, too")
    for key, reason in SECRETS.items():
        is_set = any(key in facts.chosen for facts in known.values())
        if is_set or (key == "password.encoder.secret" and found.encrypted):
            yield Finding(WARNING, "controllers", reason, f"copy {key} from the brokers")


def level_of(facts: BrokerFacts) -> int | None:
    """The level of the broker's `inter.broker.protocol.version`; None if it is unknown or from before KRaft."""
    text = facts.configs.get(VERSION_KEY)
    try:
        return None if not text else parse_metadata_version(text).level
    except ValueError:
        return None


def document(found: Survey, brokers: Mapping[int, BrokerFacts], of: Sequence[Finding]) -> dict[str, Any]:
    """The survey as JSON."""
    progress, controller = found.view.progress, found.controller
    return {
        "clusterId": found.view.cluster_id,
        "controller": None
        if controller is None
        else {"id": controller.broker_id, "isKRaft": controller.kraft_epoch >= 0},
        "migration": None if progress is None else progress._asdict(),
        "counts": found.counts,
        "brokers": [
            {
                "id": broker,
                "endpoints": list(found.endpoints.get(broker, ())),
                "isLive": broker in found.view.live,
                "problem": brokers[broker].problem if broker in brokers else None,
                "configs": {key: value for key, value in brokers[broker].configs.items() if value is not None}
                if broker in brokers
                else {},
                "chosen": sorted(brokers[broker].chosen) if broker in brokers else [],
            }
            for broker in sorted(found.view.live | found.view.assigned.keys())
        ],
        "findings": [one._asdict() for one in of],
    }
