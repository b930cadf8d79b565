"""Consumer groups of KIP-848: joining, reconciliation, fencing, time-outs; facts of Apache Kafka 4.3.1."""

import pytest

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest
from tests.unit.coordinators.harness import Node, Topics

HEARTBEAT_MS = 5_000
SESSION_MS = 45_000
INTERVAL_MS = 1_000
CHANGING_MS = 500
"""The interval of heartbeats while a group changes."""


def settled(node: Node, *members: str, group: str = "g", topic: str = "t") -> dict[str, int]:
    """Let members that behave send heartbeats until nothing changes any more; returns their epochs."""
    epochs = dict.fromkeys(members, 0)
    owned: dict[str, dict[str, list[int]]] = {m: {} for m in members}
    for turn in range(30):
        before = dict(epochs), {m: dict(o) for m, o in owned.items()}
        for member in members:
            call = node.beat(member, epochs[member], topic, group=group, owned=owned[member])
            found = node.assigned(call)
            epochs[member] = call.response.member_epoch
            if found is not None:
                owned[member] = found
        if turn and before == (epochs, owned):
            return epochs
        node.wait(INTERVAL_MS)
    raise AssertionError(f"{epochs} {owned} do not settle")


def test_the_first_member_gets_everything_at_epoch_two():
    node = Node()
    call = node.beat("m", 0, "t")
    assert node.assigned(call) == {"t": [0, 1, 2, 3]}
    assert (call.response.member_id, call.response.member_epoch) == ("m", 2)
    group = node.consumer_group()
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2)
    assert group.assignor_name == "uniform"
    (member,) = group.members
    assert (member.member_id, member.member_epoch, member.client_id, member.client_host) == ("m", 2, "c", "/10.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    assert member.assignment == member.target_assignment
    assert member.assignment.topic_partitions[0].topic_name == "t"
    assert node.listed() == {"g": ("Stable", "consumer", "consumer")}


def interval(node: Node, member: str, epoch: int, *topics: str, **more) -> int:
    return node.beat(member, epoch, *topics, **more).response.heartbeat_interval_ms


def test_heartbeats_are_frequent_until_a_new_target_is_as_old_as_an_interval():
    node = Node()
    assert interval(node, "m", 0, "t") == CHANGING_MS
    node.wait(HEARTBEAT_MS - 1)
    assert interval(node, "m", 2) == CHANGING_MS
    node.wait(1)
    assert interval(node, "m", 2) == HEARTBEAT_MS
    assert interval(node, "n", 0, "t") == CHANGING_MS
    assert interval(node, "m", 2) == CHANGING_MS


def test_heartbeats_are_frequent_while_a_member_waits_for_partitions():
    node = Node()
    node.beat("m", 0, "t", rebalance_timeout_ms=300_000)
    node.wait(INTERVAL_MS)
    node.beat("n", 0, "t")
    node.beat("m", 2)
    node.wait(30_000)
    assert interval(node, "m", 2) == interval(node, "n", 3) == CHANGING_MS, "m has not given up its partitions"
    node.wait(30_000)
    assert interval(node, "m", 2) == interval(node, "n", 3) == HEARTBEAT_MS, "not for ever"


def test_heartbeats_of_a_large_group_are_bounded():
    node = Node()
    for number in range(400):
        found = interval(node, f"m{number}", 0, "t")
    assert found == 2 * 400


def test_configured_least_interval_holds_while_a_group_changes():
    assert interval(Node(consumer_times=(SESSION_MS, HEARTBEAT_MS, INTERVAL_MS, 3_000)), "m", 0, "t") == 3_000
    assert interval(Node(consumer_times=(SESSION_MS, HEARTBEAT_MS, INTERVAL_MS, 5_000)), "m", 0, "t") == HEARTBEAT_MS
    assert interval(Node(consumer_times=(SESSION_MS, 100, INTERVAL_MS, 0)), "m", 0, "t") == 100


def test_version_zero_gets_an_id_from_the_coordinator():
    node = Node()
    call = node.beat("", 0, "t", version=0)
    assert call.response.member_id
    assert call.response.member_epoch == 2
    assert node.beat("", 0, "t", group="h", version=1).error is ErrorCode.INVALID_REQUEST


def test_a_heartbeat_without_news_has_no_assignment_and_writes_nothing():
    node = Node()
    node.beat("m", 0, "t")
    end = node.logs.end_offset(0)
    call = node.beat("m", 2)
    assert node.assigned(call) is None
    assert call.response.member_epoch == 2
    assert node.logs.end_offset(0) == end


def test_a_full_request_gets_the_assignment_again():
    node = Node()
    node.beat("m", 0, "t")
    call = node.beat("m", 2, "t", owned={"t": [0, 1, 2, 3]}, rebalance_timeout_ms=20_000)
    assert node.assigned(call) == {"t": [0, 1, 2, 3]}
    assert node.assigned(node.beat("m", 2, "t", owned={"t": [0, 1, 2, 3]})) is None


def test_partitions_are_revoked_before_they_are_assigned():
    node = Node()
    node.beat("a", 0, "t")
    node.wait(INTERVAL_MS)
    joined = node.beat("b", 0, "t")
    assert joined.response.member_epoch == 3, "it is at the target, but waits for its partitions"
    assert node.assigned(joined) == {}
    asked = node.beat("a", 2)
    assert asked.response.member_epoch == 2
    kept = node.assigned(asked)
    assert kept is not None
    assert len(kept["t"]) == 2
    assert node.consumer_group().group_state == "Reconciling"
    assert node.assigned(node.beat("b", 3)) is None, "the partitions are not released yet"
    assert node.assigned(node.beat("a", 2)) is None, "without a report it may still own them"
    assert node.beat("a", 2).response.member_epoch == 2
    assert node.beat("a", 2, owned={"t": [0, 1, 2, 3]}).response.member_epoch == 2
    row = ConsumerGroupHeartbeatRequest.TopicPartitions
    twice = [row(topic_id=node.topics.ids["t"], partitions=numbers) for numbers in ([0, 1, 2, 3], kept["t"])]
    assert node.beat("a", 2, topic_partitions=twice).response.member_epoch == 2, "rows of one topic count together"
    revoked = node.beat("a", 2, owned=kept)
    assert revoked.response.member_epoch == 3
    given = node.assigned(node.beat("b", 3))
    assert given is not None
    assert sorted(given["t"] + kept["t"]) == [0, 1, 2, 3]
    assert node.consumer_group().group_state == "Stable"


def test_a_second_assignment_waits_for_the_interval():
    node = Node()
    node.beat("a", 0, "t")
    joined = node.beat("b", 0, "t")
    assert node.assigned(joined) == {}
    assert joined.response.member_epoch == 2, "the target has not been computed yet"
    assert node.consumer_group().group_state == "Assigning"
    node.wait(INTERVAL_MS - 1)
    assert node.beat("b", 2).response.member_epoch == 2
    node.wait(1)
    assert node.beat("b", 2).response.member_epoch == 3


def test_three_members_share_and_a_leaver_gives_its_part_to_the_others():
    node = Node(topics=Topics(t=6))
    epochs = settled(node, "a", "b", "c")
    assert len(set(epochs.values())) == 1
    before = {m.member_id: m.assignment.topic_partitions[0].partitions for m in node.consumer_group().members}
    assert sorted(p for part in before.values() for p in part) == [0, 1, 2, 3, 4, 5]
    assert {len(part) for part in before.values()} == {2}
    left = node.beat("c", -1)
    assert (left.error, left.response.member_id, left.response.member_epoch) == (ErrorCode.NONE, "c", -1)
    node.wait(INTERVAL_MS)
    for member in ("a", "b"):
        found = node.assigned(node.beat(member, epochs[member]))
        assert found is not None
        assert set(before[member]) < set(found["t"]), "nothing moves but the leaver's partitions"
    assert node.consumer_group().group_state == "Stable"


def test_a_group_without_members_is_empty_and_can_be_deleted():
    node = Node()
    node.beat("m", 0, "t")
    assert node.delete("g") == {"g": ErrorCode.NON_EMPTY_GROUP}
    node.beat("m", -1)
    assert node.listed() == {"g": ("Empty", "consumer", "consumer")}
    assert node.consumer_group().group_epoch == 3
    assert node.delete("g") == {"g": ErrorCode.NONE}
    assert node.consumer_group().error_code == ErrorCode.GROUP_ID_NOT_FOUND
    node.restart()
    assert node.listed() == {}


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ({"group": ""}, "GroupId can't be empty."),
        ({"member": ""}, "MemberId can't be empty."),
        ({"instance_id": ""}, "InstanceId can't be empty."),
        ({"rack_id": " "}, "RackId can't be empty."),
        ({"rebalance_timeout_ms": -1}, "RebalanceTimeoutMs must be provided in first request."),
        ({"owned": {"t": [0]}}, "TopicPartitions must be empty when (re-)joining."),
        (
            {"subscribed_topic_names": None},
            "Either SubscribedTopicNames or SubscribedTopicRegex must be non-null when (re-)joining.",
        ),
        ({"epoch": -2}, "InstanceId can't be null."),
        ({"epoch": -3}, "MemberEpoch is invalid."),
    ],
)
def test_an_invalid_request_is_refused(fields, words):
    call = Node().beat(**{"member": "m", "epoch": 0, **fields})
    assert call.error is ErrorCode.INVALID_REQUEST
    assert call.response.error_message == words


