"""ApiVersions (18), versions 0-4, and the SASL requests, which `server.connections.authentication` handles.

The table contains exactly the APIs that the listener serves. An API without a handler is not advertised, nor is
telemetry, which has no receiver (KIP-714). Broker listeners advertise Produce from version 0, although nothing below 3
is served, because librdkafka otherwise assumes that the broker is too old (KAFKA-18659). Features are the features of
the release. Finalized features come from the committed metadata; its offset is the epoch (KIP-584). A request with an
unsupported version is answered in version 0 with error 35, which names only ApiVersions' own range (KIP-511).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final

from kraft_node.metadata.features import KRAFT_VERSION, SUPPORTED_RANGES
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.messages import ApiVersionsResponse, SaslHandshakeResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext
    from kraft_node.metadata.image import MetadataImage

_SOFTWARE: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")

FIRST_VERSION_WITH_SOFTWARE: Final = 3

FIRST_VERSION_WITH_ZERO_MINIMUM: Final = 4
"""Older clients reject a supported range that begins at 0, so it is reported from 1 (KAFKA-17492)."""


NOT_ADVERTISED: Final = frozenset((ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, ApiKey.PUSH_TELEMETRY))
"""Answered, but not advertised, as in Apache Kafka without a plugin that receives metrics."""


class ApiVersions:
    """The answers for one listener; the table of keys is made once."""

    def __init__(
        self,
        handlers: Mapping[ApiKey, Handler],
        image: MetadataImage,
        *,
        is_broker: bool,
        kraft_version: Callable[[], int],
        migrates: bool = False,
    ) -> None:
        """`migrates`: this controller is ready to migrate a cluster from ZooKeeper (KIP-866)."""
        self._migrates = migrates
        self._image = image
        self._kraft_version = kraft_version
        served = {**handlers, ApiKey.API_VERSIONS: self}
        self._keys = [self._row(key, is_broker=is_broker) for key in sorted(served) if key not in NOT_ADVERTISED]

    @staticmethod
    def _row(key: ApiKey, *, is_broker: bool) -> Any:
        spec = API[key]
        lowest = 0 if is_broker and key == ApiKey.PRODUCE else spec.min_version
        return ApiVersionsResponse.ApiVersion(int(key), lowest, spec.max_version)

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        authentication = ctx.connection.authentication
        if authentication is not None and not authentication.begin_versions():
            return authentication.unexpected(ctx, ApiVersionsResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE))
        if ctx.api_version >= FIRST_VERSION_WITH_SOFTWARE:
            name, version = request.client_software_name, request.client_software_version
            if not _SOFTWARE.fullmatch(name) or not _SOFTWARE.fullmatch(version):
                return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
            ctx.connection.client_software = (name, version)
        if authentication is not None:
            authentication.versions_answered()
        image = self._image
        zero_is_known = ctx.api_version >= FIRST_VERSION_WITH_ZERO_MINIMUM
        features = [
            ApiVersionsResponse.SupportedFeatureKey(name, levels.min_level, levels.max_level)
            for name, levels in SUPPORTED_RANGES.items()
            if zero_is_known or levels.min_level > 0
        ]
        finalized = [
            ApiVersionsResponse.FinalizedFeatureKey(name, level, level)
            for name, level in sorted([*image.features.items(), (KRAFT_VERSION, self._kraft_version())])
            if level > 0
        ]
        return ApiVersionsResponse(
            api_keys=self._keys,
            supported_features=features,
            finalized_features_epoch=image.offset,
            finalized_features=finalized,
            zk_migration_ready=self._migrates,
        )

    def fallback(self) -> Any:
        """The version 0 answer to an unknown version."""
        spec = API[ApiKey.API_VERSIONS]
        row = ApiVersionsResponse.ApiVersion(int(ApiKey.API_VERSIONS), spec.min_version, spec.max_version)
        return ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[row])


def sasl_handshake(ctx: RequestContext, request: Any) -> Any:
    """SaslHandshake (17)."""
    authentication = ctx.connection.authentication
    if authentication is None:
        return SaslHandshakeResponse(error_code=ErrorCode.ILLEGAL_SASL_STATE)
    return authentication.handshake(ctx, request)


def sasl_authenticate(ctx: RequestContext, request: Any) -> Any:
    """SaslAuthenticate (36)."""
    authentication = ctx.connection.authentication
    if authentication is None:
        text = "SaslAuthenticate request received after successful authentication"
        raise KafkaError(ErrorCode.ILLEGAL_SASL_STATE, text)
    return authentication.authenticate(ctx, request)


def with_connection_apis(
    handlers: Mapping[ApiKey, Handler],
    image: MetadataImage,
    *,
    is_broker: bool,
    kraft_version: Callable[[], int] = lambda: 0,
    migrates: bool = False,
) -> tuple[dict[ApiKey, Handler], Callable[[], Any]]:
    """`handlers` with the handlers that every listener has, and the fallback for unknown ApiVersions versions.

    `kraft_version` is not in the image: the quorum finalizes it in its control records (KIP-853).
    """
    table = {
        **handlers,
        ApiKey.SASL_HANDSHAKE: sasl_handshake,
        ApiKey.SASL_AUTHENTICATE: sasl_authenticate,
    }
    versions = ApiVersions(table, image, is_broker=is_broker, kraft_version=kraft_version, migrates=migrates)
    table[ApiKey.API_VERSIONS] = versions
    return table, versions.fallback
