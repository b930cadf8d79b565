"""KIP-516: topic ids in requests; immediate deletion; no stale reads, no stale state."""

from __future__ import annotations

import pytest

from kraft_node.log.checkpoints import partition_metadata
from kraft_node.log.names import parse_partition_dir
from kraft_node.testing.machine import DIR
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import METADATA_TOPIC_ID, METADATA_TOPIC_NAME, ONE_UUID, ZERO_UUID, Uuid, uuid_text
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.api import API, ApiKey
from kraft_protocol.wire.codec import encode
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum, directory

# Requests


def test_topics_are_fetched_by_id() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    assert cluster.values("b1", topic_id) == [b"x"]


def test_the_name_is_left_out_of_fetches_by_id() -> None:
    """This holds since version 13. Older versions fetch by name, and both see the same records."""
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    assert cluster.values("b1", "foo") == cluster.values("b1", topic_id) == [b"x"]
    named = m.FetchRequest(topics=[m.FetchRequest.FetchTopic(topic="foo", topic_id=topic_id, partitions=[])])
    assert b"foo" in encode(named, 12)
    assert b"foo" not in encode(named, 13)


def test_an_unknown_id_and_an_unknown_partition_get_different_errors() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    assert cluster.fetch("b1", Uuid(b"n" * 16)).error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert cluster.fetch("b1", topic_id, partition=9).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.mark.parametrize("key", [ApiKey.LIST_OFFSETS, ApiKey.OFFSET_FOR_LEADER_EPOCH])
def test_list_offsets_and_offset_for_leader_epoch_still_name_topics(key: ApiKey) -> None:
    """The draft omits the name there as well; the release keeps it."""
    topic = m.ListOffsetsRequest.ListOffsetsTopic if key == ApiKey.LIST_OFFSETS else (
        m.OffsetForLeaderEpochRequest.OffsetForLeaderTopic
    )  # fmt: skip
    assert "topic_id" not in topic.__slots__
    assert API[key].max_version > 0


def test_metadata_can_be_requested_by_id_and_returns_ids() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    assert bytes(cluster.metadata("b1", ["foo"]).topics[0].topic_id) == topic_id
    by_id = m.MetadataRequest(
        topics=[m.MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)], allow_auto_topic_creation=False
    )
    assert cluster.ask("b1", by_id).topics[0].name == "foo"


