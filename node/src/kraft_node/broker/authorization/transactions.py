"""Guards of producer ids and transactions: WRITE on the transactional id to work with it, DESCRIBE to see it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, Final

from kraft_node.broker.authorization.gate import Gate, Guard
from kraft_node.security.names import REFUSALS, Operation, ResourceType
from kraft_node.security.rewriting import changed
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeTransactionsResponse

if TYPE_CHECKING:
    from kraft_node.base.request import Handler, RequestContext

ADD_FOR_CLIENTS: Final = 4
"""The first version of AddPartitionsToTxn that only brokers send."""


def _require_write(gate: Gate, ctx: RequestContext, name: str) -> None:
    if not gate.authorizer.allows(ctx, Operation.WRITE, ResourceType.TRANSACTIONAL_ID, name):
        raise KafkaError(*REFUSALS[ResourceType.TRANSACTIONAL_ID])


def init_producer_id(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the transactional id; without one IDEMPOTENT_WRITE on the cluster or WRITE on any topic (KIP-679)."""
    authorizer = gate.authorizer
    name = request.transactional_id
    if name is not None:
        _require_write(gate, ctx, name)
        if request.enable2_pc and not authorizer.allows(
            ctx, Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, name
        ):
            raise KafkaError(*REFUSALS[ResourceType.TRANSACTIONAL_ID])
    elif not (
        authorizer.allows(ctx, Operation.IDEMPOTENT_WRITE, ResourceType.CLUSTER, log_denied=False)
        or authorizer.allows_some(ctx, Operation.WRITE, ResourceType.TOPIC)
    ):
        raise KafkaError(*REFUSALS[ResourceType.CLUSTER])
    return handler(ctx, request)


def add_partitions(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the transactional id and the topics; CLUSTER_ACTION for the versions of brokers."""
    if ctx.api_version >= ADD_FOR_CLIENTS:
        gate.authorizer.require(ctx, Operation.CLUSTER_ACTION)
        return handler(ctx, request)
    _require_write(gate, ctx, request.v3_and_below_transactional_id)

    def denied(topics: Iterable[str]) -> set[str]:
        names = list(topics)
        return set(names) - set(gate.authorizer.permitted(ctx, Operation.WRITE, ResourceType.TOPIC, names))

    return handler(ctx, request, denied)


def add_offsets(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the transactional id, READ on the group."""
    _require_write(gate, ctx, request.transactional_id)
    gate.require_group(ctx, Operation.READ, request.group_id)
    return handler(ctx, request)


def end(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """WRITE on the transactional id."""
    _require_write(gate, ctx, request.transactional_id)
    return handler(ctx, request)


def describe(gate: Gate, handler: Handler, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the transactional ids, and on the topics in the answer."""
    allows = gate.authorizer.allows
    ids = request.transactional_ids
    may = [allows(ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, one) for one in ids]
    response = handler(ctx, changed(request, transactional_ids=[one for one, yes in zip(ids, may, strict=True) if yes]))
    found = iter(response.transaction_states)
    row = DescribeTransactionsResponse.TransactionState
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    response.transaction_states = [
        next(found) if yes else row(error_code=code, transactional_id=one) for one, yes in zip(ids, may, strict=True)
    ]
    for state in response.transaction_states:
        state.topics = [
            topic for topic in state.topics if allows(ctx, Operation.DESCRIBE, ResourceType.TOPIC, topic.topic)
        ]
    return response


def list_all(gate: Gate, handler: Any, ctx: RequestContext, request: Any) -> Any:
    """DESCRIBE on the transactional ids; others are left out silently."""
    allows = gate.authorizer.allows
    return handler(
        ctx,
        request,
        lambda name: allows(ctx, Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, name, log_denied=False),
    )


GUARDS: Final[dict[ApiKey, Guard]] = {
    ApiKey.INIT_PRODUCER_ID: init_producer_id,
    ApiKey.ADD_PARTITIONS_TO_TXN: add_partitions,
    ApiKey.ADD_OFFSETS_TO_TXN: add_offsets,
    ApiKey.END_TXN: end,
    ApiKey.DESCRIBE_TRANSACTIONS: describe,
    ApiKey.LIST_TRANSACTIONS: list_all,
}
