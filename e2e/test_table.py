"""A KafkaTable of a cluster under load: its driver dies again and again, each record is a row, once."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from e2e.kube import (
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


class Table:
    """One KafkaTable of a workload's topic."""

    def __init__(self, cluster: Cluster, topic: str, engine: str) -> None:
        self.name = "work"
        lake = {"name": "lake", "mountPath": "/lake", "size": "1Gi"}
        if engine == "kubernetes":
            lake["accessMode"] = "ReadWriteMany"
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
def test_a_killed_driver_loses_and_duplicates_no_row(cluster: Cluster, engine: str) -> None:
    kills: dict[str, Callable[[Table], object]] = {
        "the process": lambda table: table.run(KILL),
        "the pod": lambda table: table.kill(DRIVER),
        "the process again": lambda table: table.run(KILL),
    }
    if engine == "kubernetes":
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
