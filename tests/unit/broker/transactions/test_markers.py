"""WriteTxnMarkers: where markers are written, when they are answered, and which come too late."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from kraft_node.broker.metadata_cache import MetadataCache
from kraft_node.broker.transactions.markers import WAITING_MAX, MarkersHandler
from kraft_node.log.config import make_config
from kraft_node.log.producers.verification import VERIFIED
from kraft_protocol.errors import ErrorCode, KafkaError
from kraft_protocol.records.control import ControlType, iter_control_records
from kraft_protocol.wire import stored
from kraft_protocol.wire.codec import decode, encode
from kraft_protocol.wire.messages import WriteTxnMarkersRequest, WriteTxnMarkersResponse
from tests.unit.broker.producing.test_transactions import Rig as ProduceRig
from tests.unit.broker.producing.test_transactions import txn
from tests.unit.broker.world import make_env, topic_id, topic_records

Partitions = dict[str, list[int]]


class Groups:
    """The group coordinator's runtime: keeps the calls that it receives."""

    def __init__(self) -> None:
        self.reported: list[Any] = []
        self.error: KafkaError | None = None
        self.runtime = self

    def shard_at(self, partition: int) -> Any:
        if self.error is not None:
            raise self.error
        self.partition = partition
        return self

    def end_transaction(self, producer: Any, done: Any, *, commit: bool, coordinator_epoch: int) -> None:
        self.reported.append((self.partition, producer.producer_id, producer.epoch, commit, coordinator_epoch))
        self.done = done


class Rig(ProduceRig):
    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.groups = Groups()
        self.fence = SimpleNamespace(check=lambda: None)
        self.markers = MarkersHandler(
            make_env(self.loop),
            1,
            self.replicas,
            MetadataCache(self.image),
            self.groups,  # type: ignore[arg-type]
            self.fence,  # type: ignore[arg-type]
            1000,
        )
        self.commit(
            topic_records("r", 3, isr=(1, 2))
            + topic_records("c", 4, leader=2, isr=(2, 1))
            + topic_records("z", 5, leader=2, isr=(2, 3))
            + topic_records("__consumer_offsets", 6, 2)
        )

    def append(self, topic: str, index: int = 0, *, epoch: int = 0) -> None:
        self.replicas.leader(topic, index).append(txn(epoch=epoch), 1, 0, guard=VERIFIED)

    def write(
        self,
        where: Partitions,
        *,
        epoch: int = 0,
        commit: bool = True,
        coordinator_epoch: int = 0,
        transaction_version: int = 0,
        version: int = 2,
        pid: int = 7,
    ) -> Any:
        topics = [WriteTxnMarkersRequest.WritableTxnMarkerTopic(name, indexes) for name, indexes in where.items()]
        marker = WriteTxnMarkersRequest.WritableTxnMarker(
            pid, epoch, commit, topics, coordinator_epoch, transaction_version if version >= 2 else 0
        )
        return self.ask([marker], version)

    def ask(self, markers: list[Any], version: int = 2) -> Any:
        request = decode(WriteTxnMarkersRequest, encode(WriteTxnMarkersRequest(markers=markers), version), version)
        response = self.markers(self.client.context(27, version), request)
        return None if response is None else self.rows(response, version)

    def rows(self, response: Any, version: int = 2) -> dict[Any, ErrorCode]:
        response = decode(WriteTxnMarkersResponse, encode(response, version), version)
        return {
            (topic.name, row.partition_index): ErrorCode(row.error_code)
            for marker in response.markers
            for topic in marker.topics
            for row in topic.partitions
        }

    def outcomes(self) -> dict[Any, ErrorCode]:
        (response,) = self.client.answers
        self.client.answers.clear()
        return self.rows(response)


@pytest.fixture
def rig(tmp_path: Path) -> Rig:
    return Rig(tmp_path)


@pytest.mark.parametrize("version", [1, 2])
@pytest.mark.parametrize("commit", [True, False])
def test_markers_end_transactions(rig: Rig, version: int, commit: bool) -> None:
    for index in (0, 1):
        rig.append("a", index)
    log = rig.replicas.leader("a", 0).log
    assert log.last_stable_offset == 0
    answer = rig.write({"a": [0, 1]}, commit=commit, coordinator_epoch=4, version=version)
    assert answer == {("a", 0): ErrorCode.NONE, ("a", 1): ErrorCode.NONE}
    assert (log.last_stable_offset, log.end_offset) == (2, 2)
    (record,) = iter_control_records(bytes(log.read(1, 1000).records.read()))
    assert record.type is (ControlType.COMMIT if commit else ControlType.ABORT)
    assert log.aborted_transactions(0, 2) == ([] if commit else [(7, 0)])
    (producer,) = log.producers.active()
    assert (producer.coordinator_epoch, producer.current_txn_first_offset) == (4, -1)


def test_marker_is_answered_when_it_is_replicated(rig: Rig) -> None:
    rig.append("r")
    assert rig.write({"r": [0], "a": [0]}) is None
    partition = rig.replicas.leader("r", 0)
    partition.follower_fetched(2, -1, 1, 0)
    assert rig.client.answers == []
    partition.follower_fetched(2, -1, 2, 0)
    assert rig.outcomes() == {("r", 0): ErrorCode.NONE, ("a", 0): ErrorCode.NONE}
    rig.loop.run(5000)
    assert rig.client.answers == []


