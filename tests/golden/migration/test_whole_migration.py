"""A cluster of Apache Kafka 3.9.2 with ZooKeeper becomes a cluster of ours, while a producer writes."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from kraft_node.cli.client import NodeClient
from kraft_node.metadata.log_batches import decode_batches
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    AlterPartitionReassignmentsRequest,
    DeleteTopicsRequest,
    ListPartitionReassignmentsRequest,
    MetadataRequest,
)
from tests.compat.members import wait_for
from tests.compat.zookeeper_cluster import OldCluster, run_old_tool
from tests.golden.migration.content import OVERRIDES, Admin, fill
from tests.golden.migration.traffic import PARTITIONS, READER, TOPIC, Writer, read_all

pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.timeout(900)]


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[OldCluster]:
    cleaner = {"log.cleaner.dedupe.buffer.size": str(8 << 20)}  # the default does not fit the heap twice
    replicated = {"min.insync.replicas": "2", "offsets.topic.replication.factor": "3"}
    overrides = {**OVERRIDES, **cleaner, **replicated}
    made = OldCluster(tmp_path, brokers=3, controllers=3, overrides=overrides)
    try:
        made.start()
        yield made
    finally:
        print(made.tails())  # pytest shows it for a failed test only
        made.stop()


def described(cluster: OldCluster) -> dict[str, list[str]]:
    """What Apache Kafka's own tools show of everything that ZooKeeper has."""
    configs = "kafka.admin.ConfigCommand"
    tools = {
        "topics": ("org.apache.kafka.tools.TopicCommand", "--describe", "--topic", "plain|with.config"),
        "topic configs": (configs, "--describe", "--entity-type", "topics"),
        "users": (configs, "--describe", "--entity-type", "users"),
        "clients": (configs, "--describe", "--entity-type", "clients"),
        "ips": (configs, "--describe", "--entity-type", "ips"),
        "brokers": (configs, "--describe", "--entity-type", "brokers"),
        "acls": ("kafka.admin.AclCommand", "--list"),
    }
    found = {}
    for name, (tool, *args) in tools.items():
        out = run_old_tool(cluster.folder, tool, "--bootstrap-server", cluster.bootstrap, *args)
        # Eligible leaders: brokers with ZooKeeper name none, brokers of ours an empty list.
        shown = [_ordered(" ".join(line.partition("Elr:")[0].split())) for line in out.splitlines()]
        found[name] = sorted(line for line in shown if line)
    return found


def _ordered(line: str) -> str:
    """The line with its list of values sorted.

    Brokers of Apache Kafka 3.9.2 without ZooKeeper show a user's mechanisms in the order of a Java HashMap by identity.
    """
    head, are, values = line.partition(" are ")
    return head + are + ", ".join(sorted(values.split(", ")))


def migrated(cluster: OldCluster) -> bool:
    found = cluster.migration()
    return found.get("driver") == "DUAL_WRITE" and not found["waitingBrokers"] and not found["lagRecords"]


def topics_at(cluster: OldCluster, broker: int) -> dict[str, Any]:
    with NodeClient("127.0.0.1", cluster.nodes[broker].port) as client:
        return {topic.name: topic for topic in client.request(ApiKey.METADATA, MetadataRequest(topics=None)).topics}


def test_a_cluster_with_zookeeper_becomes_ours_under_a_producer(cluster: OldCluster) -> None:
    with Admin(cluster.bootstrap) as admin:
        admin.topic(TOPIC, PARTITIONS, 3)
    fill(cluster)
    before = described(cluster)
    writer = Writer(cluster.bootstrap)
    writer.goes_on()

    cluster.start_our_controllers()
    wait_for("the migration", lambda: migrated(cluster))
    writer.goes_on()
    assert described(cluster) == before
    _steers(cluster)
    writer.goes_on()

    for broker, ours in ((1, False), (2, True), (3, False)):
        cluster.restart_in_kraft(broker, ours=ours)
        wait_for("all replicas in sync", lambda: _all_in_sync(cluster))
        writer.goes_on()
    assert cluster.migration()["state"] == "MIGRATION_FINISHED"
    cluster.restart_in_kraft(1, ours=True)
    wait_for("all replicas in sync", lambda: _all_in_sync(cluster))
    writer.goes_on()

    cluster.finalise()
    wait_for("the end of the migration", lambda: _recorded_states(cluster) == {3})
    writer.goes_on()
    assert described(cluster) == before
    writer.stop()
    assert writer.failures == []
    with Admin(cluster.bootstrap) as admin:  # `fill` allows a client one byte a second
        admin.quota({"user": "ANONYMOUS", "client-id": READER}, consumer_byte_rate=1e9)
    assert read_all(cluster.bootstrap, sum(writer.acknowledged.values())) == writer.acknowledged


def _steers(cluster: OldCluster) -> None:
    """Brokers with ZooKeeper follow changes: a topic comes, moves, and goes."""
    with Admin(cluster.bootstrap) as admin:
        admin.topic("moves", 1, 1)
        wait_for("the topic at all brokers", lambda: all("moves" in topics_at(cluster, one) for one in (1, 2, 3)))
        home = topics_at(cluster, 1)["moves"].partitions[0].leader_id
        target = home % 3 + 1
        of = AlterPartitionReassignmentsRequest
        admin.ask(
            ApiKey.ALTER_PARTITION_REASSIGNMENTS,
            of(timeout_ms=30_000, topics=[of.ReassignableTopic("moves", [of.ReassignablePartition(0, [target])])]),
        )
        wait_for("no reassignment", lambda: not _reassignments(admin))
        folders = {one: cluster.nodes[one].data / "moves-0" for one in (home, target)}
        wait_for("the files at the new place", lambda: folders[target].exists() and not folders[home].exists())
        admin.ask(
            ApiKey.DELETE_TOPICS, DeleteTopicsRequest([DeleteTopicsRequest.DeleteTopicState("moves")], [], 30_000)
        )
        wait_for("no files", lambda: not folders[target].exists())
    wait_for("no topic", lambda: all("moves" not in topics_at(cluster, one) for one in (1, 2, 3)))


def _reassignments(admin: Admin) -> list[Any]:
    request = ListPartitionReassignmentsRequest(30_000, None)
    return list(admin.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, request).topics)


def _all_in_sync(cluster: OldCluster) -> bool:
    found = topics_at(cluster, 3).get(TOPIC)
    return found is not None and [len(one.isr_nodes) for one in found.partitions] == [3] * PARTITIONS


def _recorded_states(cluster: OldCluster) -> set[int]:
    """The last ZkMigrationStateRecord in the metadata logs of the controllers."""
    found = set()
    for node_id in cluster.controller_ports:
        records = [record for batch in decode_batches(cluster.metadata_log(node_id)) for _, record in batch.records]
        states = [one.zk_migration_state for one in records if type(one).__name__ == "ZkMigrationStateRecord"]
        found.add(states[-1])
    return found
