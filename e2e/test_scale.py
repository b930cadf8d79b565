"""Brokers are added, get replicas, and are removed: drained, unregistered, forgotten. Ids are never reused."""

from __future__ import annotations

from e2e.kube import Cluster, Workload, get, kubectl, needs_kubernetes, timed, until

pytestmark = needs_kubernetes


def _evictions(cluster: Cluster) -> dict[str, int]:
    """The number of evictions that each role allows now."""
    found = get("pdb", selector=f"app.kubernetes.io/instance={cluster.name}")
    return {one["metadata"]["name"]: one.get("status", {}).get("disruptionsAllowed") for one in found}


def test_brokers_are_added_and_removed_without_losing_a_record(cluster: Cluster) -> None:
    with Workload(cluster) as work:
        with timed("one broker more"):
            kubectl("scale", "kc", cluster.name, "-n", "kraft-operator", "--replicas=4", check=True)
            until("the fourth broker", lambda: cluster.ready(104))
            cluster.settle()
        assert cluster.status["brokers"] == "4/4"
        one = {f"{cluster.name}-{role}": 1 for role in ("brokers", "controllers")}
        until("one of each role may be evicted, of four and of three", lambda: _evictions(cluster) == one)
        with timed("one broker less"):
            kubectl("scale", "kc", cluster.name, "-n", "kraft-operator", "--replicas=3", check=True)
            until("it has left", lambda: 104 in cluster.status.get("retiredIds", ()))
            cluster.settle()
    assert sorted(cluster.pods()) == [1, 2, 3, 101, 102, 103]
    claims = get("pvc", selector=f"app.kubernetes.io/instance={cluster.name}")
    assert any("104" in claim["metadata"]["name"] for claim in claims), "volumes are kept by default"
    work.assert_nothing_lost()


def test_ids_are_not_reused(cluster: Cluster) -> None:
    kubectl("scale", "kc", cluster.name, "-n", "kraft-operator", "--replicas=4", check=True)
    until("the next broker", lambda: cluster.ready(105))
    cluster.settle()
    assert [node["id"] for node in cluster.status["nodes"]] == [1, 2, 3, 101, 102, 103, 105]
