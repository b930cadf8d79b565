"""The controller on the real raft driver: what it appends is written, flushed, committed, and there after a restart."""

from __future__ import annotations

from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.base.env import Env
from kraft_node.base.request import RequestContext
from kraft_node.controller import Controller
from kraft_node.metadata.features import SUPPORTED_RANGES
from kraft_node.wire.api import API, ApiKey
from kraft_node.wire.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest, CreateTopicsRequest
from tests.unit.controller.harness import CLUSTER_ID, FakeRng, api_name, directory, uuid
from tests.unit.server.raft_world import MemoryStorage, Node


class RaftedController:
    """One controller of a combined node, wired as the composition root wires it."""

    def __init__(self, storage: MemoryStorage) -> None:
        texts = {
            "process.roles": "controller",
            "node.id": "1",
            "controller.quorum.voters": "1@localhost:9093",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "nowhere",
        }
        self.node = Node(storage)
        world: Any = self.node.world
        nothing: Any = None
        env = Env(world.clock, world.scheduler, FakeRng(), nothing, nothing, nothing)
        driver = self.node.driver
        self.controller = Controller(env, NodeConfig.parse(texts), CLUSTER_ID, driver.image, driver)
        self.controller.in_transaction = lambda: driver.loader.in_transaction
        driver.metadata_level = self.controller.metadata_level
        driver.on_leader.append(self.controller.on_leader)
        driver.on_lost_leadership.append(self.controller.on_lost_leadership)
        driver.on_commit.append(self.controller.on_commit)
        driver.on_leader_changed.append(self.controller.on_leader_changed)
        self.node.start()

    def ask(self, request: Any) -> Any:
        key = ApiKey[api_name(type(request).__name__)]
        answers: list[Any] = []
        context = RequestContext(
            key, API[key].max_version, 1, "t", "h", "CONTROLLER", "User:x", None, 0, lambda _, r: answers.append(r)
        )
        response = self.controller.handle(context, request)
        self.node.world.run()
        return response if response is not None else answers[0]

    def start_broker(self, incarnation: int) -> None:
        registration = self.ask(
            BrokerRegistrationRequest(
                broker_id=1,
                cluster_id=CLUSTER_ID,
                incarnation_id=uuid(incarnation),
                features=[
                    BrokerRegistrationRequest.Feature(name=n, min_supported_version=r[0], max_supported_version=r[1])
                    for n, r in SUPPORTED_RANGES.items()
                ],
                log_dirs=[directory(1)],
            )
        )
        assert registration.error_code == 0
        beat = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=registration.broker_epoch, current_metadata_offset=registration.broker_epoch
        )
        assert not self.ask(beat).is_fenced


def test_a_cluster_of_one_survives_its_restart() -> None:
    storage = MemoryStorage()
    first = RaftedController(storage)
    assert first.controller.is_active
    first.start_broker(1)
    topic = CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=2, replication_factor=1)
    created = first.ask(CreateTopicsRequest(topics=[topic])).topics[0]
    assert created.error_code == 0

    second = RaftedController(storage)
    assert second.controller.is_active
    found = second.node.driver.image.topics.by_name("foo")
    assert found is not None
    assert found.id == created.topic_id
    second.start_broker(2)
    assert [state.leader for _, state in found.partitions()] == [1, 1]
    assert second.controller.cluster.view.is_empty, "everything is committed, nothing lingers in the overlay"
