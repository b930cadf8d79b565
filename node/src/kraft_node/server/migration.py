"""The migration from ZooKeeper on one controller: its driver, the brokers that it steers, its figures (KIP-866)."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.migration.driver import MigrationDriver
from kraft_node.migration.links import RecordsRefusedError
from kraft_node.migration.states import visible_state
from kraft_node.migration.steering import Steering
from kraft_node.server.channels.channel_pool import Channels, broker_address
from kraft_protocol.errors import KafkaError
from kraft_protocol.wire.messages import ApiVersionsRequest

if TYPE_CHECKING:
    from kraft_node.base.config import NodeConfig
    from kraft_node.base.config.zookeeper import ZooKeeperSettings
    from kraft_node.base.env import Env
    from kraft_node.controller.controller import Controller
    from kraft_node.migration.zookeeper import Connect
    from kraft_node.server.quorum.driver import RaftDriver
    from kraft_node.server.secure.node_security import NodeSecurity


ZK_MIGRATION_READY_VERSION: Final = 3
"""The first version of ApiVersions with ZkMigrationReady."""
ASK_MS: Final = 5_000


class NodeMigration:
    """Connects driver, controller, quorum and brokers. Make it before the quorum starts; `close` at the end."""

    def __init__(
        self,
        env: Env,
        config: NodeConfig,
        security: NodeSecurity,
        settings: ZooKeeperSettings,
        zookeeper: Callable[[ZooKeeperSettings], Connect] | None,
        raft: RaftDriver,
        controller: Controller,
    ) -> None:
        """`zookeeper` begins sessions."""
        assert zookeeper is not None, "law: the process brings a client of ZooKeeper"
        self.image = raft.image
        self.clock = env.clock
        self._controller = controller
        self._raft = raft
        self._ready: dict[int, bool] = {}
        listener = config.inter_broker_listener_name
        self._channels = Channels(
            env,
            f"controller-{config.node_id}-to-brokers",
            partial(broker_address, raft.image, listener),
            patient=False,
            security=security.to_brokers,
        )
        self.steering = Steering(env, config.node_id, listener, raft.image, self._channels.find)
        self.driver = MigrationDriver(
            env,
            config.node_id,
            raft.cluster_id,
            raft.image,
            self,
            self.steering,
            zookeeper(settings),
            lambda: raft.voters.ids,
            settings.secret,
            self._ask_controllers,
        )
        controller.migration.is_behind = lambda: self.driver.blocks_writes
        raft.loader.publishers += [self.driver.moved, self.steering.moved]
        raft.on_leader.append(self._led)
        raft.on_lost_leadership.append(lambda _epoch: self.driver.lost())

    def append(self, records: Sequence[Any], committed: Callable[[], None]) -> None:
        """`links.MigrationLog`, over the controller."""
        try:
            self._controller.migration.append(records, committed)
        except KafkaError as e:
            raise RecordsRefusedError(f"the metadata log refuses records of ZooKeeper: {e}") from e

    def _led(self, epoch: int) -> None:
        begun_at = self._controller.migration.begun_at
        if begun_at is not None:
            self._controller.migration.when_committed(begun_at, lambda: self._begun(epoch))

    def _begun(self, epoch: int) -> None:
        if self._controller.epoch == epoch:
            self.driver.led(epoch)

    def _ask_controllers(self) -> dict[int, bool]:
        """Ask the voters whether they migrate (ZkMigrationReady). Returns their last answers."""
        answers, self._ready = self._ready, {}
        for voter in self._raft.voters.ids:
            peer = self._raft.peers.channel(voter)
            if peer is not None:
                request = ApiVersionsRequest(client_software_name="kraftcluster", client_software_version="1")
                peer.send(request, ZK_MIGRATION_READY_VERSION, partial(self._controller_answered, voter), ASK_MS)
        return answers

    def _controller_answered(self, voter: int, answer: Any) -> None:
        if not isinstance(answer, BaseException) and not answer.error_code:
            self._ready[voter] = answer.zk_migration_ready

    def close(self) -> None:
        """The node stops."""
        self.driver.lost()
        self._channels.close()

    # Figures

    @property
    def is_active(self) -> bool:
        """Whether this node is the active controller; others follow only the recorded state."""
        return self._controller.is_active

    def status(self) -> dict[str, Any]:
        """For `/status`; only the active controller knows more than the state."""
        driver, image = self.driver, self.image
        registered = {one.id for one in image.brokers.values()}
        return {
            "state": visible_state(image).name,
            "recordedState": image.zk_migration_state,
            "isActive": self.is_active,
            "driver": driver.state.name,
            "blockers": driver.blockers,
            "readRecords": driver.read_records,
            "lagRecords": driver.lag,
            "zookeeperBrokers": sorted(one.id for one in image.brokers.values() if one.is_migrating_zk_broker),
            "kraftBrokers": sorted(one.id for one in image.brokers.values() if not one.is_migrating_zk_broker),
            "missingBrokers": sorted(image.topics.lists.replica_brokers() - registered),
            "waitingBrokers": self.steering.waiting,
            "incompatibleBrokers": driver.incompatible,
            "blockingMs": driver.blocking_ms,
        }
