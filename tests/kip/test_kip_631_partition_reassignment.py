"""KIP-631, "Partition Reassignment", on top of KIP-455."""

from __future__ import annotations

from typing import Any

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum


def reassign(topic: str, target: list[int] | None) -> m.AlterPartitionReassignmentsRequest:
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=target)
    return request(timeout_ms=30_000, topics=[request.ReassignableTopic(name=topic, partitions=[partition])])


def begin(quorum: Quorum, target: list[int] | None) -> int:
    answer = quorum.respond(reassign("foo", target))
    return int(answer.responses[0].partitions[0].error_code)


def alter_isr(quorum: Quorum, leader: int, isr: list[int]) -> Any:
    state = quorum.partition("foo")
    request = m.AlterPartitionRequest
    partition = request.PartitionData(
        partition_index=0,
        leader_epoch=state.leader_epoch,
        partition_epoch=state.partition_epoch,
        new_isr_with_epochs=[request.BrokerState(broker_id=one, broker_epoch=quorum.epoch_of(one)) for one in isr],
    )
    topic = request.TopicData(topic_id=quorum.topic_id("foo"), partitions=[partition])
    answer = quorum.respond(request(broker_id=leader, broker_epoch=quorum.epoch_of(leader), topics=[topic]))
    return answer.topics[0].partitions[0]


def with_topic(*replicas: int) -> Quorum:
    quorum = Quorum()
    quorum.start(1, 2, 3, 4, 5)
    quorum.create("foo", [list(replicas)])
    return quorum


def test_the_api_specifies_alter_and_list() -> None:
    quorum = with_topic(1, 2, 3)
    assert begin(quorum, [3, 4, 5]) == 0
    listed = quorum.respond(m.ListPartitionReassignmentsRequest(topics=None)).topics
    (partition,) = listed[0].partitions
    assert (listed[0].name, partition.adding_replicas, partition.removing_replicas) == ("foo", [4, 5], [1, 2])


def test_a_subset_of_the_in_sync_replicas_is_reassigned_at_once() -> None:
    """The draft asks for one ISR member in the new list; the release asks for all of them to be in sync."""
    quorum = with_topic(1, 2, 3)
    assert begin(quorum, [1, 2]) == 0
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.is_reassigning) == ((1, 2), (1, 2), False)


def test_from_1_2_3_to_3_4_5_adds_first_removes_later() -> None:
    """The draft lists [1,2,3,4,5] meanwhile, the release [3,4,5,1,2]."""
    quorum = with_topic(1, 2, 3)
    begin(quorum, [3, 4, 5])
    state = quorum.partition("foo")
    assert (state.replicas, state.adding) == ((3, 4, 5, 1, 2), (4, 5))
    assert alter_isr(quorum, 1, [1, 2, 3, 4]).error_code == 0
    assert quorum.partition("foo").is_reassigning
    alter_isr(quorum, 1, [1, 2, 3, 4, 5])
    state = quorum.partition("foo")
    assert (state.replicas, sorted(state.isr), state.adding) == ((3, 4, 5), [3, 4, 5], ())


def test_a_list_outside_the_isr_waits_until_its_replicas_have_caught_up() -> None:
    quorum = with_topic(1, 2)
    alter_isr(quorum, 1, [1])
    begin(quorum, [2])
    assert quorum.partition("foo").is_reassigning
    alter_isr(quorum, 1, [1, 2])
    state = quorum.partition("foo")
    assert (state.replicas, state.isr, state.leader, state.is_reassigning) == ((2,), (2,), 2, False)


def test_reassignments_are_hard_state_and_outlive_a_controller_failover() -> None:
    cluster = Cluster(3, 3)
    topic_id = cluster.create("foo", [1, 2])
    assert cluster.produce("b1", "foo", b"x").error_code == 0
    cluster["b3"].kill()
    cluster.until(lambda: cluster.image.brokers.get(3).fenced)
    answer = cluster.ask("b1", reassign("foo", [1, 3]))
    assert answer.responses[0].partitions[0].error_code == 0
    was = cluster.active
    was.kill()
    assert cluster.active is not was
    assert cluster.partition("foo").is_reassigning
    cluster["b3"].start()
    cluster.until(lambda: tuple(cluster.partition("foo").replicas) == (1, 3))
    assert sorted(cluster.partition("foo").isr) == [1, 3]
    assert cluster.values("b1", topic_id) == [b"x"]


def test_reassignments_outlive_the_restart_of_the_leading_broker() -> None:
    cluster = Cluster(1, 3)
    cluster.create("foo", [1, 2])
    cluster["b3"].kill()
    cluster.until(lambda: cluster.image.brokers.get(3).fenced)
    cluster.ask("b1", reassign("foo", [1, 3]))
    cluster["b1"].stop()
    cluster.until(lambda: not cluster["b1"].running)
    assert cluster.partition("foo").is_reassigning
    for name in ("b1", "b3"):
        cluster[name].start()
    cluster.until(lambda: tuple(cluster.partition("foo").replicas) == (1, 3))


def test_deleting_a_topic_ends_its_reassignments() -> None:
    cluster = Cluster(1, 3)
    cluster.create("foo", [1, 2])
    cluster["b3"].kill()
    cluster.until(lambda: cluster.image.brokers.get(3).fenced)
    cluster.ask("b1", reassign("foo", [1, 3]))
    assert cluster.delete("foo") == 0
    assert cluster.ask("b1", m.ListPartitionReassignmentsRequest(topics=None)).topics == []


def test_a_reassignment_may_be_completed_by_a_broker_that_is_unfenced() -> None:
    quorum = with_topic(1, 2)
    quorum.heartbeat(2, want_fence=True)
    assert begin(quorum, [2]) == 0
    quorum.heartbeat(2)
    alter_isr(quorum, 1, [1, 2])
    assert quorum.partition("foo").replicas == (2,)


def test_the_answer_to_a_completing_change_holds_the_applied_isr() -> None:
    """Leader 1, ISR 1 2 3, target 1 2 4: to a request for 1 2 3 4 the controller answers 1 2 4."""
    quorum = with_topic(1, 2, 3)
    begin(quorum, [1, 2, 4])
    answer = alter_isr(quorum, 1, [1, 2, 3, 4])
    assert (answer.error_code, sorted(answer.isr)) == (0, [1, 2, 4])
    assert quorum.partition("foo").replicas == (1, 2, 4)


def test_a_leader_that_its_own_change_removes_gets_an_error() -> None:
    """FENCED_LEADER_EPOCH in the draft and in versions 0 and 1; NEW_LEADER_ELECTED (108) in the release."""
    quorum = with_topic(1, 2, 3)
    begin(quorum, [3, 4, 5])
    answer = alter_isr(quorum, 1, [1, 2, 3, 4, 5])
    assert answer.error_code == ErrorCode.NEW_LEADER_ELECTED == 108
    assert quorum.partition("foo").leader == 3
