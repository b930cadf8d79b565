"""DescribeTopicPartitions (75), version 0: topics in pages, with eligible leader replicas (KIP-966).

Topics come in the order of their names. An answer holds at most `ResponsePartitionLimit` partitions (never more than
`max.request.partition.size.limit`). Its `NextCursor` is the beginning of the next page.
"""

from __future__ import annotations

from heapq import merge
from typing import TYPE_CHECKING, Any, Final, Protocol

from kraft_node.base.long_answers import answer
from kraft_node.broker.metadata_cache import is_internal, topic_name_error
from kraft_node.security.names import ALL_OPERATIONS, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.messages import DescribeTopicPartitionsResponse as Response

if TYPE_CHECKING:
    from collections.abc import Generator, Iterator

    from kraft_node.base.config.view import ConfigView
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.metadata_cache import MetadataCache
    from kraft_node.metadata.partitions import PartitionState, TopicView


NAMES_A_STEP: Final = 200


class Eyes(Protocol):
    """The topics that the client may see; `broker.authorization` implements it."""

    def sees(self, topic: str) -> bool:
        """Whether the client may describe the topic."""

    def operations(self, topic: str) -> int:
        """A bit field of the client's allowed operations on the topic."""


class _AllSeeing:
    def sees(self, topic: str) -> bool:  # noqa: ARG002
        return True

    def operations(self, topic: str) -> int:  # noqa: ARG002
        return ALL_OPERATIONS[ResourceType.TOPIC]


ALL_SEEING: Final = _AllSeeing()


def describe_topic_partitions(
    turns: Turns,
    metadata: MetadataCache,
    config: ConfigView,
    ctx: RequestContext,
    request: Any,
    eyes: Eyes = ALL_SEEING,
) -> Any:
    """One page of the topics that the client sees; then the topics that it named and may not see."""
    limit = config.int("max.request.partition.size.limit")
    return answer(turns, ctx, request, _Page(metadata, limit, ctx, request, eyes).steps())


class _Page:
    __slots__ = ("_answers", "_denied", "_eyes", "_listener", "_metadata", "_next", "_request", "_room")

    def __init__(self, metadata: MetadataCache, limit: int, ctx: RequestContext, request: Any, eyes: Eyes) -> None:
        self._metadata = metadata
        self._listener = ctx.listener
        self._eyes = eyes
        self._request = request
        self._room = max(1, min(request.response_partition_limit, limit))
        self._answers: list[Any] = []
        self._denied: list[str] = []
        self._next: Any = None

    def steps(self) -> Generator[None, None, Any]:
        names = yield from self._names()
        first_partition = 0
        cursor = self._request.cursor
        previous = None
        is_full = False
        for number, name in enumerate(names):
            if number % NAMES_A_STEP == NAMES_A_STEP - 1:
                yield
            if name == previous or (cursor is not None and name < cursor.topic_name):
                continue
            previous = name
            if not self._eyes.sees(name):
                if self._request.topics:
                    self._denied.append(name)
                continue
            if is_full:
                continue  # it is beyond the page, but denied topics are reported
            if cursor is not None and name == cursor.topic_name:
                first_partition = cursor.partition_index
            is_full = self._add(name, first_partition)
            first_partition = 0
            if is_full and not self._request.topics:
                break
        for start in range(0, len(self._denied), NAMES_A_STEP):
            self._answers += [_denied(name) for name in self._denied[start : start + NAMES_A_STEP]]
            yield
        return Response(topics=self._answers, next_cursor=self._next)

    def _names(self) -> Generator[None, None, Iterator[str]]:
        """The names in order, some more than once. Raises INVALID_REQUEST for a cursor that is not among them."""
        cursor = self._request.cursor
        topics = self._request.topics or list(self._metadata.image.topics)
        is_named = cursor is None or not self._request.topics
        parts = []
        for start in range(0, len(topics), NAMES_A_STEP):
            parts.append(sorted({topic.name for topic in topics[start : start + NAMES_A_STEP]}))
            is_named = is_named or cursor.topic_name in parts[-1]
            yield
        if not is_named:
            text = f"DescribeTopicPartitionsRequest topic list should contain the cursor topic: {cursor.topic_name}"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        if cursor is not None and cursor.partition_index < 0:
            text = f"the cursor's partition index {cursor.partition_index} is negative"
            raise KafkaError(ErrorCode.INVALID_REQUEST, text)
        return merge(*parts)

    def _add(self, name: str, first_partition: int) -> bool:
        """Describe a topic up to the room in the answer. Returns whether the next page begins with it."""
        if self._room <= 0:
            self._next = Response.Cursor(name, first_partition)
            return True
        topic = self._metadata.image.topics.by_name(name)
        if topic is None:
            self._answers.append(_unknown(name, self._eyes.operations(name)))
            return False
        end = min(len(topic), first_partition + self._room)
        rows = _rows(self._metadata, self._listener, topic, range(first_partition, end))
        self._answers.append(
            Response.DescribeTopicPartitionsResponseTopic(
                error_code=0,
                name=topic.name,
                topic_id=topic.id,
                is_internal=is_internal(topic.name),
                partitions=rows,
                topic_authorized_operations=self._eyes.operations(name),
            )
        )
        self._room -= max(0, end - first_partition)
        if end < len(topic):
            self._next = Response.Cursor(name, end)
            return True
        return False


def _denied(name: str) -> Any:
    code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    return Response.DescribeTopicPartitionsResponseTopic(error_code=code, name=name, topic_id=ZERO_UUID)


def _unknown(name: str, operations: int) -> Any:
    code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic_name_error(name) is None else ErrorCode.INVALID_TOPIC_EXCEPTION
    return Response.DescribeTopicPartitionsResponseTopic(
        error_code=code,
        name=name,
        topic_id=ZERO_UUID,
        is_internal=is_internal(name),
        partitions=[],
        topic_authorized_operations=operations,
    )


def _rows(metadata: MetadataCache, listener: str, topic: TopicView, numbers: range) -> list[Any]:
    states = ((number, topic.partition(number)) for number in numbers)
    return [_partition(metadata, listener, number, state) for number, state in states if state is not None]


def _partition(metadata: MetadataCache, listener: str, number: int, state: PartitionState) -> Any:
    """A row. Unlike a row of Metadata, it has no error if the leader is not reachable."""
    reachable = metadata.endpoint(state.leader, listener) is not None
    return Response.DescribeTopicPartitionsResponsePartition(
        partition_index=number,
        leader_id=state.leader if reachable else -1,
        leader_epoch=state.leader_epoch,
        replica_nodes=list(state.replicas),
        isr_nodes=list(state.isr),
        eligible_leader_replicas=list(state.elr),
        last_known_elr=list(state.last_known_elr),
        offline_replicas=metadata.offline_replicas(state, listener),
    )
