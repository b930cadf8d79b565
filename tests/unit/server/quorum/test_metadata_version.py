"""A metadata.version that is raised while the cluster runs."""

from __future__ import annotations

import pytest

from kraft_node.metadata.features import LATEST_PRODUCTION_METADATA_VERSION, METADATA_VERSION
from kraft_protocol.wire import messages as m
from tests.kip.cluster import Cluster


def raise_to(cluster: Cluster, level: int) -> None:
    update = m.UpdateFeaturesRequest.FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=1)
    answer = cluster.ask("b1", m.UpdateFeaturesRequest(timeout_ms=30_000, feature_updates=[update]))
    assert answer.error_code == 0, answer.error_message


@pytest.mark.parametrize("target", [[2, 3], [1, 2, 3], [3]], ids=str)
def test_replicas_move_below_the_metadata_version_that_has_directories(target: list[int]) -> None:
    """The records name no directories: replayed partitions got as many directories as they had replicas.

    Every node ended because of it, at every start.
    """
    cluster = Cluster(1, 3, release="3.6-IV2")
    cluster.create("t", [1, 2])
    request = m.AlterPartitionReassignmentsRequest
    partition = request.ReassignablePartition(partition_index=0, replicas=target)
    topic = request.ReassignableTopic(name="t", partitions=[partition])
    answer = cluster.ask("b1", request(timeout_ms=30_000, topics=[topic]))
    assert answer.responses[0].partitions[0].error_code == 0
    cluster.until(lambda: list(cluster.partition("t").replicas) == target and not cluster.partition("t").adding)
    cluster["c1"].kill()
    cluster["c1"].start()
    cluster.until(lambda: cluster["c1"].serving)
    raise_to(cluster, LATEST_PRODUCTION_METADATA_VERSION)
    assert list(cluster.partition("t").replicas) == target


def test_a_directory_that_fails_after_the_upgrade_is_noticed_as_any_other(caplog: pytest.LogCaptureFixture) -> None:
    """Below 3.7-IV2 registrations name no directories: running brokers name theirs once the version allows it."""
    cluster = Cluster(1, 2, release="3.6-IV2", overrides={"log.dirs": "/data,/other", "metadata.log.dir": "/data"})
    assert "several log directories are not supported" in caplog.text
    assert "metadata.version=3.6-IV2" in caplog.text
    for number in range(4):
        cluster.create(f"t{number}", [1, 2])
    assert cluster.image.brokers.get(1).directories == ()
    epochs = {number: cluster.image.brokers.get(number).epoch for number in (1, 2)}
    raise_to(cluster, LATEST_PRODUCTION_METADATA_VERSION)
    names = [f"t{number}" for number in range(4)]
    cluster.until(lambda: all(len(cluster.image.brokers.get(number).directories) == 2 for number in (1, 2)))
    cluster.until(lambda: all(int.from_bytes(cluster.partition(name).directory(1), "big") > 99 for name in names))
    assert {number: cluster.image.brokers.get(number).epoch for number in (1, 2)} == epochs
    (other,) = (found.id for found in cluster.node("b1").broker.storage.directories() if found.path == "/other")
    there = [name for name in names if cluster.partition(name).directory(1) == other]
    assert there
    cluster["b1"].disk.dead = "/other"
    for name in there:
        cluster.produce("b1", name, b"x", acks=1)
    cluster.until(lambda: all(cluster.partition(name).leader == 2 for name in there))
    assert not cluster.image.brokers.get(1).fenced
