"""Guards of Metadata and DescribeTopicPartitions: a client must not learn of topics that it may not describe."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer, answer_later
from kraft_node.base.request import RequestContext
from kraft_node.broker.authorization.gate import Gate, Guard
from kraft_node.broker.metadata_cache import is_internal
from kraft_node.security.names import Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import MetadataResponse

if TYPE_CHECKING:
    from collections.abc import Generator

    from kraft_node.base.request import Handler

ASKED_BY_ID_VERSION: Final = 12
EMPTY_IS_NONE_VERSION: Final = 1
CLUSTER_OPERATIONS_VERSIONS: Final = range(8, 11)
FIRST_TOPIC_OPERATIONS_VERSION: Final = 8
TOPICS_A_STEP: Final = 100
"""Topics per step in an answer about all topics: a dozen checks each, if operations are requested."""


def metadata(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the topics; CREATE on topics that the request would create, or on the cluster."""
    version = ctx.api_version
    topics = request.topics
    if topics is None or (version < EMPTY_IS_NONE_VERSION and not topics):
        return _all(gate, handler, ctx, request)
    if any(topic.name is None if topic.topic_id == ZERO_UUID else version < ASKED_BY_ID_VERSION for topic in topics):
        return handler(ctx, request)  # which refuses it as a whole
    ids = [topic for topic in topics if topic.topic_id != ZERO_UUID]
    if ids:  # names beside them do not count
        denied = gate.denied_topics(
            ctx, Operation.DESCRIBE, [(topic.topic_id, gate.name_of(topic.topic_id)) for topic in ids]
        )
        hidden = dict.fromkeys(denied)
        left = [topic for topic in ids if topic.topic_id not in hidden]
        refused = [_refusal(None, topic_id) for topic_id in hidden]
    else:
        names = list(dict.fromkeys(topic.name for topic in topics))
        unseen = dict.fromkeys(gate.denied_topics(ctx, Operation.DESCRIBE, [(name, name) for name in names]))
        unmade = dict.fromkeys(_not_creatable(gate, ctx, request, [name for name in names if name not in unseen]))
        left = [topic for topic in topics if topic.name not in unseen and topic.name not in unmade]
        refused = [_refusal(name, ZERO_UUID, internal=is_internal(name)) for name in unmade]
        refused += [_refusal(name, ZERO_UUID) for name in unseen]

    def complete(response: Any) -> Any:
        response = _with_operations(gate, ctx, request, response)
        response.topics += refused
        return response

    # Request no topics, not all topics: the meaning of an empty list depends on the version.
    api_version_below = max(version, EMPTY_IS_NONE_VERSION) if not left else version
    return answered(handler, ctx, changed(request, topics=left), complete, api_version=api_version_below)


def _all(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """The topics that the client may describe, many topics are checked in turns; others are left out silently."""

    def reply(_: RequestContext, response: Any) -> None:
        answer_later(gate.turns, ctx, request, _judged(gate, ctx, request, response))

    inner = RequestContext(
        ctx.api_key, ctx.api_version, ctx.correlation_id, ctx.client_id, ctx.client_host, ctx.listener,
        ctx.principal, ctx.connection, ctx.received_ms, reply,
    )  # fmt: skip
    response = handler(inner, request)
    if response is None:
        return None
    inner.finish()
    return answer(gate.turns, ctx, request, _judged(gate, ctx, request, response))


def _judged(gate: Gate, ctx: RequestContext, request: Any, response: Any) -> Generator[None, None, Any]:
    topics, response.topics = response.topics, []
    _with_operations(gate, ctx, request, response)
    allows = gate.authorizer.allows
    for start in range(0, len(topics), TOPICS_A_STEP):
        for topic in topics[start : start + TOPICS_A_STEP]:
            if allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.name, log_denied=False):
                response.topics.append(topic)
                _topic_operations(gate, ctx, request, topic)
        yield
    return response


def _not_creatable(gate: Gate, ctx: RequestContext, request: Any, names: list[str]) -> list[str]:
    """The names that the request would create, if the client were allowed to create them."""
    if not (request.allow_auto_topic_creation and gate.config.boolean("auto.create.topics.enable")):
        return []
    missing = [name for name in names if not gate.exists(name)]
    if not missing or gate.authorizer.allows(ctx, Operation.CREATE, ResourceType.CLUSTER, log_denied=False):
        return []
    return gate.denied_topics(ctx, Operation.CREATE, [(name, name) for name in missing])


def _refusal(name: str | None, topic_id: Any, *, internal: bool = False) -> Any:
    return MetadataResponse.MetadataResponseTopic(
        ErrorCode.TOPIC_AUTHORIZATION_FAILED, name, topic_id, is_internal=internal
    )


def _with_operations(gate: Gate, ctx: RequestContext, request: Any, response: Any) -> Any:
    authorizer = gate.authorizer
    if ctx.api_version in CLUSTER_OPERATIONS_VERSIONS and request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = 0
        if authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.CLUSTER):
            response.cluster_authorized_operations = authorizer.operations(ctx, ResourceType.CLUSTER)
    for topic in response.topics:
        _topic_operations(gate, ctx, request, topic)
    return response


def _topic_operations(gate: Gate, ctx: RequestContext, request: Any, topic: Any) -> None:
    wanted = ctx.api_version >= FIRST_TOPIC_OPERATIONS_VERSION and request.include_topic_authorized_operations
    if wanted and topic.name is not None:
        topic.topic_authorized_operations = gate.authorizer.operations(ctx, ResourceType.TOPIC, topic.name)


class _Eyes:
    """The visible topics for the client of a request (`describe_topic_partitions.Eyes`)."""

    __slots__ = ("_authorizer", "_ctx")

    def __init__(self, gate: Gate, ctx: RequestContext) -> None:
        self._authorizer = gate.authorizer
        self._ctx = ctx

    def sees(self, topic: str) -> bool:
        return self._authorizer.allows(self._ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic)

    def operations(self, topic: str) -> int:
        return self._authorizer.operations(self._ctx, ResourceType.TOPIC, topic)


def describe_topic_partitions(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the topics; topics that the client did not name are left out silently."""
    return handler(ctx, request, _Eyes(gate, ctx))


GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.METADATA: metadata,
    ApiKey.DESCRIBE_TOPIC_PARTITIONS: describe_topic_partitions,
}
