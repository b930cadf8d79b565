"""Queries that a controller answers itself: DescribeCluster (60) v0-2 and DescribeConfigs (32) v1-4 (KIP-919).

Answers contain committed data only (KIP-631).
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Final

from kraft_node.base import loggers
from kraft_node.base.config.describe import (
    ConfigEntry,
    describe_broker,
    describe_broker_defaults,
    describe_client_metrics,
    describe_group,
    describe_topic,
)
from kraft_node.base.config.dynamic import BrokerConfig
from kraft_node.base.config.resources import (
    BROKER_LOGGER_RESOURCE,
    BROKER_RESOURCE,
    CLIENT_METRICS_RESOURCE,
    GROUP_RESOURCE,
    TOPIC_RESOURCE,
    check_described,
)
from kraft_node.base.config.rows import rows
from kraft_node.controller.partitions.topic_names import check_topic_name
from kraft_node.metadata.image import MetadataView
from kraft_node.security.names import ALL_OPERATIONS, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    DescribeClusterRequest,
    DescribeClusterResponse,
    DescribeConfigsRequest,
    DescribeConfigsResponse,
)

BROKER_ENDPOINTS: Final = 1
CONTROLLER_ENDPOINTS: Final = 2
_ENDPOINT_WORDS: Final = {BROKER_ENDPOINTS: "BROKER", CONTROLLER_ENDPOINTS: "CONTROLLER"}


def describe_controllers(
    request: DescribeClusterRequest,
    api_version: int,
    cluster_id: str,
    view: MetadataView,
    listener: str,
    leader_id: int,
) -> DescribeClusterResponse:
    """The controllers, with the endpoints that they registered for the listener that received the request."""
    requested = request.endpoint_type if api_version >= 1 else BROKER_ENDPOINTS
    if requested not in _ENDPOINT_WORDS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {requested}")
    if requested != CONTROLLER_ENDPOINTS:
        message = "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER"
        # Version 0 has neither the field nor the code.
        code = ErrorCode.MISMATCHED_ENDPOINT_TYPE if api_version >= 1 else ErrorCode.INVALID_REQUEST
        raise KafkaError(code, message)
    response = DescribeClusterResponse(
        error_message=None,
        endpoint_type=CONTROLLER_ENDPOINTS,
        cluster_id=cluster_id,
        controller_id=leader_id,
    )
    if request.include_cluster_authorized_operations:
        response.cluster_authorized_operations = ALL_OPERATIONS[ResourceType.CLUSTER]
    for controller in sorted(view.controllers.values(), key=lambda c: c.id):
        endpoint = controller.endpoints.get(listener)
        if endpoint is not None:
            response.brokers.append(
                DescribeClusterResponse.DescribeClusterBroker(
                    broker_id=controller.id, host=endpoint.host, port=endpoint.port, rack=None
                )
            )
    return response


def describe_configs(
    request: DescribeConfigsRequest, view: MetadataView, config: BrokerConfig, node_id: int
) -> Generator[None, None, DescribeConfigsResponse]:
    """All requested keys of each resource, one resource per step.

    A resource that cannot be described gets its error.
    """
    response = DescribeConfigsResponse()
    for resource in request.resources:
        yield
        result = DescribeConfigsResponse.DescribeConfigsResult(
            error_message="", resource_type=resource.resource_type, resource_name=resource.resource_name
        )
        response.results.append(result)
        try:
            entries = _entries(resource.resource_type, resource.resource_name, view, config, node_id)
        except KafkaError as e:
            result.error_code = e.code
            result.error_message = e.message
            continue
        result.configs = rows(entries, resource, request)
    return response


def _entries(kind: int, name: str, view: MetadataView, config: BrokerConfig, node_id: int) -> list[ConfigEntry]:
    overrides = view.configs.get((kind, name)) or {}
    if kind == TOPIC_RESOURCE:
        check_topic_name(name)
        if view.topics.by_name(name) is None:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        return describe_topic(overrides, config)
    if kind == BROKER_RESOURCE:
        if not name:
            return describe_broker_defaults(config)
        check_described(node_id, name, "or empty string, ")
        return describe_broker(config)
    if kind == BROKER_LOGGER_RESOURCE:
        check_described(node_id, name, "")
        return loggers.described()
    if kind == GROUP_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
        return describe_group(overrides, config)
    if kind == CLIENT_METRICS_RESOURCE:
        if not name:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
        return describe_client_metrics(overrides)
    raise KafkaError(ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {kind}")
