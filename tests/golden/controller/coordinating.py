"""Requests of producers with transactions, and of members of groups of KIP-848, to two servers with an authorizer.

Most requests name an old epoch or an unknown member, so permitted clients get an error as well, and change nothing.
`living` is a transaction from its beginning to its end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any, Final

from kraft_node.security.names import Operation, PatternType, ResourceType
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.golden.broker.batches import batch, produce
from tests.golden.broker.pair import Side

WAIT_S = 60.0
TIMEOUT_MS = 60_000
OPEN_MS = 3_600_000
"""How long the open transaction stays open."""
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
TOPICS = ("mine", "other")
SETTINGS: Final = {"transaction.state.log.num.partitions": "4", "transaction.max.timeout.ms": str(OPEN_MS)}
GROUP, MEMBER = "g-848", "m"

_L, _P = PatternType.LITERAL, PatternType.PREFIXED
Right = tuple[ResourceType, str, PatternType, Operation]
Story = Callable[[Side], Iterator[tuple[Any, Any]]]


def on_id(operation: Operation) -> Right:
    return ResourceType.TRANSACTIONAL_ID, "t-", _P, operation


def on_group(operation: Operation) -> Right:
    return ResourceType.GROUP, "g-", _P, operation


def on_topic(operation: Operation) -> Right:
    return ResourceType.TOPIC, "mine", _L, operation


def on_cluster(operation: Operation) -> Right:
    return ResourceType.CLUSTER, "kafka-cluster", _L, operation


WRITE_ID, DESCRIBE_ID = on_id(Operation.WRITE), on_id(Operation.DESCRIBE)
READ_GROUP, READ_TOPIC, WRITE_TOPIC = on_group(Operation.READ), on_topic(Operation.READ), on_topic(Operation.WRITE)
RIGHTS: Final[dict[str, tuple[Right, ...]]] = {
    "nothing": (),
    "the id": (WRITE_ID,),
    "see the id": (DESCRIBE_ID,),
    "see the id and the topic": (DESCRIBE_ID, on_topic(Operation.DESCRIBE)),
    "two-phase commits of the id": (WRITE_ID, on_id(Operation.TWO_PHASE_COMMIT)),
    "the id and writes": (WRITE_ID, WRITE_TOPIC),
    "the id and reads of the group": (WRITE_ID, READ_GROUP),
    "the id and reads of group and topic": (WRITE_ID, READ_GROUP, READ_TOPIC),
    "reads of group and topic": (READ_GROUP, READ_TOPIC),
    "reads of the group": (READ_GROUP,),
    "reads of the topic": (READ_TOPIC,),
    "writes to the topic": (WRITE_TOPIC,),
    "see group and topic": (on_group(Operation.DESCRIBE), on_topic(Operation.DESCRIBE)),
    "see the group": (on_group(Operation.DESCRIBE),),
    "deletion of the group": (on_group(Operation.DELETE),),
    "idempotent writes": (on_cluster(Operation.IDEMPOTENT_WRITE),),
    "actions of the cluster": (on_cluster(Operation.CLUSTER_ACTION),),
    "alter the cluster": (on_cluster(Operation.ALTER),),
    "see the cluster": (on_cluster(Operation.DESCRIBE),),
}


def patiently(side: Side, request: Any, version: int) -> Any:
    """Ask until the coordinator is neither loading nor busy."""
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = side.ask(request, version)
        if answer.error_code not in BUSY:
            return answer
        assert time.monotonic() < deadline, (side, answer)
        time.sleep(0.05)


def prepare(side: Side) -> None:
    """Make an id with an open transaction, and one without; for a client with all rights."""
    for number in range(64):  # enough names to hit each of the four partitions
        side.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=[f"warm-{number}"]), 4)
        patiently(side, m.EndTxnRequest(f"warm-{number}", 1, 1, True), 4)
    for name in ("t-open", "t-idle"):
        found = patiently(side, m.InitProducerIdRequest(name, OPEN_MS), 5)
        assert found.error_code == ErrorCode.NONE, (side, found)
        side.memory[name] = found.producer_id, found.producer_epoch
        side.plain(found.producer_id, "producer_id")
    topics = [m.AddPartitionsToTxnRequest.AddPartitionsToTxnTopic(topic, [0]) for topic in TOPICS]
    producer_id, epoch = side.memory["t-open"]
    answer = side.ask(m.AddPartitionsToTxnRequest([], "t-open", producer_id, epoch, topics), 3)
    codes = {
        row.partition_error_code for topic in answer.results_by_topic_v3_and_below for row in topic.results_by_partition
    }
    assert codes == {0}, (side, answer)


def beat(group: str, member: str, epoch: int, **fields: Any) -> m.ConsumerGroupHeartbeatRequest:
    """A heartbeat; with epoch 0 the member joins."""
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} if epoch == 0 else {}
    return m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **joins, **fields)


def keep_member(side: Side) -> None:
    """The group's member is there, and owns all it subscribes to; for a client with all rights."""
    answer = side.ask(beat(GROUP, MEMBER, 0, subscribed_topic_names=[*TOPICS]), 1)
    assert answer.error_code == ErrorCode.NONE, (side, answer)
    side.memory["epoch"] = answer.member_epoch


