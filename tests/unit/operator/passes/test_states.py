"""What is shown of a node is true: lost machines, pods that no machine takes, and nodes that wait."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.observe import objects
from kraft_operator.patience import UNPLACED_S, Patience
from kraft_operator.plan.conditions import conditions
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.situation import situation
from kraft_operator.plan.planner import plan
from kraft_operator.report.status import status
from tests.unit.operator.sample import sample
from tests.unit.operator.world import World, made

SCHEDULER = "0/3 nodes are available: 1 node(s) didn't match PersistentVolume's node affinity"


def _seen(world: World, pod: seen.Pod | None, volume: dict[str, Any] | None = None, **job: Any) -> seen.Observed:
    """The views of a world in which broker 102 has another pod, or none."""
    observed = world.observe()
    kube = observed.kube.value
    assert kube is not None
    pods = {**kube.pods, 102: pod} if pod is not None else {i: one for i, one in kube.pods.items() if i != 102}
    volumes = {**kube.volumes, (102, 0): replace(kube.volumes[102, 0], **(volume or {}))}
    jobs = {(102, 0): seen.Job(**job)} if job else {}
    if volume is None and pod is None:
        del volumes[102, 0]
    return replace(observed, kube=replace(observed.kube, value=replace(kube, pods=pods, volumes=volumes, jobs=jobs)))


def _shown(world: World, observed: seen.Observed) -> tuple[str, dict[str, Any]]:
    """The state of broker 102, and the conditions by type."""
    plan_ = plan(world.record, world.wanted, observed, "x")
    s = situation(world.record, world.wanted, observed)
    found = status(sample(), world.record, s, plan_, KRaftClusterStatus(), generation=1, now="2026-01-01T00:00:00Z")
    return next(one.state for one in found.nodes if one.id == 102), {one.type: one for one in conditions(s, plan_)}


def _pod(world: World, **changes: Any) -> seen.Pod:
    return replace(world.observe().kube.value.pods[102], **{"ready": False, **changes})  # type: ignore[union-attr]


@pytest.mark.parametrize("terminating", [False, True])
def test_a_node_of_a_lost_machine_is_neither_starting_nor_stopping(terminating: bool) -> None:
    world = made()
    text = "machine lab2 does not answer"
    pod = _pod(world, lost=True, machine="lab2", message=text, terminating=terminating)
    state, found = _shown(world, _seen(world, pod, {}))
    assert state == "MachineLost"
    assert found["Degraded"].reason == "MachineLost"
    assert f"broker 102: {text}" in found["Ready"].message


@pytest.mark.parametrize(("message", "names"), [(SCHEDULER, True), ("0/3 nodes are available: no cpu", False)])
def test_a_pod_without_a_machine_is_named_with_the_reason(message: str, names: bool) -> None:
    """Once the pod of a lost machine was made again, nothing was Degraded."""
    world = made()
    pod = _pod(world, running=False, unplaced=True, message=f"Unschedulable: {message}")
    state, found = _shown(world, _seen(world, pod, {"machine": "lab2"}))
    assert state == "Unschedulable"
    assert (found["Degraded"].status, found["Degraded"].reason) == ("True", "Unschedulable")
    assert f"no machine takes the pod of broker 102: Unschedulable: {message}" in found["Degraded"].message
    assert ("machine lab2" in found["Degraded"].message) == names
    assert ("kubectl kraft replace 102" in found["Degraded"].message) == names


@pytest.mark.parametrize(
    ("changes", "state"),
    [
        ({"running": False, "message": "is being started"}, "Starting"),
        ({"running": False, "message": "CrashLoopBackOff: no", "fails": True}, "Failing"),
        ({"running": True, "message": "is not ready"}, "Starting"),
        ({"running": True, "terminating": True}, "Stopping"),
        ({"running": True, "ready": True}, "Ready"),
    ],
)
def test_the_state_of_a_pod(changes: dict[str, Any], state: str) -> None:
    world = made()
    assert _shown(world, _seen(world, _pod(world, **changes), {}))[0] == state


def test_a_node_that_the_operator_does_not_start_is_not_starting() -> None:
    """Its volume is lost, so nothing starts it."""
    world = made()
    assert _shown(world, _seen(world, None, {}))[0] == "Starting"
    state, found = _shown(world, _seen(world, None))
    assert (state, found["Degraded"].reason) == ("Waiting", "VolumeLost")
    world.wanted = replace(world.wanted, paused=True)
    assert _shown(world, _seen(world, None, {}))[0] == "Waiting"


def test_a_node_whose_format_failed_is_not_formatting() -> None:
    world = made()
    world.record = world.record.having(replace(world.record.node(102), formatted=False))  # type: ignore[type-var]
    volume = {"formatted_for": ""}
    assert _shown(world, _seen(world, None, volume, state="running"))[0] == "Formatting"
    state, found = _shown(world, _seen(world, None, volume, state="failed", message="no space"))
    assert (state, found["Degraded"].reason) == ("Failing", "FormatFailed")


def test_a_pod_without_a_machine_is_reported_only_if_that_lasts() -> None:
    patience = Patience()

    def held(now: float, reason: str = "Unschedulable") -> do.Plan:
        plan_ = do.Plan(blocked=[do.Blocked(reason, "text")])
        patience.hold(None, plan_, now)
        return plan_

    assert held(0).blocked, "how long this lasts is unknown after a start of the operator"
    assert held(1, "VolumeLost").blocked
    young, old = held(2), held(1 + UNPLACED_S)
    assert (young.blocked, young.waits) == ([], ["text"])
    assert (old.blocked, old.waits) == ([do.Blocked("Unschedulable", "text")], [])


def test_an_injected_container_that_fails_first_is_seen() -> None:
    waiting = {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}
    found = objects.pod(
        {
            "metadata": {},
            "spec": {},
            "status": {
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "initContainerStatuses": [{"name": "mesh", "state": waiting}],
                "containerStatuses": [{"name": "node", "state": {"waiting": {"reason": "PodInitializing"}}}],
            },
        }
    )
    assert (found.fails, found.message) == (True, "ImagePullBackOff: no such image")


def test_the_machine_of_a_volume_is_read_from_its_claims() -> None:
    claim = {
        "metadata": {
            "name": "data-sample-102-0",
            "labels": {"kraftcluster.io/node": "102"},
            "annotations": {objects.MACHINE: "lab2"},
        },
        "spec": {"resources": {"requests": {"storage": "1Gi"}}},
    }
    assert objects.volumes(sample(), [claim])[102, 0].machine == "lab2"
    del claim["metadata"]["annotations"]
    assert objects.volumes(sample(), [claim])[102, 0].machine == ""


def test_a_pod_that_cannot_be_placed_is_unplaced() -> None:
    condition = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": SCHEDULER}
    found = objects.pod({"metadata": {}, "spec": {}, "status": {"phase": "Pending", "conditions": [condition]}})
    assert (found.unplaced, found.running) == (True, False)
    assert found.message == f"Unschedulable: {SCHEDULER}"
