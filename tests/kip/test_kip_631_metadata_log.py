"""KIP-631, "The Metadata Topic", "Persistence and Visibility", "Record Formats", "Record Format Versions"."""

from __future__ import annotations

import pytest

from kraft_node.metadata.records import decode_record, encode_record
from kraft_node.raft.snapshots import SnapshotPolicy
from kraft_node.testing.machine import DIR
from kraft_protocol.errors import ErrorCode
from kraft_protocol.ids import METADATA_TOPIC_NAME
from kraft_protocol.records.batch import iter_headers, iter_records
from kraft_protocol.wire import messages as m
from kraft_protocol.wire import stored
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.kip.cluster import Cluster
from tests.unit.controller.harness import Quorum, uuid
from tests.unit.server.quorum.raft_world import Node as RaftWorld
from tests.unit.server.quorum.raft_world import append


def test_the_metadata_is_one_partition_of_an_internal_topic_on_every_node() -> None:
    cluster = Cluster(1, 1)
    for name in ("c1", "b1"):
        assert f"{METADATA_TOPIC_NAME}-0" in cluster.files(name)
    assert cluster.metadata("b1", [METADATA_TOPIC_NAME]).topics[0].error_code != 0, "it is no client's topic"


def test_the_leader_of_the_quorum_is_the_active_controller() -> None:
    cluster = Cluster(3, 1)
    leader = {cluster.node(name).raft.leader_id for name in cluster.machines}
    assert leader == {cluster.active.config.node_id}


def test_followers_are_hot_standbys_with_the_metadata_in_memory() -> None:
    cluster = Cluster(3, 1)
    cluster.create("foo", [1])
    cluster.rest(1_000)
    for name in ("c1", "c2", "c3"):
        assert cluster.node(name).raft.image.topics.by_name("foo") is not None
    was = cluster.active
    was.kill()
    assert cluster.active is not was
    cluster.create("bar", [1])
    assert {topic.name for topic in cluster.image.topics} == {"foo", "bar"}


def test_a_change_is_visible_only_after_its_commit() -> None:
    """Two of three controllers are down: the last one may plan, but no node sees or applies the change."""
    cluster = Cluster(3, 1)
    active = cluster.active
    others = [name for name in ("c1", "c2", "c3") if name != active.name]
    for name in others:
        cluster[name].kill()
    node = active.node
    assert node is not None
    assert node.controller is not None
    answers: list[object] = []
    topic = m.CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=1, replication_factor=1)
    client = cluster.client(active.name, controller=True)
    client.request(19, 7, m.CreateTopicsRequest(topics=[topic], timeout_ms=30_000), answers.append)
    cluster.rest(300)
    assert answers == []
    assert cluster.node("b1").raft.image.topics.by_name("foo") is None
    assert cluster.node(active.name).raft.image.topics.by_name("foo") is None
    cluster[others[0]].start()
    cluster.until(lambda: bool(answers), 120_000)


def test_the_active_controller_plans_with_uncommitted_records() -> None:
    quorum = Quorum()
    quorum.start(1)
    topic = m.CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=1, replication_factor=1)
    first = quorum.ask(m.CreateTopicsRequest(topics=[topic]), commit=False)
    second = quorum.ask(m.CreateTopicsRequest(topics=[topic]), commit=False)
    assert (first.given, second.given) == (False, False)
    assert quorum.image.topics.by_name("foo") is None
    quorum.commit()
    assert first.response.topics[0].error_code == 0
    assert second.response.topics[0].error_code == ErrorCode.TOPIC_ALREADY_EXISTS


def test_changes_that_were_never_committed_are_dropped_with_the_leadership() -> None:
    quorum = Quorum()
    quorum.start(1)
    topic = m.CreateTopicsRequest.CreatableTopic(name="foo", num_partitions=1, replication_factor=1)
    waiting = quorum.ask(m.CreateTopicsRequest(topics=[topic]), commit=False)
    quorum.lose()
    assert waiting.error is not None or waiting.given
    quorum.lead()
    assert quorum.image.topics.by_name("foo") is None
    assert quorum.create("foo", [[1]]).error_code == 0


def test_controller_requests_are_answered_only_after_their_records_are_committed() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]])
    request = m.AlterPartitionRequest(
        broker_id=1,
        broker_epoch=quorum.epoch_of(1),
        topics=[
            m.AlterPartitionRequest.TopicData(
                topic_id=quorum.topic_id("foo"),
                partitions=[
                    m.AlterPartitionRequest.PartitionData(
                        partition_index=0,
                        leader_epoch=0,
                        partition_epoch=0,
                        new_isr_with_epochs=[
                            m.AlterPartitionRequest.BrokerState(broker_id=1, broker_epoch=quorum.epoch_of(1))
                        ],
                    )
                ],
            )
        ],
    )
    answer = quorum.ask(request, commit=False)
    assert not answer.given
    quorum.commit()
    assert answer.response.topics[0].partitions[0].isr == [1]