def test_topics_can_be_described_by_id() -> None:
    """`kafka-topics --describe` prints ids and takes `--topic-id` (`--topic_id` in the draft); here its request."""
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1], [1])
    by_id = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(topic_id=topic_id, name=None)])
    topic = cluster.ask("b1", by_id).topics[0]
    assert (topic.error_code, topic.name, len(topic.partitions)) == (0, "foo", 2)
    unknown = m.MetadataRequest(topics=[m.MetadataRequest.MetadataRequestTopic(topic_id=Uuid(b"n" * 16), name=None)])
    assert cluster.ask("b1", unknown).topics[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_topics_can_be_deleted_by_id() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    state = m.DeleteTopicsRequest.DeleteTopicState(name=None, topic_id=topic_id)
    request = m.DeleteTopicsRequest(topics=[state], timeout_ms=30_000)
    assert cluster.ask("b1", request).responses[0].error_code == 0
    assert cluster.ask("b1", request).responses[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_every_topic_has_a_unique_id_outside_the_reserved_ones() -> None:
    cluster = Cluster(1, 1)
    ids = {cluster.create(f"topic-{number}", [1]) for number in range(8)}
    assert len(ids) == 8
    assert not ids & {ZERO_UUID, ONE_UUID}


def test_update_metadata_leader_and_isr_and_stop_replica_are_not_served() -> None:
    """Their versions with topic ids serve clusters that migrate from ZooKeeper (KIP-866), which is not implemented."""
    cluster = Cluster(1, 1)
    assert not {ApiKey.UPDATE_METADATA, ApiKey.LEADER_AND_ISR, ApiKey.STOP_REPLICA} & cluster.served("b1")


# The metadata topic


def test_the_metadata_topic_has_a_reserved_sentinel_id() -> None:
    """Of the draft's two proposals the release keeps the sentinel permanently."""
    assert uuid_text(METADATA_TOPIC_ID) == "AAAAAAAAAAAAAAAAAAAAAQ"
    assert int.from_bytes(METADATA_TOPIC_ID, "big") == 1


def test_the_first_fetch_of_the_metadata_uses_the_sentinel_id() -> None:
    cluster = Cluster(1, 1)
    answer = cluster.ask(cluster.active.name, metadata_fetch(METADATA_TOPIC_ID, cluster.node("c1").raft.epoch), 17)
    assert answer.error_code == 0
    assert answer.responses[0].partitions[0].records


def test_no_other_id_fetches_the_metadata() -> None:
    cluster = Cluster(1, 1)
    answer = cluster.ask(cluster.active.name, metadata_fetch(Uuid(b"n" * 16), cluster.node("c1").raft.epoch), 17)
    codes = {answer.error_code, *(row.error_code for topic in answer.responses for row in topic.partitions)}
    assert codes & {ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.INVALID_REQUEST, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}


@pytest.mark.parametrize("request_class", [m.VoteRequest, m.BeginQuorumEpochRequest, m.EndQuorumEpochRequest])
def test_vote_begin_and_end_of_an_epoch_name_the_metadata_topic(request_class: type) -> None:
    """The draft has ids there; the release kept names."""
    assert "topic_name" in request_class.TopicData.__slots__  # type: ignore[attr-defined]
    assert "topic_id" not in request_class.TopicData.__slots__  # type: ignore[attr-defined]


def metadata_fetch(topic_id: Uuid, epoch: int) -> m.FetchRequest:
    row = m.FetchRequest.FetchPartition(
        partition=0, fetch_offset=0, partition_max_bytes=1 << 20, current_leader_epoch=epoch, last_fetched_epoch=0
    )
    topic = m.FetchRequest.FetchTopic(topic_id=topic_id, partitions=[row])
    return m.FetchRequest(max_wait_ms=0, max_bytes=1 << 20, topics=[topic], replica_state=m.FetchRequest.ReplicaState())


# Deletion


def test_a_deletion_is_answered_at_once_without_waiting_for_replicas() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cluster["b2"].kill()
    before = cluster.world.now_ms
    assert cluster.delete("foo") == 0
    assert cluster.world.now_ms - before < 1_000


def test_a_topic_of_the_same_name_can_be_created_right_after() -> None:
    cluster = Cluster(1, 1)
    first = cluster.create("foo", [1])
    assert cluster.delete("foo") == 0
    second = cluster.create("foo", [1])
    assert first != second


def test_a_recreated_topic_never_serves_records_of_the_old_one() -> None:
    cluster = Cluster(1, 2)
    first = cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"old")
    cluster.delete("foo")
    second = cluster.create("foo", [2, 1])
    cluster.until(lambda: cluster.produce("b2", "foo", b"new").error_code == 0)
    assert cluster.values("b2", second) == [b"new"]
    assert cluster.fetch("b2", first).error_code == ErrorCode.UNKNOWN_TOPIC_ID


def test_stale_reads_a_leader_of_the_old_id_is_not_followed() -> None:
    """The KIP's first scenario: broker 1 still has A of id 0 when broker 2 begins to follow A of id 1."""
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"old")
    cluster.network.cut("b1", "c1")
    assert cluster.delete("foo", "b2") == 0
    request = m.CreateTopicsRequest.CreatableTopic(
        name="foo",
        num_partitions=-1,
        replication_factor=-1,
        assignments=[m.CreateTopicsRequest.CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
    )
    created = cluster.ask("b2", m.CreateTopicsRequest(topics=[request], timeout_ms=30_000)).topics[0]
    second = Uuid(bytes(created.topic_id))
    cluster.rest(3_000)
    assert cluster.fetch("b1", second).error_code == ErrorCode.UNKNOWN_TOPIC_ID, "broker 1 knows only the old one"
    log = cluster.node("b2").storage.logs.get("foo", 0)
    assert log is None or log.end_offset == 0, "nothing of the old topic was copied"
    cluster.network.heal()
    cluster.until(lambda: cluster.knows("foo", second))
    leader = f"b{cluster.partition('foo').leader}"
    cluster.until(lambda: cluster.produce(leader, "foo", b"new").error_code == 0)
    assert cluster.values(leader, second) == [b"new"]


def test_stale_state_a_replica_that_missed_the_deletion_sets_the_log_aside() -> None:
    """The KIP's second scenario: broker 1 was down for both the deletion and the creation."""
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"old")
    cluster["b1"].kill()
    cluster.delete("foo", "b2")
    second = cluster.create("foo", [2, 1], broker="b2")
    cluster.until(lambda: cluster.produce("b2", "foo", b"new").error_code == 0)
    cluster["b1"].start()
    cluster.until(lambda: sorted(cluster.partition("foo").isr) == [1, 2])
    cluster["b2"].kill()
    cluster.until(lambda: cluster.partition("foo").leader == 1)
    cluster.until(lambda: cluster.fetch("b1", second).error_code == 0)
    assert cluster.values("b1", second) == [b"new"]


