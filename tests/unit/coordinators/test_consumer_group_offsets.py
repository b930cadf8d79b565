"""Consumer groups of KIP-848: patterns, offsets, other types of groups; facts of Apache Kafka 4.3.1."""

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import ConsumerGroupHeartbeatRequest
from tests.unit.coordinators.harness import Call, Node, Topics

INTERVAL_MS = 1_000


def code_of(call: Call) -> ErrorCode:
    """The code of the first partition."""
    return ErrorCode(call.response.topics[0].partitions[0].error_code)


# -- patterns


def patterned(node: Node, member: str = "m", pattern: str = "t.*", epoch: int = 0, **fields):
    names = {"subscribed_topic_names": None} if epoch == 0 else {}
    return node.beat(member, epoch, subscribed_topic_regex=pattern, **names, **fields)


def test_a_pattern_is_resolved_in_the_background():
    node = Node(topics=Topics(t1=2, t2=1, u=1))
    joined = patterned(node)
    assert node.assigned(joined) == {}
    assert joined.response.member_epoch == 1
    node.wait(0)
    call = node.beat("m", 1)
    assert node.assigned(call) == {"t1": [0, 1], "t2": [0]}
    assert node.consumer_group().members[0].subscribed_topic_regex == "t.*"
    node.wait(INTERVAL_MS)
    second = patterned(node, "n")
    assert second.response.member_epoch == 3, "the pattern is resolved already"


def test_a_pattern_finds_only_topics_that_the_client_may_describe():
    node = Node(topics=Topics(t1=1, t2=1, t3=1))
    request = ConsumerGroupHeartbeatRequest(
        group_id="g", member_id="m", rebalance_timeout_ms=20_000, subscribed_topic_regex="t[12]", topic_partitions=[]
    )
    asked: list[list[str]] = []

    def permitted(names: list[str]) -> set[str]:
        asked.append(names)
        return {"t2", "t3"}.intersection(names)

    call = Call(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1)
    node.coordinator.handlers[ApiKey.CONSUMER_GROUP_HEARTBEAT](call, request, permitted)
    assert call.error is ErrorCode.NONE
    node.wait(0)
    assert asked == [["t1", "t2"]], "only topics that match are checked"
    assert node.assigned(node.beat("m", 1)) == {"t2": [0]}


def test_new_topics_are_found_but_not_within_ten_seconds():
    node = Node(topics=Topics(t1=1))
    patterned(node)
    node.wait(0)
    node.beat("m", 1)
    node.topics.create("t2", 1)
    node.topics_changed("t2", created=True)
    for _ in range(2):
        node.wait(4_999)
        node.beat("m", 2)
        node.wait(0)
        assert node.consumer_group().group_epoch == 2
    node.wait(3)
    node.beat("m", 2)
    node.wait(0)
    assert node.consumer_group().group_epoch == 3
    assert node.assigned(node.beat("m", 2)) == {"t1": [0], "t2": [0]}


def test_an_invalid_pattern_is_refused():
    call = patterned(Node(), pattern="[")
    assert call.error is ErrorCode.INVALID_REGULAR_EXPRESSION
    assert call.response.error_message == (
        "SubscribedTopicRegex `[` is not a valid regular expression: missing closing ]."
    )


def test_names_and_a_pattern_are_united():
    node = Node(topics=Topics(t=1, u=1, v=1))
    node.beat("m", 0, "u", subscribed_topic_regex="t")
    node.wait(INTERVAL_MS)
    assert node.assigned(node.beat("m", 2)) == {"t": [0], "u": [0]}


def test_a_pattern_that_nobody_uses_any_more_is_forgotten():
    node = Node(topics=Topics(t=1))
    patterned(node)
    node.wait(0)
    node.beat("m", -1)
    shard = node.coordinator.shard_of("g")
    assert shard.consumers["g"].resolved == {}
    node.restart()
    assert node.coordinator.shard_of("g").consumers["g"].resolved == {}


# -- offsets


