"""Which leader each followed partition is fetched from: one `Fetcher` a leader (times `num.replica.fetchers`).

Told of every partition whenever its committed state changes; a partition is fetched while another broker leads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_node.base.errors import KafkaError
from kraft_node.broker.replication.fetcher import Fetcher, Settings
from kraft_node.broker.replication.throttle import ReplicationQuota

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.partition.manager import PartitionKey
    from kraft_node.partition.partition import Partition

log = logging.getLogger(__name__)


class Fetchers:
    """All fetchers of a broker. `peers(node_id)` is the way to another broker."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        config: BrokerConfig,
        broker_epoch: Callable[[], int],
        peers: Callable[[int], ControllerLink | None],
        quota: ReplicationQuota,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._settings = Settings(config)
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._quota = quota
        self._fetchers: dict[int, Fetcher] = {}
        self._followed: dict[PartitionKey, tuple[Partition, int, int]] = {}
        """By key: the partition, its leader and leader epoch."""
        self._closed = False

    def __len__(self) -> int:
        """How many partitions are followed."""
        return len(self._followed)

    @property
    def bytes_in(self) -> int:
        """Record bytes fetched by the fetchers that there are."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    def follow(self, partition: Partition) -> None:
        """The partition's committed state may have changed."""
        key = (partition.topic_id, partition.index)
        wanted = (partition, partition.leader_id, partition.leader_epoch)
        followed = self._followed.get(key)
        if followed == wanted:
            return
        if followed is not None:
            self._stop(key, followed[1], keep_fetcher=followed[1] == partition.leader_id)
        if partition.leader_id < 0 or partition.leader_id == self._node_id or self._closed:
            return
        try:
            self._fetcher(partition.leader_id).add(partition)
        except KafkaError as error:
            log.warning("%s-%d cannot be followed: %s", partition.topic, partition.index, error)
            return
        self._followed[key] = wanted

    def drop(self, partition: Partition) -> None:
        """The partition is gone from this broker."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed[0] is partition:
            self._stop(key, followed[1])

    def _stop(self, key: PartitionKey, leader_id: int, *, keep_fetcher: bool = False) -> None:
        del self._followed[key]
        fetcher = self._fetchers[leader_id]
        fetcher.remove(key)
        if not len(fetcher) and not keep_fetcher:
            fetcher.close()
            del self._fetchers[leader_id]

    def _fetcher(self, leader_id: int) -> Fetcher:
        fetcher = self._fetchers.get(leader_id)
        if fetcher is None:
            fetcher = self._fetchers[leader_id] = Fetcher(
                self._env,
                self._node_id,
                leader_id,
                self._settings,
                self._broker_epoch,
                lambda: self._peers(leader_id),
                self._quota,
            )
        return fetcher

    def close(self) -> None:
        """Fetch nothing more."""
        self._closed = True
        for fetcher in self._fetchers.values():
            fetcher.close()
        self._fetchers.clear()
        self._followed.clear()
