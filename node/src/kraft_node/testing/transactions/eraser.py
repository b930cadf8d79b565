"""An administrator that deletes the oldest records of a partition, even within transactions (DeleteRecords)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster
    from kraft_node.testing.transactions.ledger import Ledger

DELETE_RECORDS: Final = 2
"""API version."""
PAUSE_MAX_MS: Final = 2_000.0


class Eraser:
    """Deletes records of one partition now and then, up to an offset that a reader has passed."""

    def __init__(self, cluster: SimCluster, ledger: Ledger, name: str, partition: tuple[str, int]) -> None:
        self.session = ClusterSession(cluster, name)
        self.stopping = False
        self._ledger = ledger
        self._partition = partition
        self._rng = cluster.world.rng

    async def run(self) -> None:
        """Delete records until stopped. The ledger gets the new start first: a request may take effect at any time."""
        topic, index = self._partition
        while not self.stopping:
            await self.session.sleep(PAUSE_MS + self._rng.random() * PAUSE_MAX_MS)
            low, high = self._ledger.starts.get(self._partition, 0), self._ledger.read_to.get(self._partition, 0)
            if low >= high:
                continue
            offset = self._rng.randint(low + 1, high)
            leader = await self.session.leader(topic, index)
            row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=index, offset=offset)
            asked = m.DeleteRecordsRequest.DeleteRecordsTopic(name=topic, partitions=[row])
            request = m.DeleteRecordsRequest(topics=[asked], timeout_ms=2000)
            self._ledger.starts[self._partition] = offset
            answer = await self.session.request(leader, ApiKey.DELETE_RECORDS, DELETE_RECORDS, request)
            if answer is None or answer.topics[0].partitions[0].error_code:
                self.session.forget_leader(topic, index)
            else:
                self.session.note(f"deletes {topic}-{index} up to {offset}")