def test_deletions_that_a_broker_missed_are_reconciled_at_its_start() -> None:
    """This replaces retried StopReplica requests and a FULL LeaderAndIsr: the metadata is complete."""
    cluster = Cluster(3, 2)
    cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"old")
    cluster["b2"].kill()
    cluster.delete("foo")
    cluster.active.kill()
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    assert "foo" not in {found[0] for found in map(parse_partition_dir, cluster.files("b2")) if found}


def test_stale_directories_found_at_the_start_are_renamed_and_removed_after_a_delay() -> None:
    """At once in the draft, never in the release; here after stray.log.delete.delay.ms, one day."""
    cluster = Cluster(1, 2, overrides={"stray.log.delete.delay.ms": "120000"})
    cluster.create("foo", [1, 2])
    cluster.produce("b1", "foo", b"old")
    cluster["b2"].kill()
    cluster["b2"].disk.rename(f"{DIR}/foo-0", f"{DIR}/never-known-0")
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    cluster.rest(1_000)
    (stray,) = [name for name in cluster.files("b2") if name.startswith("never-known")]
    assert stray.endswith("-stray")
    cluster.rest(100_000)
    assert stray in cluster.files("b2")
    cluster.rest(30_000)
    assert stray not in cluster.files("b2")


# partition.metadata


def test_each_partition_directory_names_its_topic_id_in_a_readable_file() -> None:
    """Version 0 and the id, in base64; the draft shows dashes."""
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    disk = cluster["b1"].disk
    path = f"{DIR}/foo-0/partition.metadata"
    file = disk.open(path)
    assert bytes(file.pread(0, disk.size(path))) == f"version: 0\ntopic_id: {uuid_text(topic_id)}".encode()
    file.close()


def test_the_broker_reads_the_topic_id_of_a_directory_after_a_failure() -> None:
    cluster = Cluster(1, 1)
    topic_id = cluster.create("foo", [1])
    cluster.produce("b1", "foo", b"x")
    cluster["b1"].kill()
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].serving)
    assert partition_metadata.read(cluster["b1"].disk, f"{DIR}/foo-0") == topic_id
    assert cluster.values("b1", topic_id) == [b"x"]


def test_the_metadata_topic_cannot_be_created_by_clients() -> None:
    quorum = Quorum()
    quorum.start(1)
    assert quorum.create(METADATA_TOPIC_NAME, [[1]]).error_code == ErrorCode.INVALID_REQUEST


def test_brokers_report_the_directory_of_replicas_by_topic_id() -> None:
    quorum = Quorum()
    quorum.start(1, directories=[directory(1, 0), directory(1, 1)])
    quorum.create("foo", [[1]])
    request = m.AssignReplicasToDirsRequest
    topic = request.TopicData(topic_id=quorum.topic_id("foo"), partitions=[request.PartitionData(partition_index=0)])
    quorum.respond(
        request(
            broker_id=1,
            broker_epoch=quorum.epoch_of(1),
            directories=[request.DirectoryData(id=directory(1, 1), topics=[topic])],
        )
    )
    assert quorum.partition("foo").directory(1) == directory(1, 1)
