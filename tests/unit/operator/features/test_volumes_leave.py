"""A volume that is removed from a pool is emptied, proven empty, and only then left out."""

from __future__ import annotations

import random

import pytest

from kraft_operator.plan.model import steps as do
from tests.tiers import seeds
from tests.unit.operator.features.volumes_world import VolumesWorld, made, pools


def _kinds(world: VolumesWorld, node_id: int) -> list[str]:
    return [type(step).__name__ for step in world.done if getattr(step, "node", None) == node_id]


def _run(world: VolumesWorld, passes: int = 30) -> None:
    for _ in range(passes):
        world.step()


@pytest.mark.parametrize("delete", [False, True], ids=["kept", "deleted"])
def test_a_volume_is_emptied_before_its_pod_restarts_without_it(delete: bool) -> None:
    world = made("a", "b", delete=delete)
    world.wanted = pools("a", delete=delete)
    world.settle()
    for node_id in (101, 102, 103):
        kinds = _kinds(world, node_id)
        order = ["MarkVolume", "Cordon", "MoveLogs", "MarkVolume", "MarkVolume", "CreatePod", "Cordon"]
        assert [kind for kind in kinds if kind != "DeleteVolume"] == order
        assert world.mounted[node_id] == {"a"}
        assert world.logs[node_id]["b"] == {}
        assert len(world.logs[node_id]["a"]) == 4
        assert world.cordoned[node_id] == set()
        assert ("b" in world.sizes[node_id, 0]) is not delete
    restarted = [node for step in world.done if isinstance(step, do.Restart) for node in step.nodes]
    assert restarted == [101, 102, 103], "one restart of each broker"
    assert all(node.volumes == ("a",) for node in world.record.nodes if node.broker)


def test_a_volume_of_a_silent_broker_is_kept() -> None:
    world = made("a", "b", delete=True)
    world.silent = {101, 102, 103}
    world.wanted = pools("a", delete=True)
    _run(world)
    assert not world.actions(do.Restart) and not world.actions(do.DeleteVolume)
    assert any("is emptied once the broker reports" in wait for wait in world.last.waits)
    world.kill(102)
    _run(world)
    assert world.mounted[102] == {"a", "b"}, "a pod that is made anew has it, too"
    world.silent = set()
    world.settle()
    assert world.mounted[102] == {"a"}


def test_a_failed_volume_is_kept_and_named() -> None:
    world = made("a", "b", delete=True)
    world.broken = {(102, "b")}
    world.wanted = pools("a", delete=True)
    _run(world, 60)
    assert world.mounted[102] == {"a", "b"}
    assert "b" in world.sizes[102, 0]
    assert [one.reason for one in world.last.blocked] == ["VolumeFailed"]


def test_a_volume_stays_if_no_other_has_room_for_its_replicas() -> None:
    world = made("a", "b")
    world.room = 25
    world.wanted = pools("a")
    _run(world)
    assert not world.actions(do.Restart)
    assert {one.reason for one in world.last.blocked} == {"CannotEmpty"}
    assert "no other volume has room for t-" in world.last.blocked[0].message
    world.room = 1000
    world.settle()
    assert world.mounted[101] == {"a"}


def test_a_volume_that_is_added_again_keeps_its_replicas() -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    for _ in range(4):
        world.step()
    assert world.cordoned[101] == {"/b"}
    world.wanted = pools("a", "b")
    world.settle()
    assert not any(world.cordoned.values()) and not any(world.marks.values())
    assert all(world.mounted[i] == {"a", "b"} for i in (101, 102, 103))


def test_an_emptied_volume_that_is_added_again_loses_its_mark() -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    world.settle()
    assert world.marks[101, 0] == {"b": "LeftOut"}
    world.wanted = pools("a", "b")
    world.settle()
    assert not any(world.marks.values())
    assert world.mounted[101] == {"a", "b"}
    assert not world.actions(do.Format), "the claim that was kept is taken up"


def test_cordons_of_others_are_kept() -> None:
    world = made("a", "b", "c")
    world.cordoned[101] = {"/c"}
    world.wanted = pools("a", "c")
    world.settle()
    assert world.cordoned[101] == {"/c"}
    assert world.mounted[101] == {"a", "c"}