def test_records_have_no_key_and_start_with_frame_type_and_version() -> None:
    """The release counts frames from 1 where the draft has 0."""
    value = encode_record(stored.TopicRecord(name="foo", topic_id=uuid(7)), 0)
    assert value[:3] == b"\x01\x02\x00"
    assert decode_record(value).name == "foo"  # type: ignore[attr-defined]
    node = RaftWorld().start()
    append(node.driver, [stored.TopicRecord(name="foo", topic_id=uuid(7))])
    node.world.run(100)
    data = [batch for batch in node.storage.batches if not next(iter_headers(batch)).is_control]
    records = [record for batch in data for header in iter_headers(batch) for record in iter_records(batch, header)]
    assert [record.key for record in records] == [None]
    assert bytes(records[0].value or b"")[:3] == b"\x01\x02\x00"


def test_older_software_keeps_unknown_tagged_fields() -> None:
    known = encode_record(stored.TopicRecord(name="foo", topic_id=uuid(7)), 0)
    newer = known[:-1] + b"\x01\x2a\x02hi"
    record = decode_record(newer)
    assert record.name == "foo"  # type: ignore[attr-defined]
    assert encode_record(record, 0) == newer


@pytest.mark.parametrize(("level", "version"), [(7, 0), (30, 3)])
def test_the_metadata_version_decides_which_record_versions_are_written(level: int, version: int) -> None:
    quorum = Quorum(bootstrap=[FeatureLevelRecord(name="metadata.version", feature_level=level)])
    quorum.start(1)
    (record,) = quorum.written("RegisterBrokerRecord")
    wanted = encode_record(record, version)
    assert decode_record(wanted) == record
    assert (record.log_dirs != []) == (level >= 17)


def test_deltas_are_consolidated_into_a_snapshot_with_one_record_an_entity() -> None:
    node = RaftWorld(policy=SnapshotPolicy(max_new_record_bytes=1)).start()
    for number in range(20):
        append(node.driver, [stored.ConfigRecord(resource_type=2, resource_name="t", name="a", value=str(number))])
        node.world.run(2_000)
    latest = max(node.storage.files)
    values = [
        decode_record(bytes(record.value or b""))
        for header in iter_headers(node.storage.files[latest])
        if not header.is_control
        for record in iter_records(node.storage.files[latest], header)
    ]
    assert [record.value for record in values if type(record).__name__ == "ConfigRecord"] == ["19"]  # type: ignore[attr-defined]


def test_a_new_node_loads_a_snapshot_and_applies_later_records() -> None:
    cluster = Cluster(1, 2, overrides=SNAPSHOTS)
    for number in range(12):
        cluster.create(f"topic-{number}", [1])
    cluster.rest(70_000)
    assert checkpoints(cluster, "c1")
    cluster["b2"].kill()
    cluster["b2"].disk.rmtree(f"{DIR}/{METADATA_TOPIC_NAME}-0")
    cluster.create("later", [1])
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    image = cluster.node("b2").raft.image
    assert {topic.name for topic in image.topics} == {*(f"topic-{n}" for n in range(12)), "later"}


def test_snapshots_are_local_to_each_replica() -> None:
    cluster = Cluster(1, 1, per_machine={"c1": SNAPSHOTS})
    for number in range(12):
        cluster.create(f"topic-{number}", [1])
    cluster.rest(70_000)
    assert checkpoints(cluster, "c1")
    assert not checkpoints(cluster, "b1")


def test_the_active_controller_follows_the_latest_snapshot_of_every_replica() -> None:
    """These offsets are not in the log, and standby controllers do not know them."""
    cluster = Cluster(3, 2, overrides=SNAPSHOTS)
    for number in range(12):
        cluster.create(f"topic-{number}", [1])
    cluster.rest(70_000)
    shown = {key: lag for key, lag in cluster.metrics(cluster.active.name).items() if "replica_snapshot_lag" in key}
    assert set(shown) == {f'kraft_replica_snapshot_lag{{replica="{n}"}}' for n in (1, 2, 3001, 3002, 3003)}
    high = cluster.node(cluster.active.name).raft.high_watermark
    for name, machine in cluster.machines.items():
        (end, *_) = sorted((int(file.split("-")[0]) for file in checkpoints(cluster, name)), reverse=True)
        lag = shown[f'kraft_replica_snapshot_lag{{replica="{machine.config.node_id}"}}']
        assert abs(lag - (high - end)) <= 4, "as of the last fetch"
    standby = next(name for name in ("c1", "c2", "c3") if name != cluster.active.name)
    assert not [key for key in cluster.metrics(standby) if "replica_snapshot_lag" in key]


SNAPSHOTS = {"metadata.log.max.record.bytes.between.snapshots": "500"}


def checkpoints(cluster: Cluster, name: str) -> list[str]:
    found = cluster[name].disk.listdir(f"{DIR}/{METADATA_TOPIC_NAME}-0")
    return [file for file in found if file.endswith(".checkpoint") and not file.startswith("0" * 20)]
