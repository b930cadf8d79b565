"""DeleteRecords (21), versions 0-2: move the start of a log, and with it what may be read (KIP-107).

The low watermark of the answer is that of this replica: with more replicas the request would wait until all of them
have moved; with this broker alone in the ISR it is answered at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.broker.metadata_cache import is_internal
from kraft_node.wire.messages import DeleteRecordsResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker

INVALID_LOW_WATERMARK = -1


def delete_records(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """One answer a partition."""
    topics = []
    for topic in request.topics:
        rows = []
        for asked in topic.partitions:
            low_watermark, code = INVALID_LOW_WATERMARK, ErrorCode.NONE
            try:
                if is_internal(topic.name) and broker.metadata.partition(topic.name, asked.partition_index) is not None:
                    raise KafkaError(
                        ErrorCode.INVALID_TOPIC_EXCEPTION, f"Cannot delete records of internal topic {topic.name}"
                    )
                low_watermark = broker.replicas.leader(topic.name, asked.partition_index).delete_records(asked.offset)
            except KafkaError as error:
                code = error.code
            rows.append(Response.DeleteRecordsPartitionResult(asked.partition_index, low_watermark, code))
        topics.append(Response.DeleteRecordsTopicResult(topic.name, rows))
    return Response(topics=topics)
