"""ListConfigResources (74), versions 0-1: what can have configurations (0: client-metrics only; KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.config.resources import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    RESOURCES,
    TOPIC_RESOURCE,
)
from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.wire.messages import ListConfigResourcesResponse

if TYPE_CHECKING:
    from collections.abc import Iterable

    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


def list_config_resources(broker: Broker, ctx: RequestContext, request: Any) -> Any:
    """All resources of the asked types; of every type when none is asked for."""
    kinds = [CLIENT_METRICS_RESOURCE] if ctx.api_version == 0 else list(dict.fromkeys(request.resource_types))
    for kind in kinds:
        if kind not in RESOURCES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resources of type {kind} cannot be listed")
    return ListConfigResourcesResponse(
        config_resources=[
            ListConfigResourcesResponse.ConfigResource(name, kind)
            for kind in kinds or RESOURCES
            for name in _names(broker, kind)
        ]
    )


def _names(broker: Broker, kind: int) -> Iterable[str]:
    if kind == TOPIC_RESOURCE:
        return [topic.name for topic in broker.image.topics]
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(registration.id) for registration in broker.metadata.live_brokers()]
    return sorted(name for kind_of, name in broker.image.configs if kind_of == kind)
