"""Shared parts of the tests: kubectl, the operator, a cluster, and a workload that runs during a test's actions."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[1]
NAMESPACE = "kraft-operator"
OPERATOR_IMAGE = os.environ.get("E2E_OPERATOR_IMAGE", "localhost/kraft-operator:dev")
OTHER_OPERATOR_IMAGE = os.environ.get("E2E_OTHER_OPERATOR_IMAGE", "localhost/kraft-operator:other")
NODE_IMAGE = os.environ.get("E2E_NODE_IMAGE", "localhost/kraftcluster:dev")
OTHER_IMAGE = os.environ.get("E2E_OTHER_IMAGE", "localhost/kraftcluster:other")
"""The same under other names: for a roll of the image, and for an upgrade."""
CLIENT_IMAGE = os.environ.get("E2E_CLIENT_IMAGE", "localhost/kraft-e2e-client:dev")
LOOK_S = 0.25
TLS_OPTIONS = {
    "security.protocol": "ssl",
    "ssl.ca.location": "/etc/trust/ca.crt",
    "ssl.certificate.location": "/etc/user/user.crt",
    "ssl.key.location": "/etc/user/user.key",
}
"""Options of librdkafka for a client with a certificate."""
Object = dict[str, Any]

needs_kubernetes = pytest.mark.skipif(
    not os.environ.get("KUBECONFIG") or shutil.which("kubectl") is None, reason="needs kubectl and KUBECONFIG"
)


def kubectl(
    *words: str, stdin: object = None, timeout: float = 180, check: bool = False
) -> subprocess.CompletedProcess[str]:
    text = None if stdin is None else stdin if isinstance(stdin, str) else json.dumps(stdin)
    answer = subprocess.run(
        ["kubectl", *words], input=text, capture_output=True, text=True, check=False, timeout=timeout
    )
    assert not check or answer.returncode == 0, f"kubectl {' '.join(words)}: {answer.stderr}"
    return answer


def get(kind: str, name: str = "", selector: str = "", namespace: str = NAMESPACE) -> Any:
    """An object (None if it does not exist), or a list of objects."""
    words = ["get", kind, "-o", "json", "--ignore-not-found"]
    words += ["-n", namespace] if namespace else []  # machines have no namespace
    words += [name] if name else ["-l", selector]
    text = kubectl(*words, check=True).stdout
    found = json.loads(text) if text.strip() else None
    return found if name else (found or {}).get("items", [])


def fresh_namespace(name: str) -> None:
    """Make a namespace, after the end of a former one of this name."""
    kubectl("delete", "namespace", name, "--ignore-not-found", check=True)
    kubectl("create", "namespace", name, check=True)


def until(what: str, check: Callable[[], Any], timeout_s: float = 240, every_s: float = LOOK_S) -> Any:
    """The first answer that is true. Fails with the last error."""
    end = time.monotonic() + timeout_s
    while not (found := check()):
        assert time.monotonic() < end, f"{what}: not within {timeout_s:g} s, but {found!r}"
        time.sleep(every_s)
    return found


# The operator


def install_operator() -> None:
    """Install from the plain manifests: its own namespace, and no rights outside it."""
    phase = ("get", "namespace", NAMESPACE, "--ignore-not-found", "-o", "jsonpath={.status.phase}")
    until("a namespace of before is gone", lambda: kubectl(*phase, check=True).stdout != "Terminating")
    text = (ROOT / "deploy/operator.yaml").read_text()
    documents = [one for one in yaml.safe_load_all(text) if one]
    for one in documents:
        if one["kind"] == "Deployment":
            container = one["spec"]["template"]["spec"]["containers"][0]
            container["image"] = OPERATOR_IMAGE
            for variable in container["env"]:
                if variable["name"] == "KRAFT_NODE_IMAGE":
                    variable["value"] = NODE_IMAGE
    for part in ("Namespace", "CustomResourceDefinition", ""):
        chosen = [one for one in documents if not part or one["kind"] == part]
        applied = kubectl("apply", "--server-side", "--force-conflicts", "-f", "-", stdin=yaml.safe_dump_all(chosen))
        assert applied.returncode == 0, applied.stderr
    # The last run's image of the same name may have other content.
    kubectl("rollout", "restart", "deploy", "-n", NAMESPACE, check=True)
    kubectl("rollout", "status", "deploy", "-n", NAMESPACE, "--timeout=300s", timeout=330, check=True)


def operators(namespace: str = NAMESPACE) -> list[Object]:
    """The operator's pods."""
    return list(get("pods", selector="app.kubernetes.io/name=kraftcluster-operator", namespace=namespace))


