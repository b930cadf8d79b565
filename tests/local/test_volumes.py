"""A volume is removed from the brokers of a running cluster of real processes; no record on it is lost."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from tests.local.test_kraftcluster import PARTITIONS, PATIENCE_S, TOPIC, Cluster, Traffic, _settled, _wait, cluster

pytestmark = [pytest.mark.xdist_group("kraftcluster"), pytest.mark.timeout(600)]
__all__ = ["cluster"]


def _logs(cluster: Cluster, node: int, volume: str) -> list[str]:
    folder = cluster.data / "sample" / "nodes" / str(node) / "disk-0" / volume
    if not folder.is_dir():
        folder = next((path for path in cluster.data.rglob(f"{node}/disk-0/{volume}")), folder)
    return sorted(path.name for path in folder.glob("*-*") if path.is_dir() and (path / "partition.metadata").exists())


def _volumes(cluster: Cluster) -> dict[int, list[str]]:
    return {node["id"]: node["volumes"] for node in cluster.resource()["status"]["nodes"] if "broker" in node["roles"]}


def test_a_volume_is_emptied_and_left_out_while_clients_work(cluster: Cluster, tmp_path: Path) -> None:
    pool = cluster.document["spec"]["nodePools"][1]
    pool["storage"] = {"volumes": [{"name": "data", "size": "1Gi"}, {"name": "more", "size": "1Gi"}]}
    cluster.write()
    cluster.up()
    admin = AdminClient({"bootstrap.servers": cluster.bootstrap()})
    admin.create_topics([NewTopic(TOPIC, PARTITIONS, 3)])[TOPIC].result(PATIENCE_S)
    traffic = Traffic(cluster.bootstrap())
    try:
        traffic.goes_on()
        assert any(_logs(cluster, node, "more") for node in (101, 102, 103)), "logs are on both volumes"
        before = cluster.pids()
        pool["storage"]["volumes"].pop()
        cluster.write()
        only = {101: ["data"], 102: ["data"], 103: ["data"]}
        _wait("the volume has left", lambda: _volumes(cluster) == only and _settled(cluster))
        traffic.goes_on()
    finally:
        traffic.stop()
    after = cluster.pids()
    assert {node for node in before if before[node] != after[node]} == {"101", "102", "103"}
    for node in (101, 102, 103):
        assert not [name for name in _logs(cluster, node, "more") if not name.endswith("-delete")]
        assert len([name for name in _logs(cluster, node, "data") if name.startswith(f"{TOPIC}-")]) == PARTITIONS
    assert not traffic.failed
    assert sorted(traffic.seen) == sorted(set(traffic.acknowledged)), json.dumps(cluster.resource()["status"])
    printed = cluster.printed()
    assert printed.index("MarkVolume 101: volume more is emptying") < printed.index(
        "MarkVolume 101: volume more is empty\n"
    )
