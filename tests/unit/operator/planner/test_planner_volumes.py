"""Whole stories of volumes: leaving claims, volumes that are added later or lost."""

from __future__ import annotations

from dataclasses import replace

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.wanted import ReplacementRequest
from tests.unit.operator.outcomes import blocked, restarts
from tests.unit.operator.world import World, made, wanted


def test_a_node_whose_claim_is_being_deleted_is_not_restarted() -> None:
    world = made()
    del world.volumes[102, 0]
    world.wanted = wanted(image="b")
    assert "the volume of broker 102 (disk 0) is missing" in blocked(world, 60)["VolumeLost"]
    assert restarts(world) == [2, 3, 1, 101, 103], "all others have been"
    assert world.pods[102].aspects["image"] == "a"


def _with_volumes(world_wanted: object, *names: str) -> object:
    pools = tuple(
        replace(pool, size_bytes=dict.fromkeys(names, 10), aspects={**pool.aspects, "volumes": ",".join(names)})
        for pool in world_wanted.pools  # type: ignore[attr-defined]
    )
    return replace(world_wanted, pools=pools)  # type: ignore[type-var]


def _made_with_volumes(*names: str) -> World:
    world = World(_with_volumes(wanted(), *names))  # type: ignore[arg-type]
    world.settle()
    world.make_topics()
    world.settle()
    world.done.clear()
    return world


def test_an_added_volume_is_formatted_during_the_restart_of_its_node() -> None:
    world = _made_with_volumes("data")
    world.wanted = _with_volumes(wanted(), "data", "more")  # type: ignore[assignment]
    world.settle()
    assert sorted(restarts(world)) == [1, 2, 3, 101, 102, 103]
    assert all(disk == {"data": True, "more": True} for disk in world.disks.values())
    assert all(node.volumes == ("data", "more") for node in world.record.nodes)
    assert len(world.actions(do.Format)) == 6


def test_one_lost_volume_of_several_is_named_and_not_recreated() -> None:
    world = _made_with_volumes("data", "more")
    world.kill(102)
    for table in (world.disks, world.sizes):
        del table[102, 0]["more"]  # type: ignore[attr-defined]
    assert "volume more of broker 102 (disk 0) is missing" in blocked(world)["VolumeLost"]
    assert 102 not in world.pods
    world.wanted = replace(world.wanted, replacements=(ReplacementRequest("r", 102, "EmptyDisk"),))
    world.settle()
    assert world.pods[102].disk == 1
