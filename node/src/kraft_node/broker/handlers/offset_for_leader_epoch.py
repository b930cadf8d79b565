"""OffsetForLeaderEpoch (23), versions 2-4: the end of an epoch; a reader finds with it where logs diverge (KIP-320).

For an epoch that this log does not have, the answer is the largest epoch below it; -1 and -1 if there is none.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_protocol.errors import KafkaError
from kraft_protocol.wire.messages import OffsetForLeaderEpochResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


def offset_for_leader_epoch(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """One answer per partition."""
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            row = Response.EpochEndOffset(partition=asked.partition)
            try:
                partition = broker.replicas.leader_in((topic.topic, asked.partition), asked.current_leader_epoch)
                end = partition.epoch_end(asked.leader_epoch)
                row.leader_epoch, row.end_offset = end.epoch, end.end_offset
            except KafkaError as error:
                row.error_code = error.code
            rows.append(row)
        topics.append(Response.OffsetForLeaderTopicResult(topic=topic.topic, partitions=rows))
    return Response(topics=topics)
