"""Offsets: accepted commits, reads and expiry."""

import pytest

from kraft_node.broker.coordinators.group.offsets import OffsetTable
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import Uuid
from kraft_protocol.wire.messages import OffsetFetchRequest
from tests.unit.coordinators.harness import Node, Topics, subscription

DAY_MS = 24 * 3_600_000


def codes(call):
    return {(t.name, p.partition_index): ErrorCode(p.error_code) for t in call.response.topics for p in t.partitions}


def only(call):
    (code,) = set(codes(call).values())
    return code


@pytest.mark.parametrize("version", range(2, 11))
def test_a_consumer_without_membership_commits_and_reads_back(version):
    node = Node()
    call = node.commit({("t", 0): 10, ("t", 3): 13, ("u", 1): 5}, version=version, metadata="note")
    assert set(codes(call).values()) == {ErrorCode.NONE}
    assert node.offsets() == {("t", 0): 10, ("t", 3): 13, ("u", 1): 5}
    assert node.offsets(wanted={"t": [0, 1]}) == {("t", 0): 10, ("t", 1): -1}
    assert node.listed() == {"g": ("Empty", "classic", "")}


@pytest.mark.parametrize("version", range(1, 11))
def test_every_version_of_offset_fetch_reads_the_same(version):
    node = Node()
    node.commit({("t", 0): 10}, metadata="m")
    if version >= 8:
        assert node.offsets(wanted={"t": [0]}, version=version) == {("t", 0): 10}
        assert node.offsets(version=version) == {("t", 0): 10}
        return
    topic = OffsetFetchRequest.OffsetFetchRequestTopic(name="t", partition_indexes=[0, 1])
    response = node.send(OffsetFetchRequest(group_id="g", topics=[topic]), version).response
    assert [(p.committed_offset, p.metadata) for p in response.topics[0].partitions] == [(10, "m"), (-1, "")]
    if version >= 2:
        response = node.send(OffsetFetchRequest(group_id="g", topics=None), version).response
        assert [(t.name, len(t.partitions)) for t in response.topics] == [("t", 1)]


