"""Requests that only the controller can handle: forwarded unchanged, and the answer returned (KIP-590).

The client's principal, host and API version travel with the request, in an envelope between separate nodes. So the
controller authorizes and answers as if the client had connected to it.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.error_response import error_response

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.controller_link import Answer, ControllerLink

log = logging.getLogger(__name__)

FORWARDED: Final = (
    ApiKey.CREATE_TOPICS,
    ApiKey.DELETE_TOPICS,
    ApiKey.CREATE_PARTITIONS,
    ApiKey.CREATE_ACLS,
    ApiKey.DELETE_ACLS,
    ApiKey.ALTER_CONFIGS,
    ApiKey.INCREMENTAL_ALTER_CONFIGS,
    ApiKey.ELECT_LEADERS,
    ApiKey.ALTER_PARTITION_REASSIGNMENTS,
    ApiKey.LIST_PARTITION_REASSIGNMENTS,
    ApiKey.ALTER_CLIENT_QUOTAS,
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS,
    ApiKey.DESCRIBE_QUORUM,
    ApiKey.UPDATE_FEATURES,
    ApiKey.UNREGISTER_BROKER,
    ApiKey.ADD_RAFT_VOTER,
    ApiKey.REMOVE_RAFT_VOTER,
)
"""The APIs that Kafka's broker forwards, except delegation tokens. Served if the controller serves them."""

WAITING_MAX: Final = 10_000
"""Maximum of pending forwarded requests; admin traffic is a few per second."""


class Forwarder:
    """The handler of every forwarded API."""

    def __init__(self, controller: ControllerLink, timeout_ms: int) -> None:
        self._controller = controller
        self._timeout_ms = timeout_ms
        self.waiting = 0

    def __call__(self, ctx: RequestContext, request: Any) -> Any:
        self.send(ctx, request, partial(_hand_back, ctx, request))

    def send(self, ctx: RequestContext, request: Any, done: Callable[[Answer], None]) -> None:
        """Send a request to the controller on behalf of the client of `ctx`, in its version.

        Raises KafkaError REQUEST_TIMED_OUT if too many requests wait already.
        """
        if self.waiting >= WAITING_MAX:
            raise KafkaError(ErrorCode.REQUEST_TIMED_OUT, f"{WAITING_MAX} requests wait for the controller already")
        self.waiting += 1

        def answered(answer: Answer) -> None:
            self.waiting -= 1
            done(answer)

        self._controller.send(request, ctx.api_version, answered, self._timeout_ms, on_behalf_of=ctx)


def _hand_back(ctx: RequestContext, request: Any, answer: Answer) -> None:
    if isinstance(answer, KafkaError):
        ctx.respond(error_response(request, ctx.api_version, answer.code, answer.message))
    elif isinstance(answer, OSError):
        log.warning("controller did not answer request=%s error=%s", type(request).__name__, answer)
        text = "The controller did not answer in time"
        ctx.respond(error_response(request, ctx.api_version, ErrorCode.REQUEST_TIMED_OUT, text))
    else:
        throttle_ms = getattr(answer, "throttle_time_ms", 0)
        if throttle_ms > 0:  # the controller cannot reach the client's connection
            ctx.connection.mute(throttle_ms)
        ctx.respond(answer)
