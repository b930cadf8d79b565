"""Rereads one partition from its first record: old data that no other client reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

BYTES: Final = 1024
"""Fetch size; small, because each fetch begins with a look-up in the log."""


class Rereader:
    """Fetches from offset 0 until it has read all records that were committed at its start, or until it is stopped."""

    def __init__(self, cluster: SimCluster, checker: Checker, name: str, partition: tuple[str, int]) -> None:
        self.session = ClusterSession(cluster, name)
        self._fetcher = PartitionReader(self.session, checker, sessions=False)
        self._partition = partition

    async def run(self, end: int) -> None:
        """Read up to `end`."""
        self._fetcher.assign({self._partition: 0})
        while self._fetcher.positions[self._partition] < end:
            before = self._fetcher.positions[self._partition]
            await self._fetcher.fetch(max_wait_ms=0, max_bytes=BYTES)
            if self._fetcher.positions[self._partition] == before:
                await self.session.sleep(PAUSE_MS)
