"""IncrementalAlterConfigs (44) for this process's loggers. Each controller handles its own, active or not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.config.resources import BROKER_LOGGER_RESOURCE
from kraft_node.base.loggers import alter
from kraft_node.security.rewriting import answered, changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import IncrementalAlterConfigsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext


def answer(node_id: int, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """Handle loggers here, and all other resources with `handler`."""
    rows: list[Any] = []
    others: list[Any] = []
    for resource in request.resources:
        if resource.resource_type != BROKER_LOGGER_RESOURCE:
            others.append(resource)
            continue
        code, message = ErrorCode.NONE, None
        try:
            alter(resource, node_id, validate_only=request.validate_only)
        except KafkaError as e:
            code, message = e.code, e.message
        row = IncrementalAlterConfigsResponse.AlterConfigsResourceResponse
        rows.append(row(code, message, resource.resource_type, resource.resource_name))
    if not rows:
        return handler(ctx, request)

    def complete(response: Any) -> Any:
        response.responses += rows
        return response

    if not others:
        return complete(IncrementalAlterConfigsResponse())
    return answered(handler, ctx, changed(request, resources=others), complete)
