"""KIP-631, "New Metrics": five metrics of the metadata that Apache Kafka never released."""

from __future__ import annotations

from tests.kip.cluster import Cluster
from tests.kip.test_kip_631_metadata_log import SNAPSHOTS

CONTROLLER = "kafka_controller_kafkacontroller_"


def test_the_metadata_lag_of_a_controller_counts_unreplayed_committed_records() -> None:
    cluster = Cluster(3, 1)
    cluster.rest(1_000)
    for name in ("c1", "c2", "c3"):
        assert cluster.metrics(name)[CONTROLLER + "metadatalag"] == 0
    raft = cluster.node("c1").raft
    raft.commits.applied -= 3
    assert cluster.metrics("c1")[CONTROLLER + "metadatalag"] == 3


def test_the_brokers_metadata_lag_is_shown_by_brokers() -> None:
    name = "kafka_controller_kafkaserver_metadatalag"
    cluster = Cluster(1, 1)
    assert cluster.metrics("b1")[name] == 0
    assert name not in cluster.metrics("c1")
    assert CONTROLLER + "metadatalag" not in cluster.metrics("b1")


def test_the_commit_latency_is_measured_on_the_active_controller() -> None:
    cluster = Cluster(3, 1)
    active = cluster.active.name
    before = cluster.metrics(active)[CONTROLLER + "metadatacommitlatencyms_count"]
    cluster.create("foo", [1])
    metrics = cluster.metrics(active)
    assert metrics[CONTROLLER + "metadatacommitlatencyms_count"] > before
    assert 0 < metrics[CONTROLLER + 'metadatacommitlatencyms{quantile="0.50"}'] < 1_000
    standby = next(name for name in ("c1", "c2", "c3") if name != active)
    assert cluster.metrics(standby)[CONTROLLER + "metadatacommitlatencyms_count"] == 0


def test_the_commit_rate_counts_the_records_committed_to_the_metadata_topic() -> None:
    cluster = Cluster(3, 1)
    cluster.rest(1_000)
    node = cluster.node(cluster.active.name)
    counted = cluster.metrics(cluster.active.name)[CONTROLLER + "metadatacommitrate_total"]
    high = node.raft.high_watermark
    cluster.create("foo", [1], [1], [1])
    cluster.rest(1_000)
    later = cluster.metrics(cluster.active.name)[CONTROLLER + "metadatacommitrate_total"]
    assert later - counted == node.raft.high_watermark - high >= 4


def test_without_a_snapshot_the_snapshot_offset_lag_is_the_last_stable_offset() -> None:
    cluster = Cluster(1, 1)
    node = cluster.node("c1")
    assert cluster.metrics("c1")[CONTROLLER + "metadatasnapshotoffsetlag"] == node.raft.high_watermark


def test_the_snapshot_offset_lag_is_the_distance_to_the_last_snapshot() -> None:
    cluster = Cluster(1, 1, overrides=SNAPSHOTS)
    for number in range(12):
        cluster.create(f"topic-{number}", [1])
    cluster.rest(70_000)
    raft = cluster.node("c1").raft
    end = raft.node.log.latest_snapshot.end_offset
    assert end > 0
    assert cluster.metrics("c1")[CONTROLLER + "metadatasnapshotoffsetlag"] == raft.high_watermark - end


def test_metrics_of_zookeeper_sessions_do_not_exist() -> None:
    cluster = Cluster(1, 1)
    assert not [name for name in cluster.metrics("b1") | cluster.metrics("c1") if "zookeeper" in name.lower()]
