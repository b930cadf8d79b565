"""Maintenance windows, evictions that become restarts, and the time since when a gate is closed."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from kraft_operator.api.windows import MaintenanceWindow
from kraft_operator.evictions import MARK, refuse_eviction
from kraft_operator.metrics import Metrics
from kraft_operator.observe.objects import kube, pod
from kraft_operator.plan.model.situation import EVICTED, RESIZED
from kraft_operator.plan.model.steps import Blocked, Plan, Restart
from kraft_operator.specs.planner_input import wanted_of
from kraft_operator.specs.windows import closed_text, window_problems, window_state
from tests.unit.operator.fake_kubernetes import FakeApi
from tests.unit.operator.sample import sample
from tests.unit.operator.world import World, made, wanted

MONDAY = datetime(2026, 11, 23, 12, 0, tzinfo=UTC)


def _window(begin: str, end: str, *days: str, timezone: str = "UTC") -> MaintenanceWindow:
    return MaintenanceWindow.model_validate({"begin": begin, "end": end, "days": list(days), "timezone": timezone})


# When a window is open


@pytest.mark.parametrize(
    ("window", "is_open", "changes"),
    [
        (_window("11:00", "13:00"), True, MONDAY.replace(hour=13)),
        (_window("13:00", "14:00"), False, MONDAY.replace(hour=13)),
        (_window("22:00", "04:00"), False, MONDAY.replace(hour=22)),
        (_window("22:00", "12:30"), True, MONDAY.replace(hour=12, minute=30)),
        (_window("22:00", "12:30", "Sun"), True, MONDAY.replace(hour=12, minute=30)),
        (_window("22:00", "12:30", "Mon"), False, MONDAY.replace(hour=22)),
        (_window("11:00", "13:00", "Sat"), False, datetime(2026, 11, 28, 11, 0, tzinfo=UTC)),
        (_window("12:30", "13:30", timezone="Europe/Berlin"), True, MONDAY.replace(minute=30)),
        (_window("11:00", "12:00"), False, datetime(2026, 11, 24, 11, 0, tzinfo=UTC)),
    ],
)
def test_a_window_includes_its_start_and_excludes_its_end(
    window: MaintenanceWindow, is_open: bool, changes: datetime
) -> None:
    assert window_state([window], MONDAY) == (is_open, changes)


def test_adjacent_windows_merge_and_without_windows_restarts_are_permitted() -> None:
    state = window_state([_window("11:00", "13:00"), _window("13:00", "15:00")], MONDAY)
    assert state == (True, MONDAY.replace(hour=15))
    assert window_state([], MONDAY) == (True, None)
    assert closed_text([_window("13:00", "14:00")], MONDAY).endswith("opens 2026-11-23 13:00 UTC")


def test_the_state_of_each_minute_matches_the_announced_changes() -> None:
    """This includes the change of clocks."""
    windows = [_window("01:30", "03:15", "Sun", "Wed", timezone="Europe/Berlin"), _window("23:00", "00:30", "Sat")]
    now = datetime(2026, 10, 18, 0, 0, tzinfo=UTC)
    announced = window_state(windows, now)
    for _ in range(14 * 24 * 12):
        now += timedelta(minutes=5)
        assert announced.changes is not None
        state = window_state(windows, now)
        if now < announced.changes:
            assert state.is_open == announced.is_open, now
        announced = state


def test_a_time_zone_that_does_not_exist_is_named() -> None:
    windows = {"maintenanceWindows": [{"begin": "01:00", "end": "02:00", "timezone": "Mars/Base"}]}
    (line,) = window_problems(sample(updateStrategy=windows).spec)
    assert "maintenanceWindows[0].timezone: 'Mars/Base' is not a time zone" in line
    assert window_problems(sample().spec) == []


# What waits for a window


def test_only_restarts_for_changes_wait_for_a_window() -> None:
    world = made()
    closed = "the next maintenance window opens tomorrow"
    world.wanted = wanted(image="b", window_closed=closed)
    for _ in range(5):
        world.step()
    assert not world.actions(Restart)
    assert world.last.blocked[0].reason == "OutsideWindow"
    assert closed in world.last.blocked[0].message
    world.wanted = replace(world.wanted, rolls={102: "now"})
    for _ in range(40):
        world.step()
    assert [step.nodes for step in world.actions(Restart) if isinstance(step, Restart)] == [(102,)]
    world.wanted = wanted(image="b")
    world.settle()
    assert all(one.aspects["image"] == "b" for one in world.pods.values())


def test_plan_waits_for_a_window_only_if_there_are_windows() -> None:
    windows = {"maintenanceWindows": [{"begin": "13:00", "end": "14:00"}]}
    assert wanted_of(sample(updateStrategy=windows), {}, MONDAY).window_closed != ""
    assert wanted_of(sample(updateStrategy=windows), {}, MONDAY.replace(hour=13)).window_closed == ""
    assert wanted_of(sample(), {}, MONDAY).window_closed == ""


# Racks


@pytest.mark.parametrize(("at_once", "min_isr", "together"), [(1, 1, 2), (2, 1, 4), (2, 2, 2), (3, 1, 4)])
def test_racks_restart_together_within_isrs_and_the_limit(at_once: int, min_isr: int, together: int) -> None:
    """Three replicas in three racks: if one must be in sync, two racks may restart; if two, one."""
    racks = {101: "x", 102: "y", 103: "z", 104: "x", 105: "y", 106: "z"}
    world = World(wanted(brokers=6), racks=racks)
    world.settle()
    world.make_topics()
    for number, partition in enumerate(world.partitions.values()):
        partition.replicas = (101, 102, 103) if number % 2 else (104, 105, 106)
        partition.isr, partition.min_isr = set(partition.replicas), min_isr
    world.settle()
    world.done.clear()
    world.wanted = wanted(brokers=6, image="b", parallel_by_rack=True, parallel_racks=at_once)
    world.settle()
    brokers = [step.nodes for step in world.actions(Restart) if isinstance(step, Restart) and step.nodes[0] > 100]
    assert max(map(len, brokers)) == together, brokers
    assert sorted(node for nodes in brokers for node in nodes) == [*range(101, 107)]


# Evictions


def _evicted(world: World, *nodes: int) -> None:
    for node in nodes:
        world.pods[node].aspects[EVICTED] = "asked"


def test_an_evicted_node_restarts_through_the_gates_outside_a_window() -> None:
    world = made(window_closed="tomorrow")
    _evicted(world, 101, 102, 2)
    world.settle()
    restarted = [step.nodes for step in world.actions(Restart) if isinstance(step, Restart)]
    assert restarted == [(2,), (101,), (102,)], "one after the other, and the laws of the world held"
    assert not any(EVICTED in one.aspects for one in world.pods.values())


def test_an_eviction_waits_while_another_broker_is_down() -> None:
    world = made()
    world.kill(103)
    _evicted(world, 101)
    world.step()
    assert not world.actions(Restart)


def _node_pod(phase: str = "Running", **labels: str) -> dict[str, Any]:
    marks = {"app.kubernetes.io/name": "kraftcluster", "kraftcluster.io/node": "101", **labels}
    metadata = {"name": "sample-101", "namespace": "demo", "labels": marks, "uid": "u", "resourceVersion": "1"}
    return {"kind": "Pod", "metadata": metadata, "spec": {}, "status": {"phase": phase}}


def test_the_webhook_marks_a_nodes_pod_and_refuses_its_eviction() -> None:
    async def main() -> None:
        api = FakeApi()
        api.objects["Pod", "demo", "sample-101"] = _node_pod()
        assert "restarts it" in await refuse_eviction(api, "demo", "sample-101", dryrun=True)
        assert api.writes == []
        assert "restarts it" in await refuse_eviction(api, "demo", "sample-101", dryrun=False)
        there = api.objects["Pod", "demo", "sample-101"]
        assert there["metadata"]["annotations"] == {MARK: "asked"}
        assert EVICTED in pod(there).aspects
        assert "restarts it" in await refuse_eviction(api, "demo", "sample-101", dryrun=False)
        assert len(api.writes) == 1, "marked once"

    asyncio.run(main())


@pytest.mark.parametrize(
    "other",
    [
        _node_pod(phase="Pending"),
        _node_pod(phase="Failed"),
        _node_pod(**{"app.kubernetes.io/name": "kraft-pipeline"}),
        {**_node_pod(), "metadata": {**_node_pod()["metadata"], "deletionTimestamp": "now"}},
    ],
)
def test_evictions_of_other_pods_are_permitted(other: dict[str, Any]) -> None:
    async def main() -> None:
        api = FakeApi()
        assert await refuse_eviction(api, "demo", "sample-101", dryrun=False) == ""
        api.objects["Pod", "demo", "sample-101"] = other
        assert await refuse_eviction(api, "demo", "sample-101", dryrun=False) == ""
        assert api.writes == []

    asyncio.run(main())


# Volumes that grow offline


def _claim(name: str, since: str, status: str = "True") -> dict[str, Any]:
    condition = {"type": "FileSystemResizePending", "status": status, "lastTransitionTime": since}
    labels = {"kraftcluster.io/node": "101", "kraftcluster.io/disk": "0"}
    size = {"resources": {"requests": {"storage": "1Gi"}}}
    return {"metadata": {"name": name, "labels": labels}, "spec": size, "status": {"conditions": [condition]}}


@pytest.mark.parametrize(
    ("claim", "is_marked"),
    [
        (_claim("data-sample-101-0", "2026-11-23T04:00:00Z"), True),
        (_claim("data-sample-101-0", "2026-11-23T02:00:00Z"), False),
        (_claim("data-sample-101-0", "2026-11-23T04:00:00Z", "False"), False),
        (_claim("data-sample-101-1", "2026-11-23T04:00:00Z"), False),
    ],
    ids=["pending", "older than the pod", "done", "another disk"],
)
def test_a_file_system_that_waits_for_its_mount_marks_the_pod_once(claim: dict[str, Any], is_marked: bool) -> None:
    one = _node_pod()
    one["metadata"]["creationTimestamp"] = "2026-11-23T03:00:00Z"
    one["spec"] = {"volumes": [{"name": "d", "persistentVolumeClaim": {"claimName": "data-sample-101-0"}}]}
    seen = kube(sample(), [one], [claim], [])
    assert (RESIZED in seen.pods[101].aspects) == is_marked


def test_volumes_that_wait_for_a_mount_are_rolled_through_the_gates() -> None:
    world = made()
    for node in (101, 102, 103):
        world.pods[node].aspects[RESIZED] = "pending"
    world.settle()
    restarted = [(step.nodes, step.why) for step in world.actions(Restart) if isinstance(step, Restart)]
    assert restarted == [((101,), "resize"), ((102,), "resize"), ((103,), "resize")]


# Metrics


def _value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(f"kraft_operator_{name}", {"namespace": "n", "cluster": "c", **labels})


def test_metrics_report_how_long_a_gate_has_been_closed() -> None:
    metrics = Metrics()
    gate = Blocked("PartitionAtRisk", "a-0")
    other = Blocked("PartitionAtRisk", "b-0")
    for now_s, plan in (
        (100, Plan(blocked=[gate], waits=["x"])),
        (110, Plan(blocked=[other], waits=["x"])),
        (120, Plan(blocked=[gate, Blocked("VoterDown", "v")], waits=["y"])),
    ):
        metrics.passed("n", "c", plan, [], took_s=0.1, now_s=now_s)
    assert _value(metrics, "blocked_since_timestamp_seconds", reason="PartitionAtRisk") == 100
    assert _value(metrics, "blocked_since_timestamp_seconds", reason="VoterDown") == 120
    assert _value(metrics, "waits_since_timestamp_seconds") == 120
    metrics.passed("n", "c", Plan(), [], took_s=0.1, now_s=130)
    assert _value(metrics, "blocked_since_timestamp_seconds", reason="PartitionAtRisk") is None
    assert _value(metrics, "waits_since_timestamp_seconds") == 0
    metrics.passed("n", "c", Plan(blocked=[gate]), [], took_s=0.1, now_s=140)
    assert _value(metrics, "blocked_since_timestamp_seconds", reason="PartitionAtRisk") == 140
    metrics.forget("n", "c")
    assert _value(metrics, "blocked_since_timestamp_seconds", reason="PartitionAtRisk") is None
