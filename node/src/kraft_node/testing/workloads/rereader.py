"""Reads one partition again from its first record on: what nobody else reads any more."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.fetching import Fetcher
from kraft_node.testing.workloads.session import PAUSE_MS, Session

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

BYTES: Final = 1024
"""Small fetches: each begins with a look-up in the log."""


class Rereader:
    """Fetches from offset 0 on until it has read what was committed at the beginning, or until it is stopped."""

    def __init__(self, cluster: SimCluster, checker: Checker, name: str, partition: tuple[str, int]) -> None:
        self.session = Session(cluster, name)
        self._fetcher = Fetcher(self.session, checker, sessions=False)
        self._partition = partition

    async def run(self, end: int) -> None:
        """Read up to `end`."""
        self._fetcher.assign({self._partition: 0})
        while self._fetcher.positions[self._partition] < end:
            before = self._fetcher.positions[self._partition]
            await self._fetcher.fetch(max_wait_ms=0, max_bytes=BYTES)
            if self._fetcher.positions[self._partition] == before:
                await self.session.sleep(PAUSE_MS)
