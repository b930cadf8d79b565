"""DeleteRecords (21), versions 0-2: moves the start of a log, below which records cannot be read (KIP-107).

With other replicas, the answer waits until all live replicas have moved their start, which happens with their next
fetches. Only then are the records deleted for good. The answer's low watermark is the smallest start among the
replicas.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, TypeAlias

from kraft_node.broker.metadata_cache import is_internal
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DeleteRecordsResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.env import Scheduler, Timer
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.partition.manager import ReplicaManager
    from kraft_node.partition.partition import Partition

INVALID_LOW_WATERMARK = -1

Waiting: TypeAlias = "tuple[Partition, int, Any]"
"""A partition, the offset below which records are deleted, and the row of the answer."""


def delete_records(
    replicas: ReplicaManager, metadata: MetadataCache, scheduler: Scheduler, ctx: RequestContext, request: Any
) -> Any:
    """One answer per partition, when all are decided or the request has timed out.

    If a partition is named several times, the last offset counts; a topic without partitions has no row, as in Kafka.
    """
    requested: dict[str, dict[int, int]] = {}
    for topic in request.topics:
        requested.setdefault(topic.name, {}).update((row.partition_index, row.offset) for row in topic.partitions)
    topics = []
    waiting: list[Waiting] = []
    for name, offsets in requested.items():
        rows = []
        for index, offset in offsets.items():
            row = Response.DeleteRecordsPartitionResult(index, INVALID_LOW_WATERMARK)
            try:
                if is_internal(name) and metadata.partition(name, index) is not None:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {name}"
                    )
                partition = replicas.leader(name, index)
                wanted = partition.delete_records(offset)
                row.low_watermark = partition.low_watermark
                if row.low_watermark < wanted:
                    waiting.append((partition, wanted, row))
            except KafkaError as error:
                row.error_code = error.code
            rows.append(row)
        if rows:
            topics.append(Response.DeleteRecordsTopicResult(name, rows))
    response = Response(topics=topics)
    if waiting:
        WaitingDeletes(scheduler, ctx, response, waiting, request.timeout_ms)
        return None
    return response


class WaitingDeletes:
    """A request that waits for followers to move their start (Kafka's DelayedDeleteRecords)."""

    def __init__(
        self, scheduler: Scheduler, ctx: RequestContext, response: Any, waiting: list[Waiting], timeout_ms: int
    ) -> None:
        self._ctx = ctx
        self._response = response
        self._pending: dict[Any, Waiting] = {}
        self._timer: Timer = scheduler.call_later(timeout_ms, self._expired)
        for partition, wanted, row in waiting:
            done = partial(self._settled, len(self._pending))
            self._pending[len(self._pending)] = (partition, wanted, row)
            partition.when_deleted(wanted, done)

    def _settled(self, number: int, code: ErrorCode) -> None:
        entry = self._pending.pop(number, None)
        if entry is None:
            return
        partition, _, row = entry
        row.error_code = code
        row.low_watermark = INVALID_LOW_WATERMARK if code else partition.low_watermark
        if not self._pending:
            self._timer.cancel()
            self._ctx.respond(self._response)

    def _expired(self) -> None:
        for number in list(self._pending):
            self._settled(number, ErrorCode.REQUEST_TIMED_OUT)
