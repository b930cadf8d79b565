"""Plans that concern very many partitions: in turns, with other requests in between."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest

from kraft_node.controller.partitions.leaders import PARTITIONS_A_TURN
from kraft_node.metadata.partitions import PartitionState
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire.messages import (
    AlterPartitionRequest,
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
    DeleteTopicsRequest,
    UnregisterBrokerRequest,
)
from kraft_protocol.wire.stored import PartitionChangeRecord, PartitionRecord, TopicRecord
from tests.unit.controller.harness import Answer, Quorum, directory, uuid

VERY_MANY, MANY = 6_000, 2_000
SLACK = 256
"""A turn ends with a block of partitions."""


def put_topics(quorum: Quorum, count: int, replicas: list[int], partitions: int = 1, prefix: str = "t") -> None:
    """Topics that were created before; in one append each thousand, since users may not create that many at once."""
    for first in range(0, count, 1_000):
        records: list[Any] = []
        for number in range(first, min(count, first + 1_000)):
            topic_id = uuid(10_000_000 + number)
            records.append(TopicRecord(name=f"{prefix}{number}", topic_id=topic_id))
            records += [
                PartitionRecord(
                    partition_id=partition,
                    topic_id=topic_id,
                    replicas=replicas,
                    isr=replicas,
                    leader=replicas[0],
                    directories=[directory(broker) for broker in replicas],
                )
                for partition in range(partitions)
            ]
        append(quorum, records)


def append(quorum: Quorum, records: list[Any]) -> None:
    offset = quorum.log.next_offset
    quorum.controller.cluster.apply(offset, records)
    quorum.log.append(*records)
    quorum.commit()


def many(brokers: tuple[int, ...] = (1, 2), count: int = MANY, replicas: list[int] | None = None) -> Quorum:
    quorum = Quorum()
    quorum.start(*brokers)
    put_topics(quorum, count, replicas or [1, 2])
    return quorum


def states(quorum: Quorum) -> list[PartitionState]:
    return [state for topic in quorum.image.topics for _, state in topic.partitions()]


def count(quorum: Quorum, holds: Callable[[PartitionState], bool]) -> int:
    return sum(map(holds, states(quorum)))


def beat(quorum: Quorum, broker: int, **fields: Any) -> BrokerHeartbeatResponse:
    """A heartbeat without the turns that `Quorum.heartbeat` may give to others."""
    fields.setdefault("current_metadata_offset", quorum.log.next_offset - 1)
    request = BrokerHeartbeatRequest(broker_id=broker, broker_epoch=quorum.epoch_of(broker), **fields)
    response: BrokerHeartbeatResponse = quorum.ask(request).response
    return response


def one_turn(quorum: Quorum) -> None:
    """One iteration of the loop: run the calls that were scheduled before."""
    for call in quorum.time.take(until=quorum.time.now):
        call.run()
    quorum.commit()


def finish(quorum: Quorum) -> int:
    """Run turns until all long plans have ended. Returns the number of turns."""
    turns = 0
    while quorum.controller.in_turns.under_way:
        one_turn(quorum)
        turns += 1
        assert turns < 10_000, "it does not end"
    return turns


@pytest.fixture
def clock_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every step uses up its turn, as on a real clock."""
    monkeypatch.setattr("kraft_node.base.turns.STEPS_A_TURN", 1)


def changes_a_batch(quorum: Quorum, since: int) -> list[int]:
    return [
        sum(isinstance(record, PartitionChangeRecord) for record in batch)
        for offset, batch in quorum.log.batches
        if offset >= since
    ]


# The number of turns, and what one costs


@pytest.mark.usefixtures("clock_moves")
def test_a_controlled_shutdown_of_many_partitions_takes_a_thousand_a_turn() -> None:
    quorum = many(count=VERY_MANY)
    since = quorum.log.next_offset
    beat(quorum, 1, want_shut_down=True)
    assert count(quorum, lambda s: s.leader == 1) >= VERY_MANY - PARTITIONS_A_TURN - SLACK
    turns = finish(quorum)
    assert VERY_MANY // (PARTITIONS_A_TURN + SLACK) <= turns <= VERY_MANY // PARTITIONS_A_TURN * 1.2
    assert max(changes_a_batch(quorum, since)) <= PARTITIONS_A_TURN + SLACK
    assert sum(changes_a_batch(quorum, since)) == VERY_MANY, "each partition changes once"
    assert count(quorum, lambda s: s.leader == 2 and s.isr == (2,)) == VERY_MANY


