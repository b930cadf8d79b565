"""Create-, Renew-, Expire- and DescribeDelegationToken (38-41): refused on connections without authentication.

A token speaks for the principal that asked for it; who has not authenticated has none to lend (KIP-48). Kafka refuses
on plaintext listeners before it looks at anything else.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from kraft_node.base.errors import ErrorCode, KafkaError

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker


def refuse_delegation_tokens(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """Always refuses: all listeners are plaintext."""
    raise KafkaError(
        ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED,
        "Delegation token requests are not allowed on unauthenticated connections",
    )