def test_marker_that_is_not_replicated_in_time_may_be_sent_again(rig: Rig) -> None:
    rig.append("r")
    assert rig.write({"r": [0], "a": [0]}) is None
    rig.loop.run(1000)
    assert rig.outcomes() == {("r", 0): ErrorCode.REQUEST_TIMED_OUT, ("a", 0): ErrorCode.NONE}
    rig.replicas.leader("r", 0).follower_fetched(2, -1, 2, 0)
    assert rig.client.answers == []


def test_lost_leadership_ends_the_wait(rig: Rig) -> None:
    rig.append("r")
    assert rig.write({"r": [0]}) is None
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(3), leader=2)])
    assert rig.outcomes() == {("r", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_partitions_elsewhere_are_refused(rig: Rig) -> None:
    assert rig.write({"c": [0], "z": [0], "a": [0, 99], "none": [0]}) == {
        ("c", 0): ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ("z", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("a", 0): ErrorCode.NONE,
        ("a", 99): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ("none", 0): ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }


def test_too_small_an_isr_refuses_markers(rig: Rig) -> None:
    partition = rig.replicas.leader("r", 0)
    partition.log.set_config(make_config({"min.insync.replicas": "2"}))
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(3), isr=[1])])
    assert rig.write({"r": [0]}) == {("r", 0): ErrorCode.NOT_ENOUGH_REPLICAS}


def test_late_markers_are_fenced(rig: Rig) -> None:
    rig.append("a", epoch=3)
    assert rig.write({"a": [0]}, epoch=2) == {("a", 0): ErrorCode.INVALID_PRODUCER_EPOCH}
    assert rig.write({"a": [0]}, epoch=3, coordinator_epoch=5) == {("a", 0): ErrorCode.NONE}
    assert rig.write({"a": [0]}, epoch=3, coordinator_epoch=5) == {("a", 0): ErrorCode.NONE}, "a repetition"
    old = rig.write({"a": [0]}, epoch=3, coordinator_epoch=4)
    assert old == {("a", 0): ErrorCode.TRANSACTION_COORDINATOR_FENCED}


@pytest.mark.parametrize("version", [1, 2])
def test_transaction_version_2_needs_a_newer_epoch(rig: Rig, version: int) -> None:
    rig.append("a", epoch=3)
    answer = rig.write({"a": [0]}, epoch=3, transaction_version=2, version=version)
    assert answer == {("a", 0): ErrorCode.NONE if version < 2 else ErrorCode.INVALID_PRODUCER_EPOCH}
    assert rig.write({"a": [0]}, epoch=4, transaction_version=2) == {("a", 0): ErrorCode.NONE}
    assert rig.write({"a": [0]}, epoch=4, transaction_version=2) == {("a", 0): ErrorCode.NONE}, "a repetition"


@pytest.mark.parametrize(
    ("error", "reported"),
    [
        (None, ErrorCode.NONE),
        (KafkaError(ErrorCode.NOT_COORDINATOR), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), ErrorCode.NOT_LEADER_OR_FOLLOWER),
        (KafkaError(ErrorCode.NOT_ENOUGH_REPLICAS), ErrorCode.NOT_ENOUGH_REPLICAS),
    ],
)
def test_markers_of_offsets_go_to_the_group_coordinator(
    rig: Rig, error: KafkaError | None, reported: ErrorCode
) -> None:
    assert rig.write({"__consumer_offsets": [1]}, epoch=2, commit=False, coordinator_epoch=4) is None
    assert rig.groups.reported == [(1, 7, 2, False, 4)]
    rig.groups.done(error)
    assert rig.outcomes() == {("__consumer_offsets", 1): reported}


def test_loading_group_coordinator_refuses_markers(rig: Rig) -> None:
    rig.groups.error = KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    answer = rig.write({"__consumer_offsets": [1]})
    assert answer == {("__consumer_offsets", 1): ErrorCode.NOT_LEADER_OR_FOLLOWER}


def test_markers_of_several_producers(rig: Rig) -> None:
    def marker(pid: int, *indexes: int) -> Any:
        topic = WriteTxnMarkersRequest.WritableTxnMarkerTopic("a", list(indexes))
        return WriteTxnMarkersRequest.WritableTxnMarker(pid, 0, True, [topic], 0)

    assert rig.ask([marker(7, 0), marker(8, 0, 1), marker(7, 2)]) == {
        ("a", index): ErrorCode.NONE for index in (0, 1, 2)
    }
    assert rig.replicas.leader("a", 0).log.end_offset == 2
    assert rig.ask([]) == {}


def test_very_many_waiting_requests_are_limited(rig: Rig) -> None:
    for _ in range(WAITING_MAX):
        assert rig.write({"r": [0]}) is None
    assert rig.write({"a": [0]}) == {("a", 0): ErrorCode.REQUEST_TIMED_OUT}
    rig.replicas.leader("r", 0).follower_fetched(2, -1, WAITING_MAX, 0)
    assert len(rig.client.answers) == WAITING_MAX
    assert rig.write({"a": [0]}) == {("a", 0): ErrorCode.NONE}
