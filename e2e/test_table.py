"""A KafkaTable beside a cluster that is written to: its driver dies again and again, each record is a row, once."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from e2e.kube import NAMESPACE, Cluster, Object, Workload, get, kubectl, needs_kubernetes, operator_log, timed, until

pytestmark = needs_kubernetes

IMAGE = os.environ.get("E2E_PIPELINE_IMAGE", "localhost/kraft-pipeline:dev")
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


class Table:
    """One KafkaTable of the topic of a workload."""

    def __init__(self, cluster: Cluster, topic: str, engine: str) -> None:
        self.name, self.pod_selector = "work", "app.kubernetes.io/instance=work,kraftcluster.io/kind=KafkaTable"
        spec: Object = {
            "clusterRef": cluster.name,
            "topics": {"names": [topic]},
            "table": {"format": "delta", "path": "/lake/work"},
            "commit": {"maxDelay": "1s"},
            "groupId": "work-table",
            "engine": {"mode": engine},
            "driver": {"image": IMAGE, "volumes": [{"name": "lake", "mountPath": "/lake", "size": "1Gi"}]},
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

    def pods(self) -> list[Object]:
        return list(get("pods", selector=self.pod_selector))

    def moves_on(self, what: str) -> None:
        """The operator tells of a batch after the present one."""
        before = self.batch()
        try:
            until(what, lambda: self.batch() > before, 600)
        except AssertionError as error:
            raise AssertionError(f"{error}\n{json.dumps(self.status, indent=1)}\n{operator_log()}") from None

    def run(self, program: str) -> str:
        (pod,) = self.pods()
        return kubectl("exec", pod["metadata"]["name"], "-n", NAMESPACE, "--", "python", "-c", program).stdout

    def delete(self) -> None:
        kubectl("delete", "kafkatables", self.name, "-n", NAMESPACE, "--ignore-not-found", check=True)
        until("the driver is gone", lambda: not self.pods(), 300)
        instance = "app.kubernetes.io/instance=work,kraftcluster.io/kind=KafkaTable"
        kubectl("delete", "pvc", "-n", NAMESPACE, "-l", instance, "--wait=false", check=True)


@pytest.mark.parametrize("engine", ["local", "inline"])
def test_a_driver_that_is_killed_loses_nothing_and_writes_nothing_twice(cluster: Cluster, engine: str) -> None:
    work = Workload(cluster, partitions=PARTITIONS)
    table = Table(cluster, work.topic, engine)
    table.delete()
    try:
        with work:
            with timed(f"{engine}: from the resource to the first batch"):
                table.apply()
                table.moves_on("the first batch")
            for kill in ("the process", "the pod"):
                with timed(f"{engine}: killed {kill} and writes again"):
                    if kill == "the process":
                        table.run(KILL)
                    else:
                        names = [pod["metadata"]["name"] for pod in table.pods()]
                        kubectl("delete", "pod", *names, "-n", NAMESPACE, "--grace-period=0", "--force", check=True)
                    table.moves_on(f"a batch after {kill} was killed")
        work.assert_nothing_lost()
        count = work.report["acknowledged"]
        until("the table has it all", lambda: table.status.get("lag") == 0 and table.is_ready(), 300)
        rows, once = until("all rows", lambda: (f := json.loads(table.run(COUNT) or "[0, 0]"))[0] >= count and f, 120)
        assert (rows, once) == (count, True)
        assert table.status["deadLetters"] == 0
        table.apply(paused=True)
        until("paused", lambda: not table.pods() and not table.is_ready(), 300)
    finally:
        table.delete()
