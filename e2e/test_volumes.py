"""Volumes grow in place, without restarts. If the storage cannot grow, the test simulates it."""

from __future__ import annotations

import copy
from collections.abc import Iterator

import pytest

from e2e.kube import Cluster, Object, Workload, get, kubectl, needs_kubernetes, until

pytestmark = needs_kubernetes
DEFAULT = "storageclass.kubernetes.io/is-default-class"


@pytest.fixture
def growing() -> Iterator[None]:
    """Let the default class grow claims."""
    classes = {one["metadata"]["name"]: one for one in get("storageclasses", namespace="")}
    name, one = next(
        item for item in classes.items() if item[1]["metadata"].get("annotations", {}).get(DEFAULT) == "true"
    )
    before = one.get("allowVolumeExpansion", False)
    _patch("storageclass", name, {"allowVolumeExpansion": True})
    yield
    _patch("storageclass", name, {"allowVolumeExpansion": before})


def _patch(kind: str, name: str, change: Object, *words: str) -> None:
    kubectl("patch", kind, name, "--type=merge", "--patch-file=/dev/stdin", *words, stdin=change, check=True)


def _claims(cluster: Cluster) -> list[Object]:
    return list(get("pvc", selector=f"app.kubernetes.io/instance={cluster.name}"))


def _play_storage(cluster: Cluster) -> None:
    """Give a volume the size of its claim."""
    for claim in _claims(cluster):
        name, wanted = claim["metadata"]["name"], claim["spec"]["resources"]["requests"]["storage"]
        if claim["status"]["capacity"]["storage"] != wanted:
            capacity = {"capacity": {"storage": wanted}}
            _patch("pv", claim["spec"]["volumeName"], {"spec": capacity})
            _patch("pvc", name, {"status": capacity}, "-n", cluster.namespace, "--subresource=status")


def test_volumes_grow_while_clients_work(cluster: Cluster, growing: None) -> None:
    before = cluster.uids()
    pools = copy.deepcopy(cluster.spec["nodePools"])
    pools[0]["storage"]["volumes"][0]["size"] = "2Gi"
    pools[1]["storage"]["volumes"][0]["size"] = "20Gi"
    with Workload(cluster) as work:
        cluster.change(nodePools=pools)
        until("it is asked for", lambda: sorted(_sizes(cluster)) == ["20Gi"] * 3 + ["2Gi"] * 3)
        _play_storage(cluster)
        cluster.settle()
    assert cluster.uids() == before
    work.assert_nothing_lost()


def test_a_volume_leaves_while_clients_work(cluster: Cluster) -> None:
    """Brokers get another volume and lose it again: it is emptied first, its claims are kept and marked."""
    pools = copy.deepcopy(cluster.spec["nodePools"])
    with Workload(cluster) as work:
        brokers = pools[1]["storage"]["volumes"]
        cluster.change(nodePools=[pools[0], {**pools[1], "storage": {"volumes": [*brokers, _more(brokers[0])]}}])
        cluster.settle()
        cluster.change(nodePools=pools)
        until("the volumes are left out", lambda: sorted(_marks(cluster)) == ["LeftOut"] * 3)
        cluster.settle()
    mounted = [
        volume["name"]
        for pod in get("pods", selector=f"app.kubernetes.io/instance={cluster.name},kraftcluster.io/broker=true")
        for volume in pod["spec"]["volumes"]
    ]
    assert "volume-more" not in mounted
    work.assert_nothing_lost()


def _more(volume: Object) -> Object:
    return {**volume, "name": "more"}


def _marks(cluster: Cluster) -> list[str]:
    marks = [claim["metadata"].get("annotations", {}).get("kraftcluster.io/volume") for claim in _claims(cluster)]
    return [mark for mark in marks if mark]


def _sizes(cluster: Cluster) -> list[str]:
    return [claim["spec"]["resources"]["requests"]["storage"] for claim in _claims(cluster)]
