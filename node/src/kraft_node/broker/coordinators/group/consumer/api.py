"""The requests of consumer groups (KIP-848) at the coordinator: ConsumerGroupHeartbeat and ConsumerGroupDescribe."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.long_answers import answer
from kraft_node.broker.coordinators.group.consumer.describe import DescribedGroup, describe
from kraft_node.broker.coordinators.group.consumer.rules import check_request
from kraft_node.broker.coordinators.runtime.failures import client_error
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)

if TYPE_CHECKING:
    from collections.abc import Generator

    from kraft_node.base.request import RequestContext
    from kraft_node.broker.coordinators.group.consumer.services import ConsumerServices
    from kraft_node.broker.coordinators.group.shard import Shard
    from kraft_node.broker.coordinators.runtime.engine import Runtime

GROUP_OPERATIONS: Final = 1 << 3 | 1 << 6 | 1 << 8 | 1 << 10 | 1 << 11
"""READ, DELETE, DESCRIBE, DESCRIBE_CONFIGS, ALTER_CONFIGS: all operations on a group."""


def _all(names: list[str]) -> list[str]:
    """Permit every name."""
    return names


class ConsumerGroupApi:
    """Handlers of the two requests. `is_enabled()`: consumer groups may be used in this cluster."""

    __slots__ = ("_is_enabled", "_runtime", "_services")

    def __init__(self, runtime: Runtime[Shard], services: ConsumerServices, is_enabled: Callable[[], bool]) -> None:
        self._runtime = runtime
        self._services = services
        self._is_enabled = is_enabled

    def heartbeat(
        self,
        ctx: RequestContext,
        request: ConsumerGroupHeartbeatRequest,
        permitted: Callable[[list[str]], Collection[str]] = _all,
    ) -> ConsumerGroupHeartbeatResponse | None:
        """ConsumerGroupHeartbeat 0-1. `permitted`: the topics that the client may describe, for its patterns."""
        if not self._is_enabled():
            return ConsumerGroupHeartbeatResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        try:
            check_request(request, ctx.api_version, self._services.config.consumer_assignors)
            shard = self._runtime.shard_of(request.group_id).machine
            shard.consumer_membership.heartbeat(ctx, request, permitted)
        except KafkaError as error:
            return ConsumerGroupHeartbeatResponse(error_code=client_error(error), error_message=error.message)
        return None

    def describe(
        self, ctx: RequestContext, request: ConsumerGroupDescribeRequest
    ) -> ConsumerGroupDescribeResponse | None:
        """ConsumerGroupDescribe 0-1, a group in each step."""
        return answer(self._services.turns, ctx, request, self._described(request))  # type: ignore[no-any-return]

    def _described(self, request: ConsumerGroupDescribeRequest) -> Generator[None, None, Any]:
        groups = []
        enabled = self._is_enabled()
        for group_id in request.group_ids:
            if not enabled:
                groups.append(DescribedGroup(group_id=group_id, error_code=ErrorCode.UNSUPPORTED_VERSION))
                continue
            try:
                groups.append(self._describe(group_id, with_operations=request.include_authorized_operations))
            except KafkaError as error:
                groups.append(
                    DescribedGroup(group_id=group_id, error_code=client_error(error), error_message=error.message)
                )
            yield
        return ConsumerGroupDescribeResponse(groups=groups)

    def _describe(self, group_id: str, *, with_operations: bool) -> DescribedGroup:
        if not group_id:
            raise KafkaError(ErrorCode.INVALID_GROUP_ID)
        shard = self._runtime.shard_of(group_id).machine
        group = shard.consumer_membership.group(group_id)
        described = describe(group, self._services.topics, self._services.config.consumer_assignors)
        if with_operations:
            described.authorized_operations = GROUP_OPERATIONS
        return described
