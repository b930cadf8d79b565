"""From nothing to Ready, and a roll of the configuration through which clients work: nothing is lost."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from e2e.kube import Cluster, Workload, get, kubectl, needs_kubernetes, timed

pytestmark = needs_kubernetes


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    one = Cluster("smoke")
    one.delete()
    yield one
    one.delete()


def test_an_applied_cluster_becomes_ready(cluster: Cluster) -> None:
    with timed("apply to Ready"):
        cluster.apply()
        ready = ("wait", "--for=condition=Ready", "kc/smoke", "-n", "kraft-operator", "--timeout=400s")
        kubectl(*ready, timeout=420, check=True)
    cluster.settle()
    status = cluster.status
    assert [node["id"] for node in status["nodes"]] == [1, 2, 3, 101, 102, 103]
    assert (status["controllers"], status["brokers"]) == ("3/3", "3/3")
    events = get("events", selector="") or []
    reasons = {one["reason"] for one in events if one["involvedObject"].get("name") == "smoke"}
    assert {"Format", "CreatePod"} <= reasons
    assert not get("jobs", selector="app.kubernetes.io/instance=smoke"), "jobs that are done are cleared away"


def test_a_roll_of_the_configuration_loses_nothing(cluster: Cluster) -> None:
    before = cluster.uids()
    with Workload(cluster) as work, timed("roll of six nodes"):
        cluster.change(config={**cluster.spec["config"], "num.replica.fetchers": "1", "queued.max.requests": "600"})
        cluster.settle()
    after = cluster.uids()
    assert before.keys() == after.keys()
    assert not set(before.values()) & set(after.values()), "every node was restarted"
    work.assert_nothing_lost()


def test_a_dynamic_value_restarts_nobody(cluster: Cluster) -> None:
    before = cluster.uids()
    cluster.change(config={**cluster.spec["config"], "log.retention.ms": "86400000"})
    cluster.settle()
    assert cluster.uids() == before
    assert "log.retention.ms" in cluster.status["managedConfig"]
