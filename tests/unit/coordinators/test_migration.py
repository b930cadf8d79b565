"""Groups that change their protocol while they have members, and groups with members of both protocols."""

import pytest

from kraft_node.broker.coordinators.group.consumer import embedded
from kraft_protocol.errors import ErrorCode
from tests.unit.coordinators.group_clients import Classic, Modern, asking
from tests.unit.coordinators.harness import Node, Topics

INTERVAL_MS = 1_000


def one_classic(node: Node, **options) -> Classic:
    """A stable classic group of one member, which has all partitions of `t`."""
    client = Classic(node, **options)
    assert client.join() is ErrorCode.NONE
    whole = embedded.write_assignment({"t": list(range(node.topics.counts["t"]))}, 1)
    assert client.sync({client.member: whole}) is ErrorCode.NONE
    return client


def settle(node: Node, *clients, group_type="consumer") -> None:
    """Everybody behaves for a while; then all partitions are shared, each once."""
    for _ in range(20):
        for client in clients:
            client.step()
        used = sorted(p for client in clients for p in client.parts.get("t", ()))
        assert len(used) == len(set(used)), [c.parts for c in clients]
        node.wait(INTERVAL_MS)
    assert used == list(range(node.topics.counts["t"])), [c.parts for c in clients]
    assert node.listed()["g"] == ("Stable", group_type, "consumer")


@pytest.mark.parametrize("eager", [True, False])
def test_a_classic_group_is_upgraded_member_by_member(eager):
    node = Node(topics=Topics(t=6))
    node.commit({("t", 0): 7})
    old = one_classic(node, eager=eager)
    new = Modern(node)
    new.step()
    assert node.listed()["g"][1] == "consumer"
    assert new.epoch == old.generation + 1
    assert new.parts == {}
    settle(node, old, new)
    assert len(old.parts["t"]) == 3
    assert {m.member_id: m.member_type for m in node.consumer_group().members} == {old.member: 0, new.member: 1}
    (row,) = node.commit({("t", 0): 8}, member=old.member, generation=old.generation).response.topics
    assert row.partitions[0].error_code == ErrorCode.NONE
    node.restart()
    settle(node, old, new)
    assert node.offsets() == {("t", 0): 8}
    node.leave((old.member, None))
    settle(node, new)


@pytest.mark.parametrize("eager", [True, False])
def test_a_consumer_group_is_downgraded_with_its_last_new_member(eager):
    node = Node(topics=Topics(t=6))
    new = Modern(node)
    new.step()
    node.wait(INTERVAL_MS)
    old = Classic(node, eager=eager)
    assert old.join() is ErrorCode.NONE
    assert old.sync() is ErrorCode.NONE
    settle(node, new, old)
    assert node.beat(new.member, -1).error is ErrorCode.NONE
    assert node.listed()["g"] == ("PreparingRebalance", "classic", "consumer")
    assert node.heartbeat(old.member, old.generation) in {
        ErrorCode.REBALANCE_IN_PROGRESS,
        ErrorCode.ILLEGAL_GENERATION,
    }
    assert old.join() is ErrorCode.NONE
    whole = embedded.write_assignment({"t": list(range(6))}, 1)
    assert old.sync({old.member: whole}) is ErrorCode.NONE
    assert node.listed()["g"] == ("Stable", "classic", "consumer")
    node.restart()
    assert node.listed()["g"] == ("Stable", "classic", "consumer")
    assert node.heartbeat(old.member, old.generation) is ErrorCode.NONE


def test_classic_members_that_stay_rebalance_among_themselves():
    node = Node(topics=Topics(t=6))
    new = Modern(node)
    new.step()
    node.wait(INTERVAL_MS)
    old = [Classic(node), Classic(node)]
    for client in old:
        client.join()
        client.sync()
    settle(node, new, *old)
    assert {len(client.parts["t"]) for client in (new, *old)} == {2}
    node.beat(new.member, -1)
    protocols = {"range": asking("t")}
    calls = [node.join(member=client.member, protocols=protocols) for client in old]
    assert {call.error for call in calls} == {ErrorCode.NONE}
    assert {call.response.leader for call in calls} <= {client.member for client in old}
    (leader,) = [call for call in calls if call.response.members]
    assert {m.member_id for m in leader.response.members} == {client.member for client in old}
    assert {call.response.generation_id for call in calls} == {leader.response.generation_id}


def test_the_session_of_the_last_new_member_downgrades_too():
    node = Node()
    Modern(node).step()
    node.wait(INTERVAL_MS)
    old = Classic(node)
    old.join()
    old.sync()
    for _ in range(6):
        node.wait(9_000)
        old.step()
    assert node.listed()["g"][1] == "classic"


