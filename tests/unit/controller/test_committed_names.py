"""Clients may delete only committed topics (KIP-631): an uncommitted topic is neither visible nor deletable."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.base.request import RequestContext
from kraft_node.controller.authorization import delete_topics
from kraft_node.security.authorizer import Authorizer
from kraft_node.security.names import Operation
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID, Uuid
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DeleteTopicsRequest, DeleteTopicsResponse

COMMITTED, UNCOMMITTED = Uuid(b"c" * 16), Uuid(b"u" * 16)
State = DeleteTopicsRequest.DeleteTopicState
MANY = 4_000


class Permissions(Authorizer):
    """Permits these operations on every topic, and none on the cluster."""

    def __init__(self, *operations: Operation) -> None:
        super().__init__()
        self.operations_allowed = operations

    def allows(self, ctx: Any, operation: Any, resource_type: Any, name: str = "cluster", **_: Any) -> bool:
        return name not in {"cluster", "kafka-cluster"} and operation in self.operations_allowed


class Committed:
    """The committed topics."""

    def by_id(self, topic_id: Uuid) -> Any:
        return SimpleNamespace(name="committed") if topic_id == COMMITTED else None

    def by_name(self, name: str) -> Any:
        return SimpleNamespace(name=name) if name == "committed" else None


def ask(permissions: Permissions, *states: Any) -> tuple[list[Any], dict[Any, int]]:
    """The names that reach the planner, which knows uncommitted topics, and the codes of the answer."""
    reached: list[Any] = []

    def planner(_: Any, request: Any) -> Any:
        reached.extend(request.topics)
        rows = [DeleteTopicsResponse.DeletableTopicResult(state.name, state.topic_id) for state in request.topics]
        return DeleteTopicsResponse(responses=rows)

    ctx = RequestContext(ApiKey.DELETE_TOPICS, 6, 1, "c", "host", "C", "User:a", None, 0, lambda *_: None)
    committed: Any = Committed
    response = delete_topics(committed, permissions, planner, ctx, DeleteTopicsRequest(topics=list(states)))
    return reached, {row.name or row.topic_id: row.error_code for row in response.responses}


def test_an_id_that_is_not_committed_is_unknown_and_reaches_no_planner() -> None:
    asked = (State(None, COMMITTED), State(None, UNCOMMITTED))
    reached, codes = ask(Permissions(Operation.DESCRIBE, Operation.DELETE), *asked)
    assert [state.topic_id for state in reached] == [COMMITTED]
    assert codes[UNCOMMITTED] == ErrorCode.UNKNOWN_TOPIC_ID


@pytest.mark.parametrize(("name", "code"), [("committed", 29), ("uncommitted", 3)])
def test_a_visible_name_without_delete_permission_never_reaches_the_planner(name: str, code: int) -> None:
    reached, codes = ask(Permissions(Operation.DESCRIBE), State(name, ZERO_UUID))
    assert reached == []
    assert codes == {name: code}


def test_invisible_names_get_the_same_error() -> None:
    reached, codes = ask(Permissions(), State("committed", ZERO_UUID), State("uncommitted", ZERO_UUID))
    assert reached == []
    assert set(codes.values()) == {ErrorCode.TOPIC_AUTHORIZATION_FAILED}


def test_many_denied_names_need_few_comparisons() -> None:
    compared = 0

    class Name(str):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, other)

        __hash__ = str.__hash__

    states = [State(Name(f"t{i}"), ZERO_UUID) for i in range(MANY)]
    reached, codes = ask(Permissions(Operation.DESCRIBE), *states)
    assert reached == []
    assert len(codes) == MANY
    assert compared < 40 * MANY
