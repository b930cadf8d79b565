"""A real controller on a real raft driver, connected as in the composition root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from kraft_node.base.config import NodeConfig
from kraft_node.base.env import Env
from kraft_node.base.request import RequestContext
from kraft_node.controller import Controller
from kraft_node.metadata.features import SUPPORTED_RANGES
from kraft_node.server.quorum.driver import RaftDriver
from kraft_protocol.errors import KafkaError
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import BrokerHeartbeatRequest, BrokerRegistrationRequest
from tests.stopped_time import SeededRandom
from tests.unit.controller.harness import CLUSTER_ID, Answer, api_name, directory, uuid
from tests.unit.server.quorum.raft_world import World


class RaftedController:
    """The controller of one driver, not started yet."""

    def __init__(self, driver: RaftDriver, world: World, *, bootstrap: Sequence[Any] = (), **properties: str) -> None:
        texts = {
            "process.roles": "controller",
            "node.id": str(driver.local.id),
            "controller.quorum.voters": f"{driver.local.id}@localhost:9093",
            "listeners": "CONTROLLER://localhost:9093",
            "controller.listener.names": "CONTROLLER",
            "log.dirs": "nowhere",
            **{name.replace("_", "."): value for name, value in properties.items()},
        }
        nothing: Any = None
        clock: Any = world
        env = Env(clock, clock, SeededRandom(), nothing, nothing, nothing)
        self.world = world
        self.driver = driver
        self.controller = Controller(env, NodeConfig.parse(texts), CLUSTER_ID, driver.image, driver, bootstrap)
        self.controller.in_transaction = lambda: driver.loader.in_transaction
        driver.metadata_level = self.controller.metadata_level
        driver.on_leader.append(self.controller.on_leader)
        driver.on_lost_leadership.append(lambda _epoch: self.controller.on_lost_leadership(driver.leader_id))
        driver.on_commit.append(self.controller.on_commit)
        driver.on_leader_changed.append(self.controller.on_leader_changed)

    def send(self, request: Any) -> Answer:
        """Send a request; its answer comes in the world's time."""
        key = ApiKey[api_name(type(request).__name__)]
        answer = Answer()
        version = API[key].max_version
        context = RequestContext(
            key, version, 1, "t", "h", "CONTROLLER", "User:x", None, 0, lambda _, r: answer.responses.append(r)
        )
        try:
            response = self.controller.handle(context, request)
        except KafkaError as e:
            answer.error = e
            return answer
        if response is not None:
            answer.responses.append(response)
        return answer

    def ask(self, request: Any, within_ms: int = 0) -> Any:
        """The response, after that time has passed in the world."""
        answer = self.send(request)
        self.world.run(within_ms)
        return answer.response

    def start_broker(self, incarnation: int, within_ms: int = 0) -> None:
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
            ),
            within_ms,
        )
        assert registration.error_code == 0
        beat = BrokerHeartbeatRequest(
            broker_id=1, broker_epoch=registration.broker_epoch, current_metadata_offset=registration.broker_epoch
        )
        assert not self.ask(beat, within_ms).is_fenced
