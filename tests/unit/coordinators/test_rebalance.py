"""Members that join, stay, stop sending and leave."""

from kraft_protocol.errors import ErrorCode
from tests.unit.coordinators.harness import Node, subscription


def test_two_members_get_one_generation_and_their_parts():
    node = Node(initial_rebalance_delay_ms=3_000)
    a, join_a = node.new_member()
    b, join_b = node.new_member()
    node.time.advance(2_999)
    assert not join_a.answered, "a new group waits for more members"
    node.time.advance(3_001)
    assert join_a.error is join_b.error is ErrorCode.NONE
    assert join_a.response.generation_id == join_b.response.generation_id == 1
    assert join_a.response.leader == join_b.response.leader == a, "the first member leads"
    assert {m.member_id for m in join_a.response.members} == {a, b}
    assert join_b.response.members == [], "only the leader sees the others"
    assert join_a.response.protocol_type == "consumer"
    assert join_a.response.protocol_name == "range"

    sync_b = node.sync(b, 1)
    assert not sync_b.answered, "the leader has not assigned yet"
    sync_a = node.sync(a, 1, {a: b"for a", b: b"for b"})
    assert (sync_a.response.assignment, sync_b.response.assignment) == (b"for a", b"for b")
    assert node.heartbeat(a, 1) is node.heartbeat(b, 1) is ErrorCode.NONE
    assert node.described().group_state == "Stable"


def test_the_initial_delay_grows_up_to_the_rebalance_timeout():
    node = Node(initial_rebalance_delay_ms=1_000)
    _, first = node.new_member(rebalance=2_500)
    for _ in range(2):
        node.time.advance(900)
        node.new_member(rebalance=2_500)
        assert not first.answered
    node.time.advance(700)
    assert first.answered, "2500 ms after the first member the rebalance ends, whoever may still come"


def test_a_new_dynamic_member_must_rejoin_with_its_id():
    node = Node()
    refused = node.join(client_id="app")
    assert refused.error is ErrorCode.MEMBER_ID_REQUIRED
    assert refused.response.member_id.startswith("app-")
    assert node.described().group_state == "Empty"
    assert node.join(member="somebody-else").error is ErrorCode.UNKNOWN_MEMBER_ID
    joined = node.join(member=refused.response.member_id)
    node.time.advance()
    assert joined.error is ErrorCode.NONE


def test_a_client_id_too_long_for_a_member_id_is_refused():
    """This member could be neither answered nor described: a client that described its group lost the connection."""
    node = Node()
    for version in (3, 9):
        refused = node.join(client_id="é" * 16_366, version=version)
        assert refused.error is ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.join(instance="i" * 32_731).error is ErrorCode.UNKNOWN_SERVER_ERROR
    longest = node.join(client_id="c" * 32_730)
    assert longest.error is ErrorCode.MEMBER_ID_REQUIRED
    assert len(longest.response.member_id) == 32_767


def test_before_version_4_the_first_request_joins():
    node = Node()
    call = node.join(version=3)
    node.time.advance()
    assert call.error is ErrorCode.NONE
    assert call.response.member_id


def test_an_unused_member_id_delays_the_rebalance_for_one_session_only():
    node = Node()
    (a,), generation = node.stable_group(1)
    node.join(session=5_000)
    rejoin = node.join(member=a)
    assert rejoin.response is None, "somebody was given an id and is waited for"
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    node.time.advance(5_000)
    assert rejoin.error is ErrorCode.NONE
    assert rejoin.response.generation_id == generation + 1


def test_a_joining_member_makes_existing_members_rejoin():
    node = Node()
    (a, b), generation = node.stable_group(2)
    _, join_c = node.new_member()
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert node.described().group_state == "PreparingRebalance"
    join_a, join_b = node.join(member=a), node.join(member=b)
    assert {c.response.generation_id for c in (join_a, join_b, join_c)} == {generation + 1}
    assert node.sync(a, generation).error is ErrorCode.ILLEGAL_GENERATION
    assert node.heartbeat(a, generation) is ErrorCode.ILLEGAL_GENERATION


