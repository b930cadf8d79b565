"""Guards of APIs that read and write records: READ, WRITE, DELETE or DESCRIBE on each topic."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.authorization.gate import Gate, Guard, without_topics
from kraft_node.broker.metadata_cache import topic_name_error
from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.api import ApiKey

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.broker.fetch.session import FetchSession

PRODUCE_BY_ID: Final = 13
ATTRIBUTES_LOW: Final = 22
"""The position of the low byte of a batch's attributes."""
TRANSACTIONAL: Final = 0x10


def produce(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the topics, and on the transactional id of transactional records."""
    if request.transactional_id is not None and _is_transactional(request):
        transactional_id = request.transactional_id
        if not gate.authorizer.allows(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, transactional_id):
            raise KafkaError(ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED)
    by_id = ctx.api_version >= PRODUCE_BY_ID
    named = [(topic, gate.name_of(topic.topic_id) if by_id else topic.name) for topic in request.topic_data]
    denied = gate.denied_topics(ctx, Operation.WRITE, named)
    response = without_topics(handler, ctx, request, denied, "topic_data", "responses")
    if denied and request.acks == 0 and not ctx.connection.closed:
        ctx.connection.close()  # the only signal for the producer
    return response


def _is_transactional(request: Any) -> bool:
    return any(
        data.records is not None and len(data.records) > ATTRIBUTES_LOW and data.records[ATTRIBUTES_LOW] & TRANSACTIONAL
        for topic in request.topic_data
        for data in topic.partition_data
    )


def fetch(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """READ on the topics for consumers, CLUSTER_ACTION for followers; for a session, all its topics are checked.

    The handler marks the denied topics that `judge` returns before it reads.
    """
    return handler(ctx, request, lambda session, keys: judge(gate, ctx, session, keys))


def judge(gate: Gate, ctx: RequestContext, session: FetchSession, keys: Iterable[Any]) -> frozenset[Any]:
    """The denied topics of the session's `keys` (names or ids)."""
    if session.replica_id >= 0:
        may = gate.authorizer.allows(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER)
        return frozenset() if may else frozenset(keys)
    named = [(key, key if isinstance(key, str) else gate.name_of(Uuid(key))) for key in keys]
    return frozenset(gate.denied_topics(ctx, Operation.READ, named))


def list_offsets(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the topics."""
    denied = gate.denied_topics(ctx, Operation.DESCRIBE, [(topic, topic.name) for topic in request.topics])
    return without_topics(handler, ctx, request, denied, "topics", "topics")


def delete_records(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DELETE on the topics."""
    denied = gate.denied_topics(ctx, Operation.DELETE, [(topic, topic.name) for topic in request.topics])
    return without_topics(handler, ctx, request, denied, "topics", "topics")


def offset_for_leader_epoch(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """CLUSTER_ACTION, which followers have, or DESCRIBE on the topics."""
    if gate.authorizer.allows(ctx, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, log_denied=False):
        return handler(ctx, request)
    denied = gate.denied_topics(ctx, Operation.DESCRIBE, [(topic, topic.topic) for topic in request.topics])
    return without_topics(handler, ctx, request, denied, "topics", "topics")


def describe_producers(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """READ on the topics."""
    valid = [(topic, topic.name) for topic in request.topics if topic_name_error(topic.name) is None]
    denied = gate.denied_topics(ctx, Operation.READ, valid)
    _, words = REFUSALS[ResourceType.TOPIC]
    return without_topics(handler, ctx, request, denied, "topics", "topics", words)


GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.PRODUCE: produce,
    ApiKey.FETCH: fetch,
    ApiKey.LIST_OFFSETS: list_offsets,
    ApiKey.DELETE_RECORDS: delete_records,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: offset_for_leader_epoch,
    ApiKey.DESCRIBE_PRODUCERS: describe_producers,
}
