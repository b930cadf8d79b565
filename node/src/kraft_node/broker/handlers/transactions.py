"""ListTransactions (66), versions 0-2, and DescribeTransactions (65), version 0 (KIP-664, -994, -1152).

Answered for a broker that coordinates no transaction: the list is empty, every id is unknown.
"""

from __future__ import annotations

import re
import warnings
from typing import TYPE_CHECKING, Any, Final

from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import DescribeTransactionsResponse, ListTransactionsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import RequestContext
    from kraft_node.broker.broker import Broker

NOT_ASCII: Final = "\x7f"
"""Replaces non-ASCII characters while a pattern is checked: it sorts after all other ASCII characters."""
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


PATTERN_MAX: Final = 1000
"""Maximum length of a pattern: parsing it takes at most a few milliseconds."""


def _check_pattern(pattern: str) -> None:
    """Raise INVALID_REGULAR_EXPRESSION unless `pattern` can be read as a regular expression.

    Kafka matches ids by RE2, in linear time. No id exists here, so a pattern is read and never run: nothing can
    back-track. It is read as ASCII, because Python's `re` spends up to 30 ms on each class of all Unicode characters.
    """
    if len(pattern) > PATTERN_MAX:
        text = f"the pattern has {len(pattern)} characters, {PATTERN_MAX} are taken"
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, text)
    plain = "".join(char if char.isascii() else NOT_ASCII for char in pattern)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # `[[` may mean something else to a later Python
            re.compile(plain.encode())
    except (re.error, OverflowError, RecursionError) as e:
        raise KafkaError(ErrorCode.INVALID_REGULAR_EXPRESSION, f"{pattern!r}: {e}") from None


def list_transactions(broker: Broker, ctx: RequestContext, request: Any) -> Any:  # noqa: ARG001
    """No transactions, and which of the asked states do not exist."""
    if request.transactional_id_pattern:
        _check_pattern(request.transactional_id_pattern)
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