def test_members_commit_with_their_generation_only():
    node = Node()
    (a, b), generation = node.stable_group(2)
    assert only(node.commit({("t", 0): 1}, member=a, generation=generation)) is ErrorCode.NONE
    assert only(node.commit({("t", 0): 2}, member=a, generation=generation - 1)) is ErrorCode.ILLEGAL_GENERATION
    assert only(node.commit({("t", 0): 2}, member="?", generation=generation)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert only(node.commit({("t", 0): 2})) is ErrorCode.UNKNOWN_MEMBER_ID, "the group has members"
    assert node.offsets() == {("t", 0): 1}
    node.join()
    assert only(node.commit({("t", 0): 3}, member=b, generation=generation)) is ErrorCode.NONE, "while others rejoin"
    node.time.advance(10_000)


def test_commits_between_join_and_assignment_are_refused():
    node = Node()
    a, join = node.new_member()
    node.time.advance()
    call = node.commit({("t", 0): 1}, member=a, generation=join.response.generation_id)
    assert only(call) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_missing_group_is_reported_from_version_9():
    node = Node()
    assert only(node.commit({("t", 0): 1}, member="m", generation=1, version=8)) is ErrorCode.ILLEGAL_GENERATION
    assert only(node.commit({("t", 0): 1}, member="m", generation=1, version=9)) is ErrorCode.GROUP_ID_NOT_FOUND


def test_committing_prolongs_the_session():
    node = Node()
    (a,), generation = node.stable_group(1)
    for _ in range(3):
        node.time.advance(9_000)
        assert only(node.commit({("t", 0): 1}, member=a, generation=generation)) is ErrorCode.NONE


def test_each_unknown_topic_or_partition_is_refused_alone():
    node = Node()
    call = node.commit({("t", 0): 1, ("t", 4): 1, ("x", 0): 1})
    assert codes(call) == {
        ("t", 0): ErrorCode.NONE,
        ("t", 4): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("x", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert set(codes(node.commit({("x", 0): 1}, version=10)).values()) == {ErrorCode.UNKNOWN_TOPIC_ID}
    (group,) = node.fetch(wanted={"x": [0], "t": [0]}, version=10).response.groups
    by_id = {t.topic_id: t.partitions[0] for t in group.topics}
    assert by_id[Uuid(b"?" * 16)].error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert by_id[node.topics.ids["t"]].committed_offset == 1


def test_metadata_has_a_bound():
    node = Node(offset_metadata_max_bytes=8)
    assert only(node.commit({("t", 0): 1}, metadata="x" * 8)) is ErrorCode.NONE
    assert only(node.commit({("t", 0): 2}, metadata="x" * 9)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert only(node.commit({("t", 0): 3}, metadata="😀" * 4)) is ErrorCode.NONE
    assert only(node.commit({("t", 0): 4}, metadata="😀" * 5)) is ErrorCode.OFFSET_METADATA_TOO_LARGE
    assert node.offsets() == {("t", 0): 3}


def test_uncommitted_offsets_are_not_read():
    node = Node()
    node.commit({("t", 0): 1, ("t", 1): 1})
    node.logs.hold = True
    calls = [node.commit({("t", 0): 2}), node.commit({("t", 0): 3, ("t", 2): 1})]
    assert node.offsets() == {("t", 0): 1, ("t", 1): 1}
    assert node.offsets(wanted={"t": [0, 2]}) == {("t", 0): 1, ("t", 2): -1}
    stable = node.fetch(stable=True)
    assert not stable.answered, "a stable read waits for what was written before it"
    assert not any(c.answered for c in calls)
    node.logs.commit()
    assert all(only(c) is ErrorCode.NONE for c in calls)
    assert {p.committed_offset for t in stable.response.groups[0].topics for p in t.partitions} == {3, 1}
    assert node.offsets() == {("t", 0): 3, ("t", 1): 1, ("t", 2): 1}


def test_named_partitions_are_read_without_a_copy_of_all_offsets_of_the_group(monkeypatch):
    """In a busy group some commit is always under way, and each of its members reads a few of thousands of offsets."""
    node = Node()
    node.commit({("t", 0): 1, ("t", 1): 1})
    node.logs.hold = True
    node.commit({("t", 0): 2})
    monkeypatch.delattr(OffsetTable, "all_committed")
    assert node.offsets(wanted={"t": [0, 1, 2]}) == {("t", 0): 1, ("t", 1): 1, ("t", 2): -1}


def test_a_failed_commit_leaves_nothing_behind():
    node = Node()
    node.logs.fail = ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert only(node.commit({("t", 0): 1})) is ErrorCode.NOT_COORDINATOR
    assert node.listed() == {}
    node.logs.fail = ErrorCode.MESSAGE_TOO_LARGE
    assert only(node.commit({("t", 0): 1})) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.offsets() == {}


def test_offsets_of_a_deleted_topic_are_hidden_from_its_successor():
    node = Node()
    node.commit({("t", 0): 10})
    node.topics.ids["t"] = Uuid(b"n" * 16)
    assert node.offsets(wanted={"t": [0]}, version=10) == {("t", 0): -1}
    assert node.offsets(wanted={"t": [0]}, version=9) == {("t", 0): 10}, "asked by name nobody can tell"


def test_offsets_of_several_groups_are_fetched_at_once():
    node = Node(topics=Topics(t=1))
    node.commit({("t", 0): 1}, group="g1")
    node.commit({("t", 0): 2}, group="g2")
    groups = [OffsetFetchRequest.OffsetFetchRequestGroup(group_id=g, topics=None) for g in ("g1", "g2", "g3")]
    response = node.send(OffsetFetchRequest(groups=groups), 8).response
    assert [(g.group_id, [p.committed_offset for t in g.topics for p in t.partitions]) for g in response.groups] == [
        ("g1", [1]),
        ("g2", [2]),
        ("g3", []),
    ]


# -- deleting


def delete(node, topic, *partitions, group="g"):
    return node.offset_delete_call(group, topic, *partitions)


def test_offsets_of_topics_that_are_not_consumed_can_be_deleted():
    node = Node()
    node.commit({("t", 0): 1, ("u", 0): 1, ("u", 1): 1})
    (a,), generation = node.stable_group(1)
    assert only(delete(node, "t", 0)) is ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert codes(delete(node, "u", 0, 9)) == {
        ("u", 0): ErrorCode.NONE,
        ("u", 9): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
    assert node.offsets() == {("t", 0): 1, ("u", 1): 1}
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    assert delete(node, "t", 0, group="other").error is ErrorCode.GROUP_ID_NOT_FOUND
    assert delete(node, "t", 0, group="").error is ErrorCode.INVALID_GROUP_ID


def test_offsets_of_other_groups_can_be_deleted_only_if_empty():
    node = Node()
    node.stable_group(1, kind="connect")
    assert delete(node, "u", 0).error is ErrorCode.NON_EMPTY_GROUP


def test_offsets_of_deleted_topics_are_deleted_at_once():
    node = Node()
    node.commit({("t", 0): 1, ("u", 0): 2})
    node.commit({("t", 1): 3}, group="h")
    old = node.topics.ids["t"]
    node.topics.ids["t"] = Uuid(b"n" * 16)
    node.commit({("t", 2): 4}, group="h", version=10)
    node.coordinator.on_topics_deleted([("t", old)])
    node.time.advance()
    assert node.offsets() == {("u", 0): 2}
    assert node.offsets("h") == {("t", 2): 4}, "an offset of the topic's successor stays"
    node.start()
    assert node.offsets("h") == {("t", 2): 4}


# -- expiry


def test_offsets_without_membership_expire_after_their_last_commit():
    node = Node(offsets_retention_ms=7 * DAY_MS)
    node.commit({("t", 0): 1, ("t", 1): 1})
    node.time.advance(5 * DAY_MS)
    node.commit({("t", 1): 2})
    node.time.advance(3 * DAY_MS)
    assert node.offsets() == {("t", 1): 2}
    node.time.advance(7 * DAY_MS)
    assert node.listed() == {}, "with its last offset the group goes"
    node.start()
    assert node.listed() == {}


def test_offsets_expire_after_their_group_became_empty():
    node = Node(offsets_retention_ms=7 * DAY_MS, max_session_timeout_ms=10**9)
    (a,), generation = node.stable_group(1, session=10**9)
    node.commit({("t", 0): 1}, member=a, generation=generation)
    node.time.advance(6 * DAY_MS)
    node.leave((a, None))
    node.time.advance(6 * DAY_MS)
    assert node.offsets() == {("t", 0): 1}, "it has been empty for six days only"
    node.time.advance(DAY_MS + 600_000)
    assert node.listed() == {}


def test_an_active_group_loses_offsets_of_unsubscribed_topics():
    node = Node(offsets_retention_ms=DAY_MS, max_session_timeout_ms=10**9)
    (a,), generation = node.stable_group(1, session=10**9, protocols={"range": subscription("t")})
    node.commit({("t", 0): 1, ("u", 0): 1}, member=a, generation=generation)
    node.time.advance(DAY_MS + 600_000)
    assert node.offsets() == {("t", 0): 1}
    assert node.heartbeat(a, generation) is ErrorCode.NONE


def test_the_retention_time_of_a_commit_is_honoured():
    node = Node(offsets_retention_ms=7 * DAY_MS)
    node.commit({("t", 0): 1}, version=4, retention=DAY_MS)
    node.commit({("t", 1): 1}, version=5)
    node.start()
    node.time.advance(DAY_MS + 600_000)
    assert node.offsets() == {("t", 1): 1}


def test_an_infinite_retention_time_never_expires():
    node = Node(offsets_retention_ms=1_000, offsets_retention_check_interval_ms=500)
    call = node.commit({("t", 0): 1}, version=2, retention=2**63 - 1)
    assert call.response.topics[0].partitions[0].error_code == 0
    node.start()
    node.time.advance(100_000)
    assert node.offsets() == {("t", 0): 1}


def test_a_sweep_over_many_groups_takes_turns():
    node = Node(offsets_retention_ms=DAY_MS)
    for i in range(1_700):
        node.commit({("t", 0): i}, group=f"g{i}")
    node.time.advance(DAY_MS + 600_000)
    assert node.listed() == {}
    node.start()
    assert node.listed() == {}
