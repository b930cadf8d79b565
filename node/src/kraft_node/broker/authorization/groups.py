"""Guards of APIs with a consumer group: READ for members and commits, DESCRIBE to read, DELETE to remove."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.authorization.gate import Gate, Guard, rest_of, without_topics
from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import (
    ConsumerGroupDescribeResponse,
    DeleteGroupsResponse,
    DescribeGroupsResponse,
    FindCoordinatorResponse,
    OffsetDeleteResponse,
    OffsetFetchResponse,
)

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext

COMMIT_BY_ID: Final = 10
FETCH_OF_GROUPS: Final = 8
FETCH_BY_ID: Final = 10
SYNC_NAMING_PROTOCOL: Final = 5
DESCRIBE_WITH_OPERATIONS: Final = 3
COORDINATORS_OF_KEYS: Final = 4
COORDINATORS_OF_SHARE_GROUPS: Final = 6
GROUP_KEY, TRANSACTION_KEY, SHARE_KEY = 0, 1, 2


def member(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """READ on the group: JoinGroup, Heartbeat, LeaveGroup."""
    gate.require_group(ctx, Operation.READ, request.group_id)
    return handler(ctx, request)


def consumer_heartbeat(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """READ on the group, DESCRIBE on all named topics; the topics of a pattern are limited to topics with DESCRIBE."""
    if not gate.authorizer.allows(ctx, Operation.READ, ResourceType.GROUP, request.group_id):
        raise KafkaError(ErrorCode.GROUP_AUTHORIZATION_FAILED)  # without a message, as in Kafka
    permitted = partial(gate.authorizer.permitted, ctx, Operation.DESCRIBE, ResourceType.TOPIC)
    names = request.subscribed_topic_names
    if names:
        seen = permitted(names)
        if any(name not in seen for name in names):
            raise KafkaError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    return handler(ctx, request, partial(permitted, log_denied=False))


def consumer_describe(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the groups, and on every topic of their members."""
    authorizer = gate.authorizer
    seen = authorizer.permitted(ctx, Operation.DESCRIBE, ResourceType.GROUP, request.group_ids)
    row = ConsumerGroupDescribeResponse.DescribedGroup
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = [row(error_code=code, group_id=name) for name in request.group_ids if name not in seen]

    def shown(group: Any) -> Any:
        """The group, or nothing but a code if it has topics that the client may not see."""
        if group.error_code:
            return group
        names = {
            part.topic_name
            for member in group.members
            for assignment in (member.assignment, member.target_assignment)
            for part in assignment.topic_partitions
        }
        if len(authorizer.permitted(ctx, Operation.DESCRIBE, ResourceType.TOPIC, list(names))) < len(names):
            text = "The group has described topic(s) that the client is not authorized to describe."
            return row(ErrorCode.TOPIC_AUTHORIZATION_FAILED, text, group.group_id)
        if request.include_authorized_operations:
            group.authorized_operations = authorizer.operations(ctx, ResourceType.GROUP, group.group_id)
        return group

    def complete(response: Any) -> Any:
        response.groups = refused + [shown(group) for group in response.groups]
        return response

    left = [name for name in request.group_ids if name in seen]
    return answered(handler, ctx, changed(request, group_ids=left), complete)


