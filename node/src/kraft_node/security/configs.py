"""The guard of DescribeConfigs, for brokers and controllers: the permissions of a resource apply to its
configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.resources import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
)
from kraft_node.security.names import CLUSTER_NAME, REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.wire.messages import DescribeConfigsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.security.authorizer import Authorizer

OWNERS: Final[dict[int, ResourceType]] = {
    TOPIC_RESOURCE: ResourceType.TOPIC,
    BROKER_RESOURCE: ResourceType.CLUSTER,
    BROKER_LOGGER_RESOURCE: ResourceType.CLUSTER,
    CLIENT_METRICS_RESOURCE: ResourceType.CLUSTER,
    GROUP_RESOURCE: ResourceType.GROUP,
}
"""Kind of configuration -> resource type of the permissions that count."""


def may(authorizer: Authorizer, ctx: RequestContext, operation: Operation, resource: Any) -> bool:
    """Whether the client may do the operation on the configuration of a resource of a kind in `OWNERS`."""
    owner = OWNERS[resource.resource_type]
    name = CLUSTER_NAME if owner is ResourceType.CLUSTER else resource.resource_name
    return authorizer.allows(ctx, operation, owner, name)


def describe_configs(authorizer: Authorizer, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE_CONFIGS on the topic or group, on the cluster for all other resources."""
    if any(resource.resource_type not in OWNERS for resource in request.resources):
        return handler(ctx, request)  # which refuses it as a whole
    permitted: list[Any] = []
    denied: list[Any] = []
    for resource in request.resources:
        (permitted if may(authorizer, ctx, Operation.DESCRIBE_CONFIGS, resource) else denied).append(resource)
    if not denied:
        return handler(ctx, request)

    def complete(response: Any) -> Any:
        for resource in denied:
            code, words = REFUSALS[OWNERS[resource.resource_type]]
            row = DescribeConfigsResponse.DescribeConfigsResult(
                code, words, resource.resource_type, resource.resource_name
            )
            response.results.append(row)
        return response

    return answered(handler, ctx, changed(request, resources=permitted), complete)
