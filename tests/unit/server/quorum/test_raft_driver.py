"""One voter from an empty disk through commits, crashes, snapshots and observers, with a manual clock."""

from __future__ import annotations

import pytest

from kraft_node.metadata.log_batches import snapshot_header_batch
from kraft_node.metadata.overlay import Overlay
from kraft_node.raft.accumulator import BatchTooLarge
from kraft_node.raft.log_view import SnapshotId
from kraft_node.raft.node import NotLeader
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, Uuid
from kraft_protocol.records.batch import iter_headers
from kraft_protocol.records.control import ControlType, iter_control_records
from kraft_protocol.wire import codec, messages, stored
from tests.property.metadata.naive import Stories, dump
from tests.unit.server.quorum.raft_world import DIRECTORY, Context, MemoryStorage, Node, append


def topic(number: int) -> stored.TopicRecord:
    return stored.TopicRecord(name=f"t{number}", topic_id=number.to_bytes(16, "big"))


def fetch(
    node: Node, offset: int, last_epoch: int, *, epoch: int = 1, version: int = 17, hw: int | None = None
) -> Context:
    partition = messages.FetchRequest.FetchPartition(
        partition=0,
        current_leader_epoch=epoch,
        fetch_offset=offset,
        last_fetched_epoch=last_epoch,
        partition_max_bytes=1 << 20,
    )
    if hw is not None:
        partition.high_watermark = hw
    request = messages.FetchRequest(
        cluster_id="cluster",
        replica_state=messages.FetchRequest.ReplicaState(replica_id=7),
        max_wait_ms=500,
        topics=[messages.FetchRequest.FetchTopic(topic_id=METADATA_TOPIC_ID, partitions=[partition])],
    )
    ctx = Context(version)
    assert node.driver._handle(ctx, request) is None  # type: ignore[arg-type]
    return ctx


def partition_of(ctx: Context):  # type: ignore[no-untyped-def]
    (answer,) = ctx.answers
    codec.encode(answer, ctx.api_version)
    return answer.responses[0].partitions[0]


def test_a_lone_voter_leads_after_its_vote_and_first_record_are_flushed() -> None:
    node = Node()
    node.driver.start()
    lanes = []
    while node.world.jobs:
        lanes.append(node.world.jobs[0][0])
        assert node.reported == []
        node.world.run_job()
    assert lanes == ["quorum-state", "quorum-state", "metadata-log"]
    assert node.reported == [("commit", 0), ("leader", 1)]
    assert node.storage.state.leader_id == 1
    assert node.driver.next_offset == 1


def test_records_are_committed_by_their_flush_and_later_ones_share_the_next() -> None:
    node = Node().start()
    node.reported.clear()
    assert append(node.driver, [topic(1), topic(2)]) == 2
    assert append(node.driver, [topic(3)]) == 3
    assert append(node.driver, [topic(4)]) == 4
    assert len(node.world.jobs) == 1
    assert len(node.driver.image.topics) == 0
    node.world.run_job()
    assert node.reported == [("commit", 2)]
    assert len(node.driver.image.topics) == 2
    node.world.run_job()
    assert node.reported == [("commit", 2), ("commit", 4)]
    assert [next(iter_headers(batch)).count for batch in node.storage.batches] == [1, 2, 2]
    assert node.storage.reads == 1, "only its own LeaderChange is read back"


def test_records_wait_no_longer_than_the_linger_for_a_slow_disk() -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    append(node.driver, [topic(2)])
    jobs, node.world.jobs = node.world.jobs, []
    written = len(node.storage.batches)
    node.world.run(24)
    assert len(node.storage.batches) == written
    node.world.run(2)
    assert len(node.storage.batches) == written + 1
    node.world.jobs = jobs + node.world.jobs
    node.world.run()
    assert node.reported[-1] == ("commit", 2)


@pytest.mark.parametrize("flushed", [False, True])
def test_a_restart_continues_after_the_flushed_records(flushed: bool) -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    if flushed:
        node.world.run()
    node.storage.crash()
    again = Node(node.storage).start()
    assert again.driver.epoch == 2
    assert again.reported[-1] == ("leader", 2)
    assert (again.driver.image.topics.by_name("t1") is not None) == flushed
    assert append(again.driver, [topic(2)]) == (3 if flushed else 2)
    again.world.run()
    assert again.driver.image.topics.by_name("t2") is not None


def test_a_failed_fsync_ends_the_voter() -> None:
    node = Node().start()
    node.reported.clear()
    append(node.driver, [topic(1)])
    node.storage.error = OSError(5, "disk gone")
    node.world.run()
    assert node.reported == [("fatal", "__cluster_metadata-0: flushing the log: [Errno 5] disk gone")]
    with pytest.raises(NotLeader):
        append(node.driver, [topic(2)])
    node.world.run(10_000)
    assert len(node.reported) == 1
    assert len(node.driver.image.topics) == 0


