"""Every API of transactions and groups of KIP-848, in every version, by clients that each have a few rights.

All clients are User:ANONYMOUS; a client is an address, and every right is an ACL for its address. Requests name an old
epoch or an unknown member, so permitted clients get an error as well, and change nothing.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any, Final

import pytest

from kraft_node.security.names import Operation, PatternType, Permission, ResourceType
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.compat.targets import Apache, Ours
from tests.golden.broker.batches import batch, produce
from tests.golden.broker.pair import Pair, Side, warm_coordinator
from tests.golden.controller import authorization as who

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("coordinator-rights")]

WAIT_S = 60.0
TIMEOUT_MS = 60_000
BUSY = {ErrorCode.CONCURRENT_TRANSACTIONS, ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
TOPICS = ("mine", "other")
_L, _P = PatternType.LITERAL, PatternType.PREFIXED

Right = tuple[ResourceType, str, PatternType, Operation]


def _on_id(operation: Operation) -> Right:
    return ResourceType.TRANSACTIONAL_ID, "t-", _P, operation


def _on_group(operation: Operation) -> Right:
    return ResourceType.GROUP, "g-", _P, operation


def _on_topic(operation: Operation) -> Right:
    return ResourceType.TOPIC, "mine", _L, operation


def _on_cluster(operation: Operation) -> Right:
    return ResourceType.CLUSTER, "kafka-cluster", _L, operation


WRITE_ID, DESCRIBE_ID = _on_id(Operation.WRITE), _on_id(Operation.DESCRIBE)
READ_GROUP, READ_TOPIC, WRITE_TOPIC = _on_group(Operation.READ), _on_topic(Operation.READ), _on_topic(Operation.WRITE)
RIGHTS: Final[dict[str, tuple[Right, ...]]] = {
    "nothing": (),
    "the id": (WRITE_ID,),
    "see the id": (DESCRIBE_ID,),
    "see the id and the topic": (DESCRIBE_ID, _on_topic(Operation.DESCRIBE)),
    "two-phase commits of the id": (WRITE_ID, _on_id(Operation.TWO_PHASE_COMMIT)),
    "the id and writes": (WRITE_ID, WRITE_TOPIC),
    "the id and reads of the group": (WRITE_ID, READ_GROUP),
    "the id and reads of group and topic": (WRITE_ID, READ_GROUP, READ_TOPIC),
    "reads of group and topic": (READ_GROUP, READ_TOPIC),
    "reads of the group": (READ_GROUP,),
    "reads of the topic": (READ_TOPIC,),
    "writes to the topic": (WRITE_TOPIC,),
    "see group and topic": (_on_group(Operation.DESCRIBE), _on_topic(Operation.DESCRIBE)),
    "see the group": (_on_group(Operation.DESCRIBE),),
    "deletion of the group": (_on_group(Operation.DELETE),),
    "idempotent writes": (_on_cluster(Operation.IDEMPOTENT_WRITE),),
    "actions of the cluster": (_on_cluster(Operation.CLUSTER_ACTION),),
    "alter the cluster": (_on_cluster(Operation.ALTER),),
    "see the cluster": (_on_cluster(Operation.DESCRIBE),),
}
HOSTS: Final = {name: f"127.0.0.{number}" for number, name in enumerate(RIGHTS, 10)}


def _acls() -> list[m.CreateAclsRequest]:
    rows = [row for row in who.ACLS if row[3] == who.EVERYTHING]
    for name, rights in RIGHTS.items():
        rows += [(kind, what, how, HOSTS[name], op, Permission.ALLOW) for kind, what, how, op in rights]
    return [who.create_acls(tuple(rows[:4])), who.create_acls(tuple(rows[4:]))]


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Pair]:
    """Both servers with an id that has an open transaction, one without, and a consumer group with a member."""
    folder = tmp_path_factory.mktemp("rights")
    settings = {**who.SETTINGS, "transaction.state.log.num.partitions": "4"}
    targets = (Apache("apache", folder / "apache", settings), Ours("kraftcluster", folder / "ours", settings))
    try:
        for target in targets:
            target.launch()
        for target in targets:
            target.wait_ready()
        made = Pair(*(who.Client(name, t, t.port) for name, t in zip(("Kafka", "ours"), targets, strict=True)))
        for topic in TOPICS:
            made.create(topic)
        warm_coordinator(made)
        for request in _acls():
            made.same(request, 3)
        for side in made.sides:
            _prepare(side)
            _wait_for_acls(side)
        made.verdict()
        yield made
        for side in made.sides:
            side.close()
    finally:
        for target in targets:
            target.kill()


def _patiently(side: Side, request: Any, version: int) -> Any:
    deadline = time.monotonic() + WAIT_S
    while True:
        answer = side.ask(request, version)
        if answer.error_code not in BUSY:
            return answer
        assert time.monotonic() < deadline, (side, answer)
        time.sleep(0.05)


def _prepare(side: Side) -> None:
    for number in range(64):  # enough names to hit each of the four partitions
        side.ask(m.FindCoordinatorRequest(key_type=1, coordinator_keys=[f"warm-{number}"]), 4)
        _patiently(side, m.EndTxnRequest(f"warm-{number}", 1, 1, True), 4)
    for name in ("t-open", "t-idle"):
        found = _patiently(side, m.InitProducerIdRequest(name, TIMEOUT_MS * 10), 5)
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


def _beat(group: str, member: str, epoch: int, **fields: Any) -> m.ConsumerGroupHeartbeatRequest:
    joins: dict[str, Any] = {"rebalance_timeout_ms": 60_000, "topic_partitions": []} if epoch == 0 else {}
    return m.ConsumerGroupHeartbeatRequest(group_id=group, member_id=member, member_epoch=epoch, **joins, **fields)


def _wait_for_acls(side: Side) -> None:
    """The last of the entries has come to the broker."""
    come_from(side, HOSTS["see the cluster"])
    deadline = time.monotonic() + WAIT_S
    while side.ask(m.DescribeQuorumRequest(), 0).error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED:
        assert time.monotonic() < deadline, side
        time.sleep(0.05)
    come_from(side, who.EVERYTHING)


def come_from(side: Side, host: str) -> None:
    assert isinstance(side, who.Client)
    side.come_from(host)


def _producing(side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests of producers, with the epoch before the present one."""
    producer_id, epoch = side.memory["t-open"][0], side.memory["t-open"][1] - 1
    for name in ("t-idle", "h"):
        yield m.InitProducerIdRequest(name, TIMEOUT_MS, 987_654_321, 3), (3, 4, 5)
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
        for group in ("g-848", "h"):
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


