"""Offsets in transactions: they wait for the marker, and who may commit them."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.broker.coordinators.runtime.machine import TransactionalProducer
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import TxnOffsetCommitRequest
from tests.unit.coordinators.harness import Call, Node

DAY_MS = 24 * 3_600_000


def commit(
    node: Node, offsets: dict[tuple[str, int], int], *, version: int = 4, group: str = "g", **fields: Any
) -> Call:
    topics: dict[str, list[Any]] = {}
    metadata = fields.pop("metadata", None)
    for (topic, partition), offset in offsets.items():
        row = TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(partition, offset, committed_metadata=metadata)
        topics.setdefault(topic, []).append(row)
    request = TxnOffsetCommitRequest(
        transactional_id="t",
        group_id=group,
        producer_id=fields.pop("producer_id", 7),
        producer_epoch=fields.pop("producer_epoch", 0),
        topics=[TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(name, rows) for name, rows in topics.items()],
        **fields,
    )
    return node.send(request, version)


def only(call: Call) -> ErrorCode:
    (code,) = {p.error_code for t in call.response.topics for p in t.partitions}
    return ErrorCode(code)


def end(node: Node, *, is_commit: bool, producer_id: int = 7, epoch: int = 0) -> list[Any]:
    """Write the marker of the producer's transaction. Returns the results that the coordinator reported."""
    reported: list[Any] = []
    (partition,) = {partition for partition, *_ in node.agreement.asked}
    shard = node.coordinator.runtime.shard_at(partition)
    shard.end_transaction(
        TransactionalProducer(producer_id, epoch), reported.append, commit=is_commit, coordinator_epoch=3
    )
    return reported


@pytest.mark.parametrize("version", range(6))
def test_offsets_become_effective_with_the_commit_marker(version: int) -> None:
    node = Node()
    assert only(commit(node, {("t", 0): 5, ("u", 3): 6}, version=version)) is ErrorCode.NONE
    ((_, name, producer_id, epoch, adds, names_abortable),) = node.agreement.asked
    assert (name, producer_id, epoch, adds, names_abortable) == ("t", 7, 0, version >= 5, version >= 4)
    assert node.offsets() == {}
    assert end(node, is_commit=True) == [None]
    assert node.offsets() == {("t", 0): 5, ("u", 3): 6}
    node.start()
    assert node.offsets() == {("t", 0): 5, ("u", 3): 6}, "after a load"


def test_abort_marker_drops_offsets() -> None:
    node = Node()
    node.commit({("t", 0): 1})
    commit(node, {("t", 0): 5})
    end(node, is_commit=False)
    assert node.offsets() == {("t", 0): 1}
    end(node, is_commit=True)
    assert node.offsets() == {("t", 0): 1}, "nothing is open any more"


def test_marker_ends_the_transaction_of_its_producer_only() -> None:
    node = Node()
    commit(node, {("t", 0): 5})
    commit(node, {("t", 1): 6}, producer_id=8)
    end(node, is_commit=True, producer_id=8)
    assert node.offsets() == {("t", 1): 6}
    end(node, is_commit=True)
    assert node.offsets() == {("t", 0): 5, ("t", 1): 6}


def test_plain_commit_after_a_transactional_one_stays() -> None:
    node = Node()
    commit(node, {("t", 0): 5})
    node.commit({("t", 0): 9})
    end(node, is_commit=True)
    assert node.offsets() == {("t", 0): 9}


def test_stable_read_is_refused_while_the_transaction_is_open() -> None:
    node = Node()
    node.commit({("t", 0): 1, ("t", 1): 2})
    commit(node, {("t", 0): 5})
    (group,) = node.fetch(wanted={"t": [0, 1]}, stable=True).response.groups
    codes = {p.partition_index: ErrorCode(p.error_code) for t in group.topics for p in t.partitions}
    assert codes == {0: ErrorCode.UNSTABLE_OFFSET_COMMIT, 1: ErrorCode.NONE}
    assert node.offsets() == {("t", 0): 1, ("t", 1): 2}
    end(node, is_commit=True)
    assert node.offsets(wanted={"t": [0, 1]}, stable=True) == {("t", 0): 5, ("t", 1): 2}


