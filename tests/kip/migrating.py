"""A cluster that migrates: whole controllers, ZooKeeper in memory, and brokers that are requests of a test."""

from __future__ import annotations

import json
from typing import Any

import pytest

from kraft_node.migration.claim import ControllerClaim
from kraft_node.migration.steering import Steering
from kraft_node.migration.tree import paths
from kraft_node.testing.zookeeper import SimZooKeeper
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster

LEVEL = 21
KEY = "zookeeper.metadata.migration.enable"
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAABQ"
ON = {KEY: "true", "zookeeper.connect": "z:2181"}
MIGRATION, PRE_MIGRATION = 1, 2


@pytest.fixture(autouse=True)
def brokers_learn_who_the_controller_is(monkeypatch: pytest.MonkeyPatch) -> None:
    """The brokers of these tests send requests, and answer none."""

    def announce(self: Steering, held: ControllerClaim, done: Any) -> None:
        self._env.scheduler.call_soon(done, [])

    monkeypatch.setattr(Steering, "announce", announce)


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
