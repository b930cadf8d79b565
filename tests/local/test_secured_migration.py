"""A whole migration in which ZooKeeper, the brokers and the controller demand SASL, and all znodes have ACLs."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, TopicPartition
from kazoo.client import KazooClient
from kazoo.exceptions import SessionClosedRequireSaslError

from tests.compat.members import wait_for
from tests.compat.secured_zookeeper import OWNER, SecuredOldCluster
from tests.golden.migration.traffic import PARTITIONS, READER, TOPIC, Writer, read_all

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]

BROKERS = (1, 2)
GROUP = "before"
PATIENCE_S = 240.0
OWNED = {("sasl", OWNER, 31)}
READABLE = {*OWNED, ("world", "anyone", 1)}
SECRET = ("/config/users", "/config/brokers", "/delegation_token/tokens")
OPEN = ("/", "/consumers")
"""Znodes that Apache Kafka leaves open to everybody."""
TOPICS, GROUPS, LITERAL, READ, WRITE, DESCRIBE, ALLOW = 2, 3, 3, 3, 4, 8, 3


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[SecuredOldCluster]:
    made = SecuredOldCluster(tmp_path, len(BROKERS))
    try:
        yield made.start()
    finally:
        print(made.tails())  # pytest shows it for a failed test only
        made.stop()


def _described(cluster: SecuredOldCluster) -> dict[str, list[str]]:
    """ACLs, users and groups by Kafka's own tools; offsets of the group that reads nothing any more."""
    users = ("--describe", "--entity-type", "users")
    outputs = {
        "acls": cluster.tool("kafka.admin.AclCommand", "--list"),
        "users": cluster.tool("kafka.admin.ConfigCommand", *users),
        "groups": cluster.tool("org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", "--list"),
    }
    found = {name: sorted(line.strip() for line in text.splitlines() if line.strip()) for name, text in outputs.items()}
    found["offsets"] = [str(one.offset) for one in _offsets(cluster)]
    return found


def _group(cluster: SecuredOldCluster) -> Consumer:
    values = {"bootstrap.servers": cluster.bootstrap, "group.id": GROUP, "enable.auto.commit": False}
    return Consumer({**values, **cluster.options("alice")})


def _offsets(cluster: SecuredOldCluster) -> list[Any]:
    consumer = _group(cluster)
    try:
        return list(consumer.committed([TopicPartition(TOPIC, one) for one in range(PARTITIONS)], 60))
    finally:
        consumer.close()


def _prepare(cluster: SecuredOldCluster) -> None:
    """A topic, ACLs, and a group with offsets."""
    with cluster.admin() as admin:
        wait_for("the topic", lambda: _makes_topic(cluster))
        for operation in (READ, WRITE, DESCRIBE):
            admin.acl(TOPICS, TOPIC, LITERAL, "User:alice", "*", operation, ALLOW)
        for group in (GROUP, READER):
            admin.acl(GROUPS, group, LITERAL, "User:alice", "*", READ, ALLOW)
    consumer = _group(cluster)
    for partition in range(PARTITIONS):
        consumer.commit(offsets=[TopicPartition(TOPIC, partition, 7 + partition)], asynchronous=False)
    consumer.close()


def _makes_topic(cluster: SecuredOldCluster) -> bool:
    """Only the controller makes topics, in a cluster with ZooKeeper: ask each broker."""
    for broker in BROKERS:
        try:
            with cluster.admin(broker) as admin:
                admin.topic(TOPIC, PARTITIONS, len(BROKERS))
        except AssertionError as error:
            assert "error_code=41" in str(error), error
        else:
            return True
    return False


def _in_sync(cluster: SecuredOldCluster) -> bool:
    """Whether all brokers know all replicas as in sync."""
    for broker in BROKERS:
        topics = cluster.topics(broker)
        if TOPIC not in topics:
            return False
        if any(len(p.isr_nodes) < len(p.replica_nodes) for one in topics.values() for p in one.partitions):
            return False
    return True