@pytest.mark.usefixtures("clock_moves")
def test_each_partition_is_planned_once_in_any_number_of_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A search that restarts in each turn would be quadratic."""
    quorum = many(count=VERY_MANY)
    planned = []
    cluster_type = type(quorum.controller.cluster)
    original = cluster_type.change
    monkeypatch.setattr(cluster_type, "change", lambda *a: (planned.append(a[2]), original(*a))[1])
    beat(quorum, 1, want_shut_down=True)
    finish(quorum)
    assert len(planned) == VERY_MANY


@pytest.mark.usefixtures("clock_moves")
def test_a_topic_of_many_partitions_is_cut_into_turns() -> None:
    quorum = many(count=0)
    put_topics(quorum, 1, [1, 2], partitions=MANY)
    since = quorum.log.next_offset
    beat(quorum, 1, want_shut_down=True)
    finish(quorum)
    assert max(changes_a_batch(quorum, since)) <= PARTITIONS_A_TURN + SLACK
    assert count(quorum, lambda s: s.leader == 2 and s.isr == (2,)) == MANY


# Controlled shutdown


@pytest.mark.usefixtures("clock_moves")
def test_a_broker_may_stop_only_after_the_last_turn() -> None:
    quorum = many()
    turns = 0
    while not beat(quorum, 1, want_shut_down=True).should_shut_down:
        beat(quorum, 2)
        broker = quorum.image.brokers.get(1)
        assert broker is not None
        assert broker.in_controlled_shutdown
        assert not broker.fenced
        one_turn(quorum)
        turns += 1
    assert turns >= MANY // (PARTITIONS_A_TURN + SLACK)
    assert count(quorum, lambda s: 1 in s.isr or s.leader == 1) == 0


@pytest.mark.usefixtures("clock_moves")
def test_a_shutdown_accounts_for_changes_between_its_turns() -> None:
    quorum = many((1, 2, 3), replicas=[1, 2, 3])
    beat(quorum, 1, want_shut_down=True)
    one_turn(quorum)
    assert quorum.create("new", [[1, 2]]).error_code == 0
    assert quorum.create("striped", partitions=50, factor=3).error_code == 0
    gone = [f"t{number}" for number in (0, MANY // 2, MANY - 1)]
    quorum.ask(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name=name) for name in gone]))
    beat(quorum, 2, want_fence=True)  # leaders move to 3, from 2, while those of 1 move
    quorum.ask(joins(quorum, "t1", [2, 1, 3]))
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0
    assert count(quorum, lambda s: s.leader == 2) == 0
    assert count(quorum, lambda s: s.leader == 3 and s.isr == (3,)) == MANY - len(gone) + 50


def joins(quorum: Quorum, topic: str, isr: list[int]) -> AlterPartitionRequest:
    """The ISR change that the leader of a topic's first partition requests after these brokers caught up."""
    request = AlterPartitionRequest
    state = quorum.partition(topic)
    members = [request.BrokerState(broker_id, quorum.epoch_of(broker_id)) for broker_id in isr]
    part = request.PartitionData(0, state.leader_epoch, [], members, 0, state.partition_epoch)
    epoch = quorum.epoch_of(state.leader)
    return request(state.leader, epoch, [request.TopicData(quorum.topic_id(topic), [part])])


@pytest.mark.usefixtures("clock_moves")
def test_a_new_controller_continues_a_shutdown_at_the_next_heartbeat() -> None:
    quorum = many()
    beat(quorum, 1, want_shut_down=True)
    one_turn(quorum)
    quorum.lose()
    one_turn(quorum)
    assert quorum.controller.in_turns.under_way == 0
    left = count(quorum, lambda s: s.leader == 1)
    assert 0 < left < MANY
    quorum.lead()
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1) == left, "nobody has asked the new controller yet"
    assert not beat(quorum, 1, want_shut_down=True).should_shut_down
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0
    beat(quorum, 2)
    assert beat(quorum, 1, want_shut_down=True).should_shut_down


@pytest.mark.usefixtures("clock_moves")
def test_a_broker_with_very_many_followers_only_is_searched_in_turns() -> None:
    quorum = many(replicas=[2, 1])
    assert not beat(quorum, 1, want_shut_down=True).should_shut_down, "it may lead one of them"
    finish(quorum)
    beat(quorum, 2)
    assert beat(quorum, 1, want_shut_down=True).should_shut_down


# Fencing


def silent(quorum: Quorum, alive: int = 2) -> None:
    """Broker 1 is silent until its lease expires; no turn after the first one has run."""
    for _ in range(4):
        quorum.time.now += 2_500
        beat(quorum, alive)
    while not quorum.controller.cluster.leaving[1]:
        quorum.time.now += 500
        beat(quorum, alive)
        one_turn(quorum)


