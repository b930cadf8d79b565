"""FindCoordinator (0-6): the coordinator of a key. Several keys from 4 (KIP-699), share groups from 6.

A request for a coordinator creates its internal topic if the topic does not exist. Until the topic has leaders, the
answer is COORDINATOR_NOT_AVAILABLE, which clients retry. For coordinators that this release lacks, the answer is
UNSUPPORTED_VERSION, and clients give up. Kafka's admin client would retry a retriable error without a pause.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, Final

from kraft_node.broker.coordinators.group.seams import ClientEndpoint
from kraft_node.broker.coordinators.partitioning import partition_for
from kraft_node.broker.metadata_cache import TRANSACTION_STATE
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import FindCoordinatorRequest, FindCoordinatorResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.config import GroupConfig
    from kraft_node.broker.coordinators.group.seams import ClusterView

log = logging.getLogger(__name__)

OFFSETS_TOPIC: Final = "__consumer_offsets"
KEY_TYPE_GROUP: Final = 0
KEY_TYPE_TRANSACTION: Final = 1
KEY_TYPE_SHARE: Final = 2
TOPICS: Final = {KEY_TYPE_GROUP: OFFSETS_TOPIC, KEY_TYPE_TRANSACTION: TRANSACTION_STATE}
FIRST_VERSION_WITH_KEYS: Final = 4
FIRST_VERSION_WITH_SHARE_GROUPS: Final = 6
NO_ENDPOINT: Final = ClientEndpoint(-1, "", -1)

_TEXT: Final = {
    ErrorCode.NONE: "NONE",
    ErrorCode.COORDINATOR_NOT_AVAILABLE: "The coordinator is not available.",
    ErrorCode.UNSUPPORTED_VERSION: "This release has no coordinator for keys of this type.",
    ErrorCode.INVALID_REQUEST: (
        "This most likely occurs because of a request being malformed by the client library or the message was sent to "
        "an incompatible broker. See the broker logs for more details."
    ),
}


class Locator:
    """Answers FindCoordinator."""

    __slots__ = ("_cluster", "_config")

    def __init__(self, cluster: ClusterView, config: GroupConfig) -> None:
        self._cluster = cluster
        self._config = config

    def find_coordinator(self, ctx: RequestContext, request: FindCoordinatorRequest) -> FindCoordinatorResponse:
        """The coordinator of each key."""
        if ctx.api_version < FIRST_VERSION_WITH_KEYS:
            code, node = self._find(ctx, request.key_type, request.key)
            return FindCoordinatorResponse(
                error_code=code, error_message=_TEXT[code], node_id=node.node_id, host=node.host, port=node.port
            )
        kind, coordinators = request.key_type, []
        for key in request.coordinator_keys:
            code, node = self._find(ctx, kind, key)
            coordinators.append(
                FindCoordinatorResponse.Coordinator(
                    key=key,
                    node_id=node.node_id,
                    host=node.host,
                    port=node.port,
                    error_code=code,
                    error_message=_TEXT[code] if code == ErrorCode.INVALID_REQUEST and kind != KEY_TYPE_SHARE else "",
                )
            )
        return FindCoordinatorResponse(coordinators=coordinators)

    def _find(self, ctx: RequestContext, key_type: int, key: str) -> tuple[ErrorCode, ClientEndpoint]:
        topic = TOPICS.get(key_type)
        if topic is None:
            is_share = key_type == KEY_TYPE_SHARE and ctx.api_version >= FIRST_VERSION_WITH_SHARE_GROUPS
            return ErrorCode.UNSUPPORTED_VERSION if is_share else ErrorCode.INVALID_REQUEST, NO_ENDPOINT
        count = self._cluster.partition_count(topic)
        if count is None:
            self._cluster.create_internal_topic(topic, ctx)
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_ENDPOINT
        endpoint = self._cluster.leader_endpoint(topic, partition_for(key, count), ctx.listener)
        if endpoint is None:
            return ErrorCode.COORDINATOR_NOT_AVAILABLE, NO_ENDPOINT
        return ErrorCode.NONE, endpoint