def test_an_unknown_assignor_is_refused_and_a_known_one_is_used():
    node = Node()
    call = node.beat("m", 0, "t", server_assignor="sticky")
    assert call.error is ErrorCode.UNSUPPORTED_ASSIGNOR
    assert call.response.error_message == "ServerAssignor sticky is not supported. Supported assignors: uniform, range."
    assert node.beat("m", 0, "t", server_assignor="range").error is ErrorCode.NONE
    assert node.consumer_group().assignor_name == "range"


def test_only_a_join_makes_a_group():
    node = Node()
    for epoch, words in ((1, "Consumer group g not found."), (-1, "Group g not found.")):
        call = node.beat("m", epoch)
        assert call.error is ErrorCode.GROUP_ID_NOT_FOUND
        assert call.response.error_message == words
    assert node.listed() == {}


def test_epochs_fence_members():
    node = Node()
    node.beat("m", 0, "t")
    greater = node.beat("m", 3)
    assert greater.error is ErrorCode.FENCED_MEMBER_EPOCH
    assert greater.response.error_message == (
        "The consumer group member has a greater member epoch (3) than the one known by the group coordinator (2). "
        "The member must abandon all its partitions and rejoin."
    )
    assert node.beat("m", 1).error is ErrorCode.FENCED_MEMBER_EPOCH
    assert node.beat("n", 1).error is ErrorCode.UNKNOWN_MEMBER_ID
    again = node.beat("m", 0, "t")
    assert again.response.member_epoch == 2
    assert node.assigned(again) == {"t": [0, 1, 2, 3]}


