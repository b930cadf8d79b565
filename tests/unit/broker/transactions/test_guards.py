"""Permissions for markers and for offsets in transactions."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.broker.authorization.cluster import write_txn_markers
from kraft_node.broker.authorization.gate import Gate
from kraft_node.broker.authorization.groups import txn_offset_commit
from kraft_node.security.names import Operation, ResourceType
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import TxnOffsetCommitRequest, TxnOffsetCommitResponse, WriteTxnMarkersRequest
from tests.unit.broker.world import Client

ALL = {
    (Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"),
    (Operation.READ, ResourceType.GROUP, "g"),
    (Operation.READ, ResourceType.TOPIC, "a"),
    (Operation.READ, ResourceType.TOPIC, "b"),
}


class Permissions:
    """An authorizer that allows what it is given."""

    def __init__(self, allowed: set[Any]) -> None:
        self.allowed = allowed

    def allows(
        self, _ctx: Any, operation: Operation, kind: ResourceType, name: str = "", *, log_denied: bool = True
    ) -> bool:
        return (operation, kind, name) in self.allowed or (operation, kind) in self.allowed

    def permitted(self, ctx: Any, operation: Operation, kind: ResourceType, names: list[str], **_more: Any) -> set[str]:
        return {name for name in names if self.allows(ctx, operation, kind, name)}

    def require(self, ctx: Any, operation: Operation) -> None:
        if not self.allows(ctx, operation, ResourceType.CLUSTER):
            raise KafkaError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)


def gate(*allowed: Any) -> Gate:
    nothing: Any = SimpleNamespace()
    return Gate(Permissions(set(allowed)), nothing, nothing, nothing)  # type: ignore[arg-type]


def commit(*allowed: Any) -> Any:
    """The codes by topic, and the topics that the handler gets."""
    row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 5)
    topics = [TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name, [row]) for name in ("a", "b")]
    request = TxnOffsetCommitRequest("t", "g", 7, 0, topics=topics)

    def handler(_ctx: Any, request: Any) -> Any:
        answer = TxnOffsetCommitResponse
        rows = [answer.TxnOffsetCommitResponsePartition(0, 0)]
        return answer(topics=[answer.TxnOffsetCommitResponseTopic(topic.name, list(rows)) for topic in request.topics])

    response = txn_offset_commit(gate(*allowed), handler, Client().context(ApiKey.TXN_OFFSET_COMMIT, 4), request)
    return {topic.name: topic.partitions[0].error_code for topic in response.topics}


def test_offsets_need_permissions_on_the_id_the_group_and_the_topics() -> None:
    assert commit(*ALL) == {"a": 0, "b": 0}
    denied = commit(*ALL - {(Operation.READ, ResourceType.TOPIC, "b")})
    assert denied == {"a": 0, "b": ErrorCode.TOPIC_AUTHORIZATION_FAILED}
    for missing, code in (
        ((Operation.WRITE, ResourceType.TRANSACTIONAL_ID, "t"), ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED),
        ((Operation.READ, ResourceType.GROUP, "g"), ErrorCode.GROUP_AUTHORIZATION_FAILED),
    ):
        with pytest.raises(KafkaError) as caught:
            commit(*ALL - {missing})
        assert caught.value.code == code


@pytest.mark.parametrize("operation", [Operation.ALTER, Operation.CLUSTER_ACTION])
def test_markers_need_a_permission_on_the_cluster(operation: Operation) -> None:
    context, request = Client().context(ApiKey.WRITE_TXN_MARKERS, 2), WriteTxnMarkersRequest([])
    assert (
        write_txn_markers(gate((operation, ResourceType.CLUSTER)), lambda *_: "written", context, request) == "written"
    )
    with pytest.raises(KafkaError) as caught:
        write_txn_markers(gate((Operation.DESCRIBE, ResourceType.CLUSTER)), lambda *_: "written", context, request)
    assert caught.value.code is ErrorCode.CLUSTER_AUTHORIZATION_FAILED
