"""A change wakes a cluster exactly if a pass reads the changed field."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from kraft_operator.observe import objects
from kraft_operator.observe.visible import mark
from tests.unit.operator.sample import sample

Object = dict[str, Any]
CLUSTER = sample()
LABELS = {
    "app.kubernetes.io/instance": "sample",
    "app.kubernetes.io/name": "kraftcluster",
    "kraftcluster.io/node": "101",
    "kraftcluster.io/pool": "brokers",
    "kraftcluster.io/broker": "true",
    "kraftcluster.io/disk": "0",
}


def _metadata(name: str, **more: Any) -> Object:
    owner = {"kind": "KRaftCluster", "name": "sample", "uid": CLUSTER.uid}
    found = {"name": name, "uid": f"uid-of-{name}", "labels": dict(LABELS), "ownerReferences": [owner]}
    return {**found, "resourceVersion": "7", "creationTimestamp": "2026-01-01T00:00:00Z", **more}


def _pod() -> Object:
    container = {
        "name": "node",
        "image": "x",
        "ports": [{"name": "listener-9092", "containerPort": 9092}],
        "readinessProbe": {"httpGet": {"port": 9404}},
    }
    state = {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}}
    volumes = [
        {"name": "config", "configMap": {"name": "sample-101-abc"}},
        {"name": "volume-data", "persistentVolumeClaim": {"claimName": "data-sample-101-0"}},
    ]
    return {
        "metadata": _metadata("sample-101", annotations={"aspect.kraftcluster.io/roles": "broker"}),
        "spec": {"nodeName": "m1", "containers": [container], "volumes": volumes},
        "status": {
            "phase": "Running",
            "podIP": "10.0.0.1",
            "hostIP": "10.0.0.9",
            "startTime": "2026-01-01T00:00:00Z",
            "conditions": [
                {"type": kind, "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"}
                for kind in ("PodScheduled", "PodReadyToStartContainers", "Initialized", "ContainersReady", "Ready")
            ],
            "containerStatuses": [{"name": "node", "restartCount": 2, "containerID": "c", "state": state}],
        },
    }


def _claim() -> Object:
    annotations = {"kraftcluster.io/formatted-for": "id/101", "volume.kubernetes.io/selected-node": "m1"}
    grows = {"type": "FileSystemResizePending", "status": "True", "lastTransitionTime": "2026-01-02T00:00:00Z"}
    return {
        "metadata": _metadata("data-sample-101-0", annotations=annotations),
        "spec": {"resources": {"requests": {"storage": "10Gi"}}, "volumeName": "pv-1"},
        "status": {"phase": "Bound", "conditions": [grows], "capacity": {"storage": "10Gi"}},
    }


def _job() -> Object:
    labels = {**LABELS, "kraftcluster.io/volumes": "1"}
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "no"}
    return {
        "metadata": _metadata("sample-101-format-0", labels=labels, annotations={"aspect.kraftcluster.io/image": "x"}),
        "spec": {"parallelism": 1},
        "status": {"conditions": [failed], "active": 1, "ready": 0, "failed": 2},
    }


def _jobs_pod() -> Object:
    made = _pod()
    owner = {"kind": "Job", "name": "sample-101-format-0", "uid": "uid-of-sample-101-format-0"}
    made["metadata"] |= {"name": "sample-101-format-0-x", "ownerReferences": [owner]}
    labels = {"app.kubernetes.io/name": "kraftcluster-format", "batch.kubernetes.io/job-name": "sample-101-format-0"}
    made["metadata"]["labels"] = {**LABELS, **labels}
    made["status"]["phase"] = "Succeeded"
    made["status"]["containerStatuses"][0] |= {"name": "format", "state": {"terminated": {"exitCode": 0}}}
    return made


def _service() -> Object:
    ports = [{"name": "external", "port": 9094, "nodePort": 30001}]
    return {
        "metadata": _metadata("sample-101-external"),
        "spec": {"type": "NodePort", "ports": ports},
        "status": {"loadBalancer": {}},
    }


def _config() -> Object:
    return {"metadata": _metadata("sample-101-abc"), "data": {"server.properties": "a=b"}, "immutable": True}


MADE: dict[str, tuple[str, Callable[[], Object]]] = {
    "pod": ("pods", _pod),
    "pod of a job": ("pods", _jobs_pod),
    "claim": ("persistentvolumeclaims", _claim),
    "job": ("jobs", _job),
    "service": ("services", _service),
    "config": ("configmaps", _config),
}


def _seen(changed: str, one: Object) -> object:
    """Everything that a pass reads from the cluster's objects, one of which is changed."""
    there = {kind: one if kind == changed else make() for kind, (_, make) in MADE.items()}
    cluster, pods = CLUSTER, [there["pod"]]
    args = ([there["claim"]], [there["job"]], {"m1": "r1"}, [there["pod of a job"]], [there["service"]])
    return (
        objects.kube(cluster, objects.ours(cluster, pods), *args, [there["config"]]),
        objects.shape(pods),
        objects.controllers(pods),
        objects.brokers(pods),
        objects.processes(pods),
    )