def test_only_the_leader_appends_and_only_batches_that_fit() -> None:
    node = Node()
    node.driver.start()
    with pytest.raises(NotLeader):
        append(node.driver, [topic(1)])
    node.world.run()
    big = stored.ConfigRecord(resource_type=4, resource_name="1", name="x", value="y" * 30_000)
    with pytest.raises(BatchTooLarge):
        append(node.driver, [big] * 300)
    before = node.driver.next_offset
    assert append(node.driver, [big] * 300, atomic=False) == before + 299
    node.world.run()
    assert node.reported[-1] == ("commit", before + 299)


def test_snapshot_then_restart_gives_the_same_image() -> None:
    node = Node(policy=SnapshotPolicy(max_new_record_bytes=2000)).start()
    stories = Stories(1)
    append(node.driver, [stored.FeatureLevelRecord(name="metadata.version", feature_level=30)])
    for _ in range(60):
        overlay = Overlay(node.driver.image)
        append(node.driver, stories.records(10))
        assert overlay.is_empty
        node.world.run(10)
    node.world.run(5000)
    assert len(node.storage.files) > 1
    latest = max(node.storage.files)
    assert node.driver.node.log.latest_snapshot == latest
    node.storage.delete_before(latest.end_offset)
    again = Node(node.storage).start()
    assert dump(again.driver.image) == dump(node.driver.image)
    assert again.driver.image.offset == again.driver.next_offset - 1
    assert again.driver.epoch == 2


def test_a_snapshot_is_taken_after_an_hour_and_old_ones_are_removed() -> None:
    policy = SnapshotPolicy(retention_bytes=1)
    node = Node(policy=policy).start()
    for hour in range(3):
        append(node.driver, [topic(hour)])
        node.world.run(3_601_000)
        append(node.driver, [stored.NoOpRecord()])
        node.world.run(120_000)
    assert len(node.storage.files) == 1
    (latest,) = node.storage.files
    assert node.storage.start_offset == latest.end_offset == node.driver.node.log.start_offset
    assert fetch(node, 0, 0).answers[0].responses[0].partitions[0].snapshot_id.end_offset == latest.end_offset


def test_an_observer_is_answered_as_a_leader_does() -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    node.world.run()
    first = partition_of(fetch(node, 0, 0))
    assert [header.next_offset for header in iter_headers(bytes(first.records))] == [1, 2]
    assert (first.high_watermark, first.current_leader.leader_id, first.error_code) == (2, 1, 0)
    waiting = fetch(node, 2, 1)
    assert not waiting.answers
    append(node.driver, [topic(2)])
    assert [header.base_offset for header in iter_headers(bytes(partition_of(waiting).records))] == [2]
    news = fetch(node, 3, 1, version=18, hw=2)
    assert not news.answers
    node.world.run()
    assert partition_of(news).high_watermark == 3
    idle = fetch(node, 3, 1)
    node.world.run(499)
    assert not idle.answers
    node.world.run(2)
    assert not partition_of(idle).records
    assert partition_of(fetch(node, 3, 0)).error_code == 0
    assert partition_of(fetch(node, 9, 1)).diverging_epoch.end_offset == 3
    assert partition_of(fetch(node, 0, 0, epoch=0)).error_code == 74
    assert partition_of(fetch(node, 0, 0, epoch=2)).error_code == 75
    endpoint = fetch(node, 0, 0, epoch=0).answers[0].node_endpoints[0]
    assert (endpoint.node_id, endpoint.host, endpoint.port) == (1, "localhost", 9093)


def test_a_snapshot_is_served_in_chunks() -> None:
    node = Node().start()
    append(node.driver, [topic(n) for n in range(20)])
    node.world.run()
    node.driver.snapshots.take()
    node.world.run(1000)
    identity = SnapshotId(21, 1)
    data = b""
    while True:
        partition = messages.FetchSnapshotRequest.PartitionSnapshot(partition=0, current_leader_epoch=1)
        partition.snapshot_id = messages.FetchSnapshotRequest.SnapshotId(*identity)
        partition.position = len(data)
        request = messages.FetchSnapshotRequest(
            cluster_id="cluster",
            replica_id=7,
            max_bytes=100,
            topics=[messages.FetchSnapshotRequest.TopicSnapshot(METADATA_TOPIC_NAME, [partition])],
        )
        ctx = Context(1)
        node.driver._handle(ctx, request)  # type: ignore[arg-type]
        answer = ctx.answers[0].topics[0].partitions[0]
        codec.encode(ctx.answers[0], 1)
        if answer.error_code == 99:
            break
        data += bytes(answer.unaligned_records)
    assert data == node.storage.files[identity]


