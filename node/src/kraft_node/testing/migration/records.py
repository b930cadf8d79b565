"""Random changes of metadata in both forms: records for the log, and what a controller with ZooKeeper writes."""

from __future__ import annotations

import random
from typing import Any, Final

from kraft_node.metadata.image import MetadataImage
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.stored import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    ConfigRecord,
    DelegationTokenRecord,
    FeatureLevelRecord,
    PartitionChangeRecord,
    PartitionRecord,
    ProducerIdsRecord,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveTopicRecord,
    TopicRecord,
    UserScramCredentialRecord,
    ZkMigrationStateRecord,
)

CONTROLLERS: Final = (3001, 3002, 3003)
BROKERS: Final = (1, 2)
LEVEL: Final = 21
NAMES: Final = tuple(f"topic{n}" for n in range(6))


def first_records() -> list[Any]:
    """The log of a quorum that waits for the migration."""
    return [
        FeatureLevelRecord("metadata.version", LEVEL),
        ZkMigrationStateRecord(2),
        *(RegisterControllerRecord(one, Uuid(bytes([one & 255] * 16)), True, [], []) for one in CONTROLLERS),
    ]


def registration(broker: int) -> RegisterBrokerRecord:
    """The record of a broker of ZooKeeper that registers for the migration, unfenced, in a fixed incarnation."""
    feature = RegisterBrokerRecord.BrokerFeature("metadata.version", LEVEL, LEVEL)
    return RegisterBrokerRecord(
        broker_id=broker,
        is_migrating_zk_broker=True,
        incarnation_id=Uuid(bytes([broker] * 16)),
        broker_epoch=broker,
        end_points=[],
        features=[feature],
        rack=None,
        fenced=False,
    )


def topic_records(rng: random.Random, name: str) -> list[Any]:
    """A new topic."""
    topic_id = Uuid(rng.randbytes(16))
    partitions = range(rng.choice((1, 2, 5)))
    replicas = list(BROKERS)
    return [
        TopicRecord(name, topic_id),
        *(
            PartitionRecord(n, topic_id, replicas, replicas, [], [], leader=1, leader_epoch=0, partition_epoch=0)
            for n in partitions
        ),
    ]


def change(rng: random.Random, image: MetadataImage) -> list[Any]:
    """A change that fits the image."""
    kind = rng.randrange(10)
    topics = list(image.topics)
    if kind <= 1 or (kind <= 4 and not topics):
        free = [name for name in NAMES if image.topics.by_name(name) is None]
        return topic_records(rng, rng.choice(free)) if free else []
    if kind == 2:
        return [RemoveTopicRecord(rng.choice(topics).id)]
    if kind == 3:
        topic = rng.choice(topics)
        number = rng.randrange(len(topic))
        return [PartitionChangeRecord(number, topic.id, isr=rng.choice(([1], [1, 2])), leader=rng.choice((1, -2)))]
    if kind == 4:
        return [ConfigRecord(2, rng.choice(topics).name, "retention.ms", rng.choice((None, "1", "2")))]
    if kind == 5:
        return [ConfigRecord(4, rng.choice(("", "1")), "log.cleaner.threads", rng.choice((None, "1", "2")))]
    user = rng.choice(("alice", None))
    if kind == 6:
        entity = [ClientQuotaRecord.EntityData("user", user)]
        return [ClientQuotaRecord(entity, "producer_byte_rate", float(rng.randrange(1, 9)), rng.random() < 0.3)]
    if kind == 7:
        return [UserScramCredentialRecord("alice", 1, rng.randbytes(4), b"s", b"k", 4096)]
    if kind == 8:
        present = list(image.acls)
        if present and rng.random() < 0.5:
            return [RemoveAccessControlEntryRecord(rng.choice(present))]
        pattern, operation = rng.choice((3, 4)), rng.choice((3, 4))
        return [AccessControlEntryRecord(Uuid(rng.randbytes(16)), 2, "t", pattern, "User:alice", "*", operation, 3)]
    if rng.random() < 0.5:
        return [ProducerIdsRecord(1, 1, image.next_producer_id + 1000)]
    return [DelegationTokenRecord("User:a", "User:a", [], 1, 3, rng.randrange(9), rng.choice(("one", "two")))]
