"""DescribeCluster (60), versions 0-2: the brokers and the controller (KIP-700; 1 endpoint type, 2 fenced brokers).

As in Metadata, clients see a live broker as the controller. The controllers' own listener lists controllers.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_node.security.names import ALL_OPERATIONS, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeClusterResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.metadata_cache import MetadataCache

BROKERS: Final = 1
CONTROLLERS: Final = 2
NO_OPERATIONS: Final = -(2**31)


def describe_cluster(metadata: MetadataCache, cluster_id: str, node_id: int, ctx: RequestContext, request: Any) -> Any:
    """The brokers on the client's listener; `node_id` is this broker."""
    if request.endpoint_type == CONTROLLERS:
        raise KafkaError(
            ErrorCode.MISMATCHED_ENDPOINT_TYPE,
            "The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER",
        )
    if request.endpoint_type != BROKERS:
        raise KafkaError(ErrorCode.UNSUPPORTED_ENDPOINT_TYPE, f"Unsupported endpoint type {request.endpoint_type}")
    brokers = []
    for registration in metadata.image.brokers.values():
        endpoint = registration.endpoint(ctx.listener)
        if endpoint is None or (registration.fenced and not request.include_fenced_brokers):
            continue
        brokers.append(
            DescribeClusterResponse.DescribeClusterBroker(
                registration.id, endpoint.host, endpoint.port, registration.rack, registration.fenced
            )
        )
    return DescribeClusterResponse(
        cluster_id=cluster_id,
        controller_id=metadata.any_live_broker(node_id),
        brokers=brokers,
        cluster_authorized_operations=(
            ALL_OPERATIONS[ResourceType.CLUSTER] if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )
