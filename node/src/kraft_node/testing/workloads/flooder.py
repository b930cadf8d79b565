"""The flooder: a producer that writes faster than the disk, under a kernel that allows few dirty bytes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.producer import ACKS_ALL, UNDER_WAY_MAX, WorkloadProducer

if TYPE_CHECKING:
    from collections.abc import Sequence

    from kraft_node.testing.checker import Checker, ProducedBatch
    from kraft_node.testing.machine import SimCluster

CEILINGS: Final = 10
"""A flood is this many times the smallest ceiling: appends must wait again and again."""


class Flooder(WorkloadProducer):
    """An idempotent producer of large batches, with short pauses; it stops after `flood_bytes`."""

    fillers = (700, 1400)
    codecs = (0,)
    under_way_min = UNDER_WAY_MAX
    pause_ms = 5.0

    def __init__(self, cluster: SimCluster, checker: Checker, name: str, partitions: Sequence[tuple[str, int]]) -> None:
        super().__init__(cluster, checker, name, partitions, acks=ACKS_ALL, idempotent=True, by_id=False)
        self._left = flood_bytes(cluster)

    def _make(self, partition: tuple[str, int]) -> ProducedBatch:
        batch = super()._make(partition)
        self._left -= len(batch.raw)
        self.stopping = self.stopping or self._left <= 0
        return batch


def flood_bytes(cluster: SimCluster) -> int:
    """The size of a flood; 0 if every broker has enough memory."""
    ceilings = [machine.disk.memory.ceiling for machine in cluster.brokers]
    return CEILINGS * min((ceiling for ceiling in ceilings if ceiling is not None), default=0)