def _looking(_side: Side) -> Iterator[tuple[Any, Any]]:
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


def _grouped(side: Side) -> Iterator[tuple[Any, Any]]:
    """Requests about a group of KIP-848 that has a member."""
    for group in ("g-848", "h"):
        for topic in (*TOPICS, "missing"):
            yield _beat(group, "nobody", 1, subscribed_topic_names=[topic]), None
        yield _beat(group, "nobody", 1, subscribed_topic_names=[*TOPICS]), None
        yield _beat(group, "nobody", 1, subscribed_topic_regex="mine|other"), 1
        yield _beat(group, "nobody", -1), None
        yield _beat(group, "", 0, subscribed_topic_names=["missing"], server_assignor="none"), 0
        oc, of = m.OffsetCommitRequest, m.OffsetFetchRequest
        rows = [
            oc.OffsetCommitRequestTopic(topic, side.ids[topic], [oc.OffsetCommitRequestPartition(0, 3)])
            for topic in TOPICS
        ]
        yield oc(group, 9, "m", None, -1, rows), (8, 9, 10)
        wanted = [of.OffsetFetchRequestTopics(topic, side.ids[topic], [0]) for topic in TOPICS]
        for topics in (wanted, None):
            yield of("", groups=[of.OffsetFetchRequestGroup(group, "nobody", 1, topics)]), (9, 10)
            yield of("", groups=[of.OffsetFetchRequestGroup(group, None, -1, topics)]), (8, 9, 10)
        od = m.OffsetDeleteRequest
        yield (
            od(group, [od.OffsetDeleteRequestTopic(topic, [od.OffsetDeleteRequestPartition(0)]) for topic in TOPICS]),
            None,
        )
        yield m.DeleteGroupsRequest([group]), None
        yield m.LeaveGroupRequest(group, "", [m.LeaveGroupRequest.MemberIdentity("nobody")]), (3, 5)
    yield m.ConsumerGroupDescribeRequest(["g-848", "h", "g-none"]), None
    yield m.ConsumerGroupDescribeRequest(["g-848"], True), None
    yield m.DescribeGroupsRequest(["g-848", "h"], True), (3, 6)
    yield m.ListGroupsRequest(), 5


STORIES = {"producing": _producing, "looking": _looking, "groups": _grouped}


def without_words(plain: Any) -> Any:
    """Kafka quotes the request in messages for lack of a right on the cluster; durations of transactions differ."""
    if isinstance(plain, dict):
        plain = {name: without_words(value) for name, value in plain.items()}
        if plain.get("error_code") == ErrorCode.CLUSTER_AUTHORIZATION_FAILED and "error_message" in plain:
            plain["error_message"] = "…"
        return plain
    return [without_words(item) for item in plain] if isinstance(plain, list) else plain


def _keep_member(pair: Pair) -> None:
    """The group's member is there, and owns all it subscribes to."""
    for side in pair.sides:
        come_from(side, who.EVERYTHING)
        answer = side.ask(_beat("g-848", "m", 0, subscribed_topic_names=[*TOPICS]), 1)
        assert answer.error_code == ErrorCode.NONE, (side, answer)


@pytest.mark.parametrize("name", RIGHTS)
@pytest.mark.parametrize("story", STORIES)
def test_every_right_permits_what_kafka_permits(pair: Pair, story: str, name: str) -> None:
    _keep_member(pair)
    for side in pair.sides:
        come_from(side, HOSTS[name])
    for (theirs, versions), (mine, _) in zip(*(STORIES[story](side) for side in pair.sides), strict=True):

        def asked(side: Any, theirs: Any = theirs, mine: Any = mine) -> Any:
            return theirs if side.name == "Kafka" else mine

        pair.same(asked, versions, label=name, mask=without_words)
    pair.verdict()


def test_a_pattern_resolves_to_topics_that_its_member_may_see(pair: Pair) -> None:
    host = HOSTS["reads of group and topic"]
    for side in pair.sides:
        come_from(side, host)
        answer = side.ask(_beat("g-pattern", "m", 0, subscribed_topic_regex="mine|other"), 1)
        assert answer.error_code == ErrorCode.NONE, (side, answer)
        deadline = time.monotonic() + WAIT_S
        while not (answer.assignment and answer.assignment.topic_partitions):
            assert time.monotonic() < deadline, (side, answer)
            time.sleep(0.2)
            answer = side.ask(_beat("g-pattern", "m", answer.member_epoch), 1)
        assert [row.topic_id for row in answer.assignment.topic_partitions] == [side.ids["mine"]], side
    pair.same(m.ConsumerGroupDescribeRequest(["g-pattern"]), 1, mask=without_words)
    pair.verdict()
