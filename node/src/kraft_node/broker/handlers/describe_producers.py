"""DescribeProducers (61), version 0: the idempotent and transactional producers a partition remembers (KIP-664)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.errors import KafkaError
from kraft_node.wire.messages import DescribeProducersResponse as Response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


def describe_producers(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """One answer a partition."""
    topics = []
    for topic in request.topics:
        rows = []
        for index in topic.partition_indexes:
            row = Response.PartitionResponse(partition_index=index)
            try:
                partition = broker.replicas.leader(topic.name, index)
                row.active_producers = [_producer(state) for state in partition.log.producers.active()]
            except KafkaError as error:
                row.error_code, row.error_message = error.code, str(error)
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
