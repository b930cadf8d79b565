"""KIP-866, "Migration Trigger", "Migration Overview", "Unavailable ZooKeeper": whole nodes, and a ZooKeeper in memory.

The brokers that use ZooKeeper are requests of the test; `tests/golden/migration/test_whole_migration.py` has real
ones of Apache Kafka 3.9.2.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft_node.migration import driver as driver_module
from kraft_node.migration.claim import claim, release
from kraft_node.migration.tree import paths
from kraft_node.server.shutdown import RAFT_SHUTDOWN_MAX_MS, ZOOKEEPER_MAX_MS
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored as r
from tests.kip.migrating import KEY, MIGRATION, PRE_MIGRATION, Migrating, brokers_learn_who_the_controller_is

__all__ = ["brokers_learn_who_the_controller_is"]


def test_the_migration_begins_once_all_brokers_are_ready() -> None:
    world = Migrating()
    assert world.state == PRE_MIGRATION
    assert [text.partition(":")[0] for text in world.blockers()] == [
        "broker 1 has not registered here",
        "broker 2 has not registered here",
    ]
    world.migrate()
    assert world.state == MIGRATION
    topic = world.cluster.image.topics.by_name("t")
    assert (topic.partition(0).leader, topic.partition(0).leader_epoch) == (1, 3)


def test_all_controllers_must_have_the_key_set() -> None:
    world = Migrating(per_machine={"c2": {KEY: "false"}})
    world.register(1, 2)
    world.beat(1, 2)
    assert world.blockers() == [f"controller 3002 is not ready: set {KEY}=true there and restart it"]


def test_no_broker_with_replicas_may_be_offline() -> None:
    world = Migrating()
    world.servers.remove(f"{paths.BROKER_IDS}/2")
    world.register(1)
    world.beat(1)
    assert world.blockers() == ["broker 2 is offline but has t: start it, or remove what it has"]
    assert world.state == PRE_MIGRATION


def test_a_configuration_that_a_former_broker_has_left_blocks_nothing() -> None:
    """Kafka's tools leave an empty znode of each broker that ever had a throttle, and none of them deletes it."""
    world = Migrating()
    world.servers.put("/config/brokers/9", b'{"version":1,"config":{}}')
    world.servers.put("/config/brokers/8", b'{"version":1,"config":{"follower.replication.throttled.rate":"5"}}')
    world.migrate()
    assert world.state == MIGRATION


def test_the_metadata_version_must_be_one_that_the_brokers_know() -> None:
    world = Migrating(release="4.0")
    assert "brokers with ZooKeeper know 3.9-IV0 at most" in world.blockers()[0]


def test_an_incompatible_broker_is_not_registered() -> None:
    world = Migrating()
    assert world.register(1, level=20) == [ErrorCode.UNSUPPORTED_VERSION]


def test_changes_are_refused_before_the_metadata_is_migrated() -> None:
    world = Migrating()
    assert world.set_retention("1") == ErrorCode.NOT_CONTROLLER
    world.migrate()
    assert world.set_retention("1") == ErrorCode.NONE


def test_the_controllership_in_zookeeper_is_claimed() -> None:
    world = Migrating()
    world.migrate()
    data = world.servers.data()
    assert data[paths.CONTROLLER_EPOCH] == b"2"
    assert json.loads(data[paths.CONTROLLER])["brokerid"] == world.cluster.active.config.node_id


def test_each_committed_change_is_written_to_zookeeper() -> None:
    world = Migrating()
    world.migrate()
    assert world.set_retention("77") == ErrorCode.NONE
    world.cluster.until(lambda: world.retention() == "77")
    offset = json.loads(world.servers.data()[paths.MIGRATION])["kraft_metadata_offset"]
    assert offset <= world.cluster.image.offset


def test_changes_reach_zookeeper_after_it_was_away() -> None:
    world = Migrating()
    world.migrate()
    world.servers.down = True
    assert world.set_retention("5") == ErrorCode.NONE
    world.cluster.rest(20_000)
    assert world.retention() is None
    assert world.driver.blockers
    world.servers.down = False
    world.cluster.until(lambda: world.retention() == "5", 120_000)


def test_changes_wait_while_zookeeper_is_too_far_behind(monkeypatch: Any) -> None:
    """The draft's bound, which no release has."""
    monkeypatch.setattr(driver_module, "LAG_RECORDS_MAX", 5)
    world = Migrating()
    world.migrate()
    world.servers.down = True
    codes = [world.set_retention(str(number)) for number in range(10)]
    assert codes[0] == ErrorCode.NONE
    assert codes[-1] == ErrorCode.NOT_CONTROLLER
    world.servers.down = False
    world.cluster.until(lambda: world.driver.lag == 0, 120_000)
    assert world.set_retention("11") == ErrorCode.NONE


