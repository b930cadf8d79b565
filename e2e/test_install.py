"""The charts: installed, upgraded over a running cluster, uninstalled; and the namespace is as before."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Iterator

import pytest

from e2e.kube import (
    NODE_IMAGE,
    OPERATOR_IMAGE,
    OTHER_OPERATOR_IMAGE,
    ROOT,
    WORK_RIGHTS,
    Cluster,
    Workload,
    add_user,
    fresh_namespace,
    get,
    kubectl,
    needs_kubernetes,
    operators,
    timed,
    until,
)

pytestmark = [needs_kubernetes, pytest.mark.skipif(shutil.which("helm") is None, reason="needs helm")]

NAMESPACE = "kraft-e2e-install"


def _helm(*words: str) -> None:
    answer = subprocess.run(["helm", *words, "-n", NAMESPACE], capture_output=True, text=True, check=False, timeout=300)
    assert answer.returncode == 0, answer.stderr


def _operator(what: str, image: str) -> None:
    images = [f"--set=image={image}", f"--set=nodeImage={NODE_IMAGE}"]
    _helm(what, "kraft", str(ROOT / "charts/kraftcluster-operator"), *images, "--wait", "--timeout=4m")


def _everything() -> set[str]:
    """All objects by kind and name, without events."""
    kinds = kubectl("api-resources", "--namespaced", "--verbs=list", "-o", "name", check=True).stdout.split()
    asked = ",".join(kind for kind in kinds if not kind.startswith("events"))
    return set(kubectl("get", asked, "-n", NAMESPACE, "-o", "name", check=True).stdout.split())


@pytest.fixture(autouse=True)
def namespace() -> Iterator[None]:
    fresh_namespace(NAMESPACE)
    until("the namespace has what all have", lambda: {"configmap/kube-root-ca.crt"} <= _everything())
    yield
    kubectl("delete", "namespace", NAMESPACE, "--ignore-not-found", check=True)


def test_the_chart_is_installed_upgraded_and_uninstalled(operator: None) -> None:
    until("the namespace has its account", lambda: "serviceaccount/default" in _everything())
    empty = _everything()
    _operator("install", OPERATOR_IMAGE)
    _helm("test", "kraft")
    _helm("install", "my", str(ROOT / "charts/kraftcluster"))
    cluster = Cluster("my", NAMESPACE)
    until("it is seen", lambda: cluster.status)
    cluster.settle()
    add_user("shop", cluster, acls=WORK_RIGHTS, authentication={"type": "MutualTls"})
    before = cluster.uids()
    with Workload(cluster, secret="shop") as work:
        with timed("the operator is upgraded"):
            _operator("upgrade", OTHER_OPERATOR_IMAGE)
        until("the former pods are gone", lambda: _images() == {OTHER_OPERATOR_IMAGE})
        _helm("upgrade", "my", str(ROOT / "charts/kraftcluster"), "--set-string=config.log\\.retention\\.ms=86400000")
        until(
            "the new operator carries out requests",
            lambda: "log.retention.ms" in cluster.status.get("managedConfig", ()),
        )
        cluster.settle()
        assert cluster.uids() == before, "nobody was restarted"
        _helm("uninstall", "kraft", "--wait")
        until("the operator is gone", lambda: not operators(NAMESPACE))
        assert cluster.uids() == before, "the cluster runs on"
    work.assert_nothing_lost()
    kubectl("delete", "kraftuser", "shop", "-n", NAMESPACE, check=True)
    _helm("uninstall", "my")
    kept = {"configmap/my-record", "configmap/my-users", "secret/my-cluster-ca", "secret/my-clients-ca"}
    kept |= {f"persistentvolumeclaim/{one['metadata']['name']}" for one in get("pvc", namespace=NAMESPACE)}
    assert len(kept) == 4 + 6
    until("all is gone but volumes, records and authorities", lambda: _everything() - empty == kept)
    assert _everything() >= empty


def _images() -> set[str]:
    return {one["spec"]["containers"][0]["image"] for one in operators(NAMESPACE)}


def test_a_namespace_is_deleted_with_operator_and_cluster(operator: None) -> None:
    """The deletion never blocks, in any order."""
    _operator("install", OPERATOR_IMAGE)
    cluster = Cluster("gone", NAMESPACE)
    cluster.apply()
    until("it has pods", lambda: len(cluster.pods()) == 6)
    with timed("a namespace with operator and cluster is deleted"):
        kubectl("delete", "namespace", NAMESPACE, "--timeout=150s", check=True)
    assert get("namespace", NAMESPACE, namespace="") is None
