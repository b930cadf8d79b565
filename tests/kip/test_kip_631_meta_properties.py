"""KIP-631, "meta.properties"."""

from __future__ import annotations

import pytest

from kraft_node.log.checkpoints import meta_properties
from kraft_node.testing.machine import DIR
from kraft_protocol.ids import parse_uuid
from tests.kip.cluster import Cluster

CLUSTER = "3Db5QLSqSZieL3rJBUUegA"
PATH = f"{DIR}/meta.properties"


def replace(cluster: Cluster, name: str, text: str | None) -> None:
    disk = cluster[name].disk
    disk.remove(PATH)
    if text is not None:
        file = disk.open(PATH, create=True)
        file.pwrite(0, [text.encode()])
        file.close()


def refused(name: str, text: str | None) -> str:
    """The reason why b1 refuses to start with that file."""
    cluster = Cluster(1, 1, start=False)
    replace(cluster, name, text)
    cluster[name].start()
    cluster.until(lambda: cluster[name].broken is not None)
    return str(cluster[name].broken)


def test_the_example_of_the_draft_is_read() -> None:
    text = f"#\n#Tue Dec 01 10:08:08 PST 2020\ncluster.id={CLUSTER}\nversion=1\nnode.id=0\n"
    found = meta_properties.parse(text)
    assert (found.version, found.cluster_id, found.node_id) == (1, CLUSTER, 0)


def test_version_1_names_cluster_and_node_as_plain_properties() -> None:
    """The release adds directory.id."""
    cluster = Cluster(1, 1)
    disk = cluster["b1"].disk
    file = disk.open(PATH)
    lines = bytes(file.pread(0, disk.size(PATH))).decode().splitlines()
    file.close()
    entries = dict(line.split("=", 1) for line in lines if "=" in line)
    assert set(entries) == {"version", "cluster.id", "node.id", "directory.id"}
    assert (entries["version"], entries["node.id"], entries["cluster.id"]) == ("1", "1", cluster.cluster_id)


def test_the_cluster_id_is_in_base64() -> None:
    assert len(parse_uuid(CLUSTER)) == 16
    cluster = Cluster(1, 1)
    assert len(parse_uuid(cluster.cluster_id)) == 16


def test_the_cluster_id_is_mandatory_in_version_1() -> None:
    assert "cluster.id" in refused("b1", "version=1\nnode.id=1\n")


def test_version_0_has_broker_id_and_may_lack_the_cluster_id() -> None:
    found = meta_properties.parse("version=0\nbroker.id=7\n")
    assert (found.version, found.node_id, found.cluster_id) == (0, 7, None)


def test_a_node_with_a_directory_without_meta_properties_does_not_start() -> None:
    assert "meta.properties" in refused("b1", None)


def test_every_log_directory_must_have_meta_properties() -> None:
    overrides = {"log.dirs": f"{DIR},/more"}
    cluster = Cluster(1, 1, per_machine={"b1": overrides}, start=False)
    cluster["b1"].disk.remove("/more/meta.properties")
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].broken is not None)
    assert "/more" in str(cluster["b1"].broken)


@pytest.mark.parametrize("name", ["b1", "c1"])
def test_a_node_with_another_id_than_the_configured_one_does_not_start(name: str) -> None:
    assert "node 77" in refused(name, f"version=1\ncluster.id={CLUSTER}\nnode.id=77\n")


def test_directories_of_different_clusters_are_refused() -> None:
    overrides = {"log.dirs": f"{DIR},/more"}
    cluster = Cluster(1, 1, per_machine={"b1": overrides}, start=False)
    replace(cluster, "b1", f"version=1\ncluster.id={CLUSTER}\nnode.id=1\n")
    cluster["b1"].start()
    cluster.until(lambda: cluster["b1"].broken is not None)
    assert "cluster" in str(cluster["b1"].broken)