def metric(name: str, namespace: str = NAMESPACE) -> Iterator[tuple[str, float]]:
    """Yield the labels and the value of each sample of a metric, from all of the operator's pods."""
    for one in operators(namespace):
        url = f"/api/v1/namespaces/{namespace}/pods/{one['metadata']['name']}:8080/proxy/metrics"
        for line in kubectl("get", "--raw", url).stdout.splitlines():
            if line.startswith(f"{name}{{"):
                labels, _, value = line.rpartition(" ")
                yield labels.removeprefix(name), float(value)


def requests(namespace: str = NAMESPACE) -> Counter[str]:
    """The number of requests from the operator to the API server, by verb and kind, without watches."""
    found: Counter[str] = Counter()
    for labels, count in metric("kraft_operator_requests_total", namespace):
        found[" ".join(labels.split('"')[1::2])] += int(count)
    return found


# A cluster


class Cluster:
    """One KRaftCluster, made from the sample."""

    def __init__(self, name: str, namespace: str = NAMESPACE, **changes: Any) -> None:
        self.name = name
        self.namespace = namespace
        document = yaml.safe_load((ROOT / "deploy/samples/plaintext.yaml").read_text())
        document["metadata"] = {"name": name, "namespace": namespace}
        document["spec"] |= {"image": NODE_IMAGE, **changes}
        self.document: Object = document
        self.selector = f"app.kubernetes.io/instance={name},app.kubernetes.io/name=kraftcluster"

    @property
    def spec(self) -> Object:
        return dict(self.document["spec"])

    def apply(self) -> None:
        answer = kubectl("apply", "--server-side", "-f", "-", stdin=self.document)
        assert answer.returncode == 0, answer.stderr

    def change(self, **values: Any) -> int:
        """Edit the specification; returns its new generation."""
        self.document["spec"] |= values
        self.apply()
        return int(self.resource["metadata"]["generation"])

    def annotate(self, key: str, value: str) -> None:
        change = f"kraftcluster.io/{key}={value}"
        kubectl("annotate", "kc", self.name, "-n", self.namespace, change, "--overwrite", check=True)

    @property
    def resource(self) -> Object:
        return dict(get("kc", self.name, namespace=self.namespace))

    @property
    def status(self) -> Object:
        return dict(self.resource.get("status", {}))

    def condition(self, kind: str) -> Object:
        return next((c for c in self.status.get("conditions", ()) if c["type"] == kind), {})

    def settled(self) -> bool:
        """Whether the cluster is ready and caught up, and no work is left for the present specification."""
        resource = self.resource
        status = resource.get("status", {})
        reported = {c["type"]: c["status"] for c in status.get("conditions", ())}
        return (
            status.get("observedGeneration") == resource["metadata"]["generation"]
            and reported.get("Ready") == reported.get("QuorumHealthy") == "True"
            and reported.get("Progressing") == reported.get("Degraded") == "False"
            and not any(node.get("needsRestart") for node in status.get("nodes", ()))
        )

    def settle(self, timeout_s: float = 480) -> None:
        try:
            until(f"{self.name} settles", self.settled, timeout_s)
        except AssertionError as error:
            log = operator_log(self.namespace)
            raise AssertionError(f"{error}\n{json.dumps(self.status, indent=1)}\n{log}") from None

    def pods(self) -> dict[int, Object]:
        found = get("pods", selector=self.selector, namespace=self.namespace)
        return {int(pod["metadata"]["labels"]["kraftcluster.io/node"]): pod for pod in found}

    def uids(self) -> dict[int, str]:
        return {number: pod["metadata"]["uid"] for number, pod in self.pods().items()}

    def ready(self, node: int) -> bool:
        pod = self.pods().get(node)
        conditions = pod["status"].get("conditions", ()) if pod is not None else ()
        return any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)

    def kill(self, *nodes: int) -> None:
        """Kill the processes of the pods, without a clean stop."""
        pods = [f"{self.name}-{node}" for node in nodes]
        kubectl("delete", "pod", *pods, "-n", self.namespace, "--grace-period=0", "--force", check=True)

    def passed(self, times: int = 2) -> None:
        """Wait until the operator has ended so many more passes over this cluster, each begun after this call.

        This shows that nothing is done about something that it has seen.
        """
        for number in range(times + 1):  # the first may have begun before
            before = self._passes()
            self.annotate("look", f"{time.time_ns()}-{number}")
            until("another pass ends", lambda before=before: self._passes() > before, 60)

    def _passes(self) -> float:
        """Passes over this cluster that have ended, by all of the operator's pods."""
        mine = f'namespace="{self.namespace}"', f'cluster="{self.name}"'
        samples = metric("kraft_operator_reconciles_total", self.namespace)
        return sum(value for labels, value in samples if all(one in labels for one in mine))

    def forget(self) -> None:
        """Delete the cluster with all that outlives its resource: volumes and the Secrets of its authorities."""
        self.delete()
        instance = f"app.kubernetes.io/instance={self.name}"
        kubectl("delete", "secret", "-n", self.namespace, "-l", instance, check=True)

    def delete(self) -> None:
        """Delete the cluster with its volumes, which owners do not delete."""
        kubectl("delete", "kc", self.name, "-n", self.namespace, "--ignore-not-found", check=True)
        until(f"pods of {self.name} are gone", lambda: not self.pods(), 120)
        instance = f"app.kubernetes.io/instance={self.name}"
        kubectl("delete", "pvc,configmap", "-n", self.namespace, "-l", instance, "--wait=false", check=True)


