"""The optional webhook with the chart's certificate: mistakes are refused at once, `kubectl drain` restarts by plan.

The operator of this file is the chart's, in its own namespace.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
from collections.abc import Iterator

import pytest

from e2e.kube import (
    NODE_IMAGE,
    OPERATOR_IMAGE,
    ROOT,
    Cluster,
    Object,
    Workload,
    get,
    kubectl,
    needs_kubernetes,
    timed,
    until,
)

pytestmark = [needs_kubernetes, pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")]

NAMESPACE = "kraft-e2e-webhook"


def _helm(*words: str) -> None:
    answer = subprocess.run(["helm", *words, "-n", NAMESPACE], capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0, answer.stderr


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    """A cluster with all nodes on one machine: a voter may follow the others to it."""
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", check=True)
    kubectl("create", "namespace", NAMESPACE, check=True)
    chart = str(ROOT / "charts/kraftcluster-operator")
    images = [f"--set=image={OPERATOR_IMAGE}", f"--set=nodeImage={NODE_IMAGE}"]
    one = Cluster("hooked", NAMESPACE)
    one.document["spec"]["nodePools"] = _on_one_machine(one.spec["nodePools"])
    try:
        kubectl("apply", "--server-side", "--force-conflicts", "-f", str(ROOT / "charts/kraftcluster-operator/crds"))
        _helm("install", "kraft", chart, *images, "--set=webhook.enabled=true", "--wait", "--timeout=4m")
        until("the webhook answers", lambda: _refused(one, {"queued.max.request": "500"}))
        one.apply()
        one.settle()
        yield one
    finally:
        kubectl("uncordon", "-l", "kubernetes.io/os=linux")
        kubectl("delete", "kc", "--all", "-n", NAMESPACE)
        subprocess.run(["helm", "uninstall", "kraft", "-n", NAMESPACE, "--wait"], check=False, timeout=300)
        kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", check=True)


def _on_one_machine(pools: list[Object]) -> list[Object]:
    """The pools with the first machine that accepts pods as the machine of all nodes."""
    name = next(one["metadata"]["name"] for one in get("nodes", namespace="") if not one["spec"].get("taints"))
    on = {"nodeSelector": {"kubernetes.io/hostname": name}}
    return [{**pool, "pod": {**pool.get("pod", {}), **on}} for pool in pools]


def _refused(cluster: Cluster, config: dict[str, str]) -> str:
    """The API server's answer to a specification, which it does not store."""
    document = {**cluster.document, "spec": {**cluster.spec, "config": {**cluster.spec["config"], **config}}}
    answer = kubectl("apply", "--server-side", "--dry-run=server", "-f", "-", stdin=document)
    return answer.stderr if answer.returncode else ""


def _drain(cluster: Cluster, nodes: str, timeout_s: int) -> subprocess.CompletedProcess[str]:
    """Drain the machine of the first of `nodes`, and of its pods only those."""
    machine = cluster.pods()[int(nodes.partition(",")[0])]["spec"]["nodeName"]
    words = ("--delete-emptydir-data", f"--timeout={timeout_s}s", f"--pod-selector=kraftcluster.io/node in ({nodes})")
    return kubectl("drain", machine, "--ignore-daemonsets", "--force", *words, timeout=timeout_s + 60)


def _uncordon(cluster: Cluster) -> None:
    for machine in {pod["spec"].get("nodeName") for pod in cluster.pods().values()} - {None}:
        kubectl("uncordon", machine, check=True)


def test_a_mistake_is_refused_at_admission(cluster: Cluster) -> None:
    for config, words in (
        ({"min.insync.replica": "2"}, "did you mean min.insync.replicas?"),
        ({"queued.max.requests": "many"}, "a whole number"),
    ):
        assert words in _refused(cluster, config)
    assert not _refused(cluster, {"queued.max.requests": "600"})


def test_a_drained_broker_restarts_by_plan_without_losing_a_record(cluster: Cluster) -> None:
    before = cluster.uids()
    with Workload(cluster) as work:
        with timed("a broker is drained", NAMESPACE):
            answer = _drain(cluster, "101", 180)
        assert answer.returncode == 0, answer.stderr
        assert "is a node of a Kafka cluster" in answer.stderr, "the webhook refused before the operator restarted"
        _uncordon(cluster)
        cluster.settle()
        after = cluster.uids()
    assert {number for number, uid in after.items() if before[number] != uid} == {101}
    work.assert_nothing_lost()


def test_the_second_of_two_drained_brokers_waits(cluster: Cluster) -> None:
    """Their machine accepts no pods: the first broker cannot return, so the second must stay."""
    before = cluster.uids()
    with Workload(cluster) as work:
        answer = _drain(cluster, "102,103", 30)
        assert answer.returncode != 0, answer.stdout
        now = cluster.uids()
        assert sum(before[number] != now.get(number) for number in before) <= 1
        _uncordon(cluster)
        cluster.settle()
        until("both were restarted", lambda: not {before[102], before[103]} & set(cluster.uids().values()))
        cluster.settle()
    assert {number for number, uid in cluster.uids().items() if before[number] != uid} == {102, 103}
    work.assert_nothing_lost()


def _versions(*words: str) -> str:
    command = [sys.executable, "-m", "kraft_cli.kubectl", "versions", *words]
    answer = subprocess.run(command, capture_output=True, text=True, check=False, timeout=180)
    assert answer.returncode == 0, answer.stdout + answer.stderr
    return answer.stdout


def test_v1beta1_is_served_and_stored_beside_v1alpha1(cluster: Cluster) -> None:
    """The operator continues with either stored version; nothing is restarted for it."""
    alpha, beta = (f"kraftclusters.{version}.kraftcluster.io" for version in ("v1alpha1", "v1beta1"))
    before = cluster.uids()
    try:
        assert "serves v1beta1, v1alpha1; stores v1alpha1" in _versions("serve")
        there = until("v1beta1 is read", lambda: get(beta, cluster.name, namespace=cluster.namespace))
        assert there["apiVersion"] == "kraftcluster.io/v1beta1"
        assert "moves" in there["spec"] and "drain" not in there["spec"]
        assert "objects are stored as v1beta1" in _versions("store", "v1beta1")
        crd = get("crd", "kraftclusters.kraftcluster.io", namespace="")
        assert crd["status"]["storedVersions"] == ["v1beta1"]
        change = '{"spec": {"moves": {"partitionsAtOnce": 7}}}'
        kubectl("patch", beta, cluster.name, "-n", cluster.namespace, "--type=merge", "-p", change, check=True)
        # Without a version, kubectl gets the newest.
        assert get(alpha, cluster.name, namespace=cluster.namespace)["spec"]["drain"]["partitionsAtOnce"] == 7
        cluster.settle()
    finally:
        # Other tests apply the definitions of v1alpha1 alone, which is refused while v1beta1 is stored.
        _versions("store", "v1alpha1")
        assert "serves v1alpha1; stores v1alpha1" in _versions("withdraw")
    cluster.settle()
    assert cluster.uids() == before
