"""An archive of a cluster with TLS, as a KRaftUser of the controllers: each refusal names the next thing to do."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator

import pytest

from e2e.kube import (
    NAMESPACE,
    Cluster,
    Object,
    add_user,
    get,
    kubectl,
    needs_kubernetes,
    operator_log,
    timed,
    until,
)

pytestmark = needs_kubernetes

IMAGE = os.environ.get("E2E_PIPELINE_IMAGE", "localhost/kraft-pipeline:dev")
ALL = "app.kubernetes.io/instance=history,kraftcluster.io/kind=KafkaMetadataArchive"
ACCOUNT = "kraft-pipeline"
RIGHTS = [{"resource": {"type": "Cluster"}, "operations": ["ClusterAction", "Describe"]}]
ARCHIVE: Object = {
    "apiVersion": "kraftcluster.io/v1alpha1",
    "kind": "KafkaMetadataArchive",
    "metadata": {"name": "history", "namespace": NAMESPACE},
    "spec": {
        "clusterRef": "archived",
        "security": {"user": "archive"},
        "table": {"path": "/archive/metadata"},
        "driver": {
            "image": IMAGE,
            "volumes": [{"name": "archive", "mountPath": "/archive", "size": "1Gi"}],
            "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
        },
    },
}


@pytest.fixture(scope="module")
def cluster(operator: None) -> Iterator[Cluster]:
    one = Cluster(
        "archived", security={"tls": "Enabled", "openListeners": []}, listeners=[{"name": "tls", "port": 9092}]
    )
    _forget(one)
    yield one
    _forget(one)


def _forget(cluster: Cluster) -> None:
    kubectl("delete", "kafkametadataarchive", "history", "-n", NAMESPACE, "--ignore-not-found", check=True)
    until("the archive's pods are gone", lambda: not get("pods", selector=ALL), 120)
    kubectl("delete", "pvc", "-n", NAMESPACE, "-l", ALL, "--wait=false", check=True)
    kubectl("delete", "kraftuser", "archive", "-n", NAMESPACE, "--ignore-not-found", check=True)
    cluster.forget()
    kubectl("delete", "serviceaccount", ACCOUNT, "-n", NAMESPACE, "--ignore-not-found", check=True)


def _status() -> Object:
    return dict(get("kafkametadataarchive", "history").get("status", {}))


def _refused(reason: str) -> bool:
    found = _status().get("conditions", ())
    return any((one["type"], one["status"], one["reason"]) == ("Degraded", "True", reason) for one in found)


def _has(what: str, reason: str, timeout_s: float = 120) -> None:
    try:
        until(what, lambda: _refused(reason), timeout_s)
    except AssertionError as error:
        raise AssertionError(f"{error}\n{json.dumps(_status(), indent=1)}\n{operator_log()}") from None


def test_an_archive_reads_the_controllers_as_a_user(cluster: Cluster) -> None:
    """Nothing starts before the cluster, the user, its certificate for controllers, and the grant are there."""
    kubectl("apply", "-f", "-", stdin=ARCHIVE, check=True)
    _has("the cluster is named", "ClusterNotFound")
    cluster.apply()
    _has("the user is named", "UserNotFound")
    cluster.settle()
    by_certificate = {"authentication": {"type": "MutualTls"}, "acls": RIGHTS}
    add_user("archive", cluster, **by_certificate)
    _has("the controllers are closed", "ControllersClosed")
    add_user("archive", cluster, **by_certificate, controllers=True)
    _has("the Secret is not allowed", "SecretNotAllowed")
    assert not get("pods", selector=ALL)
    secrets = json.dumps({"secrets": [{"name": "archive"}]})
    kubectl("patch", "serviceaccount", ACCOUNT, "-n", NAMESPACE, "-p", secrets, check=True)
    with timed("from the grant to the end of the archive's first run"):
        until("the run has ended", lambda: _status().get("lastRun", {}).get("result") in {"Succeeded", "Failed"}, 400)
    run = _status()["lastRun"]
    log = kubectl("logs", f"job/{run['name']}", "-n", NAMESPACE).stdout
    print(log)
    assert run["result"] == "Succeeded", f"{run}\n{log}\n{operator_log()}"
    found = re.search(r"(\d[\d,]*) changes in .* (\d+) brokers", log)
    assert found is not None, log
    assert int(found[1].replace(",", "")) > 0
    assert found[2] == "3"