def test_copies_are_throttled_while_volumes_are_emptied() -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    world.wanted = type(world.wanted)(**{**_fields(world), "drain_bytes": 1000})
    rate = "replica.alter.log.dirs.io.max.bytes.per.second"
    while not world.actions(do.MoveLogs):
        world.step()
    assert world.dynamic[rate] == "1000"
    world.settle()
    assert rate not in world.dynamic


def _fields(world: VolumesWorld) -> dict[str, object]:
    return {name: getattr(world.wanted, name) for name in world.wanted.__dataclass_fields__}


def test_a_replica_created_before_the_restart_keeps_its_volume() -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    while not any(isinstance(step, do.MarkVolume) and step.mark == "Empty" for step in world.done):
        world.step()
    world.cordoned[101] = set()  # by hand
    world.logs[101]["b"]["new", 0] = 10
    world.settle()
    assert world.logs[101]["a"]["new", 0] == 10


def _uncordoned_and_down(world: VolumesWorld, node_id: int) -> None:
    """An administrator removes the cordon, the broker creates a log on the emptied volume and dies."""
    while world.marks.get((node_id, 0), {}).get("b") != "Empty":
        world.step()
    world.cordoned[node_id] = set()
    world.logs[node_id]["b"]["new", 0] = 10


@pytest.mark.parametrize("died", ["pod is gone", "pod is not ready"])
def test_a_mark_made_before_a_broker_died_is_not_trusted(died: str) -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    _uncordoned_and_down(world, 101)
    if died == "pod is gone":
        world.kill(101)
    else:
        world.pods[101].age = -6  # its container starts again
    world.settle()
    assert world.mounted[101] == {"a"}
    assert world.logs[101]["a"]["new", 0] == 10


def test_a_refused_restart_invalidates_the_mark() -> None:
    world = made("a", "b")
    world.wanted = pools("a")
    world.refuses = True
    while world.marks.get((101, 0), {}).get("b") != "LeftOut":
        world.step()
    world.step()
    assert world.marks[101, 0]["b"] == "Empty"
    world.refuses = False
    _uncordoned_and_down(world, 101)
    world.kill(101)
    world.settle()
    assert world.logs[101]["a"]["new", 0] == 10


def test_an_unformatted_claim_is_removed_without_emptying() -> None:
    world = made("a")
    world.wanted = pools("a", "b")
    world.step()
    world.wanted = pools("a")
    world.settle()
    assert not world.actions(do.Restart)
    assert all(world.mounted[i] == {"a"} for i in (101, 102, 103))


@pytest.mark.parametrize("seed", seeds(range(60), everyday=15))
def test_no_replica_is_left_behind_under_crashes_and_new_replicas(seed: int) -> None:
    rng = random.Random(seed)
    world = made("a", "b", "c", delete=rng.random() < 0.5)
    delete = world.wanted.pools[1].delete_volumes
    for number in range(150):
        dice = rng.random()
        if dice < 0.05:
            names = ["a", *(name for name in ("b", "c") if rng.random() < 0.5)]
            world.wanted = pools(*names, delete=delete, image=rng.choice("ab"))
        elif dice < 0.08 and world.pods:
            world.kill(rng.choice(sorted(world.pods)))
        elif dice < 0.2:
            world.place(rng.choice((101, 102, 103)), ("n", number), rng.randrange(1, 5), rng)
        if rng.random() < 0.1:
            world.cordoned[rng.choice((101, 102, 103))] = set()  # by hand
        world.refuses = rng.random() < 0.2
        world.silent = {101} if rng.random() < 0.1 else set()
        crash_after = rng.randrange(4) if rng.random() < 0.2 else None
        world.step(crash_after, rng if rng.random() < 0.3 else None)
    world.silent, world.refuses = set(), False
    placed = {key for logs in world.logs.values() for mine in logs.values() for key in mine}
    world.wanted = pools("a", delete=delete)
    world.settle()
    assert all(world.mounted[i] == {"a"} for i in (101, 102, 103))
    assert placed == {key for logs in world.logs.values() for mine in logs.values() for key in mine}
    assert world.step().steps == []
