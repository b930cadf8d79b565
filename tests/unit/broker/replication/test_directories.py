"""Directory assignments reach the controller, once each."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from kraft_node.broker.directories import GATHER_MS, RETRY_MS, DirectoryAssignments
from kraft_node.log.errors import LogDirDamaged
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.ids import DIRECTORY_LOST, DIRECTORY_UNASSIGNED
from kraft_protocol.wire import stored
from kraft_protocol.wire.messages import AssignReplicasToDirsRequest, AssignReplicasToDirsResponse
from tests.unit.broker.lifecycle.test_broker import Rig
from tests.unit.broker.world import Controller, Loop, topic_id, topic_records
from tests.unit.log.world import NOW, batch

METADATA_3_6 = 14
D1, D2 = topic_id(901), topic_id(902)


def content(request: Any) -> set[tuple[bytes, bytes, int]]:
    return {
        (directory.id, topic.topic_id, partition.partition_index)
        for directory in request.directories
        for topic in directory.topics
        for partition in topic.partitions
    }


def test_assignments_gather_and_are_sent_once() -> None:
    loop, controller = Loop(), Controller()
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: True)
    assignments.note(topic_id(1), 0, D1)
    assignments.note(topic_id(1), 1, D2)
    assignments.note(topic_id(2), 0, D1)
    assert controller.sent == []
    loop.run(GATHER_MS)
    sent = controller.take(AssignReplicasToDirsRequest)
    assert (sent.request.broker_id, sent.request.broker_epoch) == (1, 9)
    assert content(sent.request) == {(D1, topic_id(1), 0), (D2, topic_id(1), 1), (D1, topic_id(2), 0)}
    sent.answer(AssignReplicasToDirsResponse())
    loop.run(60_000)
    assert controller.sent == []
    assert not assignments.pending


def test_a_refused_assignment_is_retried_with_newer_changes() -> None:
    loop, controller = Loop(), Controller()
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: True)
    assignments.note(topic_id(1), 0, D1)
    loop.run(GATHER_MS)
    assignments.note(topic_id(1), 0, D2)
    controller.take(AssignReplicasToDirsRequest).answer(
        AssignReplicasToDirsResponse(error_code=ErrorCode.STALE_BROKER_EPOCH)
    )
    loop.run(RETRY_MS)
    sent = controller.take(AssignReplicasToDirsRequest)
    assert content(sent.request) == {(D2, topic_id(1), 0)}
    sent.answer(AssignReplicasToDirsResponse())
    assert not assignments.pending


def test_a_change_during_a_request_is_sent_in_the_next() -> None:
    loop, controller = Loop(), Controller()
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: True)
    assignments.note(topic_id(1), 0, D1)
    loop.run(GATHER_MS)
    assignments.note(topic_id(1), 0, D2)
    controller.take(AssignReplicasToDirsRequest).answer(AssignReplicasToDirsResponse())
    loop.run(GATHER_MS)
    assert content(controller.take(AssignReplicasToDirsRequest).request) == {(D2, topic_id(1), 0)}


def test_a_log_that_is_whole_again_is_unassigned_first() -> None:
    """Otherwise the controller takes it for a new, empty log."""
    loop, controller = Loop(), Controller()
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: True)
    accepted: list[tuple[bytes, int]] = []
    assignments.accepted = lambda *replica: accepted.append(replica)
    assignments.note(topic_id(1), 0, D1, returns=True)
    for wanted in (DIRECTORY_UNASSIGNED, D1):
        loop.run(GATHER_MS)
        sent = controller.take(AssignReplicasToDirsRequest)
        assert content(sent.request) == {(wanted, topic_id(1), 0)}
        assert accepted == []
        sent.answer(AssignReplicasToDirsResponse())
    assert accepted == [(topic_id(1), 0)]
    assert not assignments.pending


def test_assignments_wait_for_a_metadata_version_that_supports_them() -> None:
    loop, controller = Loop(), Controller()
    levels = [16]
    assignments = DirectoryAssignments(1, lambda: 9, controller, loop, lambda: levels[-1] >= 17)
    assignments.note(topic_id(1), 0, D1)
    loop.run(60_000)
    assert controller.sent == []
    levels.append(17)
    assignments.metadata_version_changed()
    loop.run(GATHER_MS)
    assert content(controller.take(AssignReplicasToDirsRequest).request) == {(D1, topic_id(1), 0)}


@pytest.mark.parametrize("level", [30, METADATA_3_6])
def test_a_damaged_log_is_set_aside_once_its_loss_is_committed(tmp_path: Path, level: int) -> None:
    """Before, the controller could add the replica to the ISR, whose leader knew it as caught up: an empty log could
    be elected. Old metadata versions cannot express the loss."""
    rig = Rig(tmp_path, dirs=2)
    rig.commit([stored.FeatureLevelRecord(name="metadata.version", feature_level=level)])
    rig.commit(topic_records("t", 1, isr=(1, 2)))
    rig.run_up()
    log = rig.broker.replicas.hosted("t", 0).log
    log.append_as_leader(batch(b"a"), 0, NOW, internal=True)
    rig.commit([stored.PartitionChangeRecord(0, topic_id(1), isr=[2], leader=2)])
    damage = LogDirDamaged(log.dir.path, log.path, 0, "a bit has rotted")
    log.dir.damaged(log, damage)
    rig.broker.replica_withdrawn("t", 0, damage)
    rig.loop.run(1000)
    kept = [name for number in (0, 1) for name in rig.names(number) if name == "t-0"]
    if level == METADATA_3_6:
        assert rig.broker.replicas.hosted("t", 0).log.end_offset == 0
        return
    with pytest.raises(KafkaError, match="rotted"):
        rig.broker.replicas.hosted("t", 0)
    assert kept == ["t-0"]
    rig.commit([stored.PartitionChangeRecord(0, topic_id(1), directories=[DIRECTORY_LOST, D2])])
    rig.loop.run(1000)
    assert rig.broker.replicas.hosted("t", 0).log.end_offset == 0
    stray = [name for number in (0, 1) for name in rig.names(number) if name.endswith("-stray")]
    assert len(stray) == 1
