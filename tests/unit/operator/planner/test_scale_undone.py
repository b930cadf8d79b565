"""A scale-down that is undone before the brokers have left."""

from __future__ import annotations

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.wanted import ReplacementRequest
from tests.unit.operator.world import World, made, wanted


def _ids(world: World) -> list[int]:
    return [node.id for node in world.record.nodes if not node.leaving]


def test_a_broker_that_cannot_drain_stays_if_it_is_wanted_again() -> None:
    world = made()
    world.make_topics(rf=3)
    world.settle()
    world.done.clear()
    world.wanted = wanted(brokers=2)
    for _ in range(10):
        world.step()
    assert _ids(world) == [1, 2, 3, 101, 102]
    world.wanted = wanted(brokers=3)
    world.settle()
    assert _ids(world) == [1, 2, 3, 101, 102, 103]
    assert not world.actions(do.CreateVolume), "no new broker copies its replicas"
    assert not world.actions(do.Stop)


def test_a_broker_that_has_begun_to_drain_gets_replicas_again() -> None:
    world = made(brokers=4, balance_new=True)
    world.make_topics(rf=2, count=12)
    world.settle()
    world.wanted = wanted(brokers=3, balance_new=True)
    while not world.actions(do.Reassign):
        world.step()
    world.wanted = wanted(brokers=4, balance_new=True)
    world.settle()
    assert _ids(world) == [1, 2, 3, 101, 102, 103, 104]
    assert any(104 in partition.replicas for partition in world.partitions.values())


def test_a_broker_that_is_stopped_for_good_gets_a_successor() -> None:
    world = made(brokers=4)
    world.settle()
    world.wanted = wanted(brokers=3)
    while not world.actions(do.Stop):
        world.step()
    world.wanted = wanted(brokers=4)
    world.settle()
    assert _ids(world) == [1, 2, 3, 101, 102, 103, 105]


def test_a_replaced_broker_leaves_although_the_pool_grows() -> None:
    world = made()
    world.make_topics(rf=3)
    world.settle()
    request = ReplacementRequest("r", 103, "NewId")
    world.wanted = wanted(replacements=(request,))
    while not any(node.leaving for node in world.record.nodes):
        world.step()
    world.wanted = wanted(brokers=4, replacements=(request,))
    world.settle()
    assert _ids(world) == [1, 2, 3, 101, 102, 104, 105]
