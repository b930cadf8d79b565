"""The spender: writes far more to a topic than its retention keeps, to check that the disk space is freed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from kraft_node.testing.workloads.session import PAUSE_MS, ClusterSession
from kraft_node.testing.world import START_WALL_MS
from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import build_batch
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from kraft_node.testing.machine import SimCluster

TOPIC: Final = "spent"
SEGMENT_BYTES: Final = 2000
RETENTION_BYTES: Final = 4000
CONFIGS: Final = {
    "internal.segment.bytes": str(SEGMENT_BYTES),
    "retention.bytes": str(RETENTION_BYTES),
    "file.delete.delay.ms": "0",
}
KEPT_MAX: Final = RETENTION_BYTES + 2 * SEGMENT_BYTES
"""Bytes of .log files that may remain: the active segment, and a segment that retention may not delete yet."""
BATCHES: Final = 30
VALUE: Final = bytes(500)
PRODUCE_VERSION: Final = 9


class Spender:
    """Writes `BATCHES` batches to the topic's only partition."""

    def __init__(self, cluster: SimCluster, name: str) -> None:
        self.session = ClusterSession(cluster, name)

    async def run(self) -> None:
        """Write until BATCHES batches are acknowledged (acks=1); a retry may write a batch twice."""
        session = self.session
        sent = 0
        while sent < BATCHES:
            raw = build_batch([(None, VALUE)], timestamp=START_WALL_MS + int(session.world.now_ms))
            data = m.ProduceRequest.PartitionProduceData(index=0, records=raw)
            of_topic = m.ProduceRequest.TopicProduceData(name=TOPIC, partition_data=[data])
            leader = await session.leader(TOPIC, 0)
            request = m.ProduceRequest(acks=1, timeout_ms=2000, topic_data=[of_topic])
            answer = await session.request(leader, ApiKey.PRODUCE, PRODUCE_VERSION, request)
            if answer is not None and answer.responses[0].partition_responses[0].error_code == ErrorCode.NONE:
                sent += 1
            else:
                session.forget_leader(TOPIC, 0)
                await session.sleep(PAUSE_MS)
