"""Which leader each followed partition is fetched from, by `num.replica.fetchers` fetchers per leader (default 1).

Each fetcher has its own connection, so several requests to a leader can be under way. As in Kafka, a partition's topic
name and index choose its fetcher. `follow` is called whenever a partition's committed state changes; a partition is
fetched while another broker leads it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING

from kraft_node.broker.replication.fetcher import Fetcher, FetcherSettings
from kraft_node.broker.replication.throttle import ReplicationQuota
from kraft_protocol.errors import KafkaError

if TYPE_CHECKING:
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.env import Env
    from kraft_node.broker.controller_link import ControllerLink
    from kraft_node.partition.partition import Partition
    from kraft_node.partition.table import PartitionKey

log = logging.getLogger(__name__)


class Fetchers:
    """All fetchers of a broker. `peers(node_id, number)` returns the link to a broker for the fetcher with this
    number."""

    def __init__(
        self,
        env: Env,
        node_id: int,
        config: BrokerConfig,
        broker_epoch: Callable[[], int],
        peers: Callable[[int, int], ControllerLink | None],
        quota: ReplicationQuota,
    ) -> None:
        self._env = env
        self._node_id = node_id
        self._settings = FetcherSettings(config)
        self._broker_epoch = broker_epoch
        self._peers = peers
        self._quota = quota
        self._count = 1
        self._fetchers: dict[tuple[int, int], Fetcher] = {}
        """By leader and fetcher number."""
        self._followed: dict[PartitionKey, tuple[Partition, int, int]] = {}
        """By key: the partition, its leader and leader epoch."""
        self._closed = False

    def __len__(self) -> int:
        """The number of followed partitions."""
        return len(self._followed)

    @property
    def bytes_in(self) -> int:
        """Record bytes fetched by the current fetchers."""
        return sum(fetcher.bytes_in for fetcher in self._fetchers.values())

    def resize(self, count: int) -> None:
        """Use `count` fetchers per leader; partitions move to their new fetchers."""
        if count == self._count:
            return
        followed = [partition for partition, _, _ in self._followed.values()]
        for partition in followed:
            self.drop(partition)
        self._count = count
        for partition in followed:
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Follow the partition's committed state, which may have changed."""
        key = (partition.topic_id, partition.index)
        wanted = (partition, partition.leader_id, partition.leader_epoch)
        followed = self._followed.get(key)
        if followed == wanted:
            return
        if followed is not None:
            self._stop(partition, followed[1], keep_fetcher=followed[1] == partition.leader_id)
        if partition.leader_id < 0 or partition.leader_id == self._node_id or self._closed:
            return
        try:
            self._fetcher(*self._place(partition, partition.leader_id)).add(partition)
        except KafkaError as error:
            log.warning(
                "partition cannot be followed partition=%s-%d error=%s", partition.topic, partition.index, error
            )
            return
        self._followed[key] = wanted

    def drop(self, partition: Partition) -> None:
        """Stop fetching a partition that this broker no longer has."""
        key = (partition.topic_id, partition.index)
        followed = self._followed.get(key)
        if followed is not None and followed[0] is partition:
            self._stop(partition, followed[1])

    def _place(self, partition: Partition, leader_id: int) -> tuple[int, int]:
        return leader_id, fetcher_number(partition.topic, partition.index, self._count)

    def _stop(self, partition: Partition, leader_id: int, *, keep_fetcher: bool = False) -> None:
        key = (partition.topic_id, partition.index)
        del self._followed[key]
        place = self._place(partition, leader_id)
        fetcher = self._fetchers[place]
        fetcher.remove(key)
        if not len(fetcher) and not keep_fetcher:
            fetcher.close()
            del self._fetchers[place]

    def _fetcher(self, leader_id: int, number: int) -> Fetcher:
        fetcher = self._fetchers.get((leader_id, number))
        if fetcher is None:
            fetcher = self._fetchers[leader_id, number] = Fetcher(
                self._env,
                self._node_id,
                leader_id,
                self._settings,
                self._broker_epoch,
                lambda: self._peers(leader_id, number),
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


def fetcher_number(topic: str, index: int, count: int) -> int:
    """The fetcher, of `count`, for a partition: by Java's string hash, as in Kafka's AbstractFetcherManager."""
    if count == 1:
        return 0
    number = 0
    for letter in topic:
        number = (31 * number + ord(letter)) & 0xFFFFFFFF
    number = (31 * number + index) & 0xFFFFFFFF
    signed = number - (1 << 32) if number >> 31 else number
    return 0 if signed == -(1 << 31) else abs(signed) % count
