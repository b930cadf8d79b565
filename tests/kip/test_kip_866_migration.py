"""KIP-866, "Migration Trigger", "Migration Overview", "Unavailable ZooKeeper": whole nodes, and a ZooKeeper in memory.

The brokers that use ZooKeeper are requests of the test; `tests/golden/migration/test_whole_migration.py` has real
ones of Apache Kafka 3.9.2.
"""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft_node.cli import metadata_tree
from kraft_node.migration import driver as driver_module
from kraft_node.migration.claim import claim, release
from kraft_node.migration.tree import paths
from kraft_node.testing.zookeeper import SimZooKeeper
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored as r
from tests.kip.cluster import Cluster

LEVEL = 21
KEY = "zookeeper.metadata.migration.enable"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"
ON = {KEY: "true", "zookeeper.connect": "z:2181"}
NONE, MIGRATION, PRE_MIGRATION, POST_MIGRATION = 0, 1, 2, 3


class Migrating:
    """Controllers, ZooKeeper with a topic on brokers 1 and 2, and those brokers once they have registered."""

    def __init__(self, *, controllers: int = 3, release: str = "3.9", **more: Any) -> None:
        self.servers = servers = SimZooKeeper()
        self.cluster = Cluster(controllers, start=False, release=release, overrides=ON, **more)
        servers.put(paths.CLUSTER_ID, json.dumps({"version": "1", "id": self.cluster.cluster_id}).encode())
        for path in ("/admin/delete_topics", "/config/changes", "/config/topics", paths.TOPICS, paths.BROKER_IDS):
            servers.put(path)
        servers.put(paths.CONTROLLER_EPOCH, b"1")
        servers.put(paths.CONTROLLER, b'{"version":2,"brokerid":1,"timestamp":"0","kraftControllerEpoch":-1}')
        for broker in (1, 2):
            servers.put(f"{paths.BROKER_IDS}/{broker}", b"{}")
        topic = {"version": 3, "topic_id": TOPIC_ID, "partitions": {"0": [1, 2]}}
        servers.put(paths.topic("t"), json.dumps({**topic, "adding_replicas": {}, "removing_replicas": {}}).encode())
        state = {"controller_epoch": 1, "leader": 1, "version": 1, "leader_epoch": 3, "isr": [1, 2]}
        servers.put(paths.partition_state("t", 0), json.dumps(state).encode())
        self.epochs: dict[int, int] = {}
        for machine in self.cluster.machines.values():
            machine.zookeeper = lambda _settings: servers.session
            machine.start()
        self.cluster.until(lambda: bool(self.cluster.image.metadata_level and self.cluster.image.zk_migration_state))

    @property
    def driver(self) -> Any:
        node: Any = self.cluster.active.node
        return node.migration.driver

    @property
    def state(self) -> int:
        return int(self.cluster.image.zk_migration_state)

    def ask(self, request: Any) -> Any:
        return self.cluster.ask(self.cluster.active.name, request, controller=True)

    def register(self, *brokers: int, level: int = LEVEL, zookeeper: bool = True, incarnation: int = 1) -> list[int]:
        """Register brokers; returns the error codes."""
        of = m.BrokerRegistrationRequest
        codes = []
        for broker in brokers:
            answer = self.ask(
                of(
                    broker_id=broker,
                    cluster_id=self.cluster.cluster_id,
                    incarnation_id=Uuid(bytes([broker] * 15 + [incarnation])),
                    listeners=[of.Listener("PLAINTEXT", f"b{broker}", 9092, 0)],
                    features=[of.Feature("metadata.version", level, level)],
                    rack=None,
                    is_migrating_zk_broker=zookeeper,
                    log_dirs=[Uuid(bytes([broker] * 16))],
                )
            )
            codes.append(int(answer.error_code))
            self.epochs[broker] = answer.broker_epoch
        return codes

    def beat(self, *brokers: int) -> None:
        """Heartbeats of brokers that know all metadata."""
        for broker in brokers:
            self.ask(
                m.BrokerHeartbeatRequest(
                    broker_id=broker,
                    broker_epoch=self.epochs[broker],
                    current_metadata_offset=1 << 40,
                    want_fence=False,
                    want_shut_down=False,
                )
            )

    def migrate(self) -> None:
        self.register(1, 2)
        self.beat(1, 2)
        self.until_dual()

    def until_dual(self) -> None:
        self.cluster.until(lambda: self.driver.state.name == "DUAL_WRITE")

    def set_retention(self, value: str) -> int:
        of = m.IncrementalAlterConfigsRequest
        config = of.AlterConfigsResource(2, "t", [of.AlterableConfig("retention.ms", 0, value)])
        return int(self.ask(of([config])).responses[0].error_code)

    def retention(self) -> str | None:
        data = self.servers.data().get(paths.config("topics/t"))
        return None if not data else json.loads(data)["config"].get("retention.ms")

    def blockers(self) -> list[str]:
        self.cluster.rest(2_000)
        return list(self.driver.blockers)


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


def test_the_state_of_the_migration_is_a_metric_of_the_controller() -> None:
    world = Migrating()
    prefix = "kafka_controller_kafkacontroller_"

    def figures() -> tuple[float, float, float]:
        found = world.cluster.metrics(world.cluster.active.name)
        return tuple(found[prefix + name] for name in ("migrationstate", "zkmigrationstate", "migratingzkbrokercount"))  # type: ignore[return-value]

    assert figures() == (3, PRE_MIGRATION, 0)
    world.migrate()
    assert figures() == (4, MIGRATION, 2)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperwritebehindlag"] >= 0
    world.cluster.rest(30_000)
    world.register(1, 2, zookeeper=False, incarnation=2)
    assert figures() == (5, MIGRATION, 0)


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


def test_writes_to_zookeeper_and_waiting_changes_are_metrics(monkeypatch: pytest.MonkeyPatch) -> None:
    world = Migrating()
    world.migrate()
    world.set_retention("1")
    world.cluster.rest(1_000)
    prefix = "kafka_controller_kafkacontroller_"
    found = world.cluster.metrics(world.cluster.active.name)
    assert found[prefix + "zkwritesnapshottimems_count"] == 1
    assert found[prefix + "zkwritedeltatimems_count"] >= 1
    assert found[prefix + "zookeeperblockingkraftmillis"] == 0
    monkeypatch.setattr(driver_module, "LAG_RECORDS_MAX", 1)
    world.servers.down = True
    for value in ("2", "3", "4"):
        world.set_retention(value)
    world.cluster.rest(5_000)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperblockingkraftmillis"] >= 1_000
    world.servers.down = False
    world.cluster.rest(120_000)
    assert world.cluster.metrics(world.cluster.active.name)[prefix + "zookeeperblockingkraftmillis"] == 0


def test_the_metadata_shell_shows_the_migration_and_what_blocks_it() -> None:
    def shown(world: Migrating) -> dict[str, Any]:
        directory: Any = metadata_tree.root(world.cluster.image).child("migration")
        return dict(directory.children())

    world = Migrating(per_machine={"c2": {KEY: "false"}})
    world.register(1)
    world.cluster.until(lambda: len(world.cluster.image.controllers) == 3)
    found = shown(world)
    assert (found["state"], found["recordedState"], found["brokersWithZooKeeper"]) == ("MIGRATION_READY", "2", "[1]")
    assert "controller 3002 is not ready" in found["blockers"]
    assert "broker 1 is fenced" in found["blockers"]
    world = Migrating()
    world.migrate()
    assert (shown(world)["state"], shown(world)["blockers"]) == ("MIGRATION_ACTIVE", "")
