"""The auditor: reads all logs and group offsets when all faults are over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.consumer import fetch_committed
from kraft_node.testing.workloads.fetching import PartitionReader
from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.checker import Checker
    from kraft_node.testing.machine import SimCluster

EARLIEST, LATEST = -2, -1
LIST_OFFSETS_VERSION: Final = 7
BYTES: Final = 4096
"""Fetch size; small, so that the log is read in many pieces."""


class Auditor:
    """Reads whole logs and the offsets of groups."""

    def __init__(self, cluster: SimCluster, checker: Checker, name: str) -> None:
        self.session = ClusterSession(cluster, name)
        self.checker = checker
        self.done = False

    async def run(self, partitions: list[tuple[str, int]], groups: list[str]) -> None:
        """Read each partition up to the end that its leader named first, then the committed offsets of all groups.

        Retries without end: call it only when all faults are over.
        """
        for partition in partitions:
            start = await self._offset(partition, EARLIEST)
            end = await self._offset(partition, LATEST)
            fetcher = PartitionReader(self.session, self.checker, sessions=False)
            fetcher.assign({partition: start})
            self.checker.log_begins(partition, start)
            while fetcher.positions[partition] < end:
                await fetcher.fetch(max_wait_ms=0, max_bytes=BYTES)
            self.checker.log_ends(partition, end)
        for group in groups:
            while True:
                coordinator = await self.session.coordinator(group)
                expected = self.checker.expect_committed(group, partitions)
                found = await fetch_committed(self.session, coordinator, group, partitions)
                if found is not None:
                    self.checker.committed(expected, found, self.session.name, settled=True)
                    break
                await self.session.sleep(PAUSE_MS)
        self.done = True

    async def _offset(self, partition: tuple[str, int], timestamp: int) -> int:
        topic, index = partition
        while True:
            leader = await self.session.leader(topic, index)
            row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=index, timestamp=timestamp)
            request = m.ListOffsetsRequest(
                replica_id=-1, topics=[m.ListOffsetsRequest.ListOffsetsTopic(name=topic, partitions=[row])]
            )
            answer = await self.session.request(leader, ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, request)
            if answer is not None:
                found = answer.topics[0].partitions[0]
                if found.error_code == ErrorCode.NONE:
                    return int(found.offset)
                self.session.expect(
                    found.error_code, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    ErrorCode.OFFSET_NOT_AVAILABLE, ErrorCode.KAFKA_STORAGE_ERROR,  # no descriptor is free for a moment
                    what=f"list offsets of {partition}",
                )  # fmt: skip
            self.session.forget_leader(topic, index)
            await self.session.sleep(PAUSE_MS)
