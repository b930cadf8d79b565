"""From nothing to Ready, and a roll of the configuration under load: no record is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.kube import Cluster, Workload, get, kubectl, needs_kubernetes, timed, until

pytestmark = needs_kubernetes


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    one = Cluster("smoke")
    one.delete()
    yield one
    one.delete()


def _formatted(cluster: Cluster) -> list[str]:
    claims = get("pvc", selector=f"app.kubernetes.io/instance={cluster.name}")
    mark = "kraftcluster.io/formatted-for"
    return [one["metadata"]["name"] for one in claims if mark in one["metadata"].get("annotations", {})]


def test_an_applied_cluster_becomes_ready(cluster: Cluster) -> None:
    with timed("apply to Ready") as phases:
        cluster.apply()
        until("the first step", lambda: get("configmap", "smoke-record"))
        phases.passed("the operator's first step")
        until("volumes are formatted", lambda: len(_formatted(cluster)) == 6)
        phases.passed("volumes are made and formatted")
        until("pods are ready", lambda: all(cluster.ready(number) for number in (1, 2, 3, 101, 102, 103)))
        phases.passed("pods are ready")
        ready = ("wait", "--for=condition=Ready", "kc/smoke", "-n", "kraft-operator", "--timeout=400s")
        kubectl(*ready, timeout=420, check=True)
        phases.passed("the status says Ready")
    cluster.settle()
    status = cluster.status
    assert [node["id"] for node in status["nodes"]] == [1, 2, 3, 101, 102, 103]
    assert (status["controllers"], status["brokers"]) == ("3/3", "3/3")
    events = get("events", selector="") or []
    reasons = {one["reason"] for one in events if one["involvedObject"].get("name") == "smoke"}
    assert {"Format", "CreatePod"} <= reasons
    assert not get("jobs", selector="app.kubernetes.io/instance=smoke"), "jobs that are done are cleared away"


def test_a_roll_of_the_configuration_loses_no_record(cluster: Cluster) -> None:
    before = cluster.uids()
    with Workload(cluster) as work, timed("roll of six nodes"):
        cluster.change(config={**cluster.spec["config"], "num.replica.fetchers": "1", "queued.max.requests": "600"})
        cluster.settle()
    after = cluster.uids()
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values()), "every node was restarted"
    work.assert_nothing_lost()


def test_a_dynamic_value_causes_no_restart(cluster: Cluster) -> None:
    before = cluster.uids()
    cluster.change(config={**cluster.spec["config"], "log.retention.ms": "86400000"})
    cluster.settle()
    assert cluster.uids() == before
    assert "log.retention.ms" in cluster.status["managedConfig"]
