"""ListTransactions (66), versions 0-2, and DescribeTransactions (65), version 0 (KIP-664, -994, -1152).

Answered for a broker that coordinates no transaction: the list is empty, every id is unknown.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from kraft_node.base.errors import ErrorCode, KafkaError
from kraft_node.wire.messages import DescribeTransactionsResponse, ListTransactionsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker

STATES: Final = frozenset(
    (
        "Empty",
        "Ongoing",
        "PrepareCommit",
        "PrepareAbort",
        "CompleteCommit",
        "CompleteAbort",
        "PrepareEpochFence",
    )
)


def list_transactions(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """No transactions, and which of the asked states do not exist."""
    if request.transactional_id_pattern:
        try:
            re.compile(request.transactional_id_pattern)
        except re.error as e:
            raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(e)) from None
    return ListTransactionsResponse(
        unknown_state_filters=[state for state in request.state_filters if state not in STATES]
    )


def describe_transactions(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """TRANSACTIONAL_ID_NOT_FOUND for each id; INVALID_REQUEST for an empty one."""
    return DescribeTransactionsResponse(
        transaction_states=[
            DescribeTransactionsResponse.TransactionState(
                error_code=(ErrorCode.TRANSACTIONAL_ID_NOT_FOUND if transactional_id else ErrorCode.INVALID_REQUEST),
                transactional_id=transactional_id,
            )
            for transactional_id in request.transactional_ids
        ]
    )