def operator_log(namespace: str = NAMESPACE, lines: int = 40) -> str:
    names = [one["metadata"]["name"] for one in operators(namespace)]
    return "\n".join(kubectl("logs", name, "-n", namespace, f"--tail={lines}").stdout for name in names)


def add_user(name: str, cluster: Cluster, **spec: Any) -> None:
    """Apply a KRaftUser, and wait until it is in force."""
    metadata = {"name": name, "namespace": cluster.namespace}
    user = {"apiVersion": "kraftcluster.io/v1alpha1", "kind": "KRaftUser", "metadata": metadata}
    kubectl("apply", "-f", "-", stdin={**user, "spec": {"cluster": cluster.name, **spec}}, check=True)

    def in_force() -> bool:
        found = get("kraftuser", name, namespace=cluster.namespace)
        return any(one["status"] == "True" for one in found.get("status", {}).get("conditions", ()))

    until(f"{name} is in force", in_force, 60)


# A workload

WORK_RIGHTS = [
    {
        "resource": {"type": "Topic", "name": "work-", "pattern": "Prefixed"},
        "operations": ["Create", "Write", "Read", "Describe"],
    }
]
"""Rights of a KRaftUser for a workload."""


class Workload:
    """A producer and a consumer in their own pod; `report` after the block."""

    def __init__(
        self,
        cluster: Cluster,
        *,
        partitions: int = 6,
        rate: float = 200,
        machine: str = "",
        secret: str = "",
        name: str = "client",
        bootstrap: str = "",
    ) -> None:
        """Prepare a workload. Its pod runs on `machine`, or anywhere if it is empty.

        With `secret`, it authenticates by the `user.crt` and `user.key` of this Secret. `bootstrap`: other addresses
        than those of the service.
        """
        self._secret = secret
        self._cluster = cluster.name
        self.name = f"{cluster.name}-{name}"
        self.namespace = cluster.namespace
        self._machine = {"kubernetes.io/hostname": machine} if machine else {}
        self.partitions = partitions
        self.topic = f"work-{time.time_ns()}"  # its own topic, because every record in it must be its own
        bootstrap = bootstrap or f"{cluster.name}-bootstrap:9092"
        self._arguments = [bootstrap, self.topic, str(partitions), "3", str(rate)]
        self.report: Object = {}

    def __enter__(self) -> Workload:
        security = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
        container: Object = {
            "name": "client",
            "image": CLIENT_IMAGE,
            "imagePullPolicy": "IfNotPresent",
            "args": self._arguments,
            "securityContext": security,
        }
        spec: Object = {
            "restartPolicy": "Never",
            "automountServiceAccountToken": False,
            "nodeSelector": self._machine,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 10001, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        }
        if self._secret:
            container["env"] = [{"name": "CLIENT_OPTIONS", "value": json.dumps(TLS_OPTIONS)}]
            container["volumeMounts"] = [{"name": one, "mountPath": f"/etc/{one}"} for one in ("user", "trust")]
            spec["volumes"] = [
                {"name": "user", "secret": {"secretName": self._secret}},
                {"name": "trust", "configMap": {"name": f"{self._cluster}-trust"}},
            ]
        metadata = {"name": self.name, "namespace": self.namespace}
        pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}
        self._remove()
        kubectl("create", "-f", "-", stdin=pod, check=True)
        try:
            until("the client begins", lambda: "began" in self.log(), 90)
        except BaseException:
            self._remove()
            raise
        return self

    def __exit__(self, kind: object, error: object, trace: object) -> None:
        try:
            if kind is None:
                # The client may end before `touch` does, so the exit code means nothing.
                kubectl("exec", self.name, "-n", self.namespace, "--", "touch", "/tmp/stop")
                until("the client ends", self._ended, 240)
                log = self.log()
                last = (log.strip().splitlines() or [""])[-1]
                assert last.startswith("{"), log
                self.report = json.loads(last)
        finally:
            self._remove()

    def log(self) -> str:
        return kubectl("logs", self.name, "-n", self.namespace).stdout

    def _ended(self) -> bool:
        return get("pod", self.name, namespace=self.namespace)["status"]["phase"] in {"Succeeded", "Failed"}

    def _remove(self) -> None:
        words = ("delete", "pod", self.name, "-n", self.namespace, "--ignore-not-found")
        kubectl(*words, "--grace-period=0", "--force")

    def assert_nothing_lost(self, at_least: int = 100) -> None:
        """Check that every record was acknowledged, and read once, in order."""
        print(json.dumps(self.report))
        assert self.report["acknowledged"] >= at_least, self.report
        assert not self.report["failed"], self.report
        assert not self.report["lost"], self.report
        assert not self.report["disordered"], self.report


class Phases:
    """The phases of something that takes a while."""

    def __init__(self) -> None:
        self._at = time.monotonic()
        self.took_s: dict[str, float] = {}

    def passed(self, phase: str) -> None:
        """End the phase and start the next."""
        now = time.monotonic()
        self.took_s[phase], self._at = now - self._at, now


@contextlib.contextmanager
def timed(what: str, namespace: str = NAMESPACE) -> Iterator[Phases]:
    """Print the duration with its phases, and the cost: figures for people, never asserted."""
    before, phases = requests(namespace), Phases()
    began = time.monotonic()
    yield phases
    took_s, spent = time.monotonic() - began, requests(namespace) - before
    print(f"\n{what}: {took_s:.1f} s, {spent.total()} requests, load {os.getloadavg()[0]:.1f}")
    for phase, seconds in phases.took_s.items():
        print(f"  {phase}: {seconds:.1f} s")
    print("  " + ", ".join(f"{count} {kind}" for kind, count in spent.most_common(8)))
