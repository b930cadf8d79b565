"""OffsetForLeaderEpoch (23), versions 2-4: the end of an epoch; a reader finds with it where logs diverge (KIP-320).

For an epoch that this log does not have, the answer is the largest epoch below it; -1 and -1 without an epoch below
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.errors import KafkaError
from kraft_protocol.wire.messages import OffsetForLeaderEpochResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.partition.manager import ReplicaManager


def offset_for_leader_epoch(replicas: ReplicaManager, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """One answer per partition."""
    topics = []
    for topic in request.topics:
        rows = []
        for requested in topic.partitions:
            row = Response.EpochEndOffset(partition=requested.partition)
            try:
                partition = replicas.leader_in((topic.topic, requested.partition), requested.current_leader_epoch)
                end = partition.epoch_end(requested.leader_epoch)
                row.leader_epoch, row.end_offset = end.epoch, end.end_offset
            except KafkaError as error:
                row.error_code = error.code
            rows.append(row)
        topics.append(Response.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return Response(topics=topics)
