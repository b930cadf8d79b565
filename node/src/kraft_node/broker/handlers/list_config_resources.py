"""ListConfigResources (74), versions 0-1: the resources that can have configurations (0: client-metrics only;
KIP-1142)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.config.resources import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    RESOURCES,
    TOPIC_RESOURCE,
)
from kraft_node.base.long_answers import answer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import ListConfigResourcesResponse

if TYPE_CHECKING:
    from collections.abc import Generator, Iterable

    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.metadata_cache import MetadataCache

NAMES_A_STEP: Final = 2000
"""Resources that one step lists or checks: a millisecond."""


def list_config_resources(turns: Turns, metadata: MetadataCache, ctx: RequestContext, request: Any) -> Any:
    """All resources of the requested types; of every type if the request names no type."""
    kinds = [CLIENT_METRICS_RESOURCE] if ctx.api_version == 0 else list(dict.fromkeys(request.resource_types))
    for kind in kinds:
        if kind not in RESOURCES:
            raise KafkaError(ErrorCode.UNSUPPORTED_VERSION, f"resources of type {kind} cannot be listed")
    return answer(turns, ctx, request, _steps(metadata, kinds or RESOURCES))


def _steps(metadata: MetadataCache, kinds: Iterable[int]) -> Generator[None, None, Any]:
    found = []
    for kind in kinds:
        names = yield from _names(metadata, kind)
        for start in range(0, len(names), NAMES_A_STEP):
            if start:
                yield
            some = names[start : start + NAMES_A_STEP]
            found += [ListConfigResourcesResponse.ConfigResource(name, kind) for name in some]
    return ListConfigResourcesResponse(config_resources=found)


def _names(metadata: MetadataCache, kind: int) -> Generator[None, None, list[str]]:
    if kind == TOPIC_RESOURCE:
        return [topic.name for topic in metadata.image.topics]
    if kind in (BROKER_RESOURCE, BROKER_LOGGER_RESOURCE):
        return [str(registration.id) for registration in metadata.live_brokers()]
    names: list[str] = []
    resources = list(metadata.image.configs)
    for start in range(0, len(resources), NAMES_A_STEP):
        if start:
            yield
        names += [name for kind_of, name in resources[start : start + NAMES_A_STEP] if kind_of == kind]
    names.sort()
    return names