@pytest.mark.usefixtures("clock_moves")
def test_a_silent_broker_is_fenced_after_leaving_all_isrs() -> None:
    quorum = many()
    since = quorum.log.next_offset
    silent(quorum)
    while quorum.controller.in_turns.under_way:
        broker = quorum.image.brokers.get(1)
        assert broker is not None
        assert not broker.fenced
        one_turn(quorum)
    broker = quorum.image.brokers.get(1)
    assert broker is not None
    assert broker.fenced
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0
    assert max(changes_a_batch(quorum, since)) <= PARTITIONS_A_TURN + SLACK
    assert quorum.written()[-1].fenced == 1


@pytest.mark.usefixtures("clock_moves")
def test_a_broker_that_is_being_fenced_is_treated_as_fenced() -> None:
    quorum = many((1, 2, 3))
    silent(quorum)
    assert quorum.create("new", [[1, 3]]).error_code == 0
    assert quorum.partition("new").isr == (3,)
    assert quorum.create("alone", [[1]]).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT
    walked = next(t for t in quorum.image.topics if (s := t.partition(0)) is not None and s.isr == (2,))
    answer = quorum.ask(joins(quorum, walked.name, [2, 1])).response
    assert answer.topics[0].partitions[0].error_code == ErrorCode.INELIGIBLE_REPLICA
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0


@pytest.mark.usefixtures("clock_moves")
def test_a_broker_that_returns_during_its_fencing_is_unfenced_afterwards() -> None:
    quorum = many(replicas=[1])
    silent(quorum)
    assert beat(quorum, 1).is_fenced
    one_turn(quorum)
    assert beat(quorum, 1).is_fenced
    finish(quorum)
    assert count(quorum, lambda s: s.leader == -1 and s.isr == (1,)) == MANY
    assert not beat(quorum, 1).is_fenced
    assert 0 < count(quorum, lambda s: s.leader == 1) <= PARTITIONS_A_TURN + SLACK
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1) == MANY


@pytest.mark.usefixtures("clock_moves")
def test_a_broker_that_stops_during_its_fencing_waits_for_the_last_turn() -> None:
    quorum = many()
    silent(quorum)
    assert not beat(quorum, 1, want_shut_down=True).should_shut_down
    finish(quorum)
    assert beat(quorum, 1, want_shut_down=True).should_shut_down


@pytest.mark.usefixtures("clock_moves")
def test_two_brokers_fenced_in_the_same_turns_do_not_succeed_each_other() -> None:
    quorum = many((1, 2, 3), replicas=[1, 2, 3])
    beat(quorum, 1, want_fence=True)
    beat(quorum, 2, want_fence=True)
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 3 and s.isr == (3,)) == MANY
    elected = sum(record.leader == 2 for record in quorum.written("PartitionChangeRecord"))
    assert elected <= PARTITIONS_A_TURN + SLACK, "only before it was being fenced itself"


@pytest.mark.usefixtures("clock_moves")
def test_a_fencing_interrupted_by_a_resignation_is_restarted_by_the_next_controller() -> None:
    quorum = many(replicas=[1])
    silent(quorum)
    one_turn(quorum)
    quorum.lose()
    one_turn(quorum)
    leaderless = count(quorum, lambda s: s.leader == -1)
    assert 0 < leaderless < MANY
    quorum.lead()
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1) == MANY, "its registration says that it is there"
    silent(quorum)
    finish(quorum)
    assert count(quorum, lambda s: s.leader == -1) == MANY


@pytest.mark.usefixtures("clock_moves")
def test_a_fencing_interrupted_by_a_failure_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = many()
    reported = []
    quorum.controller.on_defect = lambda where, error: reported.append(where)
    silent(quorum)
    cluster_type = type(quorum.controller.cluster)
    with monkeypatch.context() as broken:
        broken.setattr(cluster_type, "change", lambda *_: 1 / 0)
        finish(quorum)
    assert reported == ["the controller, planning in turns"]
    assert not quorum.controller.cluster.leaving[1]
    silent(quorum)
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0


# Unfencing


@pytest.mark.usefixtures("clock_moves")
def test_elections_interrupted_by_a_resignation_are_finished_by_the_next_controller() -> None:
    quorum = many(replicas=[1])
    beat(quorum, 1, want_fence=True)
    finish(quorum)
    beat(quorum, 1)
    quorum.lose()
    one_turn(quorum)
    assert 0 < count(quorum, lambda s: s.leader == 1) < MANY
    quorum.lead()
    finish(quorum)
    assert count(quorum, lambda s: s.leader == 1) == MANY