def test_open_transaction_keeps_its_group_and_offsets_from_expiring() -> None:
    node = Node(offsets_retention_ms=DAY_MS, offsets_retention_check_interval_ms=DAY_MS)
    node.commit({("t", 0): 1, ("t", 1): 1})
    commit(node, {("t", 0): 5})
    node.wait(2 * DAY_MS)
    assert node.offsets() == {("t", 0): 1}
    end(node, is_commit=False)
    node.wait(DAY_MS)
    assert node.offsets() == {}
    assert node.listed() == {}


def test_commit_waits_for_the_coordinator() -> None:
    node = Node()
    node.agreement.hold = True
    call = commit(node, {("t", 0): 5})
    assert not call.answered
    node.agreement.waiting.pop()()
    assert only(call) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("version", "code", "reported"),
    [
        (4, ErrorCode.INVALID_TXN_STATE, ErrorCode.INVALID_TXN_STATE),
        (4, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (1, ErrorCode.NETWORK_EXCEPTION, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
        (5, ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.CONCURRENT_TRANSACTIONS),
        (5, ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.INVALID_PRODUCER_EPOCH),
        (4, ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.NOT_COORDINATOR),
    ],
)
def test_refusals_of_the_coordinator(version: int, code: ErrorCode, reported: ErrorCode) -> None:
    node = Node()
    node.agreement.answer = KafkaError(code)
    assert only(commit(node, {("t", 0): 5}, version=version)) is reported
    node.agreement.answer = None
    end(node, is_commit=True)
    assert node.offsets() == {}


def test_unknown_partitions_are_refused_and_the_others_committed() -> None:
    node = Node()
    call = commit(node, {("t", 0): 5, ("t", 9): 5, ("x", 0): 5})
    codes = {(t.name, p.partition_index): p.error_code for t in call.response.topics for p in t.partitions}
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert codes == {("t", 0): 0, ("t", 9): unknown, ("x", 0): unknown}
    assert only(commit(node, {("x", 0): 5})) is unknown
    assert len(node.agreement.asked) == 1


def test_too_much_metadata_is_refused() -> None:
    node = Node()
    assert only(commit(node, {("t", 0): 5}, metadata="x" * 5000)) is ErrorCode.OFFSET_METADATA_TOO_LARGE


def test_members_commit_with_their_generation_only() -> None:
    node = Node()
    (a, _), generation = node.stable_group(2)
    assert only(commit(node, {("t", 0): 1}, member_id=a, generation_id=generation)) is ErrorCode.NONE
    stale = commit(node, {("t", 0): 1}, member_id=a, generation_id=generation - 1)
    assert only(stale) is ErrorCode.ILLEGAL_GENERATION
    assert only(commit(node, {("t", 0): 1}, member_id="?", generation_id=generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    fenced = commit(node, {("t", 0): 1}, member_id=a, generation_id=generation, group_instance_id="i")
    assert only(fenced) is ErrorCode.UNKNOWN_MEMBER_ID
    assert only(commit(node, {("t", 0): 1})) is ErrorCode.NONE, "an old producer names no member"


def test_unknown_group_is_created_only_without_a_generation() -> None:
    node = Node()
    assert only(commit(node, {("t", 0): 1}, generation_id=3, member_id="m")) is ErrorCode.ILLEGAL_GENERATION
    assert only(commit(node, {("t", 0): 1})) is ErrorCode.NONE
    assert node.listed() == {"g": ("Empty", "classic", "")}


def test_group_without_an_id_is_refused() -> None:
    assert only(commit(Node(), {("t", 0): 1}, group="")) is ErrorCode.INVALID_GROUP_ID


def test_elsewhere_coordinated_group_is_refused_without_a_question() -> None:
    node = Node()
    node.coordinator.shutdown()
    assert only(commit(node, {("t", 0): 1})) is ErrorCode.NOT_COORDINATOR
    assert node.agreement.asked == []
