"""The permissions that each API of the controller requires: a guard in front of every handler (see `security`).

Requests of brokers, controllers and voters need CLUSTER_ACTION. Requests of administrators mostly arrive in envelopes:
the broker's principal is checked for the envelope, and the client's principal for its content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final, TypeAlias

from kraft_node.base.config.resources import BROKER_LOGGER_RESOURCE
from kraft_node.base.request import Handler, RequestContext
from kraft_node.controller.partitions.topics import FORBIDDEN_NAME, UNKNOWN_ID, UNKNOWN_NAME, repeated
from kraft_node.metadata.topics import TopicsView
from kraft_node.security.authorizer import Authorizer
from kraft_node.security.configs import OWNERS, describe_configs, may
from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    AlterConfigsResponse,
    CreatePartitionsResponse,
    CreateTopicsResponse,
    DeleteTopicsResponse,
    IncrementalAlterConfigsResponse,
)

Guard: TypeAlias = Callable[[Authorizer, Handler, RequestContext, Any], Any]

CLUSTER_NEEDS: Final[dict[ApiKey, Operation]] = {
    ApiKey.FETCH: Operation.CLUSTER_ACTION,
    ApiKey.FETCH_SNAPSHOT: Operation.CLUSTER_ACTION,
    ApiKey.VOTE: Operation.CLUSTER_ACTION,
    ApiKey.BEGIN_QUORUM_EPOCH: Operation.CLUSTER_ACTION,
    ApiKey.END_QUORUM_EPOCH: Operation.CLUSTER_ACTION,
    ApiKey.UPDATE_RAFT_VOTER: Operation.CLUSTER_ACTION,
    ApiKey.ENVELOPE: Operation.CLUSTER_ACTION,
    ApiKey.BROKER_REGISTRATION: Operation.CLUSTER_ACTION,
    ApiKey.BROKER_HEARTBEAT: Operation.CLUSTER_ACTION,
    ApiKey.CONTROLLER_REGISTRATION: Operation.CLUSTER_ACTION,
    ApiKey.ALTER_PARTITION: Operation.CLUSTER_ACTION,
    ApiKey.ASSIGN_REPLICAS_TO_DIRS: Operation.CLUSTER_ACTION,
    ApiKey.ALLOCATE_PRODUCER_IDS: Operation.CLUSTER_ACTION,
    ApiKey.DESCRIBE_QUORUM: Operation.DESCRIBE,
    ApiKey.LIST_PARTITION_REASSIGNMENTS: Operation.DESCRIBE,
    ApiKey.DESCRIBE_ACLS: Operation.DESCRIBE,
    ApiKey.CREATE_ACLS: Operation.ALTER,
    ApiKey.DELETE_ACLS: Operation.ALTER,
    ApiKey.ELECT_LEADERS: Operation.ALTER,
    ApiKey.UNREGISTER_BROKER: Operation.ALTER,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: Operation.ALTER,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: Operation.ALTER,
    ApiKey.UPDATE_FEATURES: Operation.ALTER,
    ApiKey.ADD_RAFT_VOTER: Operation.ALTER,
    ApiKey.REMOVE_RAFT_VOTER: Operation.ALTER,
    ApiKey.ALTER_CLIENT_QUOTAS: Operation.ALTER_CONFIGS,
}
"""APIs that are allowed or refused as a whole, and the operation that they need on the cluster."""

OPEN: Final = frozenset(
    {
        ApiKey.CREATE_DELEGATION_TOKEN,
        ApiKey.RENEW_DELEGATION_TOKEN,
        ApiKey.EXPIRE_DELEGATION_TOKEN,
        ApiKey.DESCRIBE_DELEGATION_TOKEN,
    }
)
"""APIs without a check: brokers have checked the client, and a token's owner and renewers may change it."""

FIRST_DELETION_BY_STATE: Final = 6


def guarded(
    handlers: Mapping[ApiKey, Handler], authorizer: Authorizer, topics: Callable[[], TopicsView]
) -> dict[ApiKey, Handler]:
    """The handlers behind their guards. `topics` returns the committed topics: guards reveal no others."""
    guards: dict[ApiKey, Guard] = {
        ApiKey.CREATE_TOPICS: create_topics,
        ApiKey.DELETE_TOPICS: partial(delete_topics, topics),
        ApiKey.CREATE_PARTITIONS: create_partitions,
        ApiKey.ALTER_CONFIGS: alter_configs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: alter_configs,
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.DESCRIBE_CLUSTER: describe_cluster,
        **{key: partial(_whole, operation) for key, operation in CLUSTER_NEEDS.items()},
    }
    unguarded = handlers.keys() - guards.keys() - OPEN
    assert not unguarded, f"law: every API has a guard or is open; {unguarded} are neither"
    return {
        key: handler if key in OPEN else partial(guards[key], authorizer, handler) for key, handler in handlers.items()
    }


