"""Pods die, and so does the operator; all controllers start cold; and the cluster is hibernated and woken."""

from __future__ import annotations

from e2e.kube import NAMESPACE, Cluster, Workload, kubectl, needs_kubernetes, operators, timed, until

pytestmark = needs_kubernetes


def test_killed_pods_return_and_no_record_is_lost(cluster: Cluster) -> None:
    with Workload(cluster) as work:
        for number in (102, cluster.status["leader"], 103):
            before = cluster.uids()
            with timed(f"node {number} is killed and back"):
                cluster.kill(number)
                until("another pod", lambda n=number, b=before: cluster.uids().get(n, b[n]) != b[n])
                until("it is ready", lambda n=number: cluster.ready(n))
            cluster.settle()
    work.assert_nothing_lost()


def test_a_roll_continues_after_the_operator_is_killed(cluster: Cluster) -> None:
    before = cluster.uids()
    with Workload(cluster) as work, timed("roll of six nodes, the operator killed after each"):
        cluster.change(config={**cluster.spec["config"], "queued.max.requests": "600"})
        for count in (1, 2, 3):
            until(
                f"{count} nodes are rolled",
                lambda n=count: sum(uid != before.get(i) for i, uid in cluster.uids().items()) >= n,
            )
            names = [pod["metadata"]["name"] for pod in operators()]
            kubectl("delete", "pod", *names, "-n", NAMESPACE, "--grace-period=0", "--force", check=True)
        cluster.settle()
    assert not set(before.values()) & set(cluster.uids().values())
    work.assert_nothing_lost()


def test_controllers_that_start_cold_find_one_another(cluster: Cluster) -> None:
    before = cluster.uids()
    with timed("all six nodes are killed at once"):
        cluster.kill(*before)
        until("other pods", lambda: len(set(cluster.uids().values()) - set(before.values())) == 6)
        until("all are ready", lambda: all(cluster.ready(number) for number in before))
        cluster.settle()


def test_a_cluster_hibernates_and_wakes_up(cluster: Cluster) -> None:
    cluster.change(hibernated=True)
    until("no pods", lambda: not cluster.pods())
    until("it says so", lambda: cluster.condition("Ready").get("reason") == "Hibernated")
    with timed("woken"):
        cluster.change(hibernated=False)
        cluster.settle()
