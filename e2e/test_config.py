"""A mistake in a specification is refused, or stops at the first node. After a correction the roll continues."""

from __future__ import annotations

from e2e.kube import Cluster, Workload, needs_kubernetes, until

pytestmark = needs_kubernetes


def test_a_value_that_prevents_starts_stops_the_roll_at_its_first_node(cluster: Cluster) -> None:
    """The operator accepts each value; the combination keeps a node from starting."""
    before, right = cluster.uids(), cluster.spec["config"]
    with Workload(cluster) as work:
        cluster.change(config={**right, "replica.fetch.wait.max.ms": "40000"})
        until("the key is named", lambda: "replica.fetch.wait.max.ms" in cluster.condition("Ready").get("message", ""))
        assert sum(uid != before.get(number) for number, uid in cluster.uids().items()) == 1
        cluster.change(config=right)
        cluster.settle()
    work.assert_nothing_lost()


def test_a_mistake_is_named_before_any_node_is_restarted(cluster: Cluster) -> None:
    before, right = cluster.uids(), cluster.spec["config"]
    for key, value, said in (
        ("queued.max.requests", "many", "a whole number"),
        ("min.insync.replica", "2", "did you mean min.insync.replicas?"),
    ):
        cluster.change(config={**right, key: value})
        until(f"{key} is named", lambda said=said: said in cluster.condition("Degraded").get("message", ""))
        assert cluster.condition("Degraded")["reason"] == "ConfigNotValid"
    assert cluster.uids() == before
    cluster.change(config=right)
    cluster.settle()
    assert cluster.uids() == before


def test_a_dynamic_value_that_the_cluster_refuses_is_named(cluster: Cluster) -> None:
    """A node that was killed and cannot start with the value also returns after the correction."""
    right = cluster.spec["config"]
    with Workload(cluster) as work:
        cluster.change(config={**right, "log.retention.ms": "0"})
        until("it is refused", lambda: cluster.condition("Degraded").get("reason") == "StepRefused")
        assert "log.retention.ms" in cluster.condition("Degraded")["message"]
        cluster.kill(103)
        until("it does not start", lambda: "log.retention.ms" in cluster.condition("Ready").get("message", ""))
        cluster.change(config={**right, "log.retention.ms": "86400000"})
        cluster.settle()
    work.assert_nothing_lost()
