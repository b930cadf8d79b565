"""Classic groups and their offsets in every version: a group's life, and all refusals."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import ZERO_UUID, uuid_text
from kraft_protocol.wire.messages import (
    DeleteGroupsRequest,
    DescribeGroupsRequest,
    FindCoordinatorRequest,
    HeartbeatRequest,
    JoinGroupRequest,
    LeaveGroupRequest,
    ListGroupsRequest,
    OffsetCommitRequest,
    OffsetDeleteRequest,
    OffsetFetchRequest,
    SyncGroupRequest,
)
from tests.golden.broker.pair import Pair, Side, uuid, warm_coordinator

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("broker-parity")]

Build = Callable[[Side], Any]


@pytest.fixture(scope="module", autouse=True)
def _offsets_topic(servers: tuple[Side, Side]) -> None:
    """Create the coordinator on both."""
    made = Pair(*servers)
    made.create("g", 2)
    warm_coordinator(made)


def coordinators(kind: int, *keys: str) -> FindCoordinatorRequest:
    return FindCoordinatorRequest(key_type=kind, coordinator_keys=list(keys))


def test_answers_to_find_coordinator_match(pair: Pair) -> None:
    for key in ("group", "", "ü", "x" * 300):
        pair.same(FindCoordinatorRequest(key=key))
        pair.same(FindCoordinatorRequest(key=key, key_type=0), (1, 2, 3))
        pair.same(coordinators(0, key))
    pair.same(coordinators(0, "one", "two", "one"))
    pair.same(coordinators(0))
    for kind in (3, -1, 127):
        pair.same(FindCoordinatorRequest(key="k", key_type=kind), (1, 3))
        pair.same(coordinators(kind, "k"))
    for key in ("nonsense", "group:topic:0", f"group:{uuid_text(uuid(7))}:0", f"group:{uuid_text(uuid(7))}:x", "::"):
        pair.same(coordinators(2, key), (4, 5))


def join(group: str, member: str | Build = "", *names: str, **fields: Any) -> Build:
    def made(side: Side) -> JoinGroupRequest:
        protocols = [JoinGroupRequest.JoinGroupRequestProtocol(name, name.encode()) for name in names or ("range",)]
        values: dict[str, Any] = {
            "session_timeout_ms": 30_000,
            "rebalance_timeout_ms": 300,
            "protocol_type": "consumer",
            "protocols": protocols,
        }
        values |= fields
        return JoinGroupRequest(group_id=group, member_id=member if isinstance(member, str) else member(side), **values)

    return made


def its(name: str) -> Build:
    """A value that a side stored."""
    return lambda side: side.memory[name]


def remember(pair: Pair, answers: tuple[Any, Any], name: str) -> None:
    for side, answer in zip(pair.sides, answers, strict=True):
        side.memory[name] = answer.member_id


def test_joins_get_the_same_answers(pair: Pair) -> None:
    pair.same(join(""))
    pair.same(join("j0", "nobody"))
    for version in range(10):
        group = f"j{version}"
        remember(pair, pair.same(join(group), version), "m")
        if version >= 4:
            remember(pair, pair.same(join(group, its("m")), version), "m")
        pair.same(join(group, its("m")), version, label="again")
        pair.same(join(group, "stranger"), version)
        pair.same(join(group, its("m"), "other"), version, label="other protocol")
    for timeout in (0, 999, 1000, 1_800_000, 1_800_001, -1):
        pair.same(join(f"timeouts.{timeout}", session_timeout_ms=timeout), (0, 5))
    pair.same(join("no-protocols", protocols=[]), (0, 5, 9))
    pair.same(join("no-type", protocol_type=""), (0, 5, 9))
    pair.same(join("negative", rebalance_timeout_ms=-1), (1, 5))
    pair.same(join("j9", "", "range", protocol_type="connect"), (0, 9), label="another type")
    pair.same(join("j9", "", "nothing-in-common"), (0, 9))
    for version in (5, 9):
        for instance in ("", "bad id", "x" * 250):
            pair.same(join(f"instance.{version}.{instance[:3]}", group_instance_id=instance), version)
    pair.same(join("long", "", "range", reason="r" * 300), (8, 9))


def test_a_member_id_without_an_instance_cannot_get_one(pair: Pair) -> None:
    """The id was given to a member that joins without an instance id. Kafka fails; ours does not know the member."""
    for version in (5, 9):
        group = f"instance-late.{version}"
        remember(pair, pair.same(join(group), version), "m")
        pair.differs(
            "instance-late",
            join(group, its("m"), group_instance_id="i"),
            version,
            kafka=lambda a: a.error_code == ErrorCode.UNKNOWN_SERVER_ERROR,
            ours=lambda a: a.error_code == ErrorCode.UNKNOWN_MEMBER_ID,
        )
        pair.same(join(group, its("m")), version)


def sync(group: str, generation: int, member: str | Build, *assigned: bytes, **fields: Any) -> Build:
    def made(side: Side) -> SyncGroupRequest:
        name = member if isinstance(member, str) else member(side)
        parts = [SyncGroupRequest.SyncGroupRequestAssignment(name, a) for a in assigned]
        return SyncGroupRequest(group_id=group, generation_id=generation, member_id=name, assignments=parts, **fields)

    return made


def beat(group: str, generation: int, member: str | Build, **fields: Any) -> Build:
    return lambda side: HeartbeatRequest(
        group, generation, member if isinstance(member, str) else member(side), **fields
    )


def leave(group: str, *members: str | Build, instance: str | None = None) -> Build:
    def made(side: Side) -> LeaveGroupRequest:
        ids = [m if isinstance(m, str) else m(side) for m in members]
        return LeaveGroupRequest(
            group_id=group, members=[LeaveGroupRequest.MemberIdentity(i, instance, "because") for i in ids]
        )

    return made


def leave_alone(group: str, member: str | Build) -> Build:
    return lambda side: LeaveGroupRequest(group_id=group, member_id=member if isinstance(member, str) else member(side))


def describe(*groups: str, **fields: Any) -> DescribeGroupsRequest:
    return DescribeGroupsRequest(list(groups), **fields)


def test_the_life_of_a_group_gets_the_same_answers(pair: Pair) -> None:
    group = "life"
    pair.same(describe(group))
    remember(pair, pair.same(join(group), 3), "m")
    pair.same(describe(group), label="one has joined")
    pair.same(beat(group, 1, its("m")), label="before the assignment")
    pair.same(sync(group, 2, its("m"), b"a"), label="wrong generation")
    pair.same(sync(group, 1, "nobody", b"a"), label="stranger")
    pair.same(sync(group, 1, its("m"), protocol_type="connect"), 5, label="other type")
    pair.same(sync(group, 1, its("m"), protocol_name="sticky"), 5, label="other protocol")
    pair.same(sync(group, 1, its("m"), b"mine", protocol_type="consumer", protocol_name="range"), 5)
    pair.same(sync(group, 1, its("m")), label="asked again")
    pair.same(describe(group), label="stable")
    pair.same(describe(group, include_authorized_operations=True), (3, 6))
    pair.same(beat(group, 1, its("m")))
    pair.same(beat(group, 0, its("m")))
    pair.same(beat(group, 1, "nobody"))
    pair.same(beat(group, -1, ""))
    pair.same(beat("", 1, "nobody"))
    pair.same(beat("none", 1, "nobody"))
    pair.same(beat(group, 1, its("m"), group_instance_id="i"), (3, 4))
    pair.same(sync("", 1, "nobody"))
    pair.same(sync("none", 1, "nobody"))
    pair.same(DeleteGroupsRequest([group]), label="not empty")
    pair.same(leave(group, "nobody"), (3, 4, 5))
    pair.same(leave(group, "nobody", its("m")), 3)
    pair.same(leave_alone(group, its("m")), (0, 1, 2))
    pair.same(leave(group))
    pair.same(leave_alone("", ""))
    pair.same(leave_alone("none", "nobody"))
    pair.same(leave("none", "nobody"), (3, 5))
    pair.same(describe(group), label="empty")
    pair.same(DeleteGroupsRequest([group, "none", ""]), (0, 1, 2))
    pair.same(describe(group, "none", ""), label="deleted")


def test_static_members_get_the_same_answers(pair: Pair) -> None:
    group = "static"
    remember(pair, pair.same(join(group, group_instance_id="i"), 5), "m")
    pair.same(sync(group, 1, its("m"), b"mine", group_instance_id="i"), 3)
    for side in pair.sides:
        side.memory["old"] = side.memory["m"]
    remember(pair, pair.same(join(group, group_instance_id="i"), 5, label="back again"), "m")
    pair.same(beat(group, 1, its("old"), group_instance_id="i"), (3, 4), label="fenced")
    pair.same(beat(group, 1, its("m"), group_instance_id="i"), (3, 4))
    pair.same(join(group, its("old"), group_instance_id="i"), (5, 9), label="fenced")
    pair.same(join(group, its("m"), group_instance_id="unknown"), (5, 9))
    pair.same(describe(group))
    pair.same(leave(group, "nobody", instance="i"), (3, 5))
    pair.same(leave(group, "", instance="unknown"), (3, 5))
    pair.same(leave(group, "", instance="i"), 5)
    pair.same(describe(group), 5)


def commit(group: str, *rows: tuple[int, int, str | None], topic: str = "g", **fields: Any) -> Build:
    def made(side: Side) -> OffsetCommitRequest:
        parts = [
            OffsetCommitRequest.OffsetCommitRequestPartition(i, offset, 3, metadata) for i, offset, metadata in rows
        ]
        topic_id = fields.get("topic_id", side.ids.get(topic, uuid(7)))
        named = OffsetCommitRequest.OffsetCommitRequestTopic(topic, topic_id, parts)
        others = {k: v(side) if callable(v) else v for k, v in fields.items() if k != "topic_id"}
        return OffsetCommitRequest(group_id=group, topics=[named] if rows else [], **others)

    return made


def fetched(group: str, *indexes: int, topic: str | None = "g", **fields: Any) -> Build:
    """OffsetFetch in the form of the version: both forms are filled, and the codec refuses what a version lacks."""

    def made(side: Side) -> OffsetFetchRequest:
        topics = OffsetFetchRequest.OffsetFetchRequestTopics
        rows = None if topic is None else [topics(topic, side.ids.get(topic, uuid(7)), list(indexes))]
        return OffsetFetchRequest(
            groups=[OffsetFetchRequest.OffsetFetchRequestGroup(group, topics=rows, **fields)], topics=[]
        )

    return made


def fetched_before_8(group: str, *indexes: int, topic: str | None = "g", **fields: Any) -> OffsetFetchRequest:
    rows = None if topic is None else [OffsetFetchRequest.OffsetFetchRequestTopic(topic, list(indexes))]
    return OffsetFetchRequest(group_id=group, topics=rows, **fields)


def test_offsets_get_the_same_answers(pair: Pair) -> None:
    old, new = range(1, 8), range(8, 11)
    group = "offsets"
    pair.same(fetched(group, 0, 1), new, label="before the first")
    pair.same(fetched_before_8(group, 0, 1), old, label="before the first")
    pair.same(commit(group, (0, 5, "m"), (1, 6, None)))
    for row in ((0, 0, ""), (0, -1, ""), (0, -5, ""), (0, 2**63 - 1, ""), (7, 1, ""), (-1, 1, ""), (0, 9, "x" * 4097)):
        pair.same(commit(group, row), label=f"{row[:2]}")
        pair.same(fetched(group, 0, 1, 7), new)
    pair.same(commit(group, (0, 9, "x" * 4096)), (2, 10))
    pair.same(commit(group, (0, 1, ""), topic="nope"))
    pair.same(commit(group, (0, 1, ""), topic="bad/name"))
    pair.same(commit(group, (0, 1, ""), topic_id=ZERO_UUID), 10)
    pair.same(commit(group, (0, 1, "")), (2, 5, 10), label="good")
    pair.same(commit(group))
    pair.same(commit("", (0, 3, "")))
    for generation in (0, 1, 5):
        pair.same(commit("fresh", (0, 3, ""), generation_id_or_member_epoch=generation), label=f"epoch {generation}")
    pair.same(commit("fresh", (0, 3, ""), member_id="somebody"))
    pair.same(commit("fresh", (0, 3, ""), group_instance_id="i"), (7, 10))
    pair.same(commit("kept", (0, 3, ""), retention_time_ms=5000), (2, 3, 4))

    pair.same(fetched_before_8(group, 0, 1, 9), old)
    pair.same(fetched_before_8(group, topic=None), range(2, 8))
    pair.same(fetched_before_8(group, 0, topic="nope"), old)
    pair.same(fetched_before_8("none", 0), old)
    pair.same(fetched_before_8("none", topic=None), range(2, 8))
    pair.same(fetched_before_8("", 0), old)
    pair.same(fetched_before_8(group, 0, require_stable=True), 7)
    pair.same(fetched_before_8(group), old)
    pair.same(fetched(group, 0, 1, 9), new)
    pair.same(fetched(group, topic=None), new)
    pair.same(fetched(group, 0, topic="nope"), new)
    pair.same(fetched("none", 0), new)
    pair.same(fetched("none", topic=None), new)
    pair.same(fetched("", 0), new)
    pair.same(fetched(group, 0, member_id="m", member_epoch=3), (9, 10))
    pair.same(fetched(group, 0, member_epoch=3), (9, 10))
    pair.same(OffsetFetchRequest(groups=[], topics=[]), new)
    several = [OffsetFetchRequest.OffsetFetchRequestGroup(name, topics=None) for name in (group, "none", group)]
    pair.same(OffsetFetchRequest(groups=several, topics=[]), new)


def test_offsets_of_a_group_with_members_get_the_same_answers(pair: Pair) -> None:
    group = "busy"
    remember(pair, pair.same(join(group), 3), "m")
    member: dict[str, Any] = {"member_id": its("m"), "generation_id_or_member_epoch": 1}
    pair.same(commit(group, (0, 5, ""), **member), (2, 9), label="while it rebalances")
    pair.same(sync(group, 1, its("m"), b"mine"), 3)
    pair.same(commit(group, (0, 5, ""), **member))
    pair.same(commit(group, (0, 5, "")), label="from outside")
    pair.same(commit(group, (0, 5, ""), **member | {"generation_id_or_member_epoch": 2}), label="other generation")
    pair.same(commit(group, (0, 5, ""), **member | {"member_id": "nobody"}), label="stranger")
    pair.same(commit(group, (0, 5, ""), group_instance_id="i", **member), (7, 10))

    def delete(name: str, *indexes: int, topic: str = "g") -> OffsetDeleteRequest:
        rows = [OffsetDeleteRequest.OffsetDeleteRequestPartition(i) for i in indexes]
        return OffsetDeleteRequest(name, [OffsetDeleteRequest.OffsetDeleteRequestTopic(topic, rows)])

    pair.same(delete(group, 0))
    pair.same(delete(group, 0, topic="nope"))
    pair.same(delete("none", 0))
    pair.same(delete("", 0))
    pair.same(OffsetDeleteRequest(group))
    pair.same(delete(group))
    pair.same(delete(group, topic="nope"))
    pair.same(leave(group, its("m")), 5)
    pair.same(delete(group, 0, 1, 9))
    pair.same(fetched(group, 0), 8)
    pair.same(DeleteGroupsRequest([group]))


def test_groups_are_listed_alike(pair: Pair) -> None:
    pair.same(commit("only-offsets", (0, 1, "")), 5)

    def known(answer: Any) -> Any:
        return {**answer, "groups": [g for g in answer["groups"] if g["group_id"] in {"only-offsets", "j9", "offsets"}]}

    pair.same(ListGroupsRequest(), mask=known)
    for states in (["Empty"], ["empty", "Stable"], ["PreparingRebalance"], ["Nonsense"], [""], ["Dead"], ["Assigning"]):
        pair.same(ListGroupsRequest(states_filter=states), mask=known)
    for types in (["classic"], ["Classic"], ["consumer"], ["share"], ["streams"], ["nonsense"], ["unknown"], [""]):
        pair.same(ListGroupsRequest(types_filter=types), mask=known)
    pair.same(ListGroupsRequest(states_filter=["Empty"], types_filter=["classic"]), mask=known)
    pair.same(DescribeGroupsRequest(["only-offsets"]))
    pair.same(DescribeGroupsRequest([]))
    pair.same(DeleteGroupsRequest([]))
    pair.same(DeleteGroupsRequest(["only-offsets", "only-offsets"]))
