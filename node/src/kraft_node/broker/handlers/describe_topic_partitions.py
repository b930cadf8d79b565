"""DescribeTopicPartitions (75), version 0: topics in pages, with eligible leader replicas (KIP-966).

Topics come in the order of their names; an answer holds at most `ResponsePartitionLimit` partitions (never more than
`max.request.partition.size.limit`) and says in `NextCursor` where the next page begins.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.base.ids import ZERO_UUID
from kraft_node.broker.metadata_cache import is_internal, topic_name_error
from kraft_node.security.names import ALL_OPERATIONS, ResourceType
from kraft_node.wire.messages import DescribeTopicPartitionsResponse as Response

if TYPE_CHECKING:
    from collections.abc import Callable

    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker
    from kraft_node.metadata.partitions import PartitionState, TopicView


def describe_topic_partitions(
    broker: Broker, ctx: RequestContext, request: Any, sees: Callable[[str], bool] | None = None
) -> Any:
    """One page, of those topics that the client sees (None: all)."""
    cursor = request.cursor
    first_partition = 0
    fetch_all = not request.topics
    names = {topic.name for topic in broker.image.topics} if fetch_all else {topic.name for topic in request.topics}
    if cursor is not None:
        if not fetch_all and cursor.topic_name not in names:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST,
                f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}",
            )
        if cursor.partition_index < 0:
            raise KafkaError(
                ErrorCode.INVALID_REQUEST, f"the cursor's partition index {cursor.partition_index} is negative"
            )
        names = {name for name in names if name >= cursor.topic_name}
        if cursor.topic_name in names:
            first_partition = cursor.partition_index
    if sees is not None:
        names = {name for name in names if sees(name)}
    room = max(1, min(request.response_partition_limit, broker.config.int("max.request.partition.size.limit")))
    answers: list[Any] = []
    next_cursor = None
    for name in sorted(names):
        if room <= 0:
            next_cursor = Response.Cursor(name, first_partition)
            break
        topic = broker.image.topics.by_name(name)
        if topic is None:
            answers.append(_unknown(name))
            first_partition = 0
            continue
        end = min(len(topic), first_partition + room)
        answers.append(_topic(broker, ctx.listener, topic, range(first_partition, end)))
        room -= max(0, end - first_partition)
        if end < len(topic):
            next_cursor = Response.Cursor(name, end)
            break
        first_partition = 0
    return Response(topics=answers, next_cursor=next_cursor)


def _unknown(name: str) -> Any:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_name_error(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return Response.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=ALL_OPERATIONS[ResourceType.TOPIC],
    )


def _topic(broker: Broker, listener: str, topic: TopicView, numbers: range) -> Any:
    rows = []
    for number in numbers:
        state = topic.partition(number)
        if state is not None:
            rows.append(_partition(broker, listener, number, state))
    return Response.DescribeTopicPartitionsResponseTopic(
        error_code=0,
        name=topic.name,
        topic_id=topic.id,
        is_internal=is_internal(topic.name),
        partitions=rows,
        topic_authorized_operations=ALL_OPERATIONS[ResourceType.TOPIC],
    )


def _partition(broker: Broker, listener: str, number: int, state: PartitionState) -> Any:
    reachable = broker.metadata.endpoint(state.leader, listener) is not None
    return Response.DescribeTopicPartitionsResponsePartition(
        error_code=0 if reachable else ErrorCode.LEADER_NOT_AVAILABLE,
        partition_index=number,
        leader_id=state.leader if reachable else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=broker.metadata.offline_replicas(state, listener),
    )