def _whole(operation: Operation, authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    authorizer.require(ctx, operation)
    return handler(ctx, request)


def describe_cluster(authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """ALTER on the cluster, on a controller."""
    authorizer.require(ctx, Operation.ALTER)
    response = handler(ctx, request)
    if request.include_cluster_authorized_operations and not response.error_code:
        may_see = authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
        response.cluster_authorized_operations = authorizer.operations(ctx, ResourceType.CLUSTER) if may_see else 0
    return response


def create_topics(authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """CREATE on the cluster, or on each topic.

    The configuration of a topic is left out unless the client may see it.
    """
    names = [topic.name for topic in request.topics]
    judged = set(names) - repeated(names) - {FORBIDDEN_NAME}
    creatable = judged
    if not authorizer.allows(ctx, Operation.CREATE, ResourceType.CLUSTER, log_denied=False):
        creatable = authorizer.permitted(ctx, Operation.CREATE, ResourceType.TOPIC, judged)
    seen = authorizer.permitted(ctx, Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC, judged, log_denied=False)
    denied = [name for name in names if name in judged and name not in creatable]
    row = CreateTopicsResponse.CreatableTopicResult

    def complete(response: Any) -> Any:
        for at, topic in enumerate(response.topics):
            if not topic.error_code and topic.name not in seen:
                response.topics[at] = row(
                    topic.name,
                    topic.topic_id,
                    error_message=None,
                    topic_config_error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED,
                )
        for name in denied:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            response.topics.append(row(name, error_code=code, error_message="Authorization failed."))
        return response

    refused = set(denied)
    left = [topic for topic in request.topics if topic.name not in refused]
    return answered(handler, ctx, changed(request, topics=left), complete)


def delete_topics(
    topics: Callable[[], TopicsView], authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any
) -> Any:
    """DELETE on the cluster, or on each topic. The name behind an id is left out unless the client may describe the
    topic.

    A topic that is not committed yet does not exist here, as in Kafka: the answer reports this, independent of the
    planner's state.
    """
    if authorizer.allows(ctx, Operation.DELETE, ResourceType.CLUSTER, log_denied=False):
        return handler(ctx, request)
    by_state = ctx.api_version >= FIRST_DELETION_BY_STATE
    requested = [(state.name, state.topic_id) for state in request.topics]
    if not by_state:
        requested = [(name, ZERO_UUID) for name in request.topic_names]
    doubtful = repeated(topic_id if name is None else name for name, topic_id in requested)
    judged: dict[Any, str] = {}
    for name, topic_id in requested:
        key = topic_id if name is None else name
        if key in doubtful or (name is None) == (topic_id == ZERO_UUID):
            continue  # refused for another reason
        topic = topics().by_id(topic_id) if name is None else None
        if name is not None or topic is not None:
            judged[key] = topic.name if topic is not None else name
    describable = authorizer.permitted(ctx, Operation.DESCRIBE, ResourceType.TOPIC, judged.values())
    deletable = authorizer.permitted(ctx, Operation.DELETE, ResourceType.TOPIC, judged.values())
    row = DeleteTopicsResponse.DeletableTopicResult
    rows: dict[tuple[str | None, Uuid], Any] = {}
    left = []
    for name, topic_id in requested:
        key = topic_id if name is None else name
        known = judged.get(key)
        if known is None and (key in doubtful or (name is None) == (topic_id == ZERO_UUID)):
            left.append((name, topic_id))  # refused for another reason
        elif known is None:
            rows[name, topic_id] = row(None, topic_id, ErrorCode.UNKNOWN_TOPIC_ID, UNKNOWN_ID)
        elif known in describable and known in deletable:
            left.append((name, topic_id))
        elif known in describable and name is not None and topics().by_name(name) is None:
            rows[name, topic_id] = row(name, topic_id, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, UNKNOWN_NAME)
        else:
            shown_name = known if name is not None or known in describable else None
            rows[name, topic_id] = row(shown_name, topic_id, *REFUSALS[ResourceType.TOPIC])
    if not rows:
        return handler(ctx, request)
    fields = {"topics": [state for state in request.topics if (state.name, state.topic_id) not in rows]}
    if not by_state:
        fields = {"topic_names": [name for name, _ in left]}

    def complete(response: Any) -> Any:
        response.responses += rows.values()
        return response

    return answered(handler, ctx, changed(request, **fields), complete)


def create_partitions(authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """ALTER on each topic."""
    names = [topic.name for topic in request.topics]
    judged = set(names) - repeated(names)
    denied = judged - authorizer.permitted(ctx, Operation.ALTER, ResourceType.TOPIC, judged)
    if not denied:
        return handler(ctx, request)
    row = CreatePartitionsResponse.CreatePartitionsTopicResult

    def complete(response: Any) -> Any:
        response.results += [row(name, ErrorCode.TOPIC_AUTHORIZATION_FAILED, None) for name in names if name in denied]
        return response

    left = [topic for topic in request.topics if topic.name not in denied]
    return answered(handler, ctx, changed(request, topics=left), complete)


def alter_configs(authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """ALTER_CONFIGS on the topic or group, on the cluster for all other resources; CLUSTER_ACTION for loggers."""
    rows = []
    left = []
    is_legacy = ctx.api_key == ApiKey.ALTER_CONFIGS
    row = (AlterConfigsResponse if is_legacy else IncrementalAlterConfigsResponse).AlterConfigsResourceResponse
    for resource in request.resources:
        kind = resource.resource_type
        is_logger = kind == BROKER_LOGGER_RESOURCE
        operation = Operation.CLUSTER_ACTION if is_logger else Operation.ALTER_CONFIGS
        if kind not in OWNERS or (is_logger and is_legacy) or may(authorizer, ctx, operation, resource):
            left.append(resource)
        else:
            code, words = REFUSALS[OWNERS[kind]]
            rows.append(row(code, words, kind, resource.resource_name))
    if not rows:
        return handler(ctx, request)

    def complete(response: Any) -> Any:
        response.responses += rows
        return response

    return answered(handler, ctx, changed(request, resources=left), complete)
