"""Consumer groups of KIP-848: the life of a group, and all refusals, in every version."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupHeartbeatRequest,
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.compat.targets import Apache, Ours
from tests.golden.broker.pair import Pair, Side, uuid, warm_coordinator

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

INTERVAL_S = 1.1
"""More than group.consumer.assignment.interval.ms."""

BAD_PATTERNS = (
    *("[", "(", "*", "a**", "(?=a)", "\\1", "a{2,1}", "a{1001}", "[b-a]", "\\pX", "\\", "(?P<n>a)(?P<n>b)", ")"),
    *("(?P<>a)", "[[:no:]]", "(?i", "(?z)", "a{2}{3}", "\\Z", "[a-\\d]", "\\x{110000}", "(a{1000}){1000}"),
)

SUBSCRIPTION = b"\0\0\0\0\0\1\0\2cg\xff\xff\xff\xff"
"""Of a classic consumer, in version 0: the topic `cg`."""
ASSIGNMENT = b"\0\0\0\0\0\1\0\2cg\0\0\0\4" + bytes([0, 0, 0, 0, 0, 0, 0, 1, 0, 0, 0, 2, 0, 0, 0, 3]) + b"\xff" * 4
"""All four partitions of it."""

Build = Callable[[Side], Any]


@pytest.fixture(scope="module", autouse=True)
def _topics(servers: tuple[Side, Side]) -> None:
    made = Pair(*servers)
    made.create("cg", 4)
    made.create("ch", 2)
    warm_coordinator(made)


def beat(group: str, member: str = "m", epoch: int = 0, *topics: str, owned: Any = None, **fields: Any) -> Build:
    """A heartbeat; with epoch 0 as of a member that joins. `owned`: topic -> partitions."""

    def made(side: Side) -> ConsumerGroupHeartbeatRequest:
        values: dict[str, Any] = {"topic_partitions": None}
        if epoch == 0:
            values = {"rebalance_timeout_ms": 60_000, "subscribed_topic_names": list(topics), "topic_partitions": []}
        elif topics:
            values["subscribed_topic_names"] = list(topics)
        if owned is not None:
            row = ConsumerGroupHeartbeatRequest.TopicPartitions
            values["topic_partitions"] = [row(side.ids.get(name, uuid(7)), parts) for name, parts in owned.items()]
        return ConsumerGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=epoch, **{**values, **fields}
        )

    return made


def describe(*groups: str, **fields: Any) -> ConsumerGroupDescribeRequest:
    return ConsumerGroupDescribeRequest(group_ids=list(groups), **fields)


def without_id(answer: Any) -> Any:
    return {**answer, "member_id": answer["member_id"] and "set"} if isinstance(answer, dict) else answer


def test_invalid_requests_get_the_same_errors(pair: Pair) -> None:
    pair.same(beat(""))
    pair.same(beat("v", ""), mask=without_id)
    pair.same(beat("v", "", 1))
    pair.same(beat("v", "", -1))
    pair.same(beat("v", " "), 1)
    for fields in (
        {"instance_id": ""},
        {"rack_id": ""},
        {"rebalance_timeout_ms": -1},
        {"topic_partitions": None},
        {"subscribed_topic_names": None},
        {"server_assignor": "sticky"},
        {"server_assignor": ""},
    ):
        pair.same(beat("v", **fields), label=str(fields))
    pair.same(beat("v", owned={"cg": [0]}))
    for epoch in (-2, -3, -100):
        pair.same(beat("v", "m", epoch), label=f"epoch {epoch}")
    for epoch in (1, -1):
        pair.same(beat("none", "m", epoch), label=f"epoch {epoch} without a group")
    pair.same(beat("none", "m", -2, instance_id="i"))
    for pattern in (
        "[",
        "(",
        "*",
        "a**",
        "(?=a)",
        "\\1",
        "a{2,1}",
        "a{1001}",
        "[b-a]",
        "\\pX",
        "\\",
        "(?P<n>a)(?P<n>b)",
        ")",
    ):
        pair.same(beat("p", subscribed_topic_regex=pattern, subscribed_topic_names=None), 1, label=pattern)


def test_the_life_of_a_member_gets_the_same_answers(pair: Pair) -> None:
    group = "life848"
    pair.same(describe(group))
    pair.same(beat(group, "m", 0, "cg"), 1)
    pair.same(describe(group))
    pair.same(describe(group, include_authorized_operations=True))
    pair.same(beat(group, "m", 2), 1)
    pair.same(beat(group, "m", 2, "cg", owned={"cg": [0, 1, 2, 3]}, rebalance_timeout_ms=60_000), 1, label="full")
    pair.same(beat(group, "m", 2, "cg", owned={"cg": [0, 1, 2, 3]}), 1, label="not full")
    pair.same(beat(group, "m", 3), 1, label="too large")
    pair.same(beat(group, "m", 1), 1, label="too small")
    pair.same(beat(group, "x", 1), 1, label="stranger")
    pair.same(beat(group, "m", 0, "cg"), 1, label="joins again")
    time.sleep(INTERVAL_S)
    pair.same(beat(group, "m", 2, "cg", "ch", owned={"cg": [0, 1, 2, 3]}), 1, label="more topics")
    pair.same(beat(group, "m", 2, owned={"cg": [0, 1, 2, 3]}), 1, label="lost response")
    pair.same(beat(group, "m", 2), 1, label="nothing reported")
    pair.same(describe(group), 1)
    time.sleep(INTERVAL_S)
    pair.same(beat(group, "m", 3, "ch", owned={"cg": [0, 1, 2, 3], "ch": [0, 1]}), 1, label="fewer topics")
    pair.same(describe(group), 1, label="must give up")
    pair.same(beat(group, "m", 3), 1)
    pair.same(beat(group, "m", 3, owned={"ch": [0, 1]}), 1, label="has given up")
    pair.same(describe(group), 1)
    pair.same(DescribeGroupsRequest([group]))
    pair.same(DeleteGroupsRequest([group]))
    pair.same(ListGroupsRequest(states_filter=["stable"], types_filter=["consumer"]), 5, mask=_only(group))
    pair.same(beat(group, "m", -1), 1)
    pair.same(describe(group), 1, label="empty")
    pair.same(ListGroupsRequest(types_filter=["Consumer"]), 5, mask=_only(group))
    pair.same(beat(group, "m", -1), 1, label="gone")
    pair.same(DeleteGroupsRequest([group]), 2)
    pair.same(describe(group, "", "none"), 1)


def _only(group: str) -> Callable[[Any], Any]:
    return lambda answer: [row for row in answer["groups"] if row["group_id"] == group]


def test_two_members_get_the_same_answers(pair: Pair) -> None:
    group = "two848"
    pair.same(beat(group, "a", 0, "cg"), 1)
    pair.same(beat(group, "b", 0, "cg"), 1, label="within the interval")
    pair.same(describe(group), 1)
    time.sleep(INTERVAL_S)
    pair.same(beat(group, "b", 2), 1, label="computes the target")

    def counted(answer: Any) -> Any:
        """How many partitions: which ones is left to the assignor."""
        rows = (answer["assignment"] or {}).get("topic_partitions") if isinstance(answer, dict) else None
        if rows is None:
            return answer
        return {**answer, "assignment": sorted((row["topic_id"], len(row["partitions"])) for row in rows)}

    answers = pair.same(beat(group, "a", 2), 1, mask=counted, label="must give up")
    for side, answer in zip(pair.sides, answers, strict=True):
        side.memory["kept"] = answer.assignment.topic_partitions[0].partitions
    pair.same(beat(group, "a", 2, owned={"cg": [0, 1, 2, 3]}), 1, label="has not given up")
    pair.same(beat(group, "b", 3), 1, label="waits")

    def given_up(side: Side) -> Any:
        return beat(group, "a", 2, owned={"cg": side.memory["kept"]})(side)

    pair.same(given_up, 1, label="has given up")
    pair.same(beat(group, "b", 3), 1, mask=counted, label="gets them")
    pair.same(beat(group, "a", 3), 1)


def test_static_members_get_the_same_answers(pair: Pair) -> None:
    group = "static848"
    pair.same(beat(group, "a", 0, "cg", instance_id="i"), 1)
    pair.same(beat(group, "b", 0, "cg", instance_id="i"), 1, label="unreleased")
    pair.same(beat(group, "b", 2, instance_id="i"), 1, label="fenced")
    pair.same(beat(group, "a", 2, instance_id="j"), 1, label="unknown instance")
    pair.same(beat(group, "b", -2, instance_id="i"), 1, label="another leaves")
    pair.same(beat(group, "a", -2, instance_id="i"), 1)
    pair.same(describe(group), 1, label="away")
    pair.same(beat(group, "a", 2, instance_id="i"), 1, label="after it left")
    pair.same(beat(group, "b", 0, "cg", instance_id="i"), 1, label="is back")
    pair.same(describe(group), 1)
    pair.same(beat(group, "a", 2, instance_id="i"), 1, label="the earlier one")
    pair.same(beat(group, "b", -1, instance_id="i"), 1)
    pair.same(describe(group), 1)


def test_a_static_member_that_joins_again_is_accepted(pair: Pair) -> None:
    """The answer to its first heartbeat may have been lost."""
    pair.same(beat("again848", "a", 0, "cg", instance_id="i"), 1)
    pair.differs(
        "static-member-joins-again",
        beat("again848", "a", 0, "cg", instance_id="i"),
        1,
        kafka=lambda a: a.error_code == ErrorCode.UNRELEASED_INSTANCE_ID,
        ours=lambda a: a.error_code == ErrorCode.NONE and a.member_id == "a",
    )


def test_a_static_member_takes_the_new_protocol_without_leaving(pair: Pair) -> None:
    group, protocol = "upgraded848", JoinGroupRequest.JoinGroupRequestProtocol("range", SUBSCRIPTION)
    join = JoinGroupRequest(group, 30_000, 5_000, "", "i", "consumer", [protocol])
    for side, answer in zip(pair.sides, pair.same(join, 9), strict=True):
        side.memory["static"] = answer.member_id

    def sync(side: Side) -> SyncGroupRequest:
        part = SyncGroupRequest.SyncGroupRequestAssignment(side.memory["static"], ASSIGNMENT)
        return SyncGroupRequest(group, 1, side.memory["static"], "i", "consumer", "range", [part])

    pair.same(sync, 5)
    pair.same(beat(group, "new", 0, "cg", instance_id="i"), 1)
    pair.same(lambda side: HeartbeatRequest(group, 1, side.memory["static"], "i"), 4, label="the earlier one")
    pair.same(describe(group), 1)


def test_patterns_get_the_same_answers(pair: Pair) -> None:
    group = "pattern848"
    pair.same(beat(group, "a", 0, subscribed_topic_regex="c[gh]", subscribed_topic_names=None), 1)
    time.sleep(INTERVAL_S)
    pair.same(beat(group, "a", 1), 1)
    pair.same(describe(group), 1)
    pair.same(beat(group, "b", 0, subscribed_topic_regex="c[gh]", subscribed_topic_names=None), 1, label="resolved")
    pair.same(beat(group, "b", -1), 1)


def commit(group: str, member: str, epoch: int, topic: str = "cg", **fields: Any) -> Build:
    def made(side: Side) -> OffsetCommitRequest:
        row = OffsetCommitRequest.OffsetCommitRequestPartition(0, 5, 0, "x")
        named = OffsetCommitRequest.OffsetCommitRequestTopic(topic, side.ids.get(topic, uuid(7)), [row])
        return OffsetCommitRequest(
            group_id=group, member_id=member, generation_id_or_member_epoch=epoch, topics=[named], **fields
        )

    return made


def fetch(group: str, member: str | None, epoch: int) -> Build:
    def made(side: Side) -> OffsetFetchRequest:
        topic = OffsetFetchRequest.OffsetFetchRequestTopics("cg", side.ids["cg"], [0, 1])
        one = OffsetFetchRequest.OffsetFetchRequestGroup(group, member, epoch, [topic])
        return OffsetFetchRequest(groups=[one])

    return made


def test_offsets_get_the_same_answers(pair: Pair) -> None:
    group = "offsets848"
    pair.same(beat(group, "m", 0, "cg"), 1)
    for epoch in (2, 1, 3, -1):
        pair.same(commit(group, "m", epoch), (2, 8, 9, 10), label=f"epoch {epoch}")
    pair.same(commit(group, "x", 2), (8, 9, 10))
    pair.same(commit(group, "", -1), (8, 9, 10))
    pair.same(commit(group, "m", 2, "none"), (9, 10))
    for member, epoch in (("m", 2), ("m", 1), ("m", 3), ("x", 2), (None, -1), ("", -1), ("m", -1)):
        pair.same(fetch(group, member, epoch), (9, 10), label=f"{member} {epoch}")
    pair.differs(
        "epoch-of-nobody",
        fetch(group, None, 2),
        (9, 10),
        kafka=lambda answer: answer.groups[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR,
        ours=lambda answer: answer.groups[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID,
    )
    part = OffsetDeleteRequest.OffsetDeleteRequestPartition(0)
    for topic in ("cg", "ch", "none"):
        row = OffsetDeleteRequest.OffsetDeleteRequestTopic(topic, [part])
        pair.same(OffsetDeleteRequest(group, [row]))
    pair.same(beat(group, "m", -1), 1)
    pair.same(commit(group, "", -1), (8, 9, 10), label="by an administrator")
    pair.same(commit(group, "m", 2), (8, 9, 10), label="by the former member")
    pair.same(fetch(group, None, -1), (9, 10))
    pair.same(DeleteGroupsRequest([group]), 2)


def test_requests_to_groups_of_other_types_get_the_same_answers(pair: Pair) -> None:
    def join(group: str, kind: str = "consumer") -> JoinGroupRequest:
        protocol = JoinGroupRequest.JoinGroupRequestProtocol("range", b"x")
        return JoinGroupRequest(
            group_id=group,
            session_timeout_ms=30_000,
            rebalance_timeout_ms=300,
            protocol_type=kind,
            protocols=[protocol],
        )

    pair.same(commit("simple848", "", -1), 9)
    pair.same(describe("simple848"), 1, label="of a simple group")
    pair.same(beat("simple848", "m", 1), 1, label="of a simple group")
    pair.same(beat("simple848", "m", 0, "cg"), 1, label="takes over a simple group")
    pair.same(DescribeGroupsRequest(["simple848"]))
    pair.same(join("connect848", "connect"), 3)
    pair.same(beat("connect848", "m", 0, "cg"), 1, label="of a group with another protocol")
    pair.same(describe("connect848"), 1)


def test_heartbeats_are_more_frequent_while_a_group_changes(tmp_path: Path) -> None:
    """By default. The other tests run with the setting that turns this off."""
    targets = Apache("apache", tmp_path / "apache"), Ours("kraftcluster", tmp_path / "ours")
    try:
        pair = Pair(Side("Kafka", targets[0].start()), Side("ours", targets[1].start()))
        pair.create("often", 4)
        warm_coordinator(pair)
        pair.differs(
            "frequent-heartbeats",
            beat("often", "m", 0, "often"),
            1,
            kafka=lambda answer: answer.heartbeat_interval_ms == 5_000,
            ours=lambda answer: answer.heartbeat_interval_ms == 500,
        )
        for side in pair.sides:
            side.close()
        pair.verdict()
    finally:
        for target in targets:
            target.kill()