def test_the_quorum_is_described_by_its_leader() -> None:
    node = Node().start()
    fetch(node, 1, 1)
    request = messages.DescribeQuorumRequest(
        topics=[
            messages.DescribeQuorumRequest.TopicData(
                METADATA_TOPIC_NAME, [messages.DescribeQuorumRequest.PartitionData(0)]
            )
        ]
    )
    answer = node.driver._describe(Context(2), request)  # type: ignore[arg-type]
    assert messages.DescribeQuorumResponse.SCHEMA
    codec.encode(answer, 2)
    partition = answer.topics[0].partitions[0]
    assert (partition.leader_id, partition.leader_epoch, partition.high_watermark) == (1, 1, 1)
    assert [(voter.replica_id, voter.log_end_offset) for voter in partition.current_voters] == [(1, 1)]
    observer = partition.observers[0]
    assert (observer.replica_id, observer.last_fetch_timestamp) == (7, node.world.wall_ms())


def test_shutdown_waits_for_the_disk_and_reports_its_end() -> None:
    node = Node().start()
    append(node.driver, [topic(1)])
    waiting = fetch(node, 2, 1)
    done: list[bool] = []
    node.driver.shutdown(lambda: done.append(True))
    assert not done
    assert partition_of(waiting).error_code != 0
    node.world.run()
    assert done == [True]
    assert ("lost", 1) in node.reported
    assert len(node.storage.durable) == 2


def test_voters_in_the_log_are_kept_in_the_log_and_in_snapshots() -> None:
    """Formatted with --standalone (KIP-853): the bootstrap snapshot names the voter and its directory."""
    version = stored.KRaftVersionRecord(version=0, k_raft_version=1)
    voter = stored.VotersRecord.Voter(
        voter_id=1,
        voter_directory_id=DIRECTORY,
        endpoints=[stored.VotersRecord.Endpoint("CONTROLLER", "somewhere", 9999)],
        k_raft_version_feature=stored.VotersRecord.KRaftVersionFeature(0, 1),
    )
    voters = [
        (ControlType.KRAFT_VERSION, codec.encode(version, 0)),
        (ControlType.KRAFT_VOTERS, codec.encode(stored.VotersRecord(version=0, voters=[voter]), 0)),
    ]
    storage = MemoryStorage()
    storage.files[SnapshotId(0, 0)] = snapshot_header_batch(0, 0, 0, voters)
    node = Node(storage).start()
    assert node.reported == [("commit", 2), ("leader", 1)]
    first = [(record.type, record.value) for record in iter_control_records(storage.batches[0])]
    assert [kind for kind, _ in first] == [ControlType.LEADER_CHANGE, *(kind for kind, _ in voters)]
    assert first[1:] == voters
    append(node.driver, [topic(1)])
    node.world.run()
    node.driver.snapshots.take()
    node.world.run(1000)
    del storage.files[SnapshotId(0, 0)]
    storage.delete_before(4)
    again = Node(storage).start()
    assert again.driver.kraft_version == 1
    assert again.driver.voters.get(1).endpoints == {"CONTROLLER": ("somewhere", 9999)}  # type: ignore[union-attr]
    assert next(iter_headers(storage.batches[-1])).count == 1, "the voters are stated once"
    assert again.reported[-1] == ("leader", 2)


def test_a_voter_of_another_directory_does_not_lead() -> None:
    version = stored.KRaftVersionRecord(version=0, k_raft_version=1)
    voter = stored.VotersRecord.Voter(voter_id=1, voter_directory_id=Uuid(b"E" * 16))
    voters = [
        (ControlType.KRAFT_VERSION, codec.encode(version, 0)),
        (ControlType.KRAFT_VOTERS, codec.encode(stored.VotersRecord(version=0, voters=[voter]), 0)),
    ]
    storage = MemoryStorage()
    storage.files[SnapshotId(0, 0)] = snapshot_header_batch(0, 0, 0, voters)
    node = Node(storage).start()
    node.world.run(10_000)
    assert node.reported == []
    assert not storage.batches


def test_many_partitions_start_from_the_log_in_slices() -> None:
    storage = MemoryStorage()
    node = Node(storage).start()
    for start in range(0, 12_000, 2000):
        append(node.driver, [topic(n) for n in range(start, start + 2000)])
        node.world.run()
    again = Node(storage)
    again.driver.start()
    while not again.driver.image.topics:
        again.world.run_job()
    assert 0 < len(again.driver.image.topics) < 12_000
    again.world.run()
    assert len(again.driver.image.topics) == 12_000
    assert again.reported[-1] == ("leader", 2)
