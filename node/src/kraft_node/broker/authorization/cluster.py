"""Guards of APIs of the cluster or this broker, and of configurations."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.resources import BROKER_LOGGER_RESOURCE
from kraft_node.base.long_answers import answer
from kraft_node.broker.authorization.gate import Gate, Guard
from kraft_node.security import acl_filter, configs
from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeLogDirsResponse, IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext


def _whole(operation: Operation, gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    if not gate.authorizer.allows(ctx, operation, ResourceType.CLUSTER):
        raise KafkaError(*REFUSALS[ResourceType.CLUSTER])
    return handler(ctx, request)


def describe_cluster(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """All clients may send it; clients with DESCRIBE on the cluster also learn their allowed operations."""
    response = handler(ctx, request)
    if request.include_cluster_authorized_operations and not response.error_code:
        may_see = gate.authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.CLUSTER)
        bits = gate.authorizer.operations(ctx, ResourceType.CLUSTER) if may_see else 0
        response.cluster_authorized_operations = bits
    return response


def describe_log_dirs(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the cluster."""
    if gate.authorizer.allows(ctx, Operation.DESCRIBE, ResourceType.CLUSTER):
        return handler(ctx, request)
    return DescribeLogDirsResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def describe_acls(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """DESCRIBE on the cluster; with an authorizer, entries exist that the plain handler lacks."""
    gate.authorizer.require(ctx, Operation.DESCRIBE)
    return answer(gate.turns, ctx, request, acl_filter.describe_acls(request, gate.image))


def describe_configs(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE_CONFIGS on the topic, the group or the cluster."""
    return configs.describe_configs(gate.authorizer, handler, ctx, request)


def incremental_alter_configs(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """ALTER_CONFIGS on the cluster for this process's loggers; the controller checks all other resources."""
    loggers = [resource for resource in request.resources if resource.resource_type == BROKER_LOGGER_RESOURCE]
    if not loggers or gate.authorizer.allows(ctx, Operation.ALTER_CONFIGS, ResourceType.CLUSTER):
        return handler(ctx, request)
    code, words = REFUSALS[ResourceType.CLUSTER]
    row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
    rows = [row(code, words, resource.resource_type, resource.resource_name) for resource in loggers]
    left = [resource for resource in request.resources if resource.resource_type != BROKER_LOGGER_RESOURCE]
    if not left:
        return IncrementalAlterConfigsResponse(responses=rows)

    def complete(response: Any) -> Any:
        response.responses += rows
        return response

    return answered(handler, ctx, changed(request, resources=left), complete)


def write_txn_markers(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """ALTER on the cluster, which administrators have, or CLUSTER_ACTION."""
    if not gate.authorizer.allows(ctx, Operation.ALTER, ResourceType.CLUSTER, log_denied=False):
        gate.authorizer.require(ctx, Operation.CLUSTER_ACTION)
    return handler(ctx, request)


GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.DESCRIBE_CLUSTER: describe_cluster,
    ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
    ApiKey.DESCRIBE_ACLS: describe_acls,
    ApiKey.DESCRIBE_CONFIGS: describe_configs,
    ApiKey.INCREMENTAL_ALTER_CONFIGS: incremental_alter_configs,
    ApiKey.WRITE_TXN_MARKERS: write_txn_markers,
    ApiKey.ALTER_REPLICA_LOG_DIRS: partial(_whole, Operation.ALTER),
    ApiKey.DESCRIBE_CLIENT_QUOTAS: partial(_whole, Operation.DESCRIBE_CONFIGS),
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: partial(_whole, Operation.DESCRIBE),
    ApiKey.LIST_CONFIG_RESOURCES: partial(_whole, Operation.DESCRIBE_CONFIGS),
}
