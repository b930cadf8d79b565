"""A `__consumer_offsets` segment written by Apache Kafka 4.3.1 (tests/java/ConsumerOffsetsGolden.java), read by us."""

from pathlib import Path

from kraft_protocol.errors import ErrorCode
from kraft_protocol.records.batch import check_batch, iter_headers
from tests.unit.coordinators.harness import Logs, Node, Topics

SEGMENT = Path(__file__).parent / "consumer_offsets_4_3_1.log"


def loaded() -> Node:
    logs = Logs()
    data = SEGMENT.read_bytes()
    for header in iter_headers(data):
        check_batch(data, header.position)
        logs.append_raw(0, data[header.position : header.position + header.length])
    topics = Topics(t=3)
    return Node(topics=topics, logs=logs, max_session_timeout_ms=1_800_000)


def test_loaded_groups_match_kafkas_list():
    assert loaded().listed() == {
        "classic": ("Stable", "classic", "consumer"),
        "left": ("Empty", "classic", "consumer"),
        "simple": ("Empty", "classic", ""),
        "tx-commit": ("Empty", "classic", ""),
        "tx-abort": ("Empty", "classic", ""),
        "tx-open": ("Empty", "classic", ""),
        "modern": ("Empty", "consumer", "consumer"),
        "modern-live": ("Stable", "consumer", "consumer"),
        "shared": ("Empty", "share", "share"),
    }


def test_loaded_offsets_match_kafkas_list():
    node = loaded()
    assert node.offsets("classic") == {("t", 0): 5, ("t", 1): 6}
    assert node.offsets("left") == {("t", 2): 7}
    assert node.offsets("simple") == {("t", 0): 1}, "those of the deleted topic are gone"
    assert node.offsets("modern") == {("t", 1): 8}
    assert node.offsets("modern-live") == {("t", 1): 9}
    assert node.offsets("tx-commit") == {("t", 0): 26}
    assert node.offsets("tx-abort") == {}
    assert node.offsets("tx-open") == {}
    (group,) = node.fetch("tx-open", {"t": [0]}, stable=True).response.groups
    assert group.topics[0].partitions[0].error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT
    (group,) = node.fetch("classic", {"t": [0]}).response.groups
    (partition,) = group.topics[0].partitions
    assert (partition.committed_leader_epoch, partition.metadata) == (0, "five")


def test_the_static_member_regains_its_assignment():
    node = loaded()
    described = node.described("classic")
    (member,) = described.members
    assert (described.protocol_data, member.group_instance_id, member.client_host) == ("range", "inst-1", "/127.0.0.1")
    back = node.join(group="classic", instance="inst-1", session=1_800_000)
    assert back.error is ErrorCode.NONE
    synced = node.sync(back.response.member_id, back.response.generation_id, group="classic", instance="inst-1")
    assert synced.response.assignment == member.member_assignment


def test_the_live_member_of_a_consumer_group_goes_on():
    node = loaded()
    group = node.consumer_group("modern-live")
    assert (group.group_state, group.group_epoch, group.assignment_epoch) == ("Stable", 2, 2), group
    (member,) = group.members
    assert (member.member_epoch, member.client_id, member.client_host) == (2, "golden", "/127.0.0.1")
    assert member.subscribed_topic_names == ["t"]
    held = node.coordinator.shard_of("modern-live").consumers["modern-live"].holds(member.member_id)
    assert [sorted(numbers.items()) for numbers in held.assigned.values()] == [[(0, 2), (1, 2), (2, 2)]]
    call = node.beat(member.member_id, 2, group="modern-live")
    assert call.error is ErrorCode.NONE
    node.wait(45_000)
    assert node.listed()["modern-live"] == ("Empty", "consumer", "consumer")


def test_empty_consumer_groups_can_be_used_by_classic_members_or_deleted():
    node = loaded()
    assert node.delete("modern-live") == {"modern-live": ErrorCode.NON_EMPTY_GROUP}
    node.wait(45_000)
    node.stable_group(1, group="modern")
    assert node.delete("modern-live", "tx-open") == {"modern-live": ErrorCode.NONE, "tx-open": ErrorCode.NONE}
    node.start()
    listed = node.listed()
    assert listed["modern"] == ("Stable", "classic", "consumer")
    assert "modern-live" not in listed
    assert "tx-open" not in listed
    assert node.offsets("modern") == {("t", 1): 8}
