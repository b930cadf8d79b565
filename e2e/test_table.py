"""A KafkaTable of a cluster under load: its driver dies again and again, each record is a row, once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from e2e.kube import (
    CLIENT_IMAGE,
    NAMESPACE,
    ROOT,
    Cluster,
    Object,
    Workload,
    get,
    kubectl,
    needs_kubernetes,
    operator_log,
    timed,
    until,
)

pytestmark = needs_kubernetes

IMAGE = os.environ.get("E2E_PIPELINE_IMAGE", "localhost/kraft-pipeline:dev")
RIGHTS = str(ROOT / "deploy/executors.yaml")
PARTITIONS = 6
KILL = "import os; [os.kill(int(p), 9) for p in os.listdir('/proc') if p.isdigit() and int(p) not in (1, os.getpid())]"
"""All but the init: it ends with them."""
COUNT = """
import collections, json, deltalake
rows = deltalake.DeltaTable('/lake/work').to_pyarrow_table(columns=['partition', 'offset', 'value']).to_pylist()
values = collections.defaultdict(list)
for row in sorted(rows, key=lambda row: row['offset']):
    values[row['partition']].append(int(row['value']))
print(json.dumps([len(rows), all(found == list(range(len(found))) for found in values.values())]))
"""
"""How many rows there are, and whether each partition has every record once, in its order."""


ALL = "app.kubernetes.io/instance=work,kraftcluster.io/kind=KafkaTable"
DRIVER = f"{ALL},spark-role!=executor"
EXECUTORS = f"{ALL},spark-role=executor"
MODES: dict[str, Object] = {
    "local": {},
    "inline": {},
    # Two executors, in the resources that remain on a laptop.
    "kubernetes": {"executors": 2, "memory": "1Gi", "spark": {"spark.kubernetes.executor.request.cores": "100m"}},
}


SHARED = "shared-lake"
FOLDER = "/var/tmp/kraft-e2e-lake"


def _on_machine(name: str, command: str) -> None:
    """Run a command as root on a machine, with `/var/tmp` at its place. The operator's namespace forbids that."""
    container = {
        "name": "one",
        "image": CLIENT_IMAGE,
        "command": ["sh", "-c", command],
        "volumeMounts": [{"name": "tmp", "mountPath": "/var/tmp"}],
        "securityContext": {"runAsUser": 0},
    }
    volume = {"name": "tmp", "hostPath": {"path": "/var/tmp"}}
    spec = {"nodeName": name, "restartPolicy": "Never", "containers": [container], "volumes": [volume]}
    metadata = {"name": "kraft-e2e-lake", "namespace": "default"}
    where = ("pod", "kraft-e2e-lake", "-n", "default")
    kubectl("delete", *where, "--ignore-not-found", check=True)
    kubectl(
        "create", "-f", "-", stdin={"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}, check=True
    )
    kubectl("wait", *where, "--for=jsonpath={.status.phase}=Succeeded", "--timeout=60s", check=True)
    kubectl("delete", *where, check=True)


@pytest.fixture
def shared_lake() -> Iterator[None]:
    """A claim that all pods of one machine share: provisioners of local folders refuse ReadWriteMany."""
    machine = next(one["metadata"]["name"] for one in get("nodes", namespace="") if not one["spec"].get("taints"))
    _on_machine(machine, f"rm -rf {FOLDER} && mkdir -m 777 {FOLDER}")
    here = {"key": "kubernetes.io/hostname", "operator": "In", "values": [machine]}
    size = {"accessModes": ["ReadWriteMany"], "storageClassName": SHARED}
    volume = {
        "apiVersion": "v1",
        "kind": "PersistentVolume",
        "metadata": {"name": SHARED},
        "spec": {
            **size,
            "capacity": {"storage": "1Gi"},
            "hostPath": {"path": FOLDER},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [here]}]}},
        },
    }
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": SHARED, "namespace": NAMESPACE, "labels": {"kraftcluster.io/pipelines": "allowed"}},
        "spec": {**size, "volumeName": SHARED, "resources": {"requests": {"storage": "1Gi"}}},
    }
    _forget_lake()
    for one in (volume, claim):
        kubectl("create", "-f", "-", stdin=one, check=True)
    yield
    _forget_lake()
    _on_machine(machine, f"rm -rf {FOLDER}")


def _forget_lake() -> None:
    kubectl("delete", "pvc", SHARED, "-n", NAMESPACE, "--ignore-not-found", check=True)
    kubectl("delete", "pv", SHARED, "--ignore-not-found", check=True)


