"""AlterReplicaLogDirs (34), versions 1-2: move replicas between the log directories of this broker (KIP-113).

The answer reports whether the moves have begun. DescribeLogDirs reports their progress, as copies with `isFuture`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import AlterReplicaLogDirsResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.log_dir_moves import LogDirMoves


def alter_replica_log_dirs(moves: LogDirMoves, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """One row per partition; if a partition is named several times, the last directory counts, as in Kafka."""
    wanted = {
        (topic.name, index): directory.path
        for directory in request.dirs
        for topic in directory.topics
        for index in topic.partitions
    }
    topics: dict[str, list[Any]] = {}
    for (topic, index), path in wanted.items():
        row = Response.AlterReplicaLogDirPartitionResult(partition_index=index)
        try:
            moves.request(topic, index, path)
        except KafkaError as error:
            # Kafka's clients expect this code from this API for replicas on other brokers.
            is_elsewhere = error.code == ErrorCode.NOT_LEADER_OR_FOLLOWER
            row.error_code = ErrorCode.REPLICA_NOT_AVAILABLE if is_elsewhere else error.code
        topics.setdefault(topic, []).append(row)
    return Response(
        results=[
            Response.AlterReplicaLogDirTopicResult(topic_name=name, partitions=rows) for name, rows in topics.items()
        ]
    )
