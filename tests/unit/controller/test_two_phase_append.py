"""Prepare, replay on the overlay, schedule: answers follow writes; unreplayable records are never written."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.controller.partitions.leaders import Leaders
from kraft_node.controller.partitions.topics import TopicManager
from kraft_node.controller.plan import Plan, Turns
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.wire.messages import CreateTopicsRequest, ListPartitionReassignmentsRequest
from kraft_protocol.wire.stored import ConfigRecord, PartitionChangeRecord, TopicRecord
from tests.unit.controller.harness import Quorum, directory, flat, uuid
from tests.unit.controller.on_raft import RaftedController
from tests.unit.server.quorum.joined import Quorum as Voters
from tests.unit.server.quorum.raft_world import MemoryStorage, Node

SILENCE_MS = 3_100
"""A little longer than a leader leads without hearing from a majority."""


def create_request(name: str) -> CreateTopicsRequest:
    return CreateTopicsRequest(
        topics=[CreateTopicsRequest.CreatableTopic(name=name, num_partitions=1, replication_factor=1)]
    )


HALF_A_PLAN = (
    TopicRecord(name="half.a_plan", topic_id=uuid(77)),
    PartitionChangeRecord(topic_id=uuid(99), partition_id=0, leader=1),
)
"""A planner's defect: a topic is created, and then a partition changed that does not exist."""


def plant(patch: pytest.MonkeyPatch, *records: Any) -> None:
    """Make CreateTopics plan these records."""
    patch.setattr(TopicManager, "create", lambda *_: Plan("never said", records))


def three_controllers() -> dict[int, RaftedController]:
    voters = Voters()
    found = {}
    for node_id, member in voters.members.items():
        member.make()
        assert member.driver is not None
        found[node_id] = RaftedController(member.driver, voters.world, metadata_max_idle_interval_ms="0")
    for member in voters.members.values():
        assert member.driver is not None
        member.driver.start()
    voters.world.run(500)
    return found


def leader_of(controllers: dict[int, RaftedController]) -> RaftedController:
    (found,) = [rafted for rafted in controllers.values() if rafted.controller.is_active]
    return found


def test_a_deposed_leader_never_answers_success() -> None:
    controllers = three_controllers()
    leader = leader_of(controllers)
    leader.start_broker(1, within_ms=100)
    world = leader.world
    # The process pauses for longer than the quorum waits; then the request comes before the timers.
    world.now += SILENCE_MS
    answer = leader.send(create_request("foo"))
    assert not answer.responses, "records that were never written are answered as success"
    world.run(10_000)
    if answer.error is None:
        assert answer.response.topics[0].error_code == ErrorCode.NOT_CONTROLLER
    else:
        assert answer.error.code == ErrorCode.NOT_CONTROLLER
    assert all(rafted.driver.image.topics.by_name("foo") is None for rafted in controllers.values())