def test_changes_wait_until_a_new_controller_reaches_zookeeper(monkeypatch: Any) -> None:
    """How far ZooKeeper is behind is unknown to it."""
    monkeypatch.setattr(driver_module, "LAG_RECORDS_MAX", 5)
    world = Migrating()
    world.migrate()
    world.servers.down = True
    former = world.cluster.active
    former.kill()
    world.cluster.until(lambda: any(one is not former and _is_active(one) for one in world.cluster.machines.values()))
    world.cluster.until(lambda: world.driver.state.name == "BECOME_CONTROLLER")
    assert world.set_retention("3") == ErrorCode.NOT_CONTROLLER
    world.servers.down = False
    world.cluster.until(lambda: world.driver.state.name == "DUAL_WRITE" and world.driver.lag == 0, 120_000)
    assert world.set_retention("3") == ErrorCode.NONE


def test_a_failed_migration_leaves_zookeeper_to_its_brokers() -> None:
    world = Migrating()
    world.servers.put("/config/topics/t", b"{}")
    world.register(1, 2)
    world.beat(1, 2)
    world.cluster.until(lambda: any("/config/topics/t" in text for text in world.driver.blockers))
    world.cluster.until(lambda: paths.CONTROLLER not in world.servers.data())
    assert paths.MIGRATION not in world.servers.data()
    assert world.state == PRE_MIGRATION
    world.servers.put("/config/topics/t", b'{"version":1,"config":{}}')
    world.cluster.until(lambda: world.driver.state.name == "DUAL_WRITE", 120_000)
    assert {broker.id for broker in world.cluster.image.brokers.values()} == {1, 2}


def test_a_znode_that_cannot_be_read_costs_the_brokers_their_controller_only_once() -> None:
    """The controllers claimed ZooKeeper again and again, ten times a second, only to fail at the same znode."""
    world = Migrating()
    world.servers.put("/config/topics/t", b"{}")
    world.register(1, 2)
    for _ in range(12):
        world.beat(1, 2)
        world.cluster.rest(5_000)
    assert world.servers.data()[paths.CONTROLLER_EPOCH] == b"2"
    assert not {paths.CONTROLLER, paths.MIGRATION} & world.servers.data().keys()
    (blocker,) = world.driver.blockers
    assert blocker.startswith("znode /config/topics/t: ")


@pytest.mark.parametrize("keys", [{}, {"c2": {KEY: "false"}}])
def test_an_interrupted_claim_is_given_back_while_something_blocks_the_migration(keys: Any) -> None:
    """A controller had died while it read. Its successor waited, and ZooKeeper's brokers had no controller."""
    world = Migrating(per_machine=keys)
    claim(world.servers.session(), 3001, 0, 0)
    world.cluster.until(lambda: not {paths.CONTROLLER, paths.MIGRATION} & world.servers.data().keys())
    assert world.blockers()
    elected = b'{"version":2,"brokerid":2,"timestamp":"0","kraftControllerEpoch":-1}'
    world.servers.put(paths.CONTROLLER, elected)
    world.cluster.rest(20_000)
    assert world.servers.data()[paths.CONTROLLER] == elected


@pytest.mark.parametrize(
    "kinds",
    [(r.BeginTransactionRecord,), (r.EndTransactionRecord,), (r.EndTransactionRecord, r.AbortTransactionRecord)],
)
def test_a_migration_goes_on_after_the_log_has_refused_records(kinds: tuple[type[Any], ...], monkeypatch: Any) -> None:
    world = Migrating()
    node: Any = world.cluster.active.node
    migration = node.controller.migration
    append = migration.append
    left = set(kinds)

    def refuse_once(records: Any, committed: Any) -> None:
        refused = left & {type(record) for record in records}
        if refused:
            left.difference_update(refused)
            raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR)
        append(records, committed)

    monkeypatch.setattr(migration, "append", refuse_once)
    world.migrate()
    assert not left
    assert world.state == MIGRATION


def test_another_controller_goes_on_after_a_failure() -> None:
    world = Migrating()
    world.migrate()
    former = world.cluster.active
    former.kill()
    world.cluster.until(lambda: any(one is not former and _is_active(one) for one in world.cluster.machines.values()))
    world.until_dual()
    assert world.servers.data()[paths.CONTROLLER_EPOCH] == b"3"
    assert world.set_retention("9") == ErrorCode.NONE
    world.cluster.until(lambda: world.retention() == "9")


def test_another_controller_goes_on_while_the_former_one_is_down_before_controllers_register() -> None:
    """With a metadata.version of 3.6, the new controller waited for the answer of the dead one to ApiVersions."""
    world = Migrating(release="3.6")
    world.register(1, 2, level=world.cluster.image.metadata_level)
    world.beat(1, 2)
    world.until_dual()
    former = world.cluster.active
    former.kill()
    world.cluster.until(lambda: any(one is not former and _is_active(one) for one in world.cluster.machines.values()))
    world.until_dual()
    assert world.set_retention("9") == ErrorCode.NONE
    world.cluster.until(lambda: world.retention() == "9")