def sync_group(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """READ on the group, if the request is complete."""
    complete = None not in (request.protocol_type, request.protocol_name)
    if ctx.api_version < SYNC_NAMING_PROTOCOL or complete:
        gate.require_group(ctx, Operation.READ, request.group_id)
    return handler(ctx, request)


def offset_commit(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """READ on the group and on the topics."""
    gate.require_group(ctx, Operation.READ, request.group_id)
    by_id = ctx.api_version >= COMMIT_BY_ID
    named = [(topic, gate.name_of(topic.topic_id) if by_id else topic.name) for topic in request.topics]
    denied = gate.denied_topics(ctx, Operation.READ, named)
    return without_topics(handler, ctx, request, denied, "topics", "topics")


def txn_offset_commit(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the transactional id, READ on the group and on the topics."""
    if not gate.authorizer.allows(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, request.transactional_id):
        raise KafkaError(*REFUSALS[ResourceType.TRANSACTIONAL_ID])
    gate.require_group(ctx, Operation.READ, request.group_id)
    denied = gate.denied_topics(ctx, Operation.READ, [(topic, topic.name) for topic in request.topics])
    return without_topics(handler, ctx, request, denied, "topics", "topics")


def offset_delete(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DELETE on the group, READ on the topics."""
    gate.require_group(ctx, Operation.DELETE, request.group_id)
    denied = gate.denied_topics(ctx, Operation.READ, [(topic, topic.name) for topic in request.topics])
    if not denied:
        return handler(ctx, request)
    answer = OffsetDeleteResponse

    def complete(response: Any) -> Any:
        if response.error_code:
            return response
        for topic in denied:
            rows = [
                answer.OffsetDeleteResponsePartition(p.partition_index, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                for p in topic.partitions
            ]
            response.topics.append(answer.OffsetDeleteResponseTopic(topic.name, rows))
        return response

    left = rest_of(request.topics, denied)
    return answered(handler, ctx, changed(request, topics=left), complete)


def offset_fetch(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the groups and on the topics; topics that the client did not name are left out silently."""
    if ctx.api_version < FETCH_OF_GROUPS:
        gate.require_group(ctx, Operation.DESCRIBE, request.group_id)
        left, denied = _fetchable(gate, ctx, request)

        def complete_one(response: Any) -> Any:
            row = OffsetFetchResponse.OffsetFetchResponsePartition
            _complete(gate, ctx, response, denied, partial(OffsetFetchResponse.OffsetFetchResponseTopic), row)
            return response

        return answered(handler, ctx, changed(request, topics=left), complete_one)
    allows = gate.authorizer.allows
    groups = []
    denials: list[list[Any]] = []
    order: list[bool] = []
    for group in request.groups:
        may = allows(ctx, Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        order.append(may)
        if may:
            left, denied = _fetchable(gate, ctx, group)
            groups.append(changed(group, topics=left))
            denials.append(denied)

    def complete(response: Any) -> Any:
        for group, denied in zip(response.groups, denials, strict=True):
            row = OffsetFetchResponse.OffsetFetchResponsePartitions
            _complete(gate, ctx, group, denied, OffsetFetchResponse.OffsetFetchResponseTopics, row)
        found = iter(response.groups)
        refused = OffsetFetchResponse.OffsetFetchResponseGroup
        response.groups = [
            next(found)
            if may
            else refused(group_id=group.group_id, topics=[], error_code=ErrorCode.GROUP_AUTHORIZATION_FAILED)
            for group, may in zip(request.groups, order, strict=True)
        ]
        return response

    return answered(handler, ctx, changed(request, groups=groups), complete)


def _fetchable(gate: Gate, ctx: RequestContext, group: Any) -> tuple[list[Any] | None, list[Any]]:
    """The topics of a group that the client may see (None: all topics), and the topics that it may not see."""
    if group.topics is None:
        return None, []
    by_id = ctx.api_version >= FETCH_BY_ID
    named = [(topic, gate.name_of(topic.topic_id) if by_id else topic.name) for topic in group.topics]
    denied = gate.denied_topics(ctx, Operation.DESCRIBE, named)
    return rest_of(group.topics, denied), denied


def _complete(gate: Gate, ctx: RequestContext, answer: Any, denied: list[Any], topic_row: Any, row: Any) -> None:
    """Add the denied topics to a group's answer, and remove topics that were not named and that the client may not
    see."""
    if answer.error_code:
        return
    names = [topic.name for topic in answer.topics if topic.name]
    seen = gate.authorizer.permitted(ctx, Operation.DESCRIBE, ResourceType.TOPIC, names)
    answer.topics = [topic for topic in answer.topics if not topic.name or topic.name in seen]
    by_id = ctx.api_version >= FETCH_BY_ID
    for topic in denied:
        rows = [
            row(partition_index=index, committed_offset=-1, error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            for index in topic.partition_indexes
        ]
        if by_id:
            answer.topics.append(topic_row(topic_id=topic.topic_id, partitions=rows))
        else:
            answer.topics.append(topic_row(name=topic.name, partitions=rows))


def list_groups(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the cluster shows all groups, DESCRIBE on a group shows that group."""
    allows = gate.authorizer.allows
    if allows(ctx, Operation.DESCRIBE, ResourceType.CLUSTER, log_denied=False):
        return handler(ctx, request)
    return handler(
        ctx, request, lambda name: allows(ctx, Operation.DESCRIBE, ResourceType.GROUP, name, log_denied=False)
    )


def describe_groups(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the groups."""
    authorizer = gate.authorizer
    seen = authorizer.permitted(ctx, Operation.DESCRIBE, ResourceType.GROUP, request.groups)
    row = DescribeGroupsResponse.DescribedGroup
    code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    refused = [row(error_code=code, group_id=name) for name in request.groups if name not in seen]
    response = handler(ctx, changed(request, groups=[name for name in request.groups if name in seen]))
    if ctx.api_version >= DESCRIBE_WITH_OPERATIONS and request.include_authorized_operations:
        for group in response.groups:
            if not group.error_code:
                group.authorized_operations = authorizer.operations(ctx, ResourceType.GROUP, group.group_id)
    response.groups = refused + response.groups
    return response


def delete_groups(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DELETE on the groups."""
    names = list(dict.fromkeys(request.groups_names))
    deletable = gate.authorizer.permitted(ctx, Operation.DELETE, ResourceType.GROUP, names)
    row = DeleteGroupsResponse.DeletableGroupResult

    def complete(response: Any) -> Any:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
        response.results += [row(name, code) for name in names if name not in deletable]
        return response

    left = [name for name in names if name in deletable]
    return answered(handler, ctx, changed(request, groups_names=left), complete)


def find_coordinator(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the group or transactional id; for share groups only brokers may send it."""
    kind = request.key_type
    if kind == SHARE_KEY and ctx.api_version >= COORDINATORS_OF_SHARE_GROUPS:
        gate.authorizer.require(ctx, Operation.CLUSTER_ACTION)
    if kind not in (GROUP_KEY, TRANSACTION_KEY):
        return handler(ctx, request)
    resource = ResourceType.GROUP if kind == GROUP_KEY else ResourceType.TRANSACTIONAL_ID
    code, words = REFUSALS[resource]
    if ctx.api_version < COORDINATORS_OF_KEYS:
        if not gate.authorizer.allows(ctx, Operation.DESCRIBE, resource, request.key):
            raise KafkaError(code, words)
        return handler(ctx, request)
    keys = request.coordinator_keys
    may = [gate.authorizer.allows(ctx, Operation.DESCRIBE, resource, key) for key in keys]
    if all(may):
        return handler(ctx, request)
    response = handler(ctx, changed(request, coordinator_keys=[key for key, yes in zip(keys, may, strict=True) if yes]))
    found = iter(response.coordinators)
    row = FindCoordinatorResponse.Coordinator
    response.coordinators = [
        next(found) if yes else row(key=key, node_id=-1, host="", port=-1, error_code=code)
        for key, yes in zip(keys, may, strict=True)
    ]
    return response


GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.JOIN_GROUP: member,
    ApiKey.HEARTBEAT: member,
    ApiKey.LEAVE_GROUP: member,
    ApiKey.SYNC_GROUP: sync_group,
    ApiKey.CONSUMER_GROUP_HEARTBEAT: consumer_heartbeat,
    ApiKey.CONSUMER_GROUP_DESCRIBE: consumer_describe,
    ApiKey.OFFSET_COMMIT: offset_commit,
    ApiKey.OFFSET_DELETE: offset_delete,
    ApiKey.TXN_OFFSET_COMMIT: txn_offset_commit,
    ApiKey.OFFSET_FETCH: offset_fetch,
    ApiKey.LIST_GROUPS: list_groups,
    ApiKey.DESCRIBE_GROUPS: describe_groups,
    ApiKey.DELETE_GROUPS: delete_groups,
    ApiKey.FIND_COORDINATOR: find_coordinator,
}