def test_a_plan_that_does_not_replay_is_refused_and_the_node_survives(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    storage = MemoryStorage()
    node = Node(storage)
    rafted = RaftedController(node.driver, node.world)
    node.start()
    rafted.start_broker(1)
    end = node.driver.next_offset
    plant(monkeypatch, *HALF_A_PLAN)
    answer = rafted.send(create_request("foo"))
    node.world.run()
    assert answer.error is not None
    assert answer.error.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert node.driver.next_offset == end, "nothing was appended"
    assert not [reported for reported in node.reported if reported[0] == "fatal"]
    assert rafted.controller.is_active
    monkeypatch.undo()
    assert rafted.ask(create_request("foo")).topics[0].error_code == ErrorCode.NONE

    again = Node(storage).start()
    assert not [reported for reported in again.reported if reported[0] == "fatal"]
    assert again.driver.image.topics.by_name("foo") is not None


def test_a_plan_that_does_not_replay_leaves_the_view_unchanged(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    quorum = Quorum()
    quorum.start(1)
    before = quorum.ask(create_request("kept_1"), commit=False)
    plant(monkeypatch, *HALF_A_PLAN)
    with pytest.raises(KafkaError) as refused:
        quorum.respond(create_request("foo"))
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    monkeypatch.undo()
    cluster = quorum.controller.cluster
    assert cluster.view.topics.by_id(uuid(77)) is None
    assert cluster.names.colliding("half_a.plan") is None
    kept = cluster.view.topics.by_name("kept_1")
    assert kept is not None, "what was planned before is still planned with"
    assert cluster.names.colliding("kept.1") == "kept_1"
    assert list(flat(cluster.index.in_sync_on(1, cluster.view.topics))) == [(kept.id, 0)]
    quorum.commit()
    assert before.response.topics[0].error_code == ErrorCode.NONE
    assert quorum.image.topics.by_name("kept_1") is not None


def test_a_record_that_cannot_be_encoded_is_refused_and_changes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()
    quorum.start(1)
    end = quorum.log.next_offset
    plant(monkeypatch, TopicRecord(name="foo", topic_id=None))  # type: ignore[arg-type]
    with pytest.raises(KafkaError) as refused:
        quorum.respond(create_request("foo"))
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert quorum.log.next_offset == end
    assert quorum.controller.cluster.view.is_empty


def test_periodic_work_that_does_not_replay_is_dropped_and_the_node_survives(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()
    end = quorum.log.next_offset
    bad = PartitionChangeRecord(topic_id=uuid(99), partition_id=0, leader=1)

    def elect(_: Leaders) -> Turns:
        yield [bad]
        return []

    monkeypatch.setattr(Leaders, "elect_unclean", elect)
    quorum.pass_time(600_000)
    since_then = quorum.written(since=end)
    assert since_then
    assert since_then == quorum.written("NoOpRecord", since=end)


def test_failed_periodic_work_is_repeated_when_due(monkeypatch: pytest.MonkeyPatch) -> None:
    quorum = Quorum()
    turns: list[int] = []

    def elect(_: Leaders) -> Turns:
        turns.append(quorum.time.now)
        raise LookupError("a defect")

    monkeypatch.setattr(Leaders, "elect_unclean", elect)
    quorum.pass_time(600_000)
    assert len(turns) == 2


def test_a_plan_of_an_older_epoch_is_not_appended() -> None:
    node = Node()
    rafted = RaftedController(node.driver, node.world)
    node.start()
    rafted.start_broker(1)
    planned_in = rafted.controller.epoch
    # The core leads another epoch already; the controller does not know it yet.
    rafted.controller.epoch = None if planned_in is None else planned_in - 1
    end = node.driver.next_offset
    answer = rafted.send(create_request("foo"))
    node.world.run()
    assert answer.error is not None
    assert answer.error.code == ErrorCode.NOT_CONTROLLER
    assert node.driver.next_offset == end


def test_an_upgrade_of_kraft_version_planned_in_an_older_epoch_is_refused() -> None:
    node = Node().start()
    with pytest.raises(KafkaError) as refused:
        node.driver.upgrade_kraft_version(node.driver.epoch - 1, 1, validate_only=False)
    assert refused.value.code == ErrorCode.NOT_CONTROLLER
    assert node.driver.next_offset == 1


def test_a_plan_of_several_batches_is_scheduled_at_once() -> None:
    node = Node().start()
    big = ConfigRecord(resource_type=4, resource_name="1", name="x", value="y" * 30_000)
    prepared = node.driver.prepare(node.driver.epoch, [big] * 600, atomic=False)
    assert len(prepared.batches) == 3
    assert (prepared.first_offset, prepared.last_offset) == (1, 600)
    assert node.driver.next_offset == 1, "nothing changes before it is scheduled"
    node.driver.schedule(prepared)
    node.world.run()
    assert node.reported[-1] == ("commit", prepared.last_offset)


def test_the_epoch_of_a_restarted_broker_is_the_offset_of_its_registration() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    assert quorum.create("foo", [[1, 2]] * 5).error_code == 0
    since = quorum.log.next_offset
    answer = quorum.register(1, incarnation=2, directories=[directory(1)])
    written = quorum.written(since=since)
    position = [type(record).__name__ for record in written].index("RegisterBrokerRecord")
    assert position > 0, "its former incarnation leaves the ISRs first"
    assert answer.response.broker_epoch == since + position
    behind = quorum.heartbeat(1, current_metadata_offset=since + position - 1)
    assert behind.is_fenced, "it has not seen its registration yet"
    assert not quorum.heartbeat(1, current_metadata_offset=since + position).is_fenced


def test_a_read_waits_for_records_of_periodic_work() -> None:
    quorum = Quorum()
    quorum.start(1)
    quorum.time.advance(600)  # the log was idle: a no-op is appended, and not committed
    answer = quorum.ask(ListPartitionReassignmentsRequest(), commit=False)
    assert not answer.given
    quorum.commit()
    assert answer.given
