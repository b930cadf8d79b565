"""GetTelemetrySubscriptions (71) and PushTelemetry (72), version 0 each (KIP-714): served, but not advertised.

As in Apache Kafka without a plugin that receives metrics: clients see no version and do not push. A client that sends
a request anyway gets an answer. See `broker.telemetry`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.ids import Uuid
from kraft_protocol.records.compression import Compression
from kraft_protocol.wire.messages import GetTelemetrySubscriptionsResponse, PushTelemetryResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.telemetry import Telemetry

ACCEPTED: Final = [int(codec) for codec in (Compression.ZSTD, Compression.LZ4, Compression.GZIP, Compression.SNAPPY)]
"""The codecs in Kafka's order of preference."""


def get_telemetry_subscriptions(telemetry: Telemetry, ctx: RequestContext, request: Any) -> Any:
    """The client's subscription. Raises KafkaError THROTTLING_QUOTA_EXCEEDED."""
    client = telemetry.subscribe(ctx, Uuid(bytes(request.client_instance_id)))
    return GetTelemetrySubscriptionsResponse(
        client_instance_id=client.id,
        subscription_id=client.subscription_id,
        accepted_compression_types=ACCEPTED,
        push_interval_ms=client.interval_ms,
        telemetry_max_bytes=telemetry.bytes_max,
        delta_temporality=True,
        requested_metrics=client.metrics,
    )


def push_telemetry(telemetry: Telemetry, ctx: RequestContext, request: Any) -> Any:
    """Check a push and drop it. Raises KafkaError like `Telemetry.push`."""
    telemetry.push(ctx, request)
    return PushTelemetryResponse()
