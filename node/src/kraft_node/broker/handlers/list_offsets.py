"""ListOffsets (2), versions 1-11: the offset for a timestamp, or the first, last, or newest one.

Versions: 2 isolation; 4 leader epochs; 5 OFFSET_NOT_AVAILABLE; 6 flexible; 7 max timestamp (KIP-734); 8, 9, 11 tiers
(KIP-405, -1005, -1023: without a remote tier they answer -1, or the local start); 10 timeout.

Special timestamps are answered from memory; others cost one binary search in the time index. If the times of many
segments were not read since the start, a lane reads them first.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.log.timestamps import TimedLog, TimesUnread, read_times
from kraft_node.partition.isolation import READ_LOG_END
from kraft_node.partition.listed_offsets import (
    EARLIEST,
    EARLIEST_LOCAL,
    EARLIEST_PENDING_UPLOAD,
    LATEST,
    LATEST_TIERED,
    MAX_TIMESTAMP,
    NO_OFFSET,
    TimestampOffset,
    offset_for,
)
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ListOffsetsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.partition.manager import ReplicaManager

CONSUMER: Final = -1
ISOLATION_LEVELS: Final = (0, 1)
DEBUGGING: Final = -2

LEADER_EPOCH_VERSION: Final = 4

FIRST_VERSION: Final = {
    LATEST: 1,
    EARLIEST: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL: 8,
    LATEST_TIERED: 9,
    EARLIEST_PENDING_UPLOAD: 11,
}
"""The first request version that supports a special timestamp."""


def list_offsets(replicas: ReplicaManager, ctx: RequestContext, request: Any) -> Any:
    """One answer per partition, grouped by topic; a partition that is named twice is refused, once."""
    unread: list[TimedLog] = []
    response = _response(replicas, ctx, request, unread)
    if not unread:
        return response
    left = len(unread)

    def done() -> None:
        nonlocal left
        left -= 1
        if left == 0 and not ctx.abandoned:
            ctx.respond(_response(replicas, ctx, request, []))

    for log in unread:
        read_times(log, done)
    return None


def _response(replicas: ReplicaManager, ctx: RequestContext, request: Any, unread: list[TimedLog]) -> Any:
    """The known part of the answer; logs are added to `unread` if a lane must read their times first."""
    if request.isolation_level not in ISOLATION_LEVELS:
        raise KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"Unknown isolation level {request.isolation_level}")
    requested: dict[tuple[str, int], int] = {}
    for topic in request.topics:
        for row in topic.partitions:
            key = (topic.name, row.partition_index)
            requested[key] = requested.get(key, 0) + 1
    isolation = request.isolation_level if request.replica_id == CONSUMER else READ_LOG_END
    epochs = ctx.api_version >= LEADER_EPOCH_VERSION
    topics: dict[str, list[Any]] = {}
    for topic in request.topics:
        rows = topics.setdefault(topic.name, [])
        for row in topic.partitions:
            times = requested[topic.name, row.partition_index]
            if not times:
                continue
            code: int = ErrorCode.NONE
            found = NO_OFFSET
            if times > 1:
                code = ErrorCode.INVALID_REQUEST
                requested[topic.name, row.partition_index] = 0
            elif row.timestamp < 0 and ctx.api_version < FIRST_VERSION.get(row.timestamp, 2**15):
                code = ErrorCode.UNSUPPORTED_VERSION
            else:
                try:
                    found = _offset(replicas, topic.name, row, isolation, debugging=request.replica_id == DEBUGGING)
                except TimesUnread as error:
                    code = error.code
                    unread.append(error.log)
                except KafkaError as error:
                    code = error.code
            rows.append(
                ListOffsetsResponse.ListOffsetsPartitionResponse(
                    row.partition_index, code, found.timestamp_ms, found.offset, found.leader_epoch if epochs else -1
                )
            )
    return ListOffsetsResponse(
        topics=[ListOffsetsResponse.ListOffsetsTopicResponse(name, rows) for name, rows in topics.items() if rows]
    )


def _offset(replicas: ReplicaManager, topic: str, row: Any, isolation: int, *, debugging: bool) -> TimestampOffset:
    if debugging:  # allowed on followers, too
        partition = replicas.hosted(topic, row.partition_index)
        partition.check_epoch(row.current_leader_epoch)
    else:
        partition = replicas.leader_in((topic, row.partition_index), row.current_leader_epoch)
    return offset_for(partition, row.timestamp, isolation)
