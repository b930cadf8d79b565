"""Balance by load: off by default, reported or done, only if nothing else moves and everything is known."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.report.preview import preview
from kraft_operator.specs.planner_input import wanted_of
from tests.unit.operator.features.volumes_world import VolumesWorld, pools
from tests.unit.operator.reconciling import new_resource
from tests.unit.operator.sample import sample
from tests.unit.operator.world_objects import Partition


def _world(load: str = "Move") -> VolumesWorld:
    """All replicas are on 101 and 102, half of the load in two partitions; 101 leads all."""
    world = VolumesWorld(pools("a"))
    world.settle()
    world.wanted = replace(world.wanted, load=load, load_percent=20, load_bytes=10)
    for number, size in enumerate((200, 200, 100, 100, 100, 100)):
        world.partitions["t", number] = Partition((101, 102), {101, 102}, min_isr=1)
        for node_id in (101, 102):
            world.logs.setdefault(node_id, {}).setdefault("a", {})["t", number] = size
    world.logs.setdefault(103, {"a": {}})
    world.record = replace(world.record, balanced=(101, 102, 103))
    world.done.clear()
    return world


def _moves(world: VolumesWorld) -> dict[tuple[str, int], tuple[int, ...]]:
    return {key: ids for step in world.done if isinstance(step, do.Reassign) for key, ids in step.moves.items()}


def _carry(world: VolumesWorld) -> None:
    """Move the bytes with the replicas."""
    sizes = {key: size for logs in world.logs.values() for key, size in logs.get("a", {}).items()}
    for node_id in (101, 102, 103):
        mine = {key: sizes[key] for key, one in world.partitions.items() if node_id in one.replicas}
        world.logs[node_id] = {"a": mine}


def _settle(world: VolumesWorld) -> None:
    for _ in range(80):
        world.step()
        _carry(world)


def test_bytes_and_leaders_are_balanced() -> None:
    world = _world()
    _settle(world)
    totals = [sum(world.logs[i]["a"].values()) for i in (101, 102, 103)]
    assert max(totals) <= 1.2 * sum(totals) / 3, totals
    led = [sum(one.replicas[0] == i for one in world.partitions.values()) for i in (101, 102, 103)]
    assert max(led) <= 3, led
    assert world.step().steps == []
    assert world.last.load == []


def test_large_replicas_are_swapped_if_none_fits_alone() -> None:
    """101 has 600 and 500, 102 has 300: each of the two would make 102 the fuller one."""
    world = _world()
    world.partitions.clear()
    for number, (node_id, size) in enumerate(((101, 600), (101, 500), (102, 300), (103, 700))):
        world.partitions["t", number] = Partition((node_id,), {node_id}, min_isr=1)
        world.logs[node_id] = {"a": {}} if number in (0, 2, 3) else world.logs[node_id]
        world.logs[node_id]["a"]["t", number] = size
    _settle(world)
    assert _moves(world) == {("t", 0): (102,), ("t", 2): (101,)}
    assert [sum(world.logs[i]["a"].values()) for i in (101, 102, 103)] == [800, 600, 700]


def test_a_preview_of_moves_is_reported_and_moves_nothing() -> None:
    world = _world("Preview")
    for _ in range(10):
        world.step()
    assert _moves(world) == {}
    assert any(line.startswith("t-1: ") and line.endswith("for bytes") for line in world.last.load), world.last.load
    resource = new_resource()
    resource["spec"]["rebalance"] = {"byLoad": "Preview"}
    resource["status"] = {"balance": world.last.load}
    assert f"partition {world.last.load[0]}" in preview(resource, [], image="x").lines


@pytest.mark.parametrize("load", ["", "Move"])
def test_replicas_move_only_if_requested_and_sizes_are_known(load: str) -> None:
    world = _world(load)
    world.silent = {103} if load else set()
    for _ in range(10):
        world.step()
    assert _moves(world) == {}
    assert world.last.waits == (["load: not every broker reports the content of its log directories"] if load else [])


def test_differences_below_the_thresholds_move_nothing() -> None:
    world = _world()
    world.wanted = replace(world.wanted, load_percent=1000)
    for _ in range(10):
        world.step()
    assert _moves(world) == {}
    world = _world()
    world.wanted = replace(world.wanted, load_bytes=10_000)
    for _ in range(10):
        world.step()
    assert all(set(ids) == {101, 102} for ids in _moves(world).values()), "leaders only"


def test_moves_are_throttled_like_drains() -> None:
    world = _world()
    world.wanted = replace(world.wanted, drain_bytes=1000)
    while not _moves(world):
        world.step()
    assert world.dynamic["leader.replication.throttled.rate"] == "1000"
    assert world.throttled == {"t"}


def test_balance_by_load_is_off_by_default() -> None:
    assert wanted_of(sample(), {}).load == ""
    asked = wanted_of(sample(rebalance={"byLoad": "Move", "minimumDifference": "1Ki", "thresholdPercent": 7}), {})
    assert (asked.load, asked.load_percent, asked.load_bytes) == ("Move", 7, 1024)