def test_a_lost_response_does_not_fence():
    node = Node()
    node.beat("m", 0, "t")
    node.wait(INTERVAL_MS)
    node.beat("m", 2, "t", "u", owned={"t": [0, 1, 2, 3]})
    assert node.consumer_group().members[0].member_epoch == 3
    repeated = node.beat("m", 2, "t", "u", owned={"t": [0, 1, 2, 3]})
    assert repeated.error is ErrorCode.NONE
    assert repeated.response.member_epoch == 3
    assert node.beat("m", 2, owned=None).error is ErrorCode.FENCED_MEMBER_EPOCH, "nothing reported"


def test_a_full_group_takes_no_new_member():
    node = Node(consumer_max_size=1)
    node.beat("a", 0, "t")
    call = node.beat("b", 0, "t")
    assert call.error is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert call.response.error_message == "The consumer group has reached its maximum capacity of 1 members."
    assert node.beat("a", 2).error is ErrorCode.NONE


# -- static members


def test_a_static_member_leaves_for_a_while_and_keeps_its_partitions():
    node = Node()
    settled(node, "b")
    node.wait(INTERVAL_MS)
    node.beat("a", 0, "t", instance_id="i")
    node.beat("b", 2)
    node.beat("b", 2, owned={"t": [0, 1]})
    node.beat("a", 3, instance_id="i")
    epoch = node.consumer_group().group_epoch
    (held,) = (m for m in node.consumer_group().members if m.member_id == "a")
    assert node.beat("a2", 0, "t", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID
    away = node.beat("a", -2, instance_id="i")
    assert (away.error, away.response.member_epoch) == (ErrorCode.NONE, -2)
    assert node.consumer_group().group_epoch == epoch, "nobody is rebalanced"
    back = node.beat("a2", 0, "t", instance_id="i")
    assert node.assigned(back) == {"t": held.assignment.topic_partitions[0].partitions}
    assert back.response.member_epoch == epoch
    assert {m.member_id for m in node.consumer_group().members} == {"a2", "b"}
    assert node.consumer_group().group_epoch == epoch
    fenced = node.beat("a", 3, instance_id="i")
    assert fenced.error is ErrorCode.FENCED_INSTANCE_ID
    assert node.beat("a2", 3, instance_id="j").error is ErrorCode.UNKNOWN_MEMBER_ID
    node.restart()
    assert {m.member_id for m in node.consumer_group().members} == {"a2", "b"}
    assert node.consumer_group().group_state == "Stable"


def test_a_static_member_that_stays_away_is_removed_with_its_session():
    node = Node()
    node.beat("a", 0, "t", instance_id="i")
    node.beat("a", -2, instance_id="i")
    node.wait(SESSION_MS)
    assert node.listed() == {"g": ("Empty", "consumer", "consumer")}


# -- time-outs


def test_a_silent_member_is_removed():
    node = Node()
    node.beat("m", 0, "t")
    node.wait(SESSION_MS - 1)
    node.beat("m", 2)
    node.wait(SESSION_MS - 1)
    assert len(node.consumer_group().members) == 1
    node.wait(1)
    assert node.consumer_group().members == []
    assert node.beat("m", 2).error is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_does_not_revoke_in_time_is_removed():
    node = Node()
    node.beat("a", 0, "t")
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t")
    node.beat("a", 2)
    for _ in range(4):
        node.wait(HEARTBEAT_MS)
        node.beat("b", 3)
        last = node.beat("a", 2)
    assert last.error is ErrorCode.UNKNOWN_MEMBER_ID
    assert [m.member_id for m in node.consumer_group().members] == ["b"]


def test_sessions_and_revocations_begin_anew_after_a_reload():
    node = Node()
    node.beat("a", 0, "t")
    node.wait(INTERVAL_MS)
    node.beat("b", 0, "t")
    node.beat("a", 2)
    node.restart()
    assert node.consumer_group().group_state == "Reconciling"
    node.wait(20_000 - 1)
    node.beat("b", 3)
    assert len(node.consumer_group().members) == 2
    node.wait(1)
    assert [m.member_id for m in node.consumer_group().members] == ["b"]
    node.wait(SESSION_MS)
    assert node.listed() == {"g": ("Empty", "consumer", "consumer")}


# -- topics


def test_more_partitions_of_a_topic_are_assigned_with_the_next_heartbeat():
    node = Node(topics=Topics(t=2))
    node.beat("m", 0, "t")
    node.wait(INTERVAL_MS)
    node.topics.counts["t"] = 3
    node.topics_changed("t")
    call = node.beat("m", 2)
    assert node.assigned(call) == {"t": [0, 1, 2]}
    assert call.response.member_epoch == 3


def test_a_topic_may_be_made_after_the_subscription():
    node = Node()
    assert node.assigned(node.beat("m", 0, "later")) == {}
    node.wait(INTERVAL_MS)
    node.topics.create("later", 2)
    node.topics_changed("later", created=True)
    assert node.assigned(node.beat("m", 2)) == {"later": [0, 1]}


def test_changes_of_leaders_move_no_epoch():
    node = Node()
    node.beat("m", 0, "t")
    node.topics_changed("t")
    assert node.beat("m", 2).response.member_epoch == 2
    assert node.consumer_group().group_epoch == 2


def test_new_racks_move_the_epoch():
    node = Node()
    node.beat("m", 0, "t")
    node.topics.racks["t"] = [["a"]] * 4
    node.topics_changed("t")
    node.beat("m", 2)
    assert node.consumer_group().group_epoch == 3


def test_a_smaller_subscription_revokes():
    node = Node()
    node.beat("m", 0, "t", "u")
    node.wait(INTERVAL_MS)
    call = node.beat("m", 2, "u", owned={"t": [0, 1, 2, 3], "u": [0, 1, 2, 3]})
    assert node.assigned(call) == {"u": [0, 1, 2, 3]}
    assert call.response.member_epoch == 2
    assert node.beat("m", 2, owned={"u": [0, 1, 2, 3]}).response.member_epoch == 3