def _is_dual(cluster: SecuredOldCluster) -> bool:
    found = cluster.migration()
    return found.get("driver") == "DUAL_WRITE" and not found["waitingBrokers"] and not found["lagRecords"]


def _demands_a_login(cluster: SecuredOldCluster) -> None:
    client = KazooClient(cluster.zookeeper.address)
    client.start(timeout=60)
    try:
        with pytest.raises(SessionClosedRequireSaslError):
            client.get("/brokers")
    finally:
        client.stop()
        client.close()


def _check_owned(cluster: SecuredOldCluster) -> dict[str, bytes]:
    """Each znode belongs to the user of the brokers, and only that user reads secrets. Returns their data."""
    found = cluster.znodes()
    open_to_all = {path for path, (_, acl) in found.items() if not acl <= READABLE and path not in OPEN}
    assert not open_to_all, {path: found[path][1] for path in open_to_all}
    read_by_all = {path for path, (_, acl) in found.items() if path.startswith(SECRET) and acl != OWNED}
    assert not read_by_all
    return {path: data for path, (data, _) in found.items()}


def _restart(cluster: SecuredOldCluster, kind: str, writer: Writer, *, ours: bool = False) -> None:
    for broker in BROKERS:
        cluster.restart_broker(broker, f"broker-{broker}-{kind}", ours=ours)
        wait_for("all replicas in sync", lambda: _in_sync(cluster), timeout_s=PATIENCE_S)
        writer.goes_on()


def test_a_cluster_that_demands_sasl_everywhere_becomes_ours_under_a_producer(cluster: SecuredOldCluster) -> None:
    _demands_a_login(cluster)
    _prepare(cluster)
    before = _described(cluster)
    assert before["offsets"] == ["7", "8", "9"]
    writer = Writer(cluster.bootstrap, cluster.options("alice"))
    writer.goes_on()

    found = cluster.migrate("check", zookeeper=True, brokers=True)
    assert not [one for one in found["findings"] if one["kind"] == "blocker"]
    assert [one["todo"] for one in cluster.write_files()["files"]] == [[]] * 5
    _restart(cluster, "migrating", writer)
    cluster.start_controller(found["clusterId"])
    wait_for("the migration", lambda: _is_dual(cluster), timeout_s=PATIENCE_S)
    writer.goes_on()
    assert _described(cluster) == before

    with cluster.admin() as admin:  # changes go to both worlds
        admin.topic("dual", 1, len(BROKERS))
        admin.scram("bob", 2)
        admin.acl(TOPICS, "dual", LITERAL, "User:bob", "*", READ, ALLOW)
    wait_for("no lag", lambda: _is_dual(cluster))
    znodes = _check_owned(cluster)
    assert {"/brokers/topics/dual", "/config/users/bob"} <= znodes.keys()
    assert b"User:bob" in znodes["/kafka-acl/Topic/dual"]
    changed = _described(cluster)

    _restart(cluster, "kraft", writer, ours=True)
    wait_for("no broker with ZooKeeper", lambda: cluster.migration()["state"] == "MIGRATION_FINISHED")
    wait_for("no lag", lambda: _is_dual(cluster))
    _check_owned(cluster)
    properties = cluster.files / "controller-3001.properties"
    assert cluster.migrate("finalize", cluster.page, "--properties", str(properties), "--no-wait")["order"] == [3001]
    cluster.start_controller(found["clusterId"])
    assert cluster.migrate("finalize", cluster.page)["finished"]
    writer.goes_on()
    cluster.zookeeper.stop()
    writer.goes_on()

    assert _described(cluster) == changed
    writer.stop()
    assert writer.failures == []
    count = sum(writer.acknowledged.values())
    assert read_all(cluster.bootstrap, count, cluster.options("alice")) == writer.acknowledged
