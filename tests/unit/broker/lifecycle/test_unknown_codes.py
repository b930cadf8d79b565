"""Error codes of a later release, from a controller or a leader of that release: the broker goes on, as Kafka does."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.broker.directories import GATHER_MS, RETRY_MS, DirectoryAssignments
from kraft_node.broker.producer_ids import ProducerIds
from kraft_protocol.errors import ErrorCode, KafkaError, error_name
from kraft_protocol.wire import messages as m
from tests.unit.broker.lifecycle.test_defects import isr_changes
from tests.unit.broker.lifecycle.test_lifecycle import Rig, running
from tests.unit.broker.replication.test_long_responses import FETCHED, Follower, records
from tests.unit.broker.transactions import test_verifier
from tests.unit.broker.world import Controller, Loop, topic_id

UNKNOWN = 20_000


def test_an_unknown_code_is_an_unknown_server_error_and_keeps_its_number_as_text() -> None:
    assert ErrorCode(UNKNOWN) is ErrorCode.UNKNOWN_SERVER_ERROR
    assert [error_name(code) for code in (0, -1, UNKNOWN)] == ["NONE", "UNKNOWN_SERVER_ERROR", f"error {UNKNOWN}"]
    with pytest.raises(ValueError, match="text"):
        ErrorCode("text")


def test_heartbeats_continue_after_an_unknown_code() -> None:
    rig = Rig()
    running(rig)
    rig.loop.run(2000)
    rig.heartbeat(error_code=UNKNOWN)
    rig.loop.run(100)
    rig.heartbeat(is_fenced=False)


def test_producer_ids_are_requested_again_after_an_unknown_code() -> None:
    controller, loop, got = Controller(), Loop(), list[object]()
    ids = ProducerIds(3, lambda: 12, controller, loop)
    ids.take(got.append)
    controller.take(m.AllocateProducerIdsRequest).answer(m.AllocateProducerIdsResponse(error_code=UNKNOWN))
    assert isinstance(got.pop(), KafkaError)
    ids.take(got.append)
    loop.run(50)
    answer = m.AllocateProducerIdsResponse(producer_id_start=7, producer_id_len=10)
    controller.take(m.AllocateProducerIdsRequest).answer(answer)
    assert got == [7]


def test_directory_assignments_are_sent_again_after_an_unknown_code() -> None:
    loop, controller = Loop(), Controller()
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: True)
    assignments.note(topic_id(1), 0, topic_id(901))
    loop.run(GATHER_MS)
    controller.take(m.AssignReplicasToDirsRequest).answer(m.AssignReplicasToDirsResponse(error_code=UNKNOWN))
    loop.run(RETRY_MS)
    controller.take(m.AssignReplicasToDirsRequest)


def test_isr_changes_are_sent_again_after_an_unknown_code() -> None:
    controller, loop = Controller(), Loop()
    changes, partition = isr_changes(controller, loop)
    changes.propose(partition)
    loop.run()
    controller.take(m.AlterPartitionRequest).answer(m.AlterPartitionResponse(error_code=UNKNOWN))
    loop.run(60_000)
    controller.take(m.AlterPartitionRequest)


def test_a_follower_fetches_again_after_a_response_with_an_unknown_code() -> None:
    follower = Follower()
    follower.leader.take(m.FetchRequest).answer(FETCHED(error_code=UNKNOWN))
    follower.node.rest(100)
    assert follower.asked() == {0: 0, 1: 0}


def test_a_partition_with_an_unknown_code_does_not_stop_the_others() -> None:
    follower = Follower()
    rows = [
        FETCHED.PartitionData(partition_index=0, error_code=UNKNOWN, high_watermark=-1),
        FETCHED.PartitionData(partition_index=1, records=memoryview(records(number=3)), high_watermark=3),
    ]
    topic = FETCHED.FetchableTopicResponse(topic_id=topic_id(1), partitions=rows)
    follower.leader.take(m.FetchRequest).answer(FETCHED(session_id=7, responses=[topic]))
    follower.node.rest(100)
    assert follower.ends() == [0, 3]
    follower.leader.take(m.FetchRequest)


@pytest.mark.parametrize("answer", [{"error": UNKNOWN}, {"t": {test_verifier.HERE: UNKNOWN, test_verifier.THERE: 0}}])
def test_a_producer_gets_an_answer_after_an_unknown_code(answer: dict[str, Any]) -> None:
    rig = test_verifier.Rig()
    rig.ask()
    rig.sent().answer(test_verifier.response(**answer))
    ((_, _, errors),) = rig.outcomes()
    assert errors[test_verifier.HERE]