def test_a_member_that_does_not_rejoin_in_time_is_dropped():
    node = Node()
    (a, b), generation = node.stable_group(2, session=100_000)
    c, join_c = node.new_member()
    rejoin = node.join(member=a)
    node.time.advance(19_999)
    assert not rejoin.answered
    node.time.advance(1)
    assert rejoin.response.generation_id == generation + 1
    assert {m.member_id for m in rejoin.response.members} == {a, c}
    assert join_c.answered
    assert node.heartbeat(b, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leadership_passes_to_a_member_that_rejoined():
    node = Node()
    (leader, other), _ = node.stable_group(2, session=100_000)
    node.join()
    call = node.join(member=other, protocols={"range": subscription("t", "u")})
    node.time.advance(20_000)
    assert call.response.leader == other != leader


def test_sessions_end_without_heartbeats():
    node = Node()
    (a, b), generation = node.stable_group(2)
    node.time.advance(9_000)
    assert node.heartbeat(a, generation) is ErrorCode.NONE
    node.time.advance(9_000)
    assert node.heartbeat(b, generation) is ErrorCode.UNKNOWN_MEMBER_ID
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS


def test_a_member_waiting_for_a_rebalance_needs_no_heartbeats():
    node = Node()
    (a, b), generation = node.stable_group(2, session=6_000, rebalance=60_000)
    waiting = node.join(member=a)
    for _ in range(5):
        node.time.advance(5_000)
        node.heartbeat(b, generation)
    assert not waiting.answered
    node.join(member=b)
    assert waiting.error is ErrorCode.NONE


def test_a_member_that_never_fetches_its_assignment_is_dropped():
    node = Node()
    a, join_a = node.new_member(session=100_000)
    b, _ = node.new_member(session=100_000)
    node.time.advance()
    generation = join_a.response.generation_id
    assert node.sync(a, generation, {a: b"all"}).error is ErrorCode.NONE
    node.time.advance(20_000)
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert node.heartbeat(b, generation) is ErrorCode.UNKNOWN_MEMBER_ID


def test_leaving_rebalances_at_once_and_the_last_leaves_an_empty_group():
    node = Node()
    (a, b), generation = node.stable_group(2)
    left = node.leave((b, None), ("nobody", None))
    assert [ErrorCode(m.error_code) for m in left.response.members] == [ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID]
    assert node.heartbeat(a, generation) is ErrorCode.REBALANCE_IN_PROGRESS
    assert node.leave((a, None)).error is ErrorCode.NONE
    described = node.described()
    assert (described.group_state, described.protocol_type, described.members) == ("Empty", "consumer", [])


def test_leaving_before_version_3_returns_the_error_of_the_member():
    node = Node()
    from kraft_protocol.wire.messages import LeaveGroupRequest

    (a,), _ = node.stable_group(1)
    assert node.send(LeaveGroupRequest(group_id="g", member_id="?"), 2).error is ErrorCode.UNKNOWN_MEMBER_ID
    assert node.send(LeaveGroupRequest(group_id="g", member_id=a), 2).error is ErrorCode.NONE


def test_leaving_while_waiting_answers_the_join():
    node = Node()
    (a, b), _ = node.stable_group(2)
    waiting = node.join(member=a)
    node.leave((a, None))
    assert waiting.error is ErrorCode.UNKNOWN_MEMBER_ID
    call = node.join(member=b)
    assert call.error is ErrorCode.NONE


def test_a_lost_answer_is_given_again_without_a_rebalance():
    node = Node()
    a, join_a = node.new_member()
    b, _ = node.new_member()
    node.time.advance()
    again = node.join(member=b)
    assert again.response.generation_id == join_a.response.generation_id
    sync = node.sync(a, 1, {a: b"1", b: b"2"})
    assert sync.error is ErrorCode.NONE
    assert node.join(member=b).response.generation_id == 1, "a follower with the same metadata changes nothing"
    assert node.sync(b, 1).response.assignment == b"2"
    assert node.described().group_state == "Stable"


def test_a_leader_that_rejoins_a_stable_group_starts_a_rebalance():
    node = Node()
    (a, b), generation = node.stable_group(2)
    call = node.join(member=a)
    assert not call.answered
    node.join(member=b)
    assert call.response.generation_id == generation + 1


def test_the_protocol_with_most_votes_among_common_ones_is_chosen():
    node = Node()
    meta = subscription("t")
    calls = [
        node.new_member(protocols={"sticky": meta, "range": meta})[1],
        node.new_member(protocols={"range": meta, "sticky": meta, "own": meta})[1],
        node.new_member(protocols={"range": meta, "sticky": meta})[1],
    ]
    node.time.advance()
    assert {c.response.protocol_name for c in calls} == {"range"}
    assert node.join(protocols={"own": meta}).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert node.join(kind="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert node.join(group="other", kind="").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_sync_group_checks_the_protocol():
    from kraft_protocol.wire.messages import SyncGroupRequest

    node = Node()
    (a,), generation = node.stable_group(1)
    request = SyncGroupRequest(
        group_id="g", generation_id=generation, member_id=a, protocol_type="consumer", protocol_name="sticky"
    )
    assert node.send(request, 5).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    request.protocol_name = None
    assert node.send(request, 5).error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL, "from version 5 it must be named"
    assert node.send(request, 4).error is ErrorCode.NONE


def test_joins_beyond_the_bounds_are_refused():
    node = Node(max_size=2, min_session_timeout_ms=1_000, max_session_timeout_ms=60_000)
    assert node.join(session=999).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert node.join(session=60_001).error is ErrorCode.INVALID_SESSION_TIMEOUT
    assert node.join(group="").error is ErrorCode.INVALID_GROUP_ID
    node.stable_group(2)
    assert node.join().error is ErrorCode.GROUP_MAX_SIZE_REACHED


def test_an_assignment_that_cannot_be_stored_is_refused_and_starts_a_rebalance():
    node = Node()
    a, join = node.new_member()
    node.time.advance()
    node.logs.fail = ErrorCode.NOT_ENOUGH_REPLICAS
    sync = node.sync(a, join.response.generation_id, {a: b"x"})
    assert sync.error is ErrorCode.COORDINATOR_NOT_AVAILABLE
    node.logs.fail = None
    assert node.heartbeat(a, join.response.generation_id) is ErrorCode.REBALANCE_IN_PROGRESS


def test_an_assignment_is_returned_after_its_commit():
    node = Node()
    a, join = node.new_member()
    node.time.advance()
    node.logs.hold = True
    sync = node.sync(a, join.response.generation_id, {a: b"x"})
    assert not sync.answered
    assert node.described().group_state == "CompletingRebalance"
    node.logs.commit()
    assert sync.response.assignment == b"x"


def test_the_last_member_has_left_after_the_commit():
    """A crash must not bring back a member whose departure was answered: others would wait for its session."""
    node = Node()
    (a,), _ = node.stable_group(1)
    node.logs.hold = True
    leave = node.leave((a, None))
    assert not leave.answered
    node.logs.commit()
    assert leave.response.members[0].error_code == ErrorCode.NONE


def test_a_write_that_is_not_committed_in_time_fails():
    node = Node()
    node.logs.hold = True
    call = node.commit({("t", 0): 1})
    node.time.advance(4_999)
    assert not call.answered
    node.time.advance(1)
    assert call.response.topics[0].partitions[0].error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_resignation_refuses_all_members():
    node = Node()
    (a, b), generation = node.stable_group(2)
    waiting = node.join(member=a)
    node.logs.hold = True
    commit = node.commit({("t", 0): 1}, group="simple")
    node.coordinator.on_resign(0)
    assert waiting.error is ErrorCode.NOT_COORDINATOR
    assert commit.response.topics[0].partitions[0].error_code == ErrorCode.NOT_COORDINATOR
    assert node.heartbeat(b, generation) is ErrorCode.NOT_COORDINATOR
    node.time.advance(1_000_000)


def test_a_newer_join_of_a_member_refuses_the_older():
    node = Node()
    (a, _), _ = node.stable_group(2)
    old, new = node.join(member=a), node.join(member=a)
    assert old.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert not new.answered
