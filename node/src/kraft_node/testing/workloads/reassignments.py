"""An operator that reassigns replicas while clients work, cancels reassignments, and elects preferred leaders."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from kraft_node.testing.workloads.session import BOOTSTRAP, ClusterSession
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster

REASSIGN, ELECT = 0, 2
"""API versions."""
REPLICAS_MIN = 2


class ReassignmentOperator:
    """Judges nothing: requests may fail for many good reasons."""

    def __init__(self, cluster: SimCluster, name: str, partitions: Sequence[tuple[str, int]]) -> None:
        self.session = ClusterSession(cluster, name)
        self.partitions = partitions
        self.stopping = False
        self._rng = cluster.world.rng
        self._brokers = [machine.config.node_id for machine in cluster.brokers]

    async def run(self) -> None:
        """Move random partitions, cancel moves, or elect preferred leaders until stopped."""
        rng = self._rng
        while not self.stopping:
            topic, index = rng.choice(self.partitions)
            action = rng.choice(("move", "move", "cancel", "elect"))
            if action == "elect":
                await self._elect()
            else:
                count = rng.randint(REPLICAS_MIN, min(3, len(self._brokers)))
                await self.reassign(topic, index, rng.sample(self._brokers, count) if action == "move" else None)
            await self.session.sleep(300 + rng.random() * 2500)

    async def reassign(self, topic: str, index: int, replicas: list[int] | None) -> None:
        """Request a reassignment; None cancels the current one."""
        self.session.note(f"move {topic}-{index} to {replicas or 'its former brokers'}")
        row = m.AlterPartitionReassignmentsRequest.ReassignablePartition(partition_index=index, replicas=replicas)
        wanted = m.AlterPartitionReassignmentsRequest.ReassignableTopic(name=topic, partitions=[row])
        request = m.AlterPartitionReassignmentsRequest(timeout_ms=2000, topics=[wanted])
        await self.session.request(BOOTSTRAP, ApiKey.ALTER_PARTITION_REASSIGNMENTS, REASSIGN, request)

    async def _elect(self) -> None:
        self.session.note("elect preferred leaders")
        request = m.ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=2000)
        await self.session.request(BOOTSTRAP, ApiKey.ELECT_LEADERS, ELECT, request)
