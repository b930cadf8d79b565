"""The parts of replication, assembled for one broker; see the package's docstring."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from kraft_node.base.config.resources import TOPIC_RESOURCE
from kraft_node.broker.replication.cluster import FollowerStates
from kraft_node.broker.replication.fetchers import Fetchers
from kraft_node.broker.replication.isr_changes import IsrChanges
from kraft_node.broker.replication.throttle import ReplicationQuota

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env, Timer
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.metadata.delta import MetadataDelta
    from kraft_node.metadata.image import MetadataImage
    from kraft_node.partition.manager import ReplicaManager

ISR_CHECKS_A_LAG: Final = 2
"""ISR checks per `replica.lag.time.max.ms`, as in Kafka."""


class Replication:
    """Follows the partitions that other brokers lead, and checks the ISRs of the partitions that this broker leads."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        config: BrokerConfig,
        image: MetadataImage,
        broker_epoch: Callable[[], int],
        controller: ControllerLink,
        peers: Callable[[int, int], ControllerLink | None],
    ) -> None:
        self._env = env
        self.isr_changes = IsrChanges(node_id, broker_epoch, controller, env.scheduler)
        self.cluster = FollowerStates(env.clock, image, config.int("replica.lag.time.max.ms"), self.isr_changes.propose)
        self._config = config

        def listed(topic: str, key: str) -> str:
            return (image.configs.get((TOPIC_RESOURCE, topic)) or {}).get(key, "")

        self.leader_quota = ReplicationQuota(
            env.clock, node_id, lambda topic: listed(topic, "leader.replication.throttled.replicas")
        )
        self.follower_quota = ReplicationQuota(
            env.clock, node_id, lambda topic: listed(topic, "follower.replication.throttled.replicas")
        )
        self.fetchers = Fetchers(env, node_id, config, broker_epoch, peers, self.follower_quota)
        self.config_changed()
        self._replicas: ReplicaManager | None = None
        self._timer: Timer | None = None

    def config_changed(self) -> None:
        """Apply the dynamic keys: replication rates and the number of fetchers."""
        self.fetchers.resize(self._config.int("num.replica.fetchers"))
        self.leader_quota.limit = self._config.int("leader.replication.throttled.rate")
        self.follower_quota.limit = self._config.int("follower.replication.throttled.rate")

    def start(self, replicas: ReplicaManager) -> None:
        """Start once the image is current: open replicated partitions, fetch, and check ISRs."""
        self._replicas = replicas
        replicas.role_changed = self.fetchers.follow
        replicas.dropped = self.fetchers.drop
        for partition in list(replicas.opened()):
            self.fetchers.follow(partition)
        replicas.activate()
        self._check_isrs()

    def apply(self, delta: MetadataDelta) -> None:
        """React to brokers that were registered, removed, fenced or unfenced."""
        if delta.brokers:
            self.cluster.brokers_changed(delta.brokers)

    def _check_isrs(self) -> None:
        period_ms = self.cluster.lag_max_ms // ISR_CHECKS_A_LAG
        self._timer = self._env.scheduler.call_later(max(1, period_ms), self._check_isrs)
        assert self._replicas is not None, "law: ISRs are checked after the start"
        for partition in list(self._replicas.opened()):
            if partition.lead is not None:
                partition.look_at_followers()

    def close(self) -> None:
        """Stop fetching and proposing."""
        self.fetchers.close()
        self.isr_changes.close()
        if self._timer is not None:
            self._timer.cancel()