def _changes(one: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """Every field of an object with other values for it; None removes the field."""
    items = one.items() if isinstance(one, dict) else enumerate(one) if isinstance(one, list) else ()
    for key, value in items:
        yield (*path, key), None
        yield from _changes(value, (*path, key))
        if isinstance(value, str):
            others = ("Failed", "Succeeded", "Pending", "Lost", "False", "2027-01-01T00:00:00Z", "9")
            yield from (((*path, key), other) for other in others)
        elif isinstance(value, int):
            yield (*path, key), value + 1


def _changed(one: Object, path: tuple[Any, ...], value: Any) -> Object:
    made = copy.deepcopy(one)
    place: Any = made
    for key in path[:-1]:
        place = place[key]
    if value is None:
        del place[path[-1]]
    else:
        place[path[-1]] = value
    return made


@pytest.mark.parametrize("kind", MADE)
def test_every_change_that_a_pass_would_see_wakes_the_cluster(kind: str) -> None:
    plural, make = MADE[kind]
    usual, before = _seen(kind, make()), mark(plural, make())
    seen_otherwise = 0
    for path, value in _changes(make()):
        one = _changed(make(), path, value)
        try:
            seen = _seen(kind, one)
            now = mark(plural, one)
        except (KeyError, IndexError, ValueError, TypeError, AttributeError):
            continue  # this object does not exist
        if seen != usual:
            seen_otherwise += 1
            assert now != before, f"{kind}: {path} becomes {value!r}"
    assert seen_otherwise, kind


@pytest.mark.parametrize(
    ("kind", "path", "value"),
    [
        ("pod", ("metadata", "resourceVersion"), "8"),
        ("pod", ("metadata", "managedFields"), [{}]),
        ("pod", ("status", "startTime"), "2027-01-01T00:00:00Z"),
        ("pod", ("status", "qosClass"), "Guaranteed"),
        ("pod", ("status", "conditions", 2, "status"), "False"),
        ("pod", ("status", "conditions", 4, "lastTransitionTime"), "2027-01-01T00:00:00Z"),
        ("pod", ("status", "containerStatuses", 0, "containerID"), "d"),
        ("pod of a job", ("status", "podIP"), "10.0.0.2"),
        ("claim", ("metadata", "resourceVersion"), "8"),
        ("claim", ("status", "capacity", "storage"), "11Gi"),
        ("claim", ("spec", "volumeName"), "pv-2"),
        ("job", ("status", "active"), 0),
        ("job", ("status", "ready"), 1),
        ("config", ("metadata", "resourceVersion"), "8"),
    ],
)
def test_a_change_that_concerns_only_kubernetes_wakes_no_cluster(kind: str, path: tuple[Any, ...], value: Any) -> None:
    plural, make = MADE[kind]
    one = make()
    place: Any = one
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    assert mark(plural, one) == mark(plural, make())


def test_a_scheduled_pod_changes_the_report_but_no_step() -> None:
    one, other = _jobs_pod(), _jobs_pod()
    del one["spec"]["nodeName"]
    assert mark("pods", one).acts == mark("pods", other).acts
    assert mark("pods", one).reports != mark("pods", other).reports


def test_a_waiting_job_changes_the_report_and_its_end_the_steps() -> None:
    waits, runs = _jobs_pod(), _jobs_pod()
    for one, state in ((waits, {"waiting": {"reason": "ErrImagePull"}}), (runs, {"running": {}})):
        one["status"]["phase"] = "Pending"
        one["status"]["containerStatuses"][0]["state"] = state
    assert mark("pods", waits).acts == mark("pods", runs).acts
    assert mark("pods", waits).reports != mark("pods", runs).reports
    assert mark("pods", runs).acts != mark("pods", _jobs_pod()).acts
