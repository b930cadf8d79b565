"""Create-, Renew-, Expire- and DescribeDelegationToken (38-41): refused on connections without authentication.

A token stands for the principal that requested it; an unauthenticated client has none (KIP-48). On plaintext listeners,
Kafka refuses before any other check.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ExpireDelegationTokenResponse, RenewDelegationTokenResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


NO_EXPIRY: Final[dict[int, Any]] = {
    ApiKey.RENEW_DELEGATION_TOKEN: RenewDelegationTokenResponse,
    ApiKey.EXPIRE_DELEGATION_TOKEN: ExpireDelegationTokenResponse,
}
"""These answers have an expiry time; -1 if there is no token."""


def refuse_delegation_tokens(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Always refuses: all listeners are plaintext."""
    answer = NO_EXPIRY.get(ctx.api_key)
    if answer is not None:
        return answer(error_code=ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED, expiry_timestamp_ms=-1)
    raise KafkaError(
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        "Delegation token requests are not allowed on unauthenticated connections",
    )
