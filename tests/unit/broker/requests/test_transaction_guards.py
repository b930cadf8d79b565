"""The guards of transactions: which operation each request needs, and what a denied client gets."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest

from kraft_node.broker.authorization import transactions
from kraft_node.broker.authorization.gate import Gate
from kraft_node.security.names import Operation, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import (
    AddOffsetsToTxnRequest,
    AddPartitionsToTxnRequest,
    EndTxnRequest,
    InitProducerIdRequest,
    ListTransactionsRequest,
)

WRITE_ID = (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t")
READ_GROUP = (Operation.READ, ResourceType.GROUP, "g")


class Allowed:
    """An authorizer that allows what the test lists."""

    def __init__(self, *rights: Any) -> None:
        self.rights = set(rights)

    def allows(self, _ctx: Any, operation: Any, kind: Any, name: str = "", *, log_denied: bool = True) -> bool:
        return (operation, kind, name) in self.rights

    def allows_some(self, *_: Any) -> bool:
        return False

    def permitted(self, ctx: Any, operation: Any, kind: Any, names: Iterable[str]) -> set[str]:
        return {name for name in names if self.allows(ctx, operation, kind, name)}

    def require(self, _ctx: Any, operation: Any) -> None:
        if operation not in self.rights:
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "")


class Context:
    def __init__(self, api_version: int) -> None:
        self.api_version = api_version


def asked(guard: Any, request: Any, version: int, *rights: Any) -> Any:
    """What the guard gives the handler after context and request, or the code of its refusal."""
    gate = Gate(Allowed(*rights), None, None, None)  # type: ignore[arg-type]
    try:
        return guard(gate, lambda _ctx, _request, *more: more, Context(version), request)
    except KafkaError as error:
        return error.code


@pytest.mark.parametrize(
    ("guard", "request_", "needed"),
    [
        (transactions.init_producer_id, InitProducerIdRequest("t", 1), [WRITE_ID]),
        (transactions.end, EndTxnRequest("t"), [WRITE_ID]),
        (transactions.add_offsets, AddOffsetsToTxnRequest("t", group_id="g"), [WRITE_ID, READ_GROUP]),
    ],
)
def test_each_right_is_needed(guard: Any, request_: Any, needed: list[Any]) -> None:
    assert asked(guard, request_, 3, *needed) == ()
    for missing in needed:
        code = asked(guard, request_, 3, *(right for right in needed if right is not missing))
        is_group = missing is READ_GROUP
        assert code == (
            ErrorCode.GROUP_AUTHORIZATION_FAILED if is_group else ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
        )


def test_two_phase_commit_needs_a_right_of_its_own() -> None:
    request = InitProducerIdRequest("t", 1, enable2_pc=True)
    code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert asked(transactions.init_producer_id, request, 6, WRITE_ID) == code
    right = (Operation.TWO_PHASE_COMMIT, ResourceType.TRANSACTIONAL_ID, "t")
    assert asked(transactions.init_producer_id, request, 6, WRITE_ID, right) == ()


def test_clients_add_only_topics_that_they_may_write_to() -> None:
    request = AddPartitionsToTxnRequest(v3_and_below_transactional_id="t")
    assert asked(transactions.add_partitions, request, 3) == ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    (denied,) = asked(transactions.add_partitions, request, 3, WRITE_ID, (Operation.WRITE, ResourceType.TOPIC, "a"))
    assert denied(["a", "b"]) == {"b"}


def test_only_brokers_add_for_others() -> None:
    request = AddPartitionsToTxnRequest()
    assert asked(transactions.add_partitions, request, 4, WRITE_ID) == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert asked(transactions.add_partitions, request, 5, Operation.CLUSTER_ACTION) == ()


def test_a_list_shows_the_ids_that_the_client_may_describe() -> None:
    right = (Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, "t")
    (sees,) = asked(transactions.list_all, ListTransactionsRequest(), 2, right)
    assert (sees("t"), sees("u")) == (True, False)
