"""Listing, describing and deleting groups, and finding their coordinator."""

import pytest

from kraft_node.broker.coordinators.partitioning import java_hash, partition_for
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import DescribeGroupsRequest, FindCoordinatorRequest
from tests.unit.coordinators.harness import OFFSETS, Node, Topics, subscription


def test_groups_are_listed_by_state_and_type_ignoring_case():
    node = Node()
    node.stable_group(1, group="busy")
    node.commit({("t", 0): 1}, group="simple")
    assert node.listed() == {
        "busy": ("Stable", "classic", "consumer"),
        "simple": ("Empty", "classic", ""),
    }
    assert node.listed(states=[" STABLE "]).keys() == {"busy"}
    assert node.listed(states=["empty", "dead"]).keys() == {"simple"}
    assert node.listed(types=["classic"]).keys() == {"busy", "simple"}
    assert node.listed(types=["share"]) == {}


def test_members_of_a_stable_group_are_described_with_metadata():
    node = Node()
    (a,), _ = node.stable_group(1, client_id="app")
    described = node.described()
    (member,) = described.members
    assert (described.group_state, described.protocol_type, described.protocol_data) == ("Stable", "consumer", "range")
    assert (member.member_id, member.client_id, member.client_host) == (a, "app", "/10.0.0.1")
    assert (member.member_metadata, member.member_assignment) == (subscription("t"), a.encode())
    node.new_member()
    described = node.described()
    assert (described.group_state, described.protocol_data) == ("PreparingRebalance", "")
    assert described.members[0].member_metadata == b""


def test_a_missing_group_is_dead_or_not_found():
    node = Node()
    assert node.described("x", version=5).group_state == "Dead"
    assert node.described("x", version=5).error_code == ErrorCode.NONE
    described = node.described("x", version=6)
    assert (described.error_code, described.error_message) == (ErrorCode.GROUP_ID_NOT_FOUND, "Group x not found.")


def test_authorized_operations_on_request():
    node = Node()
    node.commit({("t", 0): 1})
    request = DescribeGroupsRequest(groups=["g"], include_authorized_operations=True)
    assert node.send(request, 6).response.groups[0].authorized_operations == 3400
    assert node.send(DescribeGroupsRequest(groups=["g"]), 6).response.groups[0].authorized_operations == -(1 << 31)


def test_an_empty_group_is_deleted_with_its_offsets():
    topics = Topics(t=2)
    topics.counts[OFFSETS] = 3
    node = Node(topics=topics)
    node.commit({("t", 0): 1}, group="a")
    node.commit({("t", 0): 1, ("t", 1): 1}, group="b")
    node.stable_group(1, group="busy")
    assert node.delete("a", "b", "busy", "nobody", "a") == {
        "a": ErrorCode.NONE,
        "b": ErrorCode.NONE,
        "busy": ErrorCode.NON_EMPTY_GROUP,
        "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
    }
    assert node.listed().keys() == {"busy"}
    node.start()
    assert node.listed().keys() == {"busy"}
    assert node.offsets("b") == {}


def test_deleting_many_offsets_takes_several_batches():
    topics = Topics(t=5_000)
    node = Node(topics=topics)
    for start in range(0, 5_000, 1_000):
        node.commit({("t", p): 1 for p in range(start, start + 1_000)})
    before = len(node.logs.batches[0])
    assert node.delete("g") == {"g": ErrorCode.NONE}
    assert len(node.logs.batches[0]) == before + 6
    node.start()
    assert node.listed() == {}


def test_gauges_count_groups_and_offsets():
    node = Node()
    node.stable_group(1)
    node.commit({("t", 0): 1, ("t", 1): 1}, group="simple")
    gauges = node.coordinator.gauges()
    assert (gauges["NumOffsets"], gauges["NumGroups"], gauges["NumGroupsStable"], gauges["NumGroupsEmpty"]) == (
        2,
        2,
        1,
        1,
    )


# -- FindCoordinator


@pytest.mark.parametrize("version", range(7))
def test_find_coordinator_returns_the_leader_of_the_groups_partition(version):
    node = Node()
    if version >= 4:
        request = FindCoordinatorRequest(key_type=0, coordinator_keys=["g", "h"])
    else:
        request = FindCoordinatorRequest(key="g")
    response = node.send(request, version).response
    found = response.coordinators if version >= 4 else [response]
    here = (ErrorCode.NONE, 7, "plaintext.example", 9092)
    assert [(f.error_code, f.node_id, f.host, f.port) for f in found] == [here] * (2 if version >= 4 else 1)


def test_find_coordinator_creates_the_offsets_topic():
    topics = Topics(t=1)
    del topics.counts[OFFSETS]
    node = Node(topics=topics)
    response = node.send(FindCoordinatorRequest(key="g"), 3).response
    assert (response.error_code, response.node_id, response.port) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1, -1)
    assert topics.created == [OFFSETS]
    assert node.join().error is ErrorCode.NOT_COORDINATOR


@pytest.mark.parametrize(
    ("kind", "version", "code"),
    [
        (1, 1, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (1, 6, ErrorCode.COORDINATOR_NOT_AVAILABLE),
        (2, 6, ErrorCode.UNSUPPORTED_VERSION),
        (2, 5, ErrorCode.INVALID_REQUEST),
        (9, 6, ErrorCode.INVALID_REQUEST),
    ],
)
def test_coordinators_of_other_kinds_are_refused(kind, version, code):
    node = Node()
    request = FindCoordinatorRequest(key_type=kind, coordinator_keys=["k"])
    if version < 4:
        request = FindCoordinatorRequest(key="k", key_type=kind)
    response = node.send(request, version).response
    assert (response.coordinators[0] if version >= 4 else response).error_code == code


def test_hashes_equal_javas():
    """The numbers come from Java's String.hashCode."""
    assert java_hash("") == 0
    for text, expected in JAVA_HASHES.items():
        assert java_hash(text) == expected, text
    assert partition_for("polygenelubricants", 50) == 0, "the one hash without a positive twin"


JAVA_HASHES = {
    "g": 103,
    "my-group": -1906497762,
    "console-consumer-1": 35782224,
    "größe": 98762257,
    "😀 group": -1570619006,
    "polygenelubricants": -(1 << 31),
}
