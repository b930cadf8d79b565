"""A pool's pod template on a real Kubernetes: grants, a rehearsal that stops a roll, a sidecar, a Secret's value."""

from __future__ import annotations

from e2e.kube import NAMESPACE, Cluster, Object, kubectl, needs_kubernetes, until

pytestmark = needs_kubernetes

SHIPPER: Object = {
    "name": "shipper",
    "image": "localhost/kraftcluster:dev",
    "command": ["sleep", "infinity"],
    "mounts": [{"name": "spool", "mountPath": "/spool"}],
}
TEMPLATE: Object = {
    "env": [{"name": "KEY", "valueFrom": {"secretKeyRef": {"name": "node-keys", "key": "k"}}}],
    "volumes": [{"name": "spool", "emptyDir": {}}],
    "mounts": [{"name": "spool", "mountPath": "/spool"}],
    "sidecars": [SHIPPER],
    "probes": {"liveness": {"failureThreshold": 20}},
}


CONFIG = {
    "config.providers": "env",
    "config.providers.env.class": "org.apache.kafka.common.config.provider.EnvVarConfigProvider",
    "log.roll.ms": "${env:KEY}",
}
"""Without a value for the variable, no node starts: it is not a number."""


def _template(cluster: Cluster, config: dict[str, str] | None = None, **template: object) -> None:
    pools = [dict(pool) for pool in cluster.spec["nodePools"]]
    pools[1]["pod"] = template
    if config is not None:
        pools[1]["config"] = {**pools[1].get("config", {}), **config}
    cluster.change(nodePools=pools)


def _containers(cluster: Cluster, node: int) -> int:
    """Of the node's pod; none while it is replaced."""
    pod = cluster.pods().get(node)
    return 0 if pod is None else len(pod["spec"]["containers"])


def test_a_pod_that_kubernetes_refuses_stops_no_node(cluster: Cluster) -> None:
    before = cluster.uids()
    _template(cluster, priorityClassName="no-such-class")
    until("it is named", lambda: "no-such-class" in cluster.condition("Degraded").get("message", ""))
    assert cluster.uids() == before
    _template(cluster)
    cluster.settle()
    assert cluster.uids() == before


def test_a_node_that_is_down_starts_with_the_template_before(cluster: Cluster) -> None:
    """Its pod could not be made until the template was corrected."""
    before = cluster.uids()
    _template(cluster, priorityClassName="no-such-class")
    until("it is named", lambda: "no-such-class" in cluster.condition("Degraded").get("message", ""))
    cluster.kill(101)
    until("the broker is back", lambda: cluster.uids().get(101, before[101]) != before[101] and cluster.ready(101))
    reported = cluster.condition("Degraded")
    assert reported["reason"] == "StepRefused"
    assert "starts with the template before" in reported["message"]
    assert {number for number, uid in cluster.uids().items() if before[number] != uid} == {101}
    now = cluster.uids()
    _template(cluster)
    cluster.settle()
    assert cluster.uids() == now


def test_a_granted_secret_reaches_the_node_and_its_configuration_beside_a_sidecar(cluster: Cluster) -> None:
    for words in (("serviceaccount", "kraft-node"), ("secret", "node-keys")):
        kubectl("delete", *words, "-n", NAMESPACE, "--ignore-not-found", check=True)
    kubectl("create", "secret", "generic", "node-keys", "-n", NAMESPACE, "--from-literal=k=3600000", check=True)
    before = cluster.uids()
    _template(cluster, CONFIG, **TEMPLATE)
    until("the grant is missing", lambda: cluster.condition("Degraded").get("reason") == "SecretNotAllowed")
    assert cluster.uids() == before
    kubectl("create", "serviceaccount", "kraft-node", "-n", NAMESPACE, check=True)
    grant = '{"secrets": [{"name": "node-keys"}]}'
    kubectl("patch", "serviceaccount", "kraft-node", "-n", NAMESPACE, "-p", grant, check=True)
    until("a broker has it", lambda: _containers(cluster, 101) == 2)
    cluster.settle()
    pod = f"{cluster.name}-101"
    assert kubectl("exec", pod, "-n", NAMESPACE, "-c", "node", "--", "printenv", "KEY").stdout.strip() == "3600000"
    assert {number for number, uid in cluster.uids().items() if before[number] != uid} == {101, 102, 103}
