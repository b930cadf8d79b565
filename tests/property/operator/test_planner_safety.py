"""The planner under random edits, dying pods, crashes between any two writes, and missing views.

The world asserts the laws at every step. Once nothing fails any more, everything converges and a second pass plans
nothing.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.situation import EVICTED
from kraft_operator.plan.model.wanted import STARTS_WITH, Pool, ReplacementRequest
from tests.tiers import seeds
from tests.unit.operator.world import World, wanted

SEEDS = (*range(40), 43, 52, 1063, 1304, 1328, 1333, 1440, 5012, 5087)
"""The last ones have found something once: the only voter losing its disk, a former voter that was still needed, …"""
EVENTS = 120


def _change(world: World, rng: random.Random, number: int) -> None:
    """Edit the resource at random."""
    pools = {pool.name: pool for pool in world.wanted.pools}
    controllers, brokers = pools["controllers"].replicas, pools["brokers"].replicas
    choice = rng.randrange(7)
    if choice == 0:
        controllers = rng.choice((1, 3, 5))
    elif choice == 1:
        brokers = rng.choice((3, 4, 5))
    elif choice == 2:
        aspects = {"image": f"v{number}", "config": "c"}
        changed = tuple(replace(pool, aspects=aspects) for pool in world.wanted.pools)
        world.wanted = replace(world.wanted, pools=changed)
    elif choice == 3 and world.record.nodes:
        node = rng.choice(world.record.nodes)
        accept = frozenset({"MetadataPause"}) if rng.random() < 0.3 else frozenset()
        request = ReplacementRequest(f"r{number}", node.id, rng.choice(("EmptyDisk", "NewId")), accept)
        world.wanted = replace(world.wanted, replacements=(*world.wanted.replacements, request))
    elif choice == 4:
        world.wanted = replace(world.wanted, rolls={rng.choice((1, 2, 3, 101, 102)): str(number)})
    elif choice == 5:
        world.wanted = replace(world.wanted, parallel_by_rack=not world.wanted.parallel_by_rack)
    else:
        world.wanted = replace(world.wanted, dynamic_config={"log.retention.ms": str(number)})
    pools = {pool.name: pool for pool in world.wanted.pools}
    world.wanted = replace(
        world.wanted,
        pools=(replace(pools["controllers"], replicas=controllers), replace(pools["brokers"], replicas=brokers)),
    )


def _other_change(world: World, rng: random.Random, number: int) -> None:
    """Pools come, go and change; the cluster is hibernated or paused for a while; addresses change."""
    controllers, brokers, *more = world.wanted.pools
    choice = rng.randrange(10)
    if choice == 0:
        more = [] if more else [Pool("more", False, True, rng.choice((1, 2)), 301, brokers.aspects)]
    elif choice == 1:
        brokers = replace(brokers, name=f"brokers{number}")
    elif choice == 2:
        controllers = replace(controllers, broker=not controllers.broker)
    elif choice == 3:
        controllers = replace(controllers, replicas=rng.choice((1, 3, 5)))
    elif choice == 4:
        world.wanted = replace(world.wanted, hibernated=not world.wanted.hibernated)
    elif choice == 5:
        world.wanted = replace(world.wanted, paused=not world.wanted.paused)
    elif choice == 6:
        world.wanted = replace(world.wanted, skip=frozenset(rng.sample((1, 101), rng.randrange(2))))
    elif choice == 7:
        world.addresses = {**world.addresses, rng.choice((101, 102, 103)): f"external={number}:1"}
    elif choice == 8:
        world.wanted = replace(world.wanted, static_quorum=False)
    else:
        values = {key: str(number) for key in ("a", "b", "c") if rng.random() < 0.5}
        aspect = {STARTS_WITH: ",".join(f"{key}={value}" for key, value in values.items())}
        controllers, brokers, *more = (replace(p, aspects={**p.aspects, **aspect}) for p in world.wanted.pools)
        world.wanted = replace(world.wanted, dynamic_config=values)
    world.wanted = replace(world.wanted, pools=(controllers, brokers, *more))


def _run(seed: int, faults: bool, change: Callable[[World, random.Random, int], None] = _change) -> World:
    rng = random.Random(seed)
    world = World(wanted())
    topics = False
    for number in range(EVENTS):
        dice = rng.random()
        if dice < 0.06:
            change(world, rng, number)
        elif faults and dice < 0.09 and world.pods:
            world.kill(rng.choice(sorted(world.pods)))
        crash_after = rng.randrange(4) if faults and rng.random() < 0.3 else None
        world.step(crash_after, rng if faults and rng.random() < 0.3 else None)
        if not topics and len(world.registered) >= 3:
            world.make_topics()
            topics = True
    return world


@pytest.mark.parametrize("faults", [False, True], ids=["calm", "faults"])
@pytest.mark.parametrize("seed", SEEDS)
def test_no_law_is_broken_and_everything_converges(seed: int, faults: bool) -> None:
    world = _run(seed, faults)
    # Decide what waits for a person's decision: withdraw refused requests.
    begun = {item.name for item in world.record.replacements}
    still = tuple(
        replace(request, accept=frozenset({"MetadataPause", "DataLoss"}))
        for request in world.wanted.replacements
        if request.name in begun
    )
    world.wanted = replace(world.wanted, replacements=still)
    world.settle()
    assert world.step().steps == []
    assert all(pod.ready for pod in world.pods.values())
    assert all(node.formatted and not node.leaving for node in world.record.nodes)


OTHER_SEEDS = (3, 7, 8, 12)
"""Each has found something: the role of a broker that was given to controllers, a pool that was gone, …"""


@pytest.mark.parametrize("seed", OTHER_SEEDS)
def test_no_law_is_broken_when_pools_are_added_and_removed(seed: int) -> None:
    world = _run(seed, True, _other_change)
    world.wanted = replace(world.wanted, hibernated=False, paused=False, skip=frozenset())
    world.settle()
    assert world.step().steps == []
    assert all(pod.ready for pod in world.pods.values())
    assert world.dynamic == world.wanted.dynamic_config


def _change_drain(world: World, rng: random.Random, number: int) -> None:
    """Windows open and close, machines are drained, volumes are removed, and images change."""
    choice = rng.randrange(4)
    if choice == 0:
        world.wanted = replace(world.wanted, window_closed="" if world.wanted.window_closed else "later")
    elif choice == 1 and world.pods:
        for node_id in rng.sample(sorted(world.pods), min(2, len(world.pods))):
            world.pods[node_id].aspects[EVICTED] = "asked"
    elif choice == 2:
        world.racks = {node_id: rng.choice("xyz") for node_id in range(101, 110)}
        world.wanted = replace(world.wanted, parallel_by_rack=True, parallel_racks=rng.choice((1, 2, 3)))
    else:
        _change(world, rng, number)


@pytest.mark.parametrize("seed", seeds(range(12), everyday=4))
def test_no_law_is_broken_while_machines_are_drained_and_windows_close(seed: int) -> None:
    world = _run(seed, True, _change_drain)
    accepted = frozenset({"MetadataPause", "DataLoss"})
    begun = {item.name for item in world.record.replacements}
    still = tuple(replace(one, accept=accepted) for one in world.wanted.replacements if one.name in begun)
    world.wanted = replace(world.wanted, replacements=still, window_closed="")
    world.settle()
    assert world.step().steps == []
    assert not any(EVICTED in pod.aspects for pod in world.pods.values())


def _crash_everywhere(prepare: Callable[[World], None]) -> None:
    """Crash once after every write of a story."""
    whole = World(wanted())
    whole.settle()
    whole.make_topics()
    whole.settle()
    whole.done.clear()
    prepare(whole)
    whole.settle()
    assert len(whole.done) > 5
    for last in range(len(whole.done)):
        world = World(wanted())
        world.settle()
        world.make_topics()
        world.settle()
        prepare(world)
        before = len(world.done)
        while len(world.done) - before <= last:
            room = last + 1 - (len(world.done) - before)
            world.step(crash_after=room)
        for node_id in sorted(world.pods)[:1]:  # the operator's last view is stale
            world.kill(node_id)
        world.settle()
        assert world.record == whole.record


def test_replacing_a_voters_disk_survives_a_crash_after_every_write() -> None:
    def prepare(world: World) -> None:
        world.lose_host(3)
        world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "EmptyDisk"),))

    _crash_everywhere(prepare)


def test_replacing_a_voter_by_another_survives_a_crash_after_every_write() -> None:
    def prepare(world: World) -> None:
        world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "NewId"),))

    _crash_everywhere(prepare)


def test_replacing_a_dead_voter_survives_a_crash_after_every_write() -> None:
    def prepare(world: World) -> None:
        world.lose_host(3)
        world.wanted = wanted(replacements=(ReplacementRequest("r", 3, "NewId", frozenset({"MetadataPause"})),))

    _crash_everywhere(prepare)


def test_unknown_views_permit_no_disruption() -> None:
    world = World(wanted())
    world.settle()
    world.make_topics()
    world.wanted = wanted(image="b")
    rng = random.Random(1)
    rng.choice = lambda seq: seq[-1]  # type: ignore[method-assign,assignment]  # every view is a minute old
    for _ in range(5):
        plan = world.step(rng=rng)
        assert not plan.steps
        assert plan.blocked
    assert not world.actions(do.Restart)
