"""The bulk: a topic of many partitions and a log of many segments, to show work that grows with them.

Nothing here is random: the laws `loop` and `alive` judge the node meanwhile.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.testing.workloads.session import BOOTSTRAP, PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster

CROWD, LONG = "crowd", "long"
PARTITIONS: Final = 600
SEGMENTS: Final = 400
LONG_CONFIGS: Final = {"internal.segment.bytes": "100", "file.delete.delay.ms": "0", "retention.ms": "-1"}
"""A segment holds one batch."""
A_REQUEST: Final = 20
"""Partitions per Produce request; another law covers the cost of a single request."""
FIRST_MS: Final = START_WALL_MS - 10_000_000
"""Timestamp of the first record; each later record is one millisecond newer."""
PRODUCE_VERSION, LIST_VERSION, DELETE_VERSION, DELETE_RECORDS_VERSION = 9, 7, 5, 2


class Bulk:
    """Writes to both topics, looks up offsets by time, deletes records and topics."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.session = ClusterSession(cluster, name)

    async def fill(self) -> None:
        """Write a record to each partition, and one segment per batch to the long log."""
        for first in range(0, PARTITIONS, A_REQUEST):
            await self._produce(CROWD, range(first, first + A_REQUEST), FIRST_MS)
        for number in range(SEGMENTS):
            await self._produce(LONG, range(1), FIRST_MS + number)

    async def times(self) -> None:
        """Check that each record is found by its timestamp."""
        for number in (SEGMENTS - 1, 0, SEGMENTS // 2):
            found = await self._offset_for(FIRST_MS + number)
            assert found == (FIRST_MS + number, number), f"the record {number} of {LONG}-0 was found at {found}"
        assert await self._offset_for(FIRST_MS + SEGMENTS) == (-1, -1), "a time in the future was found"
        found = await self._offset_for(-3)
        assert found == (FIRST_MS + SEGMENTS - 1, SEGMENTS - 1), f"the largest timestamp was found at {found}"

    async def delete_records(self) -> None:
        """Delete the first half of the log."""
        row = m.DeleteRecordsRequest.DeleteRecordsPartition(partition_index=0, offset=SEGMENTS // 2)
        topic = m.DeleteRecordsRequest.DeleteRecordsTopic(name=LONG, partitions=[row])
        request = m.DeleteRecordsRequest(topics=[topic], timeout_ms=2000)
        await self._until_done(ApiKey.DELETE_RECORDS, DELETE_RECORDS_VERSION, request, _deleted)
        found = await self._offset_for(FIRST_MS)
        assert found == (FIRST_MS + SEGMENTS // 2, SEGMENTS // 2), f"after DeleteRecords the first record is {found}"

    async def delete_topics(self) -> None:
        """Delete both topics."""
        request = m.DeleteTopicsRequest(topic_names=[CROWD, LONG], timeout_ms=2000)
        await self._until_done(ApiKey.DELETE_TOPICS, DELETE_VERSION, request, _gone)

    # ---

    async def _produce(self, topic: str, partitions: range, time_ms: int) -> None:
        raw = build_batch([(None, b"bulk")], timestamp=time_ms)
        rows = [m.ProduceRequest.PartitionProduceData(index=index, records=raw) for index in partitions]
        data = m.ProduceRequest.TopicProduceData(name=topic, partition_data=rows)
        request = m.ProduceRequest(acks=1, timeout_ms=2000, topic_data=[data])
        await self._until_done(ApiKey.PRODUCE, PRODUCE_VERSION, request, _appended)

    async def _offset_for(self, time_ms: int) -> tuple[int, int]:
        row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=time_ms)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name=LONG, partitions=[row])
        request = m.ListOffsetsRequest(replica_id=-1, isolation_level=0, topics=[topic])
        answer = await self._until_done(ApiKey.LIST_OFFSETS, LIST_VERSION, request, _listed)
        found = answer.topics[0].partitions[0]
        return found.timestamp, found.offset

    async def _until_done(self, key: ApiKey, version: int, request: Any, is_done: Any) -> Any:
        while True:
            await self.session.refresh([])
            node = next(iter(self.session._addresses), BOOTSTRAP)
            answer = await self.session.request(node, key, version, request, 20_000.0)
            if answer is not None and is_done(answer):
                return answer
            await self.session.sleep(PAUSE_MS)


def _appended(answer: Any) -> bool:
    return all(row.error_code == ErrorCode.NONE for row in answer.responses[0].partition_responses)


def _listed(answer: Any) -> bool:
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)


def _deleted(answer: Any) -> bool:
    return bool(answer.topics[0].partitions[0].error_code == ErrorCode.NONE)


def _gone(answer: Any) -> bool:
    return all(row.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) for row in answer.responses)
