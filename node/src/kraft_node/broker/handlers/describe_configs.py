"""DescribeConfigs (32), versions 1-4: values with their sources and synonyms (KIP-226; 3 types, 4 flexible).

Resources: topic, broker (this broker, or "" for the values of all), broker-logger (this process's loggers, KIP-412),
client-metrics (KIP-714), group (KIP-848). Documentation of keys, except of loggers, is our own.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Any

from kraft_node.base import loggers
from kraft_node.base.config.resources import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    RESOURCES,
    TOPIC_RESOURCE,
    check_described,
)
from kraft_node.base.config.rows import rows
from kraft_node.base.long_answers import answer
from kraft_node.broker.metadata_cache import topic_name_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeConfigsResponse as Response

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable

    from kraft_node.base.config.describe import ConfigEntry
    from kraft_node.base.config.dynamic import BrokerConfig
    from kraft_node.base.request import RequestContext
    from kraft_node.base.turns import Turns
    from kraft_node.broker.metadata_cache import MetadataCache

log = logging.getLogger(__name__)


def describe_configs(
    turns: Turns, metadata: MetadataCache, config: BrokerConfig, node_id: int, ctx: RequestContext, request: Any
) -> Any:
    """One answer per resource; a resource type without configurations fails the whole request."""
    if any(resource.resource_type not in RESOURCES for resource in request.resources):
        raise KafkaError(
            ErrorCode.INVALID_REQUEST,
            "This most likely occurs because of a request being malformed by the client library or the message was "
            "sent to an incompatible broker. See the broker logs for more details.",
        )
    entries_of = partial(_entries, metadata, config, node_id)
    return answer(turns, ctx, request, _described(entries_of, request, request.resources))


def _described(
    entries_of: Callable[[int, str], Iterable[ConfigEntry]], request: Any, resources: list[Any]
) -> Generator[None, None, Any]:
    """One resource per step: its keys, values and synonyms take a millisecond."""
    results = []
    for resource in resources:
        yield
        result = Response.DescribeConfigsResult(
            error_code=0,
            error_message="",
            resource_type=resource.resource_type,
            resource_name=resource.resource_name,
            configs=[],
        )
        try:
            result.configs = rows(entries_of(resource.resource_type, resource.resource_name), resource, request)
        except KafkaError as error:
            result.error_code, result.error_message = error.code, error.message or ""
        results.append(result)
    return Response(results=results)


def _entries(
    metadata: MetadataCache, config: BrokerConfig, node_id: int, kind: int, name: str
) -> Iterable[ConfigEntry]:
    from kraft_node.base.config import describe  # noqa: PLC0415  (admin requests only; start-up does without)

    if kind == TOPIC_RESOURCE:
        reason = topic_name_error(name)
        if reason is not None:
            raise KafkaError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {reason}")
        if metadata.image.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe.describe_topic(metadata.configs(TOPIC_RESOURCE, name), config)
    if kind == BROKER_RESOURCE:
        if name == "":
            return describe.describe_broker_defaults(config)
        check_described(node_id, name, "or empty string, ")
        return describe.describe_broker(config)
    if kind == BROKER_LOGGER_RESOURCE:
        check_described(node_id, name, "")
        return loggers.described()
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe.describe_client_metrics(metadata.configs(kind, name))
    if kind == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe.describe_group(metadata.configs(kind, name), config)
    raise AssertionError(f"law: resources of type {kind} have been refused")
