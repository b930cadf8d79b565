"""The client metrics that this broker requests from clients (KIP-714), and checks of pushed metrics.

Subscriptions are the `client-metrics` resources of the committed metadata. Kafka keeps them and their clients even
without a plugin that receives metrics. Then neither API is advertised, but a client that sends a request gets an
answer. It is the same here, without a receiver: pushes are checked and dropped.

`handlers.telemetry` calls it for each request, `broker` when resources have changed. Without timers, expired clients
and closed connections are found when they are looked up or when the table is full.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from typing import TYPE_CHECKING, Any, Final

from fastcrc.crc32 import iscsi as crc32c

from kraft_node.base.config.client_metrics import parse_match
from kraft_node.base.config.definitions import CLIENT_METRICS
from kraft_node.base.config.errors import ConfigError
from kraft_node.base.config.resources import CLIENT_METRICS_RESOURCE
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import ONE_UUID, ZERO_UUID, Uuid, random_uuid, uuid_text
from kraft_protocol.records.compression import Compression, decompress
from kraft_protocol.records.errors import CorruptBatch, DecompressionLimit

if TYPE_CHECKING:
    import re
    from collections.abc import Iterable, Mapping

    from kraft_node.base.env import Clock, Rng
    from kraft_node.base.request import RequestContext

log = logging.getLogger(__name__)

ALL_METRICS: Final = "*"
PUSH_INTERVAL_MS_MAX: Final = 300_000
"""The push interval of clients without a subscription; subscriptions can only shorten it."""
CLIENTS_MAX: Final = 16_384
"""Maximum of tracked clients, as in Kafka: some hundred bytes each. The least recently seen are dropped first."""
FORGOTTEN_MS_MIN: Final = 60_000
FORGOTTEN_INTERVALS: Final = 3
"""A client is dropped after a minute or three intervals without a request, whichever is longer."""
UNKNOWN_SOFTWARE: Final = ("unknown", "unknown")
"""For a client that has not named its software in ApiVersions."""
PUSH_RESERVED: Final = frozenset((ZERO_UUID, ONE_UUID))
ASKS_ANEW: Final = frozenset((ErrorCode.UNKNOWN_SUBSCRIPTION_ID, ErrorCode.UNSUPPORTED_COMPRESSION_TYPE))
"""After a push was refused with these codes, a client may request its subscription before the next interval."""


class MetricsSubscription:
    """One client-metrics resource."""

    __slots__ = ("interval_ms", "match", "metrics")

    def __init__(self, overrides: Mapping[str, str]) -> None:
        values: dict[str, Any] = {
            name: CLIENT_METRICS[name].parse(overrides[name]) if name in overrides else CLIENT_METRICS[name].default
            for name in ("metrics", "interval.ms", "match")
        }
        self.metrics: frozenset[str] = frozenset(values["metrics"])
        self.interval_ms: int = values["interval.ms"]
        self.match: dict[str, re.Pattern[str]] = parse_match(values["match"])

    def matches(self, attributes: Mapping[str, str | None]) -> bool:
        """Whether all patterns match; each must match the whole attribute."""
        return all(
            (value := attributes.get(name)) is not None and pattern.fullmatch(value) is not None
            for name, pattern in self.match.items()
        )


class TelemetryClient:
    """A client instance: its subscription, and its last request and push. None: never."""

    __slots__ = (
        "attributes",
        "connection",
        "heard_ms",
        "id",
        "interval_ms",
        "last_error",
        "last_get_ms",
        "last_push_ms",
        "metrics",
        "subscription_id",
        "terminating",
        "version",
    )

    def __init__(
        self, client_id: Uuid, attributes: dict[str, str | None], connection: Any, version: int, now_ms: int
    ) -> None:
        self.id = client_id
        self.attributes = attributes
        self.connection = connection
        """The connection of its first request: Kafka drops the client with that connection."""
        self.version = version
        self.heard_ms = now_ms
        self.metrics: list[str] = []
        self.interval_ms = PUSH_INTERVAL_MS_MAX
        self.subscription_id = 0
        self.last_get_ms: int | None = None
        self.last_push_ms: int | None = None
        self.last_error = ErrorCode.NONE
        self.terminating = False

    def subscribe(self, subscriptions: Iterable[MetricsSubscription]) -> None:
        """Take the union of the matching subscriptions, with the shortest interval."""
        metrics: set[str] = set()
        for subscription in subscriptions:
            if subscription.matches(self.attributes):
                metrics |= subscription.metrics
                self.interval_ms = min(self.interval_ms, subscription.interval_ms)
        self.metrics = [ALL_METRICS] if ALL_METRICS in metrics else sorted(metrics)
        self.subscription_id = subscription_id(self.metrics, self.interval_ms, self.id)

    def is_gone(self, now_ms: int) -> bool:
        """Whether it has expired."""
        kept_ms = max(FORGOTTEN_MS_MIN, FORGOTTEN_INTERVALS * self.interval_ms)
        return bool(getattr(self.connection, "closed", False)) or now_ms - self.heard_ms >= kept_ms

    def may_get(self, now_ms: int) -> bool:
        """Whether an interval has passed since its last request or push; if so, this counts as a request."""
        last = [at for at in (self.last_get_ms, self.last_push_ms) if at is not None]
        if last and now_ms - max(last) < self.interval_ms:
            return False
        self.last_get_ms = now_ms
        return True

    def may_push(self, now_ms: int) -> bool:
        """Whether it has requested its subscription since its last push, or an interval has passed; if so, this counts
        as a push."""
        push, get = self.last_push_ms, self.last_get_ms
        if push is not None and (get is None or get <= push) and now_ms - push < self.interval_ms:
            return False
        self.last_push_ms = now_ms
        return True


class Telemetry:
    """All subscriptions, and the clients that have requested their subscription."""

    def __init__(self, clock: Clock, rng: Rng, bytes_max: int) -> None:
        self._clock = clock
        self._rng = rng
        self.bytes_max = bytes_max
        """`telemetry.max.bytes`: the limit of one push, compressed and decompressed."""
        self._subscriptions: dict[str, MetricsSubscription] = {}
        self._version = 0
        self._clients: OrderedDict[Uuid, TelemetryClient] = OrderedDict()

    def __len__(self) -> int:
        return len(self._clients)

    def configs_changed(self, name: str, overrides: Mapping[str, str] | None) -> None:
        """The client-metrics resource has these overrides now; clients learn of it with their next request."""
        if not overrides:
            if self._subscriptions.pop(name, None) is None:
                return
        else:
            try:
                self._subscriptions[name] = MetricsSubscription(overrides)
            except ConfigError as e:  # written by a controller that reads patterns like Java
                self._subscriptions.pop(name, None)
                log.warning("client metrics subscription is invalid and ignored name=%s error=%s", name, e)
        self._version += 1

    def reload(self, configs: Iterable[tuple[tuple[int, str], Mapping[str, str]]]) -> None:
        """Take the client-metrics resources of all configurations: a snapshot was loaded."""
        overrides = {name: values for (kind, name), values in configs if kind == CLIENT_METRICS_RESOURCE}
        for name in {**self._subscriptions, **overrides}:
            self.configs_changed(name, overrides.get(name))

    def subscribe(self, ctx: RequestContext, asked_as: Uuid) -> TelemetryClient:
        """The client's subscription, under a new id if the client has no id yet.

        Raises KafkaError THROTTLING_QUOTA_EXCEEDED for a second request within its interval.
        """
        client = self._client(ctx, random_uuid(self._rng) if asked_as == ZERO_UUID else asked_as)
        if not client.may_get(self._clock.monotonic_ms()) and client.last_error not in ASKS_ANEW:
            raise _early(client)
        client.last_error = ErrorCode.NONE
        return client

    def push(self, ctx: RequestContext, request: Any) -> None:
        """Check a push, then drop it.

        Raises KafkaError INVALID_REQUEST (not a client's id, or a terminated client), THROTTLING_QUOTA_EXCEEDED,
        UNKNOWN_SUBSCRIPTION_ID, UNSUPPORTED_COMPRESSION_TYPE, TELEMETRY_TOO_LARGE, and INVALID_RECORD for data that
        does not decompress, or exceeds the limit.
        """
        if request.client_instance_id in PUSH_RESERVED:
            raise KafkaError(ErrorCode.INVALID_REQUEST, "a push needs the id of a client instance")
        client = self._client(ctx, Uuid(bytes(request.client_instance_id)))
        client.last_error = ErrorCode.NONE
        try:
            self._check(client, request)
        except KafkaError as e:
            client.last_error = e.code
            raise

    def _check(self, client: TelemetryClient, request: Any) -> None:
        left, client.terminating = client.terminating, request.terminating
        if left:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"client {uuid_text(client.id)} has already sent its last push")
        if not client.may_push(self._clock.monotonic_ms()) and not request.terminating:
            raise _early(client)
        if request.subscription_id != client.subscription_id:
            raise KafkaError(
                ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
                f"client {uuid_text(client.id)} has subscription {client.subscription_id}",
            )
        codec, metrics = request.compression_type, request.metrics
        if not Compression.NONE <= codec <= Compression.ZSTD:
            raise KafkaError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"unknown compression type {codec}")
        if len(metrics) > self.bytes_max:
            raise KafkaError(ErrorCode.TELEMETRY_TOO_LARGE, f"{len(metrics)} bytes exceed telemetry.max.bytes")
        if codec != Compression.NONE and len(metrics):
            try:
                decompress(codec, metrics, self.bytes_max)
            except (CorruptBatch, DecompressionLimit) as e:
                raise KafkaError(ErrorCode.INVALID_RECORD, str(e)) from None

    def _client(self, ctx: RequestContext, client_id: Uuid) -> TelemetryClient:
        """The known client, or a new client, or the client with its present subscriptions."""
        now_ms = self._clock.monotonic_ms()
        clients = self._clients
        client = clients.pop(client_id, None)
        if client is not None and client.is_gone(now_ms):
            client = None
        if client is None or client.version != self._version:
            attributes = _attributes(ctx, client_id) if client is None else client.attributes
            client = TelemetryClient(client_id, attributes, ctx.connection, self._version, now_ms)
            client.subscribe(self._subscriptions.values())
            while clients and (len(clients) >= CLIENTS_MAX or next(iter(clients.values())).is_gone(now_ms)):
                clients.popitem(last=False)
        client.heard_ms = now_ms
        clients[client_id] = client
        return client


def _attributes(ctx: RequestContext, client_id: Uuid) -> dict[str, str | None]:
    """The client's attributes under the names that `match` uses."""
    connection = ctx.connection
    name, version = getattr(connection, "client_software", None) or UNKNOWN_SOFTWARE
    transport = getattr(connection, "transport", None)
    return {
        "client_instance_id": uuid_text(client_id),
        "client_id": ctx.client_id,
        "client_software_name": name,
        "client_software_version": version,
        "client_source_address": ctx.client_host,
        "client_source_port": None if transport is None else str(transport.peer[1]),
    }


def _early(client: TelemetryClient) -> KafkaError:
    return KafkaError(
        ErrorCode.THROTTLING_QUOTA_EXCEEDED, f"client {uuid_text(client.id)} asks again within {client.interval_ms} ms"
    )


def subscription_id(metrics: list[str], interval_ms: int, client_id: Uuid) -> int:
    """A number that changes with the subscription of a client: Kafka's number, for at most one metric.

    With more metrics, Kafka's number depends on the iteration order of a Java hash set.
    """
    crc = crc32c(f"[{', '.join(metrics)}]{interval_ms}".encode())
    folded = int.from_bytes(client_id[:8], "big") ^ int.from_bytes(client_id[8:], "big")
    number = crc ^ (folded >> 32) ^ (folded & 0xFFFFFFFF)
    return number - (1 << 32) if number >= 1 << 31 else number
