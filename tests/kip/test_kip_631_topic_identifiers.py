"""KIP-631, "Topic Identifiers": deletion by a single record, and brokers that have not seen the record."""

from __future__ import annotations

from kraft_node.log.names import parse_partition_dir
from kraft_protocol.wire.messages import DeleteTopicsRequest
from tests.kip.cluster import Cluster
from tests.kip.test_kip_631_metadata_log import SNAPSHOTS, checkpoints
from tests.unit.controller.harness import Quorum


def test_a_topic_is_deleted_by_a_single_record() -> None:
    quorum = Quorum()
    quorum.start(1, 2)
    quorum.create("foo", [[1, 2]] * 5, configs={"retention.ms": "1"})
    topic_id = quorum.topic_id("foo")
    before = len(quorum.log.records)
    quorum.respond(DeleteTopicsRequest(topics=[DeleteTopicsRequest.DeleteTopicState(name="foo")]))
    (record,) = quorum.log.records[before:]
    assert (type(record).__name__, record.topic_id) == ("RemoveTopicRecord", topic_id)
    assert quorum.image.topics.partition_count == 0


def test_a_broker_that_replays_the_record_deletes_its_replicas_of_the_topic() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    assert cluster.produce("b1", "foo", b"x").error_code == 0
    assert all("foo-0" in cluster.files(name) for name in ("b1", "b2"))
    cluster.delete("foo")
    cluster.rest(2_000)
    assert not any("foo-0" in cluster.files(name) for name in ("b1", "b2"))
    cluster.rest(70_000)
    assert not [file for name in ("b1", "b2") for file in cluster.files(name) if file.startswith("foo-0")]


def test_a_stopped_broker_deletes_its_replicas_when_it_replays_the_record_later() -> None:
    cluster = Cluster(1, 2)
    cluster.create("foo", [1, 2])
    assert cluster.produce("b1", "foo", b"x").error_code == 0
    cluster["b2"].kill()
    cluster.delete("foo")
    assert "foo-0" in cluster.files("b2")
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    assert "foo-0" not in cluster.files("b2")


def test_a_broker_without_the_record_compares_its_directories_with_the_snapshot() -> None:
    """The deletion was compacted into a snapshot: the topic is simply missing from it."""
    cluster = Cluster(1, 2, overrides=SNAPSHOTS)
    cluster.create("foo", [1, 2])
    assert cluster.produce("b1", "foo", b"x").error_code == 0
    cluster["b2"].kill()
    cluster["b2"].disk.rmtree("/data/__cluster_metadata-0")
    cluster.delete("foo")
    for number in range(12):
        cluster.create(f"more-{number}", [1])
    cluster.rest(70_000)
    assert checkpoints(cluster, "c1")
    cluster["b2"].start()
    cluster.until(lambda: cluster["b2"].serving)
    cluster.rest(1_000)
    assert "foo" not in {found[0] for found in map(parse_partition_dir, cluster.files("b2")) if found}
