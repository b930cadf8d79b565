"""The API server itself refuses changes that are never allowed, and names the alternative.

Needs `kubectl` and a cluster (KUBECONFIG) that accepts custom resource definitions; the operator need not run.
"""

from __future__ import annotations

import copy
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml

from e2e.kube import ROOT, fresh_namespace, kubectl, needs_kubernetes

NAMESPACE = "kraft-e2e-rules"
Spec = dict[str, Any]

pytestmark = needs_kubernetes


def sample(kind: str = "KRaftCluster") -> dict[str, Any]:
    if kind == "KRaftCluster":
        document: dict[str, Any] = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
        document["spec"]["clusterId"] = "MkU3OEVBNTcwNTJENDM2Qk"
        document["spec"]["replacements"] = [{"name": "first", "node": 2, "by": "EmptyDisk"}]
        document["spec"]["nodePools"][0]["storage"]["volumes"][0]["storageClass"] = "local"
    else:
        document = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": kind, "metadata": {"name": "t"}}
        document["spec"] = {"cluster": "sample", "partitions": 3}
    document["metadata"]["namespace"] = NAMESPACE
    return document


@pytest.fixture(scope="module", autouse=True)
def namespace() -> Iterator[None]:
    applied = kubectl("apply", "--server-side", "-f", str(ROOT / "deploy/crds"))
    assert applied.returncode == 0, applied.stderr
    kubectl("wait", "--for=condition=Established", "crd/kraftclusters.kraftcluster.io", "--timeout=30s")
    kubectl("wait", "--for=condition=Established", "crd/krafttopics.kraftcluster.io", "--timeout=30s")
    fresh_namespace(NAMESPACE)
    for kind in ("KRaftCluster", "KRaftTopic"):
        made = kubectl("apply", "-f", "-", stdin=sample(kind))
        assert made.returncode == 0, made.stderr
    yield
    kubectl("delete", "namespace", NAMESPACE, "--wait=false")


def _pool(change: Callable[[Spec], object], number: int = 0) -> Callable[[Spec], object]:
    return lambda spec: change(spec["nodePools"][number])


def _listener(**one: object) -> Callable[[Spec], object]:
    return lambda spec: spec["listeners"].append(one)


def _pod(**template: object) -> Callable[[Spec], object]:
    return lambda spec: spec["nodePools"][1].update(pod=template)


def _second_volumeless(pool: Spec) -> None:
    pool["storage"]["volumes"] = [{"name": "other"}]


