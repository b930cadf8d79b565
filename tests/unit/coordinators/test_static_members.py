"""Members with an instance id (KIP-345): they keep their assignment over a restart."""

from kraft_protocol.errors import ErrorCode
from tests.unit.coordinators.harness import Node, subscription


def static_pair(node: Node):
    """Two static members, i and j, with their assignments; returns their member ids and the generation."""
    calls = {i: node.join(instance=i) for i in ("i", "j")}
    node.time.advance()
    ids = {i: c.response.member_id for i, c in calls.items()}
    generation = calls["i"].response.generation_id
    leader = calls["i"].response.leader
    order = sorted(ids, key=lambda i: ids[i] != leader)
    for i in order:
        node.sync(ids[i], generation, {m: k.encode() for k, m in ids.items()}, instance=i)
    return ids, generation


def test_a_static_member_joins_at_once_with_an_id_from_its_instance():
    node = Node()
    call = node.join(instance="i")
    node.time.advance()
    assert call.error is ErrorCode.NONE
    assert call.response.member_id.startswith("i-")


def test_a_restarted_follower_regains_its_place_without_a_rebalance():
    node = Node()
    ids, generation = static_pair(node)
    back = node.join(instance="j")
    assert back.error is ErrorCode.NONE, "answered at once"
    assert back.response.generation_id == generation
    assert back.response.member_id != ids["j"]
    assert not back.response.skip_assignment
    assert back.response.members == []
    assert node.sync(back.response.member_id, generation, instance="j").response.assignment == b"j"
    assert node.heartbeat(ids["i"], generation, instance="i") is ErrorCode.NONE, "the other noticed nothing"


def test_a_restarted_leader_is_asked_to_skip_the_assignment():
    node = Node()
    _, generation = static_pair(node)
    back = node.join(instance="i")
    assert back.response.leader == back.response.member_id
    assert back.response.skip_assignment
    assert {m.group_instance_id for m in back.response.members} == {"i", "j"}
    assert node.sync(back.response.member_id, generation, instance="i").response.assignment == b"i"


def test_before_version_9_a_restarted_leader_is_not_named_leader():
    node = Node()
    ids, _ = static_pair(node)
    back = node.join(instance="i", version=8)
    assert back.response.leader == ids["i"] != back.response.member_id
    assert back.response.members == []


def test_the_replaced_process_is_fenced_everywhere():
    node = Node()
    ids, generation = static_pair(node)
    node.join(instance="j")
    old = ids["j"]
    assert node.heartbeat(old, generation, instance="j") is ErrorCode.FENCED_INSTANCE_ID
    assert node.sync(old, generation, instance="j").error is ErrorCode.FENCED_INSTANCE_ID
    assert node.join(member=old, instance="j").error is ErrorCode.FENCED_INSTANCE_ID
    refused = node.commit({("t", 0): 1}, member=old, generation=generation, instance="j")
    assert refused.response.topics[0].partitions[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    left = node.leave((old, "j"))
    assert left.response.members[0].error_code == ErrorCode.FENCED_INSTANCE_ID


def test_a_waiting_join_is_fenced_by_its_successor():
    node = Node(initial_rebalance_delay_ms=3_000)
    first = node.join(instance="i")
    second = node.join(instance="i")
    assert first.error is ErrorCode.FENCED_INSTANCE_ID
    node.time.advance(3_000)
    assert second.error is ErrorCode.NONE


def test_a_changed_subscription_keeps_the_group_stable_under_the_same_protocol():
    node = Node()
    _, generation = static_pair(node)
    back = node.join(instance="j", protocols={"range": subscription("u")})
    assert back.response.generation_id == generation


def test_an_absent_static_member_keeps_its_place_until_its_session_ends():
    node = Node()
    ids, generation = static_pair(node)
    node.time.advance(9_999)
    back = node.join(instance="i")
    assert back.response.generation_id == generation
    node.time.advance(10_000)
    assert node.heartbeat(back.response.member_id, generation, instance="i") is not ErrorCode.NONE
    assert node.heartbeat(ids["j"], generation, instance="j") is ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_keeps_static_members_that_did_not_rejoin():
    node = Node()
    ids, _ = static_pair(node)
    node.join(member=ids["i"], instance="i", session=1_000_000)
    _, joining = node.new_member(session=1_000_000)
    node.join(member=ids["j"], instance="j", session=1_000_000)
    assert joining.error is ErrorCode.NONE
    again = node.join(member=joining.response.member_id, protocols={"range": subscription("u")}, session=1_000_000)
    node.join(member=ids["i"], instance="i", session=1_000_000)
    node.time.advance(20_000)
    assert again.error is ErrorCode.NONE
    leader_sees = {m.group_instance_id for m in node.described().members}
    assert leader_sees == {"i", "j", None}, "j did not come but it is static"


def test_a_static_member_is_removed_by_instance_id_alone():
    node = Node()
    ids, generation = static_pair(node)
    left = node.leave(("", "j"), ("", "nobody"))
    assert [m.error_code for m in left.response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert node.heartbeat(ids["i"], generation, instance="i") is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_takeover_that_cannot_be_stored_is_undone():
    node = Node()
    ids, generation = static_pair(node)
    node.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    assert node.join(instance="j").error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.logs.fail = None
    assert node.heartbeat(ids["j"], generation, instance="j") is ErrorCode.NONE


def test_the_takeover_survives_a_reload():
    node = Node()
    _, generation = static_pair(node)
    back = node.join(instance="j")
    node.start()
    assert node.heartbeat(back.response.member_id, generation, instance="j") is ErrorCode.NONE
