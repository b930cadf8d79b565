"""What is wrong in a specification stops at the first node, or is refused; it is named, and goes on once corrected."""

from __future__ import annotations

from e2e.kube import Cluster, Workload, needs_kubernetes, until

pytestmark = needs_kubernetes


def test_a_value_that_nodes_do_not_start_with_stops_the_roll_at_its_first(cluster: Cluster) -> None:
    before, right = cluster.uids(), cluster.spec["config"]
    with Workload(cluster) as work:
        cluster.change(config={**right, "queued.max.requests": "many"})
        until("the key is named", lambda: "queued.max.requests" in cluster.condition("Ready").get("message", ""))
        assert sum(uid != before.get(number) for number, uid in cluster.uids().items()) == 1
        cluster.change(config=right)
        cluster.settle()
    work.assert_nothing_lost()


def test_a_dynamic_value_that_the_cluster_refuses_is_named(cluster: Cluster) -> None:
    """Also a node that was killed meanwhile, and cannot start with it, comes back once it is corrected."""
    right = cluster.spec["config"]
    with Workload(cluster) as work:
        cluster.change(config={**right, "log.retention.ms": "for ever"})
        until("it is refused", lambda: cluster.condition("Degraded").get("reason") == "StepRefused")
        assert "log.retention.ms" in cluster.condition("Degraded")["message"]
        cluster.kill(103)
        until("it does not start", lambda: "log.retention.ms" in cluster.condition("Ready").get("message", ""))
        cluster.change(config={**right, "log.retention.ms": "86400000"})
        cluster.settle()
    work.assert_nothing_lost()