def test_a_static_member_changes_its_protocol_and_keeps_its_partitions():
    node = Node()
    old = one_classic(node, instance="i")
    call = node.beat("new", 0, "t", instance_id="i")
    assert call.error is ErrorCode.NONE
    assert call.response.member_epoch == old.generation
    assert [len(row.partitions) for row in call.response.assignment.topic_partitions] == [len(old.parts["t"])]
    assert node.listed()["g"] == ("Stable", "consumer", "consumer")
    assert node.heartbeat(old.member, old.generation, instance="i") is ErrorCode.FENCED_INSTANCE_ID
    assert node.beat("third", 0, "t", instance_id="i").error is ErrorCode.UNRELEASED_INSTANCE_ID


def test_a_static_classic_member_replaces_a_new_one_and_downgrades():
    node = Node()
    node.beat("m", 0, "t", instance_id="i")
    old = Classic(node, "i")
    assert old.join() is ErrorCode.NONE
    assert node.listed()["g"] == ("PreparingRebalance", "classic", "consumer")
    assert node.beat("m", 2, instance_id="i").error is ErrorCode.GROUP_ID_NOT_FOUND


@pytest.mark.parametrize("policy", ["disabled", "downgrade"])
def test_the_policy_forbids_upgrades(policy):
    node = Node(migration_policy=policy)
    one_classic(node)
    call = node.beat("m", 0, "t")
    assert call.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert call.response.error_message == (
        "Cannot upgrade classic group g to consumer group because online upgrade is disabled."
    )


@pytest.mark.parametrize("policy", ["disabled", "upgrade"])
def test_the_policy_forbids_downgrades(policy):
    node = Node(migration_policy=policy)
    Modern(node).step()
    old = Classic(node)
    old.join()
    node.beat("m", -1)
    assert node.listed()["g"][1] == "consumer"


def test_a_custom_assignor_forbids_the_upgrade():
    node = Node()
    client = Classic(node)
    client.join()
    client.sync({client.member: embedded.write_assignment({"t": [0]}, 1)[:-4] + b"\0\0\0\1x"})
    call = node.beat("m", 0, "t")
    assert call.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert call.response.error_message == (
        "Cannot upgrade classic group g to consumer group because an unsupported custom assignor is in use. Please "
        "refer to the documentation or switch to a default assignor before re-attempting the upgrade."
    )
    assert node.listed()["g"][1] == "classic"


def test_invalid_assignments_forbid_the_upgrade():
    node = Node()
    node.stable_group(1)
    call = node.beat("m", 0, "t")
    assert call.error is ErrorCode.GROUP_ID_NOT_FOUND
    assert "malformed" in call.response.error_message


def test_a_group_of_another_protocol_is_not_upgraded():
    node = Node()
    node.stable_group(1, kind="connect")
    assert node.beat("m", 0, "t").error is ErrorCode.GROUP_ID_NOT_FOUND


def test_a_waiting_join_is_sent_back_by_the_upgrade():
    node = Node()
    old = one_classic(node)
    member, waiting = node.new_member(protocols={"range": asking("t")})
    assert not waiting.answered
    node.beat("m", 0, "t")
    assert waiting.error is ErrorCode.REBALANCE_IN_PROGRESS
    assert {m.member_id for m in node.consumer_group().members} == {old.member, member, "m"}


def test_classic_members_must_have_a_protocol_in_common():
    node = Node()
    Modern(node).step()
    Classic(node).join()
    other = node.join(protocols={"sticky": asking("t")})
    assert other.error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert node.join(kind="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_refusals_of_classic_members():
    node = Node()
    Modern(node).step()
    old = Classic(node)
    old.join()
    assert node.heartbeat("m", 2) is ErrorCode.UNKNOWN_MEMBER_ID, "it does not use the classic protocol"
    assert node.heartbeat("x", 2) is ErrorCode.UNKNOWN_MEMBER_ID
    assert node.heartbeat(old.member, old.generation + 1) is ErrorCode.ILLEGAL_GENERATION
    assert node.sync(old.member, old.generation + 1).error is ErrorCode.ILLEGAL_GENERATION
    assert node.sync(old.member, old.generation, kind="connect").error is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    results = node.leave(("x", None), ("m", None), ("", "i"), (old.member, None)).response.members
    assert [r.error_code for r in results] == [*[ErrorCode.UNKNOWN_MEMBER_ID] * 3, ErrorCode.NONE]
    assert [m.member_id for m in node.consumer_group().members] == ["m"]


def test_a_classic_member_that_does_not_sync_or_rejoin_is_removed():
    node = Node()
    Modern(node).step()
    old = Classic(node)
    old.join()
    for _ in range(4):
        node.wait(5_000)
        node.beat("m", node.consumer_group().members[-1].member_epoch)
        node.heartbeat(old.member, old.generation)
    assert [m.member_id for m in node.consumer_group().members] == ["m"]
