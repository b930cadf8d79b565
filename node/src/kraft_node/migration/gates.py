"""What must hold before a migration begins. Each blocker names the node and what to do."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Final, NamedTuple

from kraft_node.metadata.features import (
    CONTROLLER_REGISTRATION_SUPPORTED,
    METADATA_TRANSACTIONS_SUPPORTED,
    METADATA_VERSION,
    SUPPORTED_RANGES,
    metadata_version,
)
from kraft_node.metadata.image import MetadataImage
from kraft_node.migration.reading import read_topics
from kraft_node.migration.tree import paths
from kraft_node.migration.tree.values import MigrationValue, read_cluster_id, read_migration
from kraft_node.migration.zookeeper import ZooKeeper

KEY: Final = "zookeeper.metadata.migration.enable"
TOPICS_AT_ONCE: Final = 500
LAST_OF_ZOOKEEPER: Final = 21
"""The level of Apache Kafka 3.9, the last release with ZooKeeper."""
SHOWN: Final = 3
"""How many topics a blocker names."""


class ZooKeeperView(NamedTuple):
    """What the gates need of ZooKeeper."""

    cluster_id: str | None
    live: frozenset[int]
    """Brokers with a session."""
    assigned: dict[int, list[str]]
    """Brokers with replicas -> some of their topics."""
    progress: MigrationValue | None


def look(zookeeper: ZooKeeper) -> ZooKeeperView:
    """Read it; in ZooKeeper's lane. Raises NoAnswerError and ZnodeError."""
    cluster, progress = zookeeper.get([paths.CLUSTER_ID, paths.MIGRATION])
    ids, names = zookeeper.children([paths.BROKER_IDS, paths.TOPICS])
    assigned: dict[int, list[str]] = {}
    for first in range(0, len(names or ()), TOPICS_AT_ONCE):
        for name, topic in read_topics(zookeeper, (names or [])[first : first + TOPICS_AT_ONCE]).items():
            for broker in {broker for one in topic.assignments.values() for broker in (*one.replicas, *one.adding)}:
                topics = assigned.setdefault(broker, [])
                if len(topics) < SHOWN:
                    topics.append(name)
    return ZooKeeperView(
        None if cluster is None else read_cluster_id(paths.CLUSTER_ID, cluster.data),
        frozenset(int(name) for name in ids or () if name.isdecimal()),
        assigned,
        None if progress is None else read_migration(paths.MIGRATION, progress.data),
    )


def controller_blockers(
    image: MetadataImage, voters: Collection[int], own_id: int, ready: Callable[[], Mapping[int, bool]]
) -> Iterator[str]:
    """Why the quorum is not ready. `ready`: the voters' answers to ApiVersions, asked before controllers register."""
    level = image.metadata_level
    if level < METADATA_TRANSACTIONS_SUPPORTED:
        needed = metadata_version(METADATA_TRANSACTIONS_SUPPORTED).name
        yield (
            f"metadata.version is {metadata_version(level).name}; the migration needs {needed} or later: raise "
            "inter.broker.protocol.version on the brokers, and format the controllers anew"
        )
        return
    if level > LAST_OF_ZOOKEEPER:
        last = metadata_version(LAST_OF_ZOOKEEPER).name
        yield (
            f"metadata.version is {metadata_version(level).name}; brokers with ZooKeeper know {last} at most: format "
            "the controllers anew with kafka-storage format --release-version 3.9"
        )
    if level < CONTROLLER_REGISTRATION_SUPPORTED:
        answers = ready()
        for voter in sorted(set(voters) - {own_id}):
            if voter not in answers:
                yield f"controller {voter} has not answered: start it"
            elif not answers[voter]:
                yield f"controller {voter} is not ready: set {KEY}=true there and restart it"
        return
    for voter in sorted(voters):
        registration = image.controllers.get(voter)
        if registration is None:
            yield f"controller {voter} has not registered: start it"
        elif not registration.zk_migration_ready:
            yield f"controller {voter} is not ready: set {KEY}=true there and restart it"


def read_live(zookeeper: ZooKeeper) -> frozenset[int]:
    """The brokers with a session; in ZooKeeper's lane."""
    (ids,) = zookeeper.children([paths.BROKER_IDS])
    return frozenset(int(name) for name in ids or () if name.isdecimal())


def strangers(image: MetadataImage, live: Collection[int]) -> dict[int, str]:
    """Brokers with a session of ZooKeeper that are not, or not any more, brokers of the migration -> the reason."""
    found = {}
    for broker in live:
        registration = image.brokers.get(broker)
        if registration is None:
            found[broker] = f"has not registered here: set {KEY}=true and controller.quorum.voters there"
        elif not registration.is_migrating_zk_broker:
            found[broker] = "is registered as a KRaft broker: its id is taken"
        elif registration.fenced:
            found[broker] = "is fenced: its settings or its version do not fit the migration any more"
    return found


def broker_blockers(image: MetadataImage, view: ZooKeeperView, cluster_id: str) -> Iterator[str]:
    """Why the brokers are not ready."""
    if view.cluster_id != cluster_id:
        yield f"ZooKeeper belongs to cluster {view.cluster_id}, these controllers to {cluster_id}"
    if view.progress is not None and view.progress.offset >= 0:
        yield (
            f"ZooKeeper was migrated to other controllers (controller {view.progress.controller_id}, offset "
            f"{view.progress.offset}): start those, or delete {paths.MIGRATION} if they are gone"
        )
    if not view.live:
        yield "no broker is registered in ZooKeeper"
    for broker in sorted(view.live | view.assigned.keys()):
        yield from _of_broker(image, view, broker)


def _of_broker(image: MetadataImage, view: ZooKeeperView, broker: int) -> Iterator[str]:
    if broker not in view.live:
        topics = ", ".join(view.assigned[broker])
        yield f"broker {broker} is offline but has {topics}: start it, or remove what it has"
        return
    yield from _of_registration(image, broker)


def registration_blockers(image: MetadataImage) -> Iterator[str]:
    """Why registered brokers are not ready, without a look at ZooKeeper."""
    for broker in [registration.id for registration in image.brokers.values()]:
        yield from _of_registration(image, broker)


def _of_registration(image: MetadataImage, broker: int) -> Iterator[str]:
    registration = image.brokers.get(broker)
    level, supported = image.metadata_level, SUPPORTED_RANGES[METADATA_VERSION]
    if registration is None:
        yield f"broker {broker} has not registered here: set {KEY}=true and controller.quorum.voters there"
    elif registration.fenced:
        yield f"broker {broker} is fenced: it has not fetched the metadata log yet, or sends no heartbeats"
    elif not registration.is_migrating_zk_broker:
        yield f"broker {broker} is registered as a KRaft broker: its id is taken"
    elif not (levels := registration.features.get(METADATA_VERSION, supported))[0] <= level <= levels[1]:
        wanted = metadata_version(level).name
        yield f"broker {broker} does not support metadata.version {wanted}: set inter.broker.protocol.version there"