class Table:
    """One KafkaTable of a workload's topic."""

    def __init__(self, cluster: Cluster, topic: str, engine: str) -> None:
        self.name = "work"
        lake = {"name": "lake", "mountPath": "/lake"}
        lake |= {"claimName": SHARED} if engine == "kubernetes" else {"size": "1Gi"}
        spec: Object = {
            "clusterRef": cluster.name,
            "topics": {"names": [topic]},
            "table": {"format": "delta", "path": "/lake/work"},
            "commit": {"maxDelay": "1s"},
            "groupId": "work-table",
            "engine": {"mode": engine, **MODES[engine]},
            "driver": {
                "image": IMAGE,
                "volumes": [lake],
                "resources": {"requests": {"cpu": "100m", "memory": "512Mi"}, "limits": {"memory": "2Gi"}},
            },
        }
        metadata = {"name": self.name, "namespace": NAMESPACE}
        self.document: Object = {
            "apiVersion": "kraftcluster.io/v1alpha1",
            "kind": "KafkaTable",
            "metadata": metadata,
            "spec": spec,
        }

    def apply(self, **values: Any) -> None:
        self.document["spec"] |= values
        answer = kubectl("apply", "--server-side", "-f", "-", stdin=self.document)
        assert answer.returncode == 0, answer.stderr

    @property
    def status(self) -> Object:
        return dict((get("kafkatables", self.name) or {}).get("status", {}))

    def is_ready(self) -> bool:
        return any(c["type"] == "Ready" and c["status"] == "True" for c in self.status.get("conditions", ()))

    def batch(self) -> int:
        return int(self.status.get("lastBatch", {}).get("number", -1))

    def pods(self, selector: str = DRIVER) -> list[Object]:
        return list(get("pods", selector=selector))

    def kill(self, selector: str) -> None:
        """Kill the processes of the pods, without a clean stop."""
        names = [pod["metadata"]["name"] for pod in self.pods(selector)]
        kubectl("delete", "pod", *names, "-n", NAMESPACE, "--grace-period=0", "--force", check=True)

    def moves_on(self, what: str) -> None:
        """Wait until the operator reports a batch after the present one."""
        before = self.batch()
        try:
            until(what, lambda: self.batch() > before, 600)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status, indent=1)}\n{operator_log()}") from None

    def run(self, program: str) -> str:
        pod = until("one driver", lambda: (found := self.pods()) and len(found) == 1 and found[0])
        return kubectl("exec", pod["metadata"]["name"], "-n", NAMESPACE, "--", "python", "-c", program).stdout

    def delete(self) -> None:
        kubectl("delete", "kafkatables", self.name, "-n", NAMESPACE, "--ignore-not-found", check=True)
        until("all pods are gone", lambda: not self.pods(ALL), 300)
        kubectl("delete", "pvc", "-n", NAMESPACE, "-l", ALL, "--wait=false", check=True)


@pytest.mark.parametrize("engine", MODES)
def test_a_killed_driver_loses_and_duplicates_no_row(
    cluster: Cluster, engine: str, request: pytest.FixtureRequest
) -> None:
    kills: dict[str, Callable[[Table], object]] = {
        "the process": lambda table: table.run(KILL),
        "the pod": lambda table: table.kill(DRIVER),
        "the process again": lambda table: table.run(KILL),
    }
    if engine == "kubernetes":
        request.getfixturevalue("shared_lake")
        kubectl("apply", "-f", RIGHTS, check=True)
        kills["the executors"] = lambda table: table.kill(EXECUTORS)
    work = Workload(cluster, partitions=PARTITIONS)
    table = Table(cluster, work.topic, engine)
    table.delete()
    try:
        with work:
            with timed(f"{engine}: from the resource to the first batch"):
                table.apply()
                table.moves_on("the first batch")
            assert len(table.pods(EXECUTORS)) == MODES[engine].get("executors", 0)
            for what, kill in kills.items():
                with timed(f"{engine}: killed {what} and writes again"):
                    kill(table)
                    table.moves_on(f"a batch after {what} was killed")
        work.assert_nothing_lost()
        count = work.report["acknowledged"]
        until("the table has it all", lambda: table.status.get("lag") == 0 and table.is_ready(), 300)
        rows, once = until("all rows", lambda: (f := json.loads(table.run(COUNT) or "[0, 0]"))[0] >= count and f, 120)
        assert (rows, once) == (count, True)
        assert table.status["deadLetters"] == 0
        table.apply(paused=True)
        until("paused", lambda: not table.pods(ALL) and not table.is_ready(), 300)
    finally:
        table.delete()
        kubectl("delete", "-f", RIGHTS, "--ignore-not-found", check=True)
