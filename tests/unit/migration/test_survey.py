"""What `kraftcluster migrate check` finds in a cluster with ZooKeeper, and what it says to do."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft_node.migration.claim import claim
from kraft_node.migration.survey import NEEDED_VERSIONS, BrokerFacts, Survey, document, findings, survey
from kraft_node.runtime.env import RealRng
from kraft_node.testing.zookeeper import SimZooKeeper

KEY = "zookeeper.metadata.migration.enable"
VERSION = "inter.broker.protocol.version"
READY = {VERSION: "3.9-IV0", KEY: "true", "controller.quorum.voters": "3001@c:1", "controller.listener.names": "C"}
BROKER = b'{"version":5,"endpoints":["PLAINTEXT://b:9092"],"features":{}}'
CONTROLLER = b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}'
TOPIC = b'{"version":3,"topic_id":"AAAAAAAAAAAAAAAAAAAABQ","partitions":{"0":[1,2]}}'


def zookeeper() -> SimZooKeeper:
    """A cluster of brokers 1 and 2 with a topic."""
    servers = SimZooKeeper()
    servers.put("/cluster/id", b'{"version":"1","id":"abc"}')
    servers.put("/controller", CONTROLLER)
    servers.put("/controller_epoch", b"4")
    servers.put("/brokers/topics/t", TOPIC)
    for broker in (1, 2):
        servers.put(f"/brokers/ids/{broker}", BROKER)
    return servers


def facts(*chosen: str, **configs: Any) -> BrokerFacts:
    """A prepared broker; `configs` with _ for dots."""
    changed = {name.replace("_", "."): value for name, value in configs.items()}
    return BrokerFacts({**READY, **changed}, frozenset(chosen), dict(NEEDED_VERSIONS))


def found(servers: SimZooKeeper, *brokers: BrokerFacts) -> list[str]:
    """Kind, subject and reason of each finding; both brokers are ready by default."""
    given = dict(enumerate(brokers or (facts(), facts()), start=1))
    listed = findings(looked(servers), given)
    assert all(one.fix for one in listed)
    return [f"{one.kind} {one.subject}: {one.reason}" for one in listed]


def looked(servers: SimZooKeeper) -> Survey:
    return survey(servers.session(), RealRng())


def test_nothing_is_found_in_a_cluster_that_is_ready() -> None:
    assert found(zookeeper()) == []


def test_everything_is_counted_that_the_migration_reads() -> None:
    servers = zookeeper()
    servers.put("/config/topics/t", b'{"version":1,"config":{"retention.ms":"5"}}')
    servers.put("/config/users/a", b'{"version":1,"config":{"producer_byte_rate":"5"}}')
    listed = document(looked(servers), {1: facts(), 2: facts()}, [])
    counted = {name: count for name, count in listed["counts"].items() if count}
    assert counted == {"topics": 1, "partitions": 1, "configurations": 1, "quotas": 1}
    assert (listed["clusterId"], listed["controller"]) == ("abc", {"id": 1, "isKRaft": False})
    assert [(one["id"], one["isLive"], one["endpoints"]) for one in listed["brokers"]] == [
        (1, True, ["PLAINTEXT://b:9092"]),
        (2, True, ["PLAINTEXT://b:9092"]),
    ]


def test_another_tree_of_zookeeper_is_named_first() -> None:
    (one,) = found(SimZooKeeper())
    assert one.startswith("blocker ZooKeeper: /cluster/id does not exist")


def test_an_offline_broker_blocks_with_its_topics() -> None:
    servers = zookeeper()
    servers.remove("/brokers/ids/2")
    assert found(servers, facts()) == ["blocker broker 2: it is offline, but has t"]


def test_a_znode_that_cannot_be_read_blocks() -> None:
    servers = zookeeper()
    servers.put("/config/topics/t", b"{}")
    (one,) = found(servers)
    assert one.startswith("blocker ZooKeeper: znode /config/topics/t: ")


def test_a_claim_is_distinguished_from_the_remains_of_a_former_claim() -> None:
    servers = zookeeper()
    claim(servers.session(), 3001, 7, 0)
    (one,) = found(servers)
    assert one.startswith("warning ZooKeeper: KRaft controller 3001 has claimed this cluster")
    servers.put("/controller", CONTROLLER)
    (one,) = found(servers)
    assert one.startswith("blocker ZooKeeper: /migration is left of a former migration (controller 3001)")


def test_a_cluster_without_a_controller_blocks() -> None:
    servers = zookeeper()
    servers.remove("/controller")
    assert found(servers) == ["blocker ZooKeeper: no broker is the controller"]


def test_a_topic_that_is_being_deleted_is_reported() -> None:
    servers = zookeeper()
    servers.put("/admin/delete_topics/t")
    assert found(servers) == ["warning topic t: it is being deleted, and is not migrated"]


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({VERSION: "3.5-IV2"}, f"blocker broker 1: {VERSION}=3.5-IV2 is not from 3.6-IV1 to 3.9-IV0"),
        ({VERSION: "2.8"}, f"blocker broker 1: {VERSION}=2.8 is not from 3.6-IV1 to 3.9-IV0"),
        ({VERSION: None}, f"blocker broker 1: {VERSION}=None is not from 3.6-IV1 to 3.9-IV0"),
        ({KEY: "false"}, f"preparation broker 1: {KEY} is not true"),
        ({"controller.quorum.voters": None}, "preparation broker 1: controller.quorum.voters is not set"),
        ({"controller.listener.names": ""}, "preparation broker 1: controller.listener.names is not set"),
        (
            {"authorizer.class.name": "org.example.Ranger"},
            "warning broker 1: authorizer.class.name=org.example.Ranger does not keep its rules in ZooKeeper: they are"
            " not migrated",
        ),
    ],
)
def test_a_setting_of_a_broker_is_reported(changes: dict[str, str | None], expected: str) -> None:
    listed = found(zookeeper(), facts(**changes), facts(**changes))
    assert expected in listed
    assert expected.replace("broker 1", "broker 2") in listed
    assert len(listed) == 2


def test_settings_that_differ_between_brokers_block() -> None:
    (one,) = found(zookeeper(), facts(), facts(**{"controller.quorum.voters": "3001@d:1"}))
    assert one == "blocker brokers: controller.quorum.voters differs (1: 3001@c:1, 2: 3001@d:1)"


@pytest.mark.parametrize(("version", "is_blocked"), [("3.6-IV2", True), ("3.7-IV1", True), ("3.7-IV2", False)])
def test_several_log_directories_need_a_version_that_assigns_them(version: str, is_blocked: bool) -> None:
    """Apache Kafka 3.9 does not start such a broker for a migration: the first restart left the broker down."""
    of_two = facts(**{VERSION: version, "log.dirs": "/a, /b"})
    listed = found(zookeeper(), of_two, facts(**{VERSION: version, "log.dir": "/a"}))
    expected = f"blocker broker 1: log.dirs has 2 directories, and a migration with {version} supports one"
    assert listed == ([expected] if is_blocked else [])


def test_a_broker_of_an_older_release_blocks_whatever_it_says() -> None:
    old = BrokerFacts(dict(READY), versions={key: version - 1 for key, version in NEEDED_VERSIONS.items()})
    assert found(zookeeper(), facts(), old) == [
        "blocker broker 2: it is older than Apache Kafka 3.4, or does not use ZooKeeper"
    ]


def test_a_broker_that_describes_nothing_blocks() -> None:
    (one,) = found(zookeeper(), facts(), BrokerFacts(problem="connection refused"))
    assert one == "blocker broker 2: its configuration cannot be read: connection refused"


def test_secrets_that_controllers_need_are_reported() -> None:
    listed = found(zookeeper(), facts("password.encoder.secret"), facts("delegation.token.secret.key"))
    assert listed == [
        "warning controllers: broker configurations have encrypted passwords",
        "warning controllers: delegation tokens are signed with it",
    ]
    servers = zookeeper()
    servers.put("/config/brokers/1", b'{"version":1,"config":{"ssl.key.password":"encryptedPassword:x"}}')
    assert found(servers) == ["warning controllers: broker configurations have encrypted passwords"]


@pytest.mark.parametrize(
    ("readiness", "findings"),
    [
        ({}, []),
        ({"isReady": False}, ["preparation broker 1: its registration says that it is not ready"]),
        ({"clusterId": "x"}, ["blocker broker 1: its registration has the cluster id x, ZooKeeper has abc"]),
        (
            {"ibp": "3.4-IV0"},
            [f"blocker broker 1: its registration has the ibp 3.4-IV0, its {VERSION} is 3.9-IV0"],
        ),
        ({"ibp": "y"}, [f"blocker broker 1: its registration has the ibp y, its {VERSION} is 3.9-IV0"]),
        ({"isReady": 1}, ["blocker ZooKeeper: znode /brokers/ids/1: the field isReady is 1, not of type bool"]),
    ],
)
def test_a_registration_of_the_draft_is_judged(readiness: dict[str, Any], findings: list[str]) -> None:
    """Version 6 of the registration, which no release writes."""
    servers = zookeeper()
    ready = {"isReady": True, "clusterId": "abc", "ibp": "3.9-IV0"}
    servers.put(
        "/brokers/ids/1", json.dumps({"version": 6, "endpoints": [], "kraftMigration": ready | readiness}).encode()
    )
    assert found(servers) == findings