def test_members_commit_with_their_epoch():
    node = Node()
    node.beat("m", 0, "t")
    assert code_of(node.commit({("t", 0): 1}, member="m", generation=2)) is ErrorCode.NONE
    assert code_of(node.commit({("t", 0): 2}, member="m", generation=3)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(node.commit({("t", 0): 2}, member="m", generation=1)) is ErrorCode.STALE_MEMBER_EPOCH
    assert code_of(node.commit({("t", 0): 2}, member="x", generation=2)) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(node.commit({("t", 0): 2})) is ErrorCode.UNKNOWN_MEMBER_ID
    assert code_of(node.commit({("t", 0): 2}, member="m", generation=2, version=8)) is ErrorCode.UNSUPPORTED_VERSION
    assert node.offsets() == {("t", 0): 1}
    node.beat("m", -1)
    assert code_of(node.commit({("t", 0): 5})) is ErrorCode.NONE, "by the administrator of an empty group"
    assert node.offsets() == {("t", 0): 5}


def test_an_older_epoch_commits_partitions_that_the_member_has_held_since_then():
    node = Node()
    node.beat("m", 0, "t")
    node.wait(INTERVAL_MS)
    node.beat("m", 2, "t", "u", owned={"t": [0, 1, 2, 3]})
    assert node.consumer_group().members[0].member_epoch == 3
    assert code_of(node.commit({("t", 0): 1}, member="m", generation=2)) is ErrorCode.NONE
    assert code_of(node.commit({("u", 0): 1}, member="m", generation=2)) is ErrorCode.STALE_MEMBER_EPOCH
    both = node.commit({("t", 0): 9, ("u", 0): 1}, member="m", generation=2)
    assert {p.error_code for t in both.response.topics for p in t.partitions} == {ErrorCode.STALE_MEMBER_EPOCH}


def test_offsets_of_consumed_topics_are_not_deleted():
    node = Node()
    node.beat("m", 0, "t")
    node.commit({("t", 0): 1, ("u", 0): 2}, member="m", generation=2)
    (row,) = node.offset_delete_call("g", "t", 0).response.topics[0].partitions
    assert row.error_code == ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    (row,) = node.offset_delete_call("g", "u", 0).response.topics[0].partitions
    assert row.error_code == ErrorCode.NONE
    assert node.offsets() == {("t", 0): 1}


def test_offsets_of_consumed_topics_do_not_expire():
    node = Node(offsets_retention_ms=60_000, offsets_retention_check_interval_ms=10_000)
    node.beat("m", 0, "t")
    node.commit({("t", 0): 1, ("u", 0): 2}, member="m", generation=2)
    for _ in range(10):
        node.wait(10_000)
        node.beat("m", 2)
    assert node.offsets() == {("t", 0): 1}
    node.beat("m", -1)
    node.wait(70_000)
    assert node.listed() == {}


# -- other types of groups


def test_an_empty_classic_group_becomes_a_consumer_group_and_back():
    node = Node()
    node.commit({("t", 0): 3})
    (a,), _ = node.stable_group(1)
    assert node.beat("m", 0, "t").error is ErrorCode.GROUP_ID_NOT_FOUND
    node.leave((a, None))
    assert node.beat("m", 0, "t").error is ErrorCode.NONE
    assert node.listed() == {"g": ("Stable", "consumer", "consumer")}
    assert node.offsets() == {("t", 0): 3}
    assert node.join(kind="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    node.restart()
    assert node.listed() == {"g": ("Stable", "consumer", "consumer")}
    node.beat("m", -1)
    node.stable_group(1)
    node.restart()
    assert node.listed() == {"g": ("Stable", "classic", "consumer")}
    assert node.offsets() == {("t", 0): 3}


def test_a_classic_group_is_not_described_as_a_consumer_group():
    node = Node()
    node.stable_group(1)
    found = node.consumer_group()
    assert (found.error_code, found.error_message) == (
        ErrorCode.GROUP_ID_NOT_FOUND,
        "Group g is not a consumer group.",
    )
    node.beat("m", 0, "t", group="h")
    assert node.described("h").error_message == "Group h is not a classic group."


def test_answers_wait_for_the_commit_and_fail_with_the_log():
    node = Node()
    node.logs.hold = True
    call = node.beat("m", 0, "t")
    assert not call.answered
    quiet = node.beat("m", 2)
    assert not quiet.answered
    node.logs.commit()
    assert call.error is ErrorCode.NONE
    assert quiet.error is ErrorCode.NONE
    node.logs.hold = False
    node.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert node.beat("n", 0, "t").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.logs.fail = None
    assert [m.member_id for m in node.consumer_group().members] == ["m"]