def test_a_controller_that_stops_first_writes_what_zookeeper_lacks() -> None:
    """The last controller before a revert: what it had not written was lost."""
    world = Migrating(controllers=1)
    world.migrate()
    world.cluster.until(lambda: world.driver.lag == 0)
    machine = world.cluster.active
    world.servers.down = True
    assert world.set_retention("8") == ErrorCode.NONE
    machine.stop()
    world.cluster.rest(2_000)
    assert (machine.running, world.retention()) == (True, None)
    assert world.set_retention("9") == ErrorCode.NOT_CONTROLLER
    world.servers.down = False
    world.cluster.until(lambda: not machine.running)
    assert world.retention() == "8"


def test_a_controller_that_stops_waits_for_zookeeper_for_seconds_only() -> None:
    world = Migrating(controllers=1)
    world.migrate()
    world.servers.down = True
    assert world.set_retention("8") == ErrorCode.NONE
    machine = world.cluster.active
    machine.stop()
    world.cluster.rest(ZOOKEEPER_MAX_MS + RAFT_SHUTDOWN_MAX_MS + 1_000)
    assert (machine.running, world.retention()) == (False, None)


def test_no_controller_claims_zookeeper_again_after_a_revert() -> None:
    """A controller that still ran, or was started again, undid what ZooKeeper's brokers had changed since."""
    world = Migrating()
    world.migrate()
    assert release(world.servers.session())
    world.servers.put(paths.topic("later"), world.servers.data()[paths.topic("t")].replace(b"BQ", b"Bg"))
    before = world.servers.data()
    assert world.set_retention("5") == ErrorCode.NONE
    world.cluster.until(lambda: any("given back" in text for text in world.driver.blockers))
    former = world.cluster.active
    former.kill()
    world.cluster.until(lambda: any(one is not former and _is_active(one) for one in world.cluster.machines.values()))
    world.cluster.until(lambda: any("given back" in text for text in world.driver.blockers))
    assert world.servers.data() == before


def test_controllers_report_to_each_other_that_they_are_ready() -> None:
    world = Migrating(controllers=1)
    request = m.ApiVersionsRequest(client_software_name="test", client_software_version="1")
    answer = world.cluster.ask("c1", request, 3, controller=True)
    assert answer.zk_migration_ready


def test_brokers_without_zookeeper_join_after_the_migration_only() -> None:
    world = Migrating()
    assert world.register(3, zookeeper=False) == [ErrorCode.BROKER_ID_NOT_REGISTERED]
    world.migrate()
    assert world.register(3, zookeeper=False) == [ErrorCode.NONE]


def _is_active(machine: Any) -> bool:
    return machine.node is not None and machine.node.controller is not None and machine.node.controller.is_active


@pytest.mark.parametrize("release", ["3.6-IV1", "3.6"])
def test_before_controllers_register_they_are_asked_whether_they_are_ready(release: str) -> None:
    """The metadata.versions of 3.6 have no registrations of controllers: ZkMigrationReady of ApiVersions counts."""
    world = Migrating(release=release, per_machine={"c2": {KEY: "false"}})
    assert world.cluster.image.metadata_level < 15
    assert world.blockers() == [f"controller 3002 is not ready: set {KEY}=true there and restart it"]
    world = Migrating(release=release)
    world.register(1, 2, level=world.cluster.image.metadata_level)
    world.beat(1, 2)
    world.until_dual()
    assert world.state == MIGRATION


def test_without_transactions_of_metadata_there_is_no_migration() -> None:
    """The draft begins with 3.4; Apache Kafka 3.9.2 and we need 3.6-IV1 to migrate all or nothing."""
    assert "the migration needs 3.6-IV1 or later" in Migrating(release="3.5").blockers()[0]


def test_a_broker_that_becomes_incompatible_is_listed_and_gets_no_requests() -> None:
    world = Migrating()
    world.migrate()
    world.servers.put(f"{paths.BROKER_IDS}/7", b"{}")
    for _ in range(6):
        world.cluster.rest(5_000)
        world.beat(1, 2)
    (listed,) = world.driver.incompatible
    assert listed.startswith("broker 7 has not registered here")
    node: Any = world.cluster.active.node
    assert node.migration.status()["incompatibleBrokers"] == [listed]
    world.servers.remove(f"{paths.BROKER_IDS}/7")
    for _ in range(4):
        world.cluster.rest(5_000)
        world.beat(1, 2)
    assert world.driver.incompatible == []
    world.cluster.rest(60_000)  # both are fenced now: no heartbeats
    assert [one.partition(" is")[0] for one in world.driver.incompatible] == ["broker 1", "broker 2"]
    assert node.migration.steering.waiting == []
    assert world.register(1, incarnation=2) == [ErrorCode.NONE]
    world.cluster.rest(100)
    assert node.migration.steering.waiting == [1]


def test_a_broker_that_was_unregistered_with_replicas_is_reported() -> None:
    """The migration was finished without it, and its replicas were lost: it could not return with ZooKeeper."""
    world = Migrating()
    world.migrate()
    node: Any = world.cluster.active.node
    assert node.migration.status()["missingBrokers"] == []
    assert not world.ask(m.UnregisterBrokerRequest(2)).error_code
    world.cluster.rest(1_000)
    assert node.migration.status()["zookeeperBrokers"] == [1]
    assert node.migration.status()["missingBrokers"] == [2]