def producing(side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests of producers, with the epoch before the present one."""
    producer_id, epoch = side.memory["t-open"][0], side.memory["t-open"][1] - 1
    for name in ("t-idle", "h"):
        yield m.InitProducerIdRequest(name, TIMEOUT_MS, 987_654_321, 3), (3, 4, 5)
        yield m.InitProducerIdRequest(f"{name}-two-phases", TIMEOUT_MS, enable2_pc=True), (6,)
        yield m.InitProducerIdRequest(f"{name}-two-phases", TIMEOUT_MS, keep_prepared_txn=True), (6,)
        for timeout_ms in (0, TIMEOUT_MS):  # a client with the right gets a new epoch on both
            yield m.InitProducerIdRequest(f"{name}-versions", timeout_ms), None
    yield m.InitProducerIdRequest(None, TIMEOUT_MS), None
    yield m.InitProducerIdRequest("", TIMEOUT_MS), None
    add = m.AddPartitionsToTxnRequest
    for names in (TOPICS, ("mine",), ("other",), ("missing", "mine")):
        topics = [add.AddPartitionsToTxnTopic(topic, [0]) for topic in names]
        for name in ("t-open", "h"):
            yield add([], name, producer_id, epoch, topics), range(4)
            for verify in (True, False):
                yield add([add.AddPartitionsToTxnTransaction(name, producer_id, epoch, verify, topics)]), (4, 5)
    for name in ("t-open", "h"):
        for group in (GROUP, "h"):
            yield m.AddOffsetsToTxnRequest(name, producer_id, epoch, group), None
            row = m.TxnOffsetCommitRequest.TxnOffsetCommitRequestPartition(0, 1)
            offsets = [
                m.TxnOffsetCommitRequest.TxnOffsetCommitRequestTopic(topic, [row]) for topic in (*TOPICS, "missing")
            ]
            for some in (offsets, offsets[:1], offsets[1:2]):
                yield m.TxnOffsetCommitRequest(name, group, producer_id, epoch, 7, "nobody", None, some), (3, 4, 5)
                yield m.TxnOffsetCommitRequest(name, group, producer_id, epoch, topics=some), (0, 1, 2)
        yield m.EndTxnRequest(name, producer_id, epoch, False), None
        for topic in TOPICS:
            data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True)
            yield produce(topic, (0, data), transactional_id=name)(side), (3, 7, 11, 12, 13)
    data = batch(producer_id=producer_id, producer_epoch=epoch, base_sequence=9)
    yield produce("mine", (0, data))(side), (3, 12)
    marker = m.WriteTxnMarkersRequest.WritableTxnMarker
    wanted = [m.WriteTxnMarkersRequest.WritableTxnMarkerTopic("missing", [0])]
    yield m.WriteTxnMarkersRequest([marker(987_654_321, 3, False, wanted, 0)]), None


def looking(_side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests of administrators for transactions."""
    yield m.DescribeTransactionsRequest(["t-open", "t-idle", "t-missing", "h"]), None
    yield m.ListTransactionsRequest(), None
    yield m.ListTransactionsRequest(["Ongoing"]), None
    yield m.ListTransactionsRequest(transactional_id_pattern="t-.*"), 2
    rows = [m.DescribeProducersRequest.TopicRequest(topic, [0]) for topic in (*TOPICS, "missing")]
    yield m.DescribeProducersRequest(rows), None
    for name in ("t-open", "h"):
        yield m.FindCoordinatorRequest(name, 1), range(1, 4)
    yield m.FindCoordinatorRequest("", 1, ["t-open", "h"]), range(4, 7)


def grouped(side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests about a group of KIP-848 that has a member."""
    for group in (GROUP, "h"):
        for topic in (*TOPICS, "missing"):
            yield beat(group, "nobody", 1, subscribed_topic_names=[topic]), None
        yield beat(group, "nobody", 1, subscribed_topic_names=[*TOPICS]), None
        yield beat(group, "nobody", 1, subscribed_topic_regex="mine|other"), 1
        yield beat(group, "nobody", -1), None
        yield beat(group, "", 0, subscribed_topic_names=["missing"], server_assignor="none"), 0
        oc, of = m.OffsetCommitRequest, m.OffsetFetchRequest
        rows = [
            oc.OffsetCommitRequestTopic(topic, side.ids[topic], [oc.OffsetCommitRequestPartition(0, 3)])
            for topic in TOPICS
        ]
        for member, epoch in ((MEMBER, 9_999), (MEMBER, side.memory["epoch"]), ("nobody", 1)):
            yield oc(group, epoch, member, None, -1, rows), (8, 9, 10)
        wanted = [of.OffsetFetchRequestTopics(topic, side.ids[topic], [0]) for topic in TOPICS]
        for topics in (wanted, None):
            yield of("", groups=[of.OffsetFetchRequestGroup(group, "nobody", 1, topics)]), (9, 10)
            yield of("", groups=[of.OffsetFetchRequestGroup(group, MEMBER, side.memory["epoch"], topics)]), (9, 10)
            yield of("", groups=[of.OffsetFetchRequestGroup(group, None, -1, topics)]), (8, 9, 10)
        od = m.OffsetDeleteRequest
        yield (
            od(group, [od.OffsetDeleteRequestTopic(topic, [od.OffsetDeleteRequestPartition(0)]) for topic in TOPICS]),
            None,
        )
        yield m.DeleteGroupsRequest([group]), None
        yield m.LeaveGroupRequest(group, "", [m.LeaveGroupRequest.MemberIdentity("nobody")]), (3, 5)
    yield m.ConsumerGroupDescribeRequest([GROUP, "h", "g-none"]), None
    yield m.ConsumerGroupDescribeRequest([GROUP], True), None
    yield m.DescribeGroupsRequest([GROUP, "h"], True), (3, 6)
    yield m.ListGroupsRequest(), None
    yield m.ListGroupsRequest(types_filter=["Consumer"]), 5


STORIES: Final[dict[str, Story]] = {"producing": producing, "looking": looking, "groups": grouped}


def without_words(plain: Any) -> Any:
    """Kafka quotes the request in messages for lack of a right on the cluster; transactions began at other times."""
    if isinstance(plain, dict):
        plain = {name: without_words(value) for name, value in plain.items()}
        if plain.get("transaction_start_time_ms", -1) != -1:
            plain["transaction_start_time_ms"] = "set"
        if plain.get("error_code") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and "error_message" in plain:
            plain["error_message"] = "…"
        return plain
    return [without_words(item) for item in plain] if isinstance(plain, list) else plain


def for_each(side: Any, theirs: Any, mine: Any) -> Any:
    """The request of a pair that is meant for this side."""
    return theirs if side.name == "Kafka" else mine