@pytest.mark.usefixtures("clock_moves")
def test_brokers_that_return_in_the_same_turns_all_lead_again() -> None:
    quorum = many((1, 2), count=3_000, replicas=[1])
    quorum.start(3)
    records = []
    for number in range(3_000):
        topic_id = uuid(20_000_000 + number)
        records.append(TopicRecord(name=f"u{number}", topic_id=topic_id))
        records.append(PartitionRecord(0, topic_id, replicas=[3], isr=[3], leader=3, directories=[directory(3)]))
    append(quorum, records)
    for broker in (1, 3):
        beat(quorum, broker, want_fence=True)
    finish(quorum)
    assert count(quorum, lambda s: s.leader == -1) == 6_000
    beat(quorum, 1)
    one_turn(quorum)
    beat(quorum, 3)
    finish(quorum)
    assert count(quorum, lambda s: s.leader == -1) == 0


# Periodic elections


def test_leadership_returns_to_preferred_replicas_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """Half of the partitions cannot go back yet; each is looked at once in a period."""
    monkeypatch.setattr("kraft_node.base.turns.STEPS_A_TURN", 1)
    quorum = many()
    beat(quorum, 1, want_fence=True)
    finish(quorum)
    beat(quorum, 1)
    for first in range(0, MANY // 2, 500):
        append(
            quorum,
            [
                PartitionChangeRecord(0, quorum.topic_id(f"t{number}"), isr=[2, 1])
                for number in range(first, first + 500)
            ],
        )
    planned = []
    cluster_type = type(quorum.controller.cluster)
    original = cluster_type.change
    monkeypatch.setattr(cluster_type, "change", lambda *a: (planned.append(a[2]), original(*a))[1])
    since = quorum.log.next_offset
    for _ in range(149):
        quorum.pass_time(2_000)
        for broker in (1, 2):
            beat(quorum, broker)
    assert not planned
    quorum.time.now += 2_000
    while not planned:
        one_turn(quorum)
        quorum.time.now += 1
    assert len(planned) <= PARTITIONS_A_TURN + SLACK
    finish(quorum)
    assert len(planned) == MANY
    assert count(quorum, lambda s: s.leader == 1) == MANY // 2
    assert max(changes_a_batch(quorum, since)) <= PARTITIONS_A_TURN + SLACK


# Registrations


def register(quorum: Quorum, broker_id: int, incarnation: int) -> Answer:
    return quorum.register(broker_id, incarnation=incarnation)


@pytest.mark.usefixtures("clock_moves")
def test_a_new_incarnation_is_registered_after_its_predecessor_has_left_all_isrs() -> None:
    quorum = many()
    old = quorum.epoch_of(1)
    answer = register(quorum, 1, 2)
    while not answer.given:
        assert quorum.epoch_of(1) == old
        one_turn(quorum)
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0
    assert answer.response.broker_epoch == quorum.epoch_of(1) > old
    record = quorum.written("RegisterBrokerRecord")[-1]
    assert quorum.log.records.index(record) == record.broker_epoch, "the epoch is the registration's offset"


@pytest.mark.usefixtures("clock_moves")
def test_a_registration_repeated_between_turns_is_recorded_once() -> None:
    quorum = many()
    answers = [register(quorum, 1, 2)]
    one_turn(quorum)
    answers.append(register(quorum, 1, 2))
    finish(quorum)
    assert len({answer.response.broker_epoch for answer in answers}) == 1
    assert not beat(quorum, 1).is_fenced


@pytest.mark.usefixtures("clock_moves")
def test_unregistering_is_answered_after_the_last_turn() -> None:
    quorum = many()
    answer = quorum.ask(UnregisterBrokerRequest(broker_id=1))
    assert not answer.given
    assert quorum.image.brokers.get(1) is not None
    finish(quorum)
    assert answer.response.error_code == 0
    assert quorum.image.brokers.get(1) is None
    assert count(quorum, lambda s: s.leader == 1 or 1 in s.isr) == 0


@pytest.mark.usefixtures("clock_moves")
def test_a_long_plan_is_refused_if_the_controller_resigns() -> None:
    quorum = many()
    answer = quorum.ask(UnregisterBrokerRequest(broker_id=1))
    quorum.lose(leader_id=3001)
    finish(quorum)
    assert answer.response.error_code == ErrorCode.NOT_CONTROLLER
    assert not quorum.controller.cluster.leaving[1]


@pytest.mark.usefixtures("clock_moves")
def test_a_registration_ends_the_fencing_of_the_predecessor() -> None:
    quorum = many()
    silent(quorum)
    answer = register(quorum, 1, 2)
    finish(quorum)
    assert answer.response.error_code == 0
    assert not beat(quorum, 1).is_fenced
    assert quorum.controller.cluster.is_active(1)


def test_the_turns_of_a_plan_are_consecutive_in_the_log() -> None:
    quorum = many(count=3_000)
    beat(quorum, 1, want_shut_down=True)
    finish(quorum)
    ends = [(offset, offset + len(batch)) for offset, batch in quorum.log.batches]
    assert all(before[1] == after[0] for before, after in pairwise(ends))
