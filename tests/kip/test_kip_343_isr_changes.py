"""KIP-343, "Initiating ISR Changes" and "IsrChangeRequest": released as AlterPartition (56)."""

from __future__ import annotations

from typing import Any

from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum
from tests.unit.controller.test_brokers import code_of

Request = m.AlterPartitionRequest


def request(quorum: Quorum, broker: int, isrs: dict[int, list[int]], *, epoch: int | None = None) -> Any:
    topic = Request.TopicData(
        topic_id=quorum.topic_id("foo"),
        partitions=[
            Request.PartitionData(
                partition_index=number,
                leader_epoch=quorum.partition("foo", number).leader_epoch,
                partition_epoch=quorum.partition("foo", number).partition_epoch,
                new_isr_with_epochs=[Request.BrokerState(broker_id=one, broker_epoch=-1) for one in isr],
            )
            for number, isr in isrs.items()
        ],
    )
    broker_epoch = quorum.epoch_of(broker) if epoch is None else epoch
    return Request(broker_id=broker, broker_epoch=broker_epoch, topics=[topic])


def with_topic() -> Quorum:
    quorum = Quorum()
    quorum.start(1, 2, 3)
    quorum.create("foo", [[1, 2, 3], [1, 2, 3], [2, 1, 3]])
    return quorum


def rows(quorum: Quorum, message: Any) -> list[Any]:
    return list(quorum.respond(message).topics[0].partitions)


def test_the_leader_of_a_partition_requests_an_isr_change_from_the_controller() -> None:
    cluster = Cluster(1, 3)
    cluster.create("foo", [1, 2, 3])
    cluster.network.cut("b1", "b3")
    for number in range(3):
        cluster.produce("b1", "foo", b"%d" % number, acks=1)
    cluster.until(lambda: sorted(cluster.partition("foo").isr) == [1, 2], 120_000)
    cluster.network.heal()
    cluster.until(lambda: sorted(cluster.partition("foo").isr) == [1, 2, 3])


def test_results_appear_in_the_order_of_the_request() -> None:
    quorum = with_topic()
    answered = rows(quorum, request(quorum, 1, {1: [1, 2], 2: [1], 0: [1, 3]}))
    assert [(row.partition_index, row.error_code) for row in answered] == [
        (1, 0),
        (2, ErrorCode.INVALID_REQUEST),
        (0, 0),
    ]


def test_a_wrong_incarnation_is_a_top_level_error_and_changes_nothing() -> None:
    quorum = with_topic()
    answer = quorum.ask(request(quorum, 1, {0: [1]}, epoch=quorum.epoch_of(1) - 1))
    assert code_of(answer) == ErrorCode.STALE_BROKER_EPOCH
    assert quorum.partition("foo", 0).isr == (1, 2, 3)


def test_a_controller_that_is_not_active_answers_not_controller() -> None:
    cluster = Cluster(3, 1)
    standby = next(name for name in ("c1", "c2", "c3") if name != cluster.active.name)
    answer = cluster.ask(standby, Request(broker_id=1, broker_epoch=1, topics=[]))
    assert answer.error_code == ErrorCode.NOT_CONTROLLER


def test_a_former_leader_of_the_partition_is_refused() -> None:
    """NOT_LEADER_FOR_PARTITION in the draft; in the release an older leader epoch is FENCED_LEADER_EPOCH (74)."""
    quorum = with_topic()
    late = request(quorum, 1, {0: [1]})
    quorum.heartbeat(1, want_fence=True)
    quorum.heartbeat(1)
    (row,) = rows(quorum, late)
    assert row.error_code == ErrorCode.FENCED_LEADER_EPOCH == 74


def test_an_empty_isr_is_an_invalid_request() -> None:
    quorum = with_topic()
    (row,) = rows(quorum, request(quorum, 1, {0: []}))
    assert row.error_code == ErrorCode.INVALID_REQUEST
    assert quorum.partition("foo", 0).isr == (1, 2, 3)


def test_a_successful_change_is_applied_and_answered_without_an_error() -> None:
    quorum = with_topic()
    (row,) = rows(quorum, request(quorum, 1, {0: [1, 2]}))
    assert (row.error_code, row.isr) == (0, [1, 2])
    assert quorum.partition("foo", 0).isr == (1, 2)


def test_a_negative_broker_id_is_refused() -> None:
    """INVALID_REQUEST in the draft; the release answers that no broker is registered under it."""
    quorum = with_topic()
    answer = quorum.ask(Request(broker_id=-1, broker_epoch=0, topics=[]))
    assert code_of(answer) in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.INVALID_REQUEST)
