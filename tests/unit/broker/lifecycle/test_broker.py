"""A whole broker over real logs: the effects of committed metadata, seen through its handlers."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from kraft_node.broker.lifecycle import BrokerState
from kraft_protocol.errors import ErrorCode
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.api import ApiKey
from tests.unit.broker.lifecycle.rig import ENDPOINTS, Rig, config
from tests.unit.broker.world import (
    replay,
    topic_id,
    topic_records,
)


def test_topics_are_created_and_deleted(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("a", 1, 2))
    assert rig.names() == []  # no log is created before a request needs it
    assert [rig.produce("a", 1).base_offset for _ in range(3)] == [0, 1, 2]
    assert rig.consume("a", 1) == [0, 1, 2]
    assert rig.names() == ["a-1"]
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1))])
    assert rig.produce("a", 1).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    rig.loop.run()
    assert len(rig.names()) == 1
    assert rig.names()[0].endswith("-delete")
    rig.commit(topic_records("a", 2))
    assert rig.produce("a").base_offset == 0


def test_a_topic_deleted_and_created_again_in_one_go_is_empty(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("a", 1))
    rig.produce("a")
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1)), *topic_records("a", 2)])
    assert rig.consume("a") == []
    assert rig.produce("a").base_offset == 0


def test_data_is_there_after_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    for _ in range(5):
        rig.produce("a")
    rig.stop()
    again = Rig(tmp_path, image=rig.image)
    assert again.consume("a") == [0, 1, 2, 3, 4]
    assert again.produce("a").base_offset == 5


def test_replaying_an_old_deletion_keeps_the_new_topic_of_that_name(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    history = [*topic_records("a", 1), stored.RemoveTopicRecord(topic_id=topic_id(1)), *topic_records("a", 2)]
    rig.commit(history)
    rig.produce("a")
    rig.stop()
    again = Rig(tmp_path)
    for record in history:  # one record for each delta: the deletion is applied by itself
        again.commit([record])
    assert again.consume("a") == [0]


def test_replaying_a_move_away_and_back_keeps_the_replica(tmp_path: Path) -> None:
    """Each run of committed records was applied at once. If the only copy had moved away and back since the last
    snapshot, in two runs, a start deleted it.
    """

    def moved(to: int) -> Any:
        return stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(1), replicas=[to], isr=[to], leader=to)  # type: ignore[arg-type]

    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("a", 1))
    rig.commit([moved(2)])
    rig.commit([moved(1)])
    rig.produce("a")
    rig.stop()
    again = Rig(tmp_path)
    again.commit(topic_records("a", 1))
    again.commit([moved(2)])
    again.commit([moved(1)])
    again.run_up()
    assert again.consume("a") == [0]


def test_a_log_of_a_former_topic_of_the_name_is_set_aside(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    rig.produce("a")
    rig.stop()
    again = Rig(tmp_path)
    again.commit(topic_records("a", 2))
    assert again.consume("a") == []
    assert sorted(name.rpartition("-")[2] for name in again.names()) == ["0", "stray"]


def test_strays_are_set_aside_once_the_broker_runs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("gone", 1) + topic_records("here", 2))
    rig.produce("gone")
    rig.produce("here")
    rig.stop()
    again = Rig(tmp_path)
    again.commit(topic_records("here", 2))
    assert sorted(again.names()) == ["gone-0", "here-0"]
    again.run_up()
    assert again.broker.ready
    assert [name for name in again.names() if not name.endswith("-stray")] == ["here-0"]
    assert len(again.names()) == 2


def test_logs_that_a_snapshot_lacks_are_set_aside(tmp_path: Path) -> None:
    """A broker that lags behind learns of deletions and moves from a snapshot, which names none of them. Logs that were
    not opened since the start stayed until the next start.
    """
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1, 2))
    rig.produce("a", 0)
    rig.produce("a", 1)
    rig.stop()
    again = Rig(tmp_path, image=rig.image)
    again.run_up()
    assert again.consume("a", 0) == [0]
    delta = replay(again.image, [stored.RemoveTopicRecord(topic_id=topic_id(1))])  # type: ignore[arg-type]
    delta.is_snapshot = True
    again.broker.apply(delta, again.image)
    again.loop.run()
    assert sorted(name.rpartition("-")[2] for name in again.names()) == ["delete", "stray"]


def test_topic_configurations_reach_open_logs_at_once(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    assert rig.produce("a").error_code == 0
    rig.commit([config(2, "a", "max.message.bytes", "10")])
    assert rig.produce("a").error_code == ErrorCode.MESSAGE_TOO_LARGE
    rig.commit([config(2, "a", "max.message.bytes", None)])
    assert rig.produce("a").error_code == 0
    rig.commit([config(2, "a", "message.timestamp.type", "LogAppendTime")])
    assert rig.produce("a").log_append_time_ms == rig.loop.wall_ms()


def test_broker_configurations_reach_logs_and_handlers(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    rig.produce("a")
    rig.commit([config(4, "", "message.max.bytes", "10")])
    assert rig.produce("a").error_code == ErrorCode.MESSAGE_TOO_LARGE
    rig.commit([config(4, "1", "message.max.bytes", "100000")])
    assert rig.produce("a").error_code == 0
    rig.commit([config(4, "2", "message.max.bytes", "10")])
    assert rig.produce("a").error_code == 0


def test_without_a_topic_id_records_are_set_aside_and_empty_logs_adopted(tmp_path: Path) -> None:
    """Power was lost before the id was durable; the lost metadata may include the deletion of an older topic."""
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1, 2))
    rig.produce("a")
    assert rig.consume("a", 1) == []
    rig.stop()
    marks = [Path(rig.dirs[0]) / f"a-{index}" / "partition.metadata" for index in (0, 1)]
    before = [mark.read_text() for mark in marks]
    for mark in marks:
        mark.unlink()
    again = Rig(tmp_path, image=rig.image)
    assert again.consume("a") == []
    assert again.consume("a", 1) == []
    assert [mark.read_text() for mark in marks] == before
    assert sorted(name.rpartition("-")[2] for name in again.names()) == ["0", "1", "stray"]


def test_offsets_epochs_producers_and_deletion_through_the_table(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    rig.produce("a", producer_id=9, producer_epoch=2, base_sequence=0)
    rig.produce("a")

    def offset(timestamp: int, version: int = 7) -> Any:
        row = m.ListOffsetsRequest.ListOffsetsPartition(partition_index=0, timestamp=timestamp)
        topic = m.ListOffsetsRequest.ListOffsetsTopic(name="a", partitions=[row])
        return (
            rig.call(ApiKey.LIST_OFFSETS, version, m.ListOffsetsRequest(replica_id=-1, topics=[topic]))
            .topics[0]
            .partitions[0]
        )

    assert (offset(-1).offset, offset(-2).offset, offset(-3).offset, offset(-1).leader_epoch) == (2, 0, 0, 0)
    assert offset(-3, version=6).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset(-9).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert offset(rig.loop.wall_ms() + 1).offset == -1

    epoch = m.OffsetForLeaderEpochRequest
    asked = epoch.OffsetForLeaderTopic(
        topic="a", partitions=[epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)]
    )
    row = rig.call(ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, epoch(topics=[asked])).topics[0].partitions[0]
    assert (row.error_code, row.leader_epoch, row.end_offset) == (0, 0, 2)

    describe = m.DescribeProducersRequest
    got = rig.call(
        ApiKey.DESCRIBE_PRODUCERS, 0, describe(topics=[describe.TopicRequest(name="a", partition_indexes=[0])])
    )
    producer = got.topics[0].partitions[0].active_producers[0]
    assert (producer.producer_id, producer.producer_epoch, producer.last_sequence) == (9, 2, 0)

    delete = m.DeleteRecordsRequest

    def trim(topic: str, before: int) -> Any:
        part = delete.DeleteRecordsPartition(partition_index=0, offset=before)
        request = delete(topics=[delete.DeleteRecordsTopic(name=topic, partitions=[part])])
        return rig.call(ApiKey.DELETE_RECORDS, 2, request).topics[0].partitions[0]

    assert (trim("a", 1).error_code, trim("a", 1).low_watermark) == (0, 1)
    assert offset(-2).offset == 1
    assert (trim("a", 9).error_code, trim("a", 9).low_watermark) == (ErrorCode.OFFSET_OUT_OF_RANGE, -1)
    assert trim("__consumer_offsets", 0).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_sequences_are_checked_and_duplicates_answered_as_before(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.commit(topic_records("a", 1))
    for sequence in range(3):
        assert rig.produce("a", producer_id=9, producer_epoch=0, base_sequence=sequence).base_offset == sequence
    again = rig.produce("a", producer_id=9, producer_epoch=0, base_sequence=1)
    assert (again.error_code, again.base_offset) == (0, 1)
    gap = rig.produce("a", producer_id=9, producer_epoch=0, base_sequence=7)
    assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert rig.consume("a") == [0, 1, 2]


def test_groups_follow_their_partitions(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("__consumer_offsets", 7, 3))
    rig.loop.run()
    assert sorted(rig.broker.groups.shards) == [0, 1, 2]
    rig.commit([stored.PartitionChangeRecord(partition_id=1, topic_id=topic_id(7), leader=-1)])
    assert sorted(rig.broker.groups.shards) == [0, 2]
    delta = replay(rig.image, [])
    delta.is_snapshot = True
    rig.broker.apply(delta, rig.image)
    assert sorted(rig.broker.groups.shards) == [0, 2]
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(7))])
    assert rig.broker.groups.shards == {}


def test_metadata_from_before_the_start_makes_no_leader(tmp_path: Path) -> None:
    """The coordinator opened its partition by the last snapshot on disk, and recorded a finished epoch in the log. The
    leader then had newer records truncated, below the high watermark.
    """
    rig = Rig(tmp_path)
    rig.commit(topic_records("__consumer_offsets", 7, epoch=4))
    rig.loop.run()
    assert rig.broker.replicas.peek(("__consumer_offsets", 0)) is None
    rig.commit([stored.PartitionChangeRecord(partition_id=0, topic_id=topic_id(7), leader=1)])
    rig.run_up()
    assert rig.broker.replicas.leader("__consumer_offsets", 0).log.leader_epochs.entries() == [(5, 0)]
    assert rig.broker.groups.shards[0].epoch == 5


@pytest.mark.parametrize("by_snapshot", [False, True])
def test_groups_end_with_their_topic_even_if_it_is_recreated_at_once(tmp_path: Path, by_snapshot: bool) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("__consumer_offsets", 7, epoch=5) + topic_records("a", 1))
    rig.loop.run()
    join = m.JoinGroupRequest(
        group_id="g",
        session_timeout_ms=10_000,
        rebalance_timeout_ms=10_000,
        protocol_type="consumer",
        protocols=[m.JoinGroupRequest.JoinGroupRequestProtocol(name="range", metadata=b"")],
    )
    assert rig.call(ApiKey.JOIN_GROUP, 3, join) is None
    delta = replay(rig.image, [stored.RemoveTopicRecord(topic_id=topic_id(7)), *topic_records("__consumer_offsets", 8)])
    delta.is_snapshot = by_snapshot
    rig.broker.apply(delta, rig.image)
    assert rig.client.answers[-1].error_code == ErrorCode.NOT_COORDINATOR
    rig.loop.run(5_000)
    assert rig.call(ApiKey.LIST_GROUPS, 4, m.ListGroupsRequest()).groups == []
    join.group_id = "h"
    assert rig.call(ApiKey.JOIN_GROUP, 4, join).error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert rig.broker.groups.shards[0].epoch == 0


def test_a_group_survives_a_restart(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("__consumer_offsets", 7) + topic_records("a", 1))
    rig.loop.run()
    commit = m.OffsetCommitRequest
    row = commit.OffsetCommitRequestPartition(partition_index=0, committed_offset=42, committed_metadata="")
    request = commit(
        group_id="g",
        generation_id_or_member_epoch=-1,
        topics=[commit.OffsetCommitRequestTopic(name="a", partitions=[row])],
    )
    assert rig.call(ApiKey.OFFSET_COMMIT, 8, request) is None
    rig.loop.run()
    answer = rig.client.answers[-1]
    assert answer.topics[0].partitions[0].error_code == 0
    rig.stop()
    again = Rig(tmp_path, image=rig.image)
    delta = replay(again.image, [])
    delta.is_snapshot = True
    again.broker.apply(delta, again.image)
    again.run_up()
    fetch = m.OffsetFetchRequest
    asked = fetch.OffsetFetchRequestGroup(
        group_id="g", topics=[fetch.OffsetFetchRequestTopics(name="a", partition_indexes=[0])]
    )
    got = again.call(ApiKey.OFFSET_FETCH, 8, fetch(groups=[asked])) or again.client.answers[-1]
    assert got.groups[0].topics[0].partitions[0].committed_offset == 42


def test_ten_thousand_idle_partitions_cost_no_logs(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    records = topic_records("wide", 3, 10_000)
    for record in records:
        rig.image.replay(record)
    rig.image.moved_to(rig.image.offset + len(records), 1, 0)
    delta = rig.image.take_delta()
    begun = time.process_time()
    rig.broker.apply(delta, rig.image)
    assert time.process_time() - begun < 1
    assert len(rig.broker.replicas) == 0
    assert rig.produce("wide", 9_999).error_code == 0
    assert len(rig.broker.replicas) == 1


@pytest.mark.parametrize("key", [ApiKey.STREAMS_GROUP_HEARTBEAT, ApiKey.SHARE_FETCH])
def test_unsupported_apis_have_no_handler(tmp_path: Path, key: ApiKey) -> None:
    assert key not in Rig(tmp_path).broker.handlers


def test_a_broker_starts_serves_and_shuts_down(tmp_path: Path) -> None:
    rig = Rig(tmp_path)
    states: list[BrokerState] = []
    rig.broker.start(ENDPOINTS, previous_epoch=3, on_state=states.append)
    request = rig.controller.take(m.BrokerRegistrationRequest)
    assert (request.request.previous_broker_epoch, request.request.log_dirs) == (3, [topic_id(800)])
    assert not rig.logs.housekeeping.knows_topics
    request.answer(m.BrokerRegistrationResponse(broker_epoch=0))
    rig.controller.take(m.BrokerHeartbeatRequest).answer(m.BrokerHeartbeatResponse(is_fenced=False))
    assert states == [BrokerState.STARTING, BrokerState.RECOVERY, BrokerState.RUNNING]
    assert rig.logs.housekeeping.knows_topics
    assert rig.broker.ready
    done: list[int] = []
    rig.broker.begin_shutdown(lambda: done.append(1))
    rig.controller.take(m.BrokerHeartbeatRequest).answer(m.BrokerHeartbeatResponse(should_shut_down=True))
    assert done == [1]
    rig.stop()


def test_a_replica_of_a_recreated_topic_is_opened_after_a_retry(tmp_path: Path) -> None:
    """The first attempt may come while checkpoints still describe the older log. Nothing else causes a retry."""
    rig = Rig(tmp_path)
    rig.run_up()
    rig.commit(topic_records("a", 1, leader=2, isr=(1, 2)))
    rig.loop.run(1_000)
    assert rig.names() == ["a-0"]
    rig.logs.checkpoint_all()
    rig.loop.run(1_000)
    rig.commit([stored.RemoveTopicRecord(topic_id=topic_id(1)), *topic_records("a", 2, leader=2, isr=(1, 2))])
    tries = []
    create = rig.logs.create

    def counted(*args: Any, **kwargs: Any) -> Any:
        tries.append(args)
        return create(*args, **kwargs)

    rig.logs.create = counted  # type: ignore[method-assign]
    rig.loop.run(2_000)
    assert rig.logs.topic_id("a", 0) == topic_id(2)
    assert len(tries) > 1
