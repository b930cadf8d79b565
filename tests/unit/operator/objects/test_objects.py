"""Objects of Kubernetes as the planner sees them, and which of them are written."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from kraft_operator.apply.objects import difference, marked, same
from kraft_operator.observe import addresses, objects
from kraft_operator.observe.status import Statuses, StatusReport
from kraft_operator.plan.model.observed import Job
from kraft_operator.specs.cluster import NamedCluster
from kraft_protocol.client.aio import Address, UnreachableError
from tests.unit.operator.fake_kubernetes import merged
from tests.unit.operator.sample import manifests, sample

Object = dict[str, Any]


def _pod(status: Object, number: int = 1, **metadata: Any) -> Object:
    labels = {"kraftcluster.io/node": str(number)}
    annotations = {"aspect.kraftcluster.io/image": "a", "aspect.kraftcluster.io/roles": "controller", "other": "x"}
    metadata = {"name": f"sample-{number}", "uid": "u", "labels": labels, "annotations": annotations, **metadata}
    return {"metadata": metadata, "spec": {}, "status": status}


def _container(**state: Any) -> list[Object]:
    return [{"state": state, "restartCount": 0}]


SCHEDULED = {"type": "PodScheduled", "status": "True"}
STATES: dict[str, tuple[Object, bool, bool, str]] = {
    "ready": (
        {
            "phase": "Running",
            "conditions": [SCHEDULED, {"type": "Ready", "status": "True"}],
            "containerStatuses": _container(running={}),
        },
        True,
        True,
        "is not ready",
    ),
    "placed, nothing heard": ({"phase": "Pending", "conditions": [SCHEDULED]}, True, False, "is being started"),
    "being made": (
        {
            "phase": "Pending",
            "conditions": [SCHEDULED],
            "containerStatuses": _container(waiting={"reason": "ContainerCreating"}),
        },
        True,
        False,
        "is not ready",
    ),
    "no machine": (
        {
            "phase": "Pending",
            "conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "no cpu"}],
        },
        False,
        False,
        "Unschedulable: no cpu",
    ),
    "no image": (
        {
            "phase": "Pending",
            "conditions": [SCHEDULED],
            "containerStatuses": _container(waiting={"reason": "ErrImagePull", "message": "not found"}),
        },
        False,
        False,
        "ErrImagePull: not found",
    ),
    "crashes": (
        {
            "phase": "Running",
            "conditions": [SCHEDULED],
            "containerStatuses": [
                {
                    "state": {"waiting": {"reason": "CrashLoopBackOff", "message": "back-off"}},
                    "lastState": {"terminated": {"message": "many lines\nlog.dirs is missing\n"}},
                    "restartCount": 3,
                }
            ],
        },
        False,
        False,
        "CrashLoopBackOff: log.dirs is missing",
    ),
    "evicted": ({"phase": "Failed", "reason": "Evicted", "message": "disk"}, False, False, "Evicted: disk"),
}


@pytest.mark.parametrize("case", STATES)
def test_the_state_of_a_pod_is_recognized(case: str) -> None:
    status, running, ready, message = STATES[case]
    seen = objects.pod(_pod(status))
    assert (seen.running, seen.ready) == (running, ready)
    assert seen.message == message
    assert seen.over == (case == "evicted")
    assert seen.aspects == {"image": "a", "roles": "controller"}
    assert not seen.terminating
    assert objects.pod(_pod(status, deletionTimestamp="now")).terminating


def _job_pod(job: str, phase: str, **state: Any) -> Object:
    labels = {"batch.kubernetes.io/job-name": job}
    return {"metadata": {"labels": labels}, "status": {"phase": phase, "containerStatuses": _container(**state)}}


def test_a_failed_job_reports_the_last_message_of_its_container() -> None:
    failed = {"type": "Failed", "status": "True", "reason": "BackoffLimitExceeded", "message": "it has reached it"}
    one = {"metadata": {"name": "j", "annotations": {"aspect.kraftcluster.io/image": "a"}}}
    one["status"] = {"conditions": [failed]}
    assert objects.job(one) == Job("failed", "BackoffLimitExceeded: it has reached it", aspects={"image": "a"})
    ended = {"exitCode": 1, "message": "a trace\nit belongs to another cluster\n"}
    pods = [_job_pod("other", "Running", running={}), _job_pod("j", "Failed", terminated=ended)]
    assert objects.job(one, pods) == Job("failed", "it belongs to another cluster", aspects={"image": "a"})
    del one["status"]
    assert objects.job(one, [_job_pod("j", "Running", running={})]).runs


def test_only_pods_and_their_readiness_change_the_shape() -> None:
    ready, placed = STATES["ready"][0], STATES["being made"][0]
    one = [_pod(ready)]
    assert objects.shape(one) == objects.shape([_pod({**ready, "podIP": "10.0.0.1"})])
    assert objects.shape(one) != objects.shape([_pod(placed)])
    assert objects.shape(one) != objects.shape([_pod(ready, uid="other")])
    assert objects.shape(one) != objects.shape([])


def _broker_spec(cluster: NamedCluster) -> Object:
    return next(dict(one["spec"]) for one in reversed(manifests(cluster)) if one["kind"] == "Pod")


def test_ready_nodes_are_asked_at_their_addresses() -> None:
    ready = {**STATES["ready"][0], "podIP": "10.0.0.1"}
    labels = {"kraftcluster.io/node": "101", "kraftcluster.io/broker": "true"}
    broker = _pod(ready, 101, labels=labels, annotations={"aspect.kraftcluster.io/roles": "broker"})
    starting = _pod({**STATES["being made"][0], "podIP": "10.0.0.2"}, 2)
    broker["spec"] = _broker_spec(sample())
    pods = [_pod(ready), starting, broker]
    assert objects.controllers(pods) == {1: ("10.0.0.1", 9090), 2: ("10.0.0.2", 9090)}
    assert objects.brokers(pods) == {101: ("10.0.0.1", 9092)}


def test_a_broker_is_asked_at_its_present_listener() -> None:
    """Brokers do not listen on the new port yet. Their view stayed unknown, and no broker was ever restarted."""
    ready = {**STATES["ready"][0], "podIP": "10.0.0.1"}
    labels = {"kraftcluster.io/broker": "true"}
    ports = {101: 9092, 102: 9192}
    pods = []
    for number, port in ports.items():
        one = _pod(ready, number)
        one["metadata"]["labels"] |= labels
        one["spec"] = _broker_spec(sample(listeners=[{"name": "plain", "port": port}]))
        pods.append(one)
    assert objects.brokers(pods) == {number: ("10.0.0.1", port) for number, port in ports.items()}


def _service(listener: str, *ingress: Object, number: int = 101) -> Object:
    labels = {"kraftcluster.io/node": str(number)}
    balancer = {"loadBalancer": {"ingress": list(ingress)}}
    return {"metadata": {"name": f"sample-{number}-{listener}", "labels": labels}, "spec": {}, "status": balancer}


@pytest.mark.parametrize(
    ("ingress", "said"),
    [
        ([], {}),
        ([{"ip": "10.0.0.7"}], {101: "out=10.0.0.7:9094"}),
        ([{"hostname": "b.example.org"}, {"hostname": "a.example.org"}], {101: "out=a.example.org:9094"}),
        ([{"ip": "2001:db8::1"}, {"ip": "203.0.113.5"}], {101: "out=203.0.113.5:9094"}),
    ],
)
def test_an_address_of_a_load_balancer_does_not_depend_on_the_order(
    ingress: list[Object], said: dict[int, str]
) -> None:
    cluster = sample(listeners=[{"name": "plain", "port": 9092}, {"name": "out", "port": 9094, "type": "LoadBalancer"}])
    assert addresses.by_broker(cluster, [_service("out", *ingress)]) == said
    assert addresses.by_broker(cluster, [_service("out", *reversed(ingress))]) == said


# Writes


def test_an_object_with_defaults_added_is_not_written() -> None:
    wanted = marked({"kind": "Service", "metadata": {"name": "a"}, "spec": {"ports": [{"port": 1}]}})
    there = merged(wanted, {"metadata": {"uid": "u"}, "spec": {"clusterIP": "10.0.0.1"}})
    there["spec"]["ports"] = [{"port": 1, "protocol": "TCP"}]
    del there["kind"]
    assert same(wanted, there)
    assert not same(wanted, None)
    assert not same(wanted, merged(there, {"spec": {"ports": [{"port": 2}]}}))
    assert not same(wanted, merged(there, {"spec": {"ports": [{"port": 1}, {"port": 2}]}}))


def test_an_empty_field_may_be_missing() -> None:
    wanted = marked({"kind": "NetworkPolicy", "metadata": {"name": "a"}, "spec": {"ingress": [], "podSelector": {}}})
    there = merged(wanted, {"spec": {"ingress": None}})
    assert same(wanted, there)
    assert not same(wanted, merged(there, {"spec": {"ingress": [{}]}}))


def test_a_removed_field_is_written() -> None:
    before = marked({"kind": "Service", "metadata": {"name": "a"}, "spec": {"a": 1, "b": 2}})
    after = marked({"kind": "Service", "metadata": {"name": "a"}, "spec": {"a": 1}})
    assert same(before, before)
    assert not same(after, before)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ({}, {}),
        ({"a": 1}, {"a": 1}),
        ({"a": 1, "b": {"c": [1], "d": 2}}, {"a": 2, "b": {"c": [1, 2]}}),
        ({"step": {"action": "x"}}, {}),
        ({}, {"step": {"action": "x", "nodes": []}}),
        ({"a": {"b": 1}}, {"a": 1}),
    ],
)
def test_a_merged_difference_makes_objects_equal(before: Object, after: Object) -> None:
    change = difference(before, after)
    assert merged(before, change) == after
    assert bool(change) == (before != after)


# Processes' reports about themselves


def test_the_status_of_a_process_overrides_its_pods_annotations() -> None:
    """A stale ConfigMap started old voters under new annotations, and a gate counted with the new ones."""
    one = _pod(dict(STATES["ready"][0]))
    one["metadata"]["annotations"]["aspect.kraftcluster.io/voters"] = "1,2,3,4"
    one["metadata"]["annotations"]["aspect.kraftcluster.io/config"] = "c"
    one["spec"] = {"volumes": [{"name": "config", "configMap": {"name": "sample-1-abc"}}]}
    assert objects.pod(one, reported=StatusReport((1, 2, 3, 4), "abc", 0)).aspects == objects.pod(one).aspects
    stale = objects.pod(one, reported=StatusReport((1, 2, 3), "old", 0))
    assert stale.aspects["voters"] == "1,2,3"
    assert stale.aspects["config"] != "c", "it lacks its configuration: it is restarted"
    assert objects.pod(one, reported=StatusReport((1, 2, 3, 4), "", 0)).aspects["config"] == "c", "of an older node"


def test_the_status_of_a_process_is_read_once(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Address] = []

    async def answer(where: Address) -> StatusReport:
        asked.append(where)
        if len(asked) == 1:
            raise UnreachableError("it starts")
        return StatusReport((1,), "r", 0)

    async def main() -> None:
        monkeypatch.setattr("kraft_operator.observe.status.node_status", answer)
        statuses, where = Statuses(), Address("b", 1)
        assert await statuses.of({1: ("first", where)}) == {}
        for _ in range(2):
            assert await statuses.of({1: ("first", where)}) == {1: StatusReport((1,), "r", 0)}
        assert len(asked) == 2
        await statuses.of({1: ("restarted", where)})
        assert len(asked) == 3

    asyncio.run(main())


def test_a_format_is_done_once_its_own_container_has_ended_well() -> None:
    """Kubernetes reports the job's end seconds later. A pod that a job of the same name left behind proves nothing."""
    one = {"metadata": {"name": "j", "uid": "new", "annotations": {}}, "status": {"active": 1}}

    def state(owner: str, container: str, code: int) -> str:
        pod = _job_pod("j", "Running", terminated={"exitCode": code})
        pod["metadata"]["ownerReferences"] = [{"kind": "Job", "name": "j", "uid": owner}]
        pod["status"]["containerStatuses"][0]["name"] = container
        return objects.job(one, [pod]).state

    assert state("new", "format", 0) == "done"
    assert state("old", "format", 0) == "running"
    assert state("new", "format", 1) == "running"
    assert state("new", "proxy", 0) == "running"
    assert objects.job({**one, "metadata": {"name": "j"}}, []).state == "running"