REFUSED: dict[str, tuple[Callable[[Spec], object], str]] = {
    "cluster id": (lambda s: s.update(clusterId="AAAAAAAAAAAAAAAAAAAAAA"), "make another KRaftCluster"),
    "cluster id taken away": (lambda s: s.pop("clusterId"), "make another KRaftCluster"),
    "node ids": (_pool(lambda p: p.update(firstNodeId=11)), "another firstNodeId"),
    "the node's own variable": (_pod(env=[{"name": "HOST_IP", "value": "x"}]), "the operator sets HOST_IP itself"),
    "the node's own volume": (_pod(volumes=[{"name": "config", "emptyDir": {}}]), "choose another name"),
    "a volume of the machine": (_pod(volumes=[{"name": "x", "hostPath": {"path": "/"}}]), "volumes[0].hostPath"),
    "a volume with two sources": (
        _pod(volumes=[{"name": "x", "emptyDir": {}, "configMap": {"name": "c"}}]),
        "a volume has one source",
    ),
    "the node's own place": (
        _pod(volumes=[{"name": "x", "emptyDir": {}}], mounts=[{"name": "x", "mountPath": "/var/lib/kraft"}]),
        "mount the extra volume elsewhere",
    ),
    "a mount without its volume": (_pod(mounts=[{"name": "x", "mountPath": "/x"}]), "add it to pod.volumes"),
    "a sidecar in the node's place": (_pod(sidecars=[{"name": "node", "image": "i"}]), "choose another name"),
    "the operator's annotations": (_pod(annotations={"aspect.kraftcluster.io/image": "x"}), "choose others"),
    "a value with two sources": (
        _pod(env=[{"name": "A", "value": "1", "valueFrom": {"fieldRef": {"fieldPath": "status.podIP"}}}]),
        "give either value or valueFrom",
    ),
    "storage class": (
        _pool(lambda p: p["storage"]["volumes"][0].update(storageClass="hostpath")),
        "storage class of a volume cannot change",
    ),
    "storage class taken away": (
        _pool(lambda p: p["storage"]["volumes"][0].pop("storageClass")),
        "storage class of a volume cannot change",
    ),
    "smaller volume": (_pool(lambda p: p["storage"]["volumes"][0].update(size="512Mi")), "cannot shrink"),
    "first volume taken away": (_pool(_second_volumeless), "the first volume has the metadata log"),
    "voters": (_pool(lambda p: p.update(replicas=5)), "allowVoterChanges"),
    "voters of another pool": (_pool(lambda p: p.update(name="others")), "allowVoterChanges"),
    "voters moved to another pool": (
        lambda s: (
            s["nodePools"][0].update(replicas=1),
            s["nodePools"].append({"name": "more", "roles": ["controller"], "replicas": 2, "firstNodeId": 301}),
        ),
        "allowVoterChanges",
    ),
    "two controllers": (_pool(lambda p: p.update(replicas=2)), "1, 3 or 5 replicas"),
    "no controllers": (_pool(lambda p: p.update(replicas=0)), "a cluster needs controllers"),
    "roles exchanged": (_pool(lambda p: p.update(roles=["controller"]), 1), "not exchanged"),
    "controllers follow scale": (_pool(lambda p: p.pop("replicas")), "needs a number"),
    "too many controllers": (_pool(lambda p: p.update(replicas=11)), "at most 9"),
    "ids too close": (
        lambda s: s["nodePools"].append({"name": "more", "roles": ["broker"], "replicas": 1, "firstNodeId": 150}),
        "100 apart",
    ),
    "two follow scale": (
        lambda s: s["nodePools"].append({"name": "more", "roles": ["broker"], "firstNodeId": 300}),
        "only one pool of brokers",
    ),
    "no internal listener": (
        lambda s: s.update(listeners=[{"name": "external", "port": 9094, "type": "NodePort"}]),
        "keep one of type Internal",
    ),
    "own key": (lambda s: s["config"].update({"node.id": "7"}), "follows from the rest"),
    "own key of a pool": (_pool(lambda p: p.update(config={"log.dirs": "/x"})), "follows from the rest"),
    "own label": (_pool(lambda p: p.update(pod={"labels": {"kraftcluster.io/node": "7"}})), "pods are found by"),
    "another listener among brokers": (
        lambda s: s["listeners"].insert(0, {"name": "more", "port": 9093}),
        "keep it, and add others behind it",
    ),
    "two listeners of one port": (_listener(name="more", port=9092), "same port"),
    "a listener where controllers listen": (_listener(name="more", port=9090), "port 9090 is the controllers'"),
    "a listener where metrics are": (_listener(name="more", port=9404), "metrics.port is the metrics'"),
    "metrics where controllers listen": (lambda s: s.update(metrics={"port": 9090}), "port 9090 is the controllers'"),
    "a listener that is called as the controllers'": (
        _listener(name="controller", port=9093),
        "cannot be named controller",
    ),
    "a listener whose service is another one": (
        _listener(name="bootstrap", port=9093, type="NodePort"),
        "nor one for outside bootstrap",
    ),
    "replacement edited": (lambda s: s["replacements"][0].update(node=3), "add another with a new name"),
    "no quantity of Kubernetes": (_pool(lambda p: p.update(resources={"requests": {"memory": "1K"}})), "should match"),
    "unknown key": (lambda s: s.update(replicaz=3), "unknown field"),
    "quantity": (_pool(lambda p: p["storage"]["volumes"][0].update(size="lots")), "should match"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_refused_change_names_the_remedy(case: str) -> None:
    change, said = REFUSED[case]
    document = copy.deepcopy(sample())
    change(document["spec"])
    answer = kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert answer.returncode != 0
    assert said in answer.stderr


GRANTED: dict[str, Callable[[Spec], object]] = {
    "nothing": lambda s: s,
    "more voters, guarded": lambda s: (
        s["nodePools"][0].update(replicas=5),
        s.update(quorum={"allowVoterChanges": True}),
    ),
    "voters of another pool, guarded": lambda s: (
        s["nodePools"][0].update(name="others"),
        s.update(quorum={"allowVoterChanges": True}),
    ),
    "larger volume": _pool(lambda p: p["storage"]["volumes"][0].update(size="2Gi")),
    "one more volume": _pool(lambda p: p["storage"]["volumes"].append({"name": "more"})),
    "dynamic quorum": lambda s: s.update(quorum={"mode": "Dynamic"}),
    "replacement done with": lambda s: s["replacements"].clear(),
    "resources as numbers": _pool(lambda p: p.update(resources={"requests": {"cpu": 1}})),
    "a listener behind the others": _listener(name="more", port=9093),
    "brokers scaled": lambda s: s.update(replicas=7),
    "a pool added": lambda s: s["nodePools"].append(
        {"name": "more", "roles": ["broker"], "replicas": 1, "firstNodeId": 300}
    ),
    "a pool taken away": lambda s: s["nodePools"].pop(1),
}


@pytest.mark.parametrize("case", GRANTED)
def test_a_permitted_change_is_accepted(case: str) -> None:
    document = copy.deepcopy(sample())
    GRANTED[case](document["spec"])
    answer = kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert answer.returncode == 0, answer.stderr


TOPIC_REFUSED: dict[str, tuple[Callable[[Spec], object], str]] = {
    "cluster": (lambda s: s.update(cluster="other"), "cannot move to another cluster"),
    "name": (lambda s: s.update(topicName="other"), "cannot be renamed"),
    "fewer partitions": (lambda s: s.update(partitions=1), "partitions cannot be removed"),
    "dots": (lambda s: s.update(topicName=".."), "choose another"),
}


@pytest.mark.parametrize("case", TOPIC_REFUSED)
def test_a_change_of_a_topic_is_refused(case: str) -> None:
    change, said = TOPIC_REFUSED[case]
    document = sample("KRaftTopic")
    change(document["spec"])
    answer = kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert answer.returncode != 0
    assert said in answer.stderr


def test_kubectl_scale_sets_the_brokers() -> None:
    answer = kubectl("scale", "kc", "sample", "--replicas=4", "-n", NAMESPACE)
    assert answer.returncode == 0, answer.stderr
    there = json.loads(kubectl("get", "kc", "sample", "-n", NAMESPACE, "-o", "json").stdout)
    assert there["spec"]["replicas"] == 4
    assert there["spec"]["listeners"][0]["type"] == "Internal", "defaults are in the resource"


NAMES = {
    "a" * 41: "at most 40 characters",
    "my.cluster": "begins with a letter",
    "1st": "begins with a letter",
    "a" * 40: "give the listener a shorter name",
}
"""With a listener of 20 characters."""


@pytest.mark.parametrize("name", NAMES)
def test_names_invalid_for_services_and_pods_are_refused(name: str) -> None:
    document = sample()
    document["metadata"]["name"] = name
    document["spec"]["listeners"].append({"name": "l" * 20, "port": 9093, "type": "NodePort"})
    answer = kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert NAMES[name] in answer.stderr


def test_a_cluster_id_cannot_be_changed() -> None:
    document = sample()
    document["metadata"]["name"] = "given"
    del document["spec"]["clusterId"]
    assert kubectl("apply", "-f", "-", stdin=document).returncode == 0
    status = json.dumps({"status": {"clusterId": "MkU3OEVBNTcwNTJENDM2Qk"}})
    words = ("patch", "kc", "given", "-n", NAMESPACE, "--type=merge", "--subresource=status", "-p", status)
    assert kubectl(*words).returncode == 0
    document["spec"]["clusterId"] = "AAAAAAAAAAAAAAAAAAAAAA"
    answer = kubectl("apply", "--dry-run=server", "-f", "-", stdin=document)
    assert "leave spec.clusterId out" in answer.stderr
    document["spec"]["clusterId"] = "MkU3OEVBNTcwNTJENDM2Qk"
    assert kubectl("apply", "--dry-run=server", "-f", "-", stdin=document).returncode == 0
