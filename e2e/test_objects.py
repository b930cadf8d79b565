"""Objects of a cluster that a user deletes, copies or damages; refusals by Kubernetes, before a node is restarted."""

from __future__ import annotations

import copy

from e2e.kube import NAMESPACE, NODE_IMAGE, Cluster, Object, get, kubectl, needs_kubernetes, until

pytestmark = needs_kubernetes


def _operators(count: int) -> None:
    kubectl("scale", "deploy", "-n", NAMESPACE, "--all", f"--replicas={count}", check=True)
    if count:
        kubectl("rollout", "status", "deploy", "-n", NAMESPACE, "--timeout=120s", check=True)
    else:
        until("no operator runs", lambda: not get("pods", selector="app.kubernetes.io/name=kraftcluster-operator"))


def _config(pod: Object) -> str:
    return str(next(one["configMap"]["name"] for one in pod["spec"]["volumes"] if one["name"] == "config"))


def test_a_configuration_that_is_deleted_under_a_broker_is_restored(cluster: Cluster) -> None:
    """After the next restart of the machine the broker was stuck in ContainerCreating, and Ready was True."""
    name = _config(cluster.pods()[101])
    before = get("configmap", name)
    assert before["immutable"]
    _operators(0)
    kubectl("delete", "configmap", name, "-n", NAMESPACE, check=True)
    _operators(2)
    after = until("it is back", lambda: get("configmap", name))
    assert after["data"] == before["data"]
    kubectl("delete", "configmap", name, "-n", NAMESPACE, check=True)
    until("it is back at once", lambda: get("configmap", name), 20)
    cluster.settle()


def test_a_copy_of_a_pod_is_left_alone(cluster: Cluster) -> None:
    """Only labels identified pods, and `kubectl debug --copy-to` copies labels."""
    uids = cluster.uids()
    pod = cluster.pods()[101]
    labels = pod["metadata"]["labels"]
    container = {"name": "node", "image": NODE_IMAGE, "command": ["sleep", "infinity"]}
    container["securityContext"] = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}  # type: ignore[assignment]
    security = {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}}
    spec = {"containers": [container], "securityContext": security, "terminationGracePeriodSeconds": 0}
    metadata = {"name": "zz-copy", "namespace": NAMESPACE, "labels": labels}
    kubectl(
        "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, check=True
    )
    try:
        cluster.passed()
        assert get("pod", "zz-copy")["metadata"].get("deletionTimestamp") is None
        assert cluster.settled()
    finally:
        kubectl("delete", "pod", "zz-copy", "-n", NAMESPACE, "--grace-period=0", "--force", check=True)
    assert cluster.uids() == uids


def test_a_missing_image_degrades_the_cluster(cluster: Cluster) -> None:
    cluster.change(image="localhost/no-such-image:1")
    until("it is named", lambda: cluster.condition("Degraded").get("reason") == "PodFails")
    assert "ImagePull" in cluster.condition("Degraded")["message"]
    cluster.change(image=NODE_IMAGE)
    cluster.settle()


def test_a_listener_of_brokers_restarts_brokers_alone(cluster: Cluster) -> None:
    """Controllers restarted first, and their files changed in nothing that they use."""
    uids, right = cluster.uids(), copy.deepcopy(cluster.spec["listeners"])
    for listeners in ([*right, {"name": "more", "port": 9095}], right):
        before = cluster.uids()
        cluster.change(listeners=listeners)
        cluster.settle()
        after = cluster.uids()
        assert {number for number in after if after[number] != before[number]} == {101, 102, 103}
        assert {number: after[number] for number in (1, 2, 3)} == {number: uids[number] for number in (1, 2, 3)}


def test_a_refused_port_causes_no_restart(cluster: Cluster) -> None:
    """Three controllers were restarted and a broker was stopped first."""
    uids, right = cluster.uids(), copy.deepcopy(cluster.spec["listeners"])
    wrong = [*right, {"name": "more", "port": 9095, "type": "NodePort", "firstNodePort": 80}]
    open_listeners = [*cluster.spec["security"]["openListeners"], "more"]
    cluster.change(listeners=wrong, security={**cluster.spec["security"], "openListeners": open_listeners})
    until("it is named", lambda: "until the listener is corrected" in cluster.condition("Degraded").get("message", ""))
    cluster.passed()
    assert cluster.uids() == uids
    cluster.change(listeners=right)
    cluster.settle()


def test_a_cluster_deleted_and_applied_again_starts_empty(operator: None) -> None:
    """It adopted claims that the garbage collector was about to delete."""
    one = Cluster("anew")
    for pool in one.document["spec"]["nodePools"]:
        pool["storage"]["deletionPolicy"] = "Delete"
    one.delete()
    one.apply()
    one.settle()
    first = one.status["clusterId"]
    kubectl("delete", "kc", one.name, "-n", NAMESPACE, "--wait=true", check=True)
    one.apply()
    one.settle()
    assert one.status["clusterId"] != first
    one.delete()
