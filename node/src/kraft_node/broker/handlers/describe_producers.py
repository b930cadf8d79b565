"""DescribeProducers (61), version 0: the idempotent and transactional producers of a partition (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.broker.metadata_cache import topic_name_error
from kraft_protocol.errors import ErrorCode, KafkaError, fitting
from kraft_protocol.wire.messages import DescribeProducersResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.partition.manager import ReplicaManager


def describe_producers(
    replicas: ReplicaManager,
    metadata: MetadataCache,
    ctx: RequestContext,  # noqa: ARG001
    request: Any,
) -> Any:
    """One answer per partition that this broker leads or follows."""
    topics = []
    for topic in request.topics:
        rows = []
        wrong = topic_name_error(topic.name)
        known = metadata.topic(topic.name) is not None
        for index in topic.partition_indexes:
            row = Response.PartitionResponse(partition_index=index)
            if wrong is not None:
                row.error_code = ErrorCode.INVALID_TOPIC_EXCEPTION
                row.error_message = fitting(f"Topic name is invalid: {wrong}")
                rows.append(row)
                continue
            try:
                partition = replicas.hosted(topic.name, index)
                row.active_producers = [_producer(state) for state in partition.log.producers.active()]
            except KafkaError as error:
                row.error_code = error.code
                if not known:
                    row.error_message = "This server does not host this topic-partition."
            rows.append(row)
        topics.append(Response.TopicResponse(name=topic.name, partitions=rows))
    return Response(topics=topics)


def _producer(state: Any) -> Any:
    return Response.ProducerState(
        producer_id=state.producer_id,
        producer_epoch=state.producer_epoch,
        last_sequence=state.last_sequence,
        last_timestamp=state.last_timestamp_ms,
        coordinator_epoch=state.coordinator_epoch,
        current_txn_start_offset=state.current_txn_first_offset,
    )
