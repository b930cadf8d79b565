"""The requests to the operator in the simulation: each story with its final voters."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from kraft_operator.plan.model.wanted import ReplacementRequest, Wanted
from tests.sim.operator.quorum import DYNAMIC, STATIC, UPGRADED
from tests.sim.operator.world import SimWorld, made


@dataclass(frozen=True)
class Story:
    """The number of controllers, their faults, the request, and the final voters."""

    name: str
    kind: str
    controllers: int
    change: Callable[[Wanted], Wanted]
    voters: frozenset[int]
    lost: int | None = None
    """The host that is lost before."""


def _replaced(by: str, *accept: str) -> Callable[[Wanted], Wanted]:
    request = ReplacementRequest("r", 3, by, frozenset(accept))
    return lambda wanted: replace(wanted, replacements=(request,))


def _count(controllers: int) -> Callable[[Wanted], Wanted]:
    def change(wanted: Wanted) -> Wanted:
        pools = tuple(replace(pool, replicas=controllers) if pool.controller else pool for pool in wanted.pools)
        return replace(wanted, pools=pools)

    return change


def _image(wanted: Wanted) -> Wanted:
    aspects = {"image": "b", "config": "c"}
    return replace(wanted, pools=tuple(replace(pool, aspects=aspects) for pool in wanted.pools), parallel_by_rack=True)


def _of(*voters: int) -> frozenset[int]:
    return frozenset(voters)


STORIES = (
    Story("roll", STATIC, 3, _image, _of(1, 2, 3)),
    Story("roll of five", STATIC, 5, _image, _of(1, 2, 3, 4, 5)),
    Story("empty disk", STATIC, 3, _replaced("EmptyDisk"), _of(1, 2, 3), lost=3),
    Story("empty disk of one that runs", STATIC, 3, _replaced("EmptyDisk"), _of(1, 2, 3)),
    Story("other id", STATIC, 3, _replaced("NewId"), _of(1, 2, 4)),
    Story("other id of a dead one", STATIC, 3, _replaced("NewId", "MetadataPause"), _of(1, 2, 4), lost=3),
    Story("one to three", STATIC, 1, _count(3), _of(1, 2, 3)),
    Story("three to five", STATIC, 3, _count(5), _of(1, 2, 3, 4, 5)),
    Story("five to three", STATIC, 5, _count(3), _of(1, 2, 3)),
    Story("three to one", STATIC, 3, _count(1), _of(1)),
    Story("one to five", STATIC, 1, _count(5), _of(1, 2, 3, 4, 5)),
    Story("dynamic roll", DYNAMIC, 3, _image, _of(1, 2, 3)),
    Story("dynamic empty disk", DYNAMIC, 3, _replaced("EmptyDisk"), _of(1, 2, 3), lost=3),
    Story("dynamic other id", DYNAMIC, 3, _replaced("NewId"), _of(1, 2, 4)),
    Story("dynamic other id of a dead one", DYNAMIC, 3, _replaced("NewId"), _of(1, 2, 4), lost=3),
    Story("dynamic one to three", DYNAMIC, 1, _count(3), _of(1, 2, 3)),
    Story("dynamic five to three", DYNAMIC, 5, _count(3), _of(1, 2, 3)),
    Story("static to dynamic", UPGRADED, 3, lambda wanted: replace(wanted, static_quorum=False), _of(1, 2, 3)),
)
BY_NAME = {story.name: story for story in STORIES}

CHAOS_PASSES = 60
CHAOS = 0.12
"""Of a pass: something goes wrong in it."""
CRASHES = 0.3
"""Of the passes: the operator dies in it."""
OLD_VIEWS = 0.2


def begun(story: Story, seed: int) -> SimWorld:
    """The cluster of a story, with its request."""
    world = made(seed, story.kind, controllers=story.controllers)
    if story.lost is not None:
        world.lose_host(story.lost)
    world.wanted = story.change(world.wanted)
    return world


def ended(story: Story, world: SimWorld) -> None:
    """The cluster converges, all nodes use the requested voters, and commits continue."""
    world.heal()
    world.settle(passes=800)
    assert world.step().steps == []
    assert world.agreed() == story.voters
    committed = world.sim.laws.end
    for _ in range(5):
        world.step()
    assert world.sim.laws.end > committed, "nothing is committed any more"
    for machine in world.sim.replicas.values():
        assert machine.node is None or machine.disk.durable.end >= committed, f"{machine.id} is behind for good"
    assert all(item.done for item in world.record.replacements)
    if story.kind == UPGRADED:
        assert world.record.dynamic
        assert world.sim.version == 1


def with_chaos(story: Story, seed: int) -> SimWorld:
    """Run with faults: the operator dies between writes, pods die, the network fails, views are stale or missing."""
    world = begun(story, seed)
    rng = world.rng
    for _ in range(CHAOS_PASSES):
        crash_after = rng.randrange(4) if rng.random() < CRASHES else None
        world.step(crash_after, rng if rng.random() < OLD_VIEWS else None, chaos=CHAOS)
    ended(story, world)
    return world


def with_crash_after(story: Story, seed: int, writes: int) -> bool:
    """Kill the operator after that many writes, then a node; returns whether there were so many writes."""
    world = begun(story, seed)
    for _ in range(800):
        room = writes - len(world.done)
        if room <= 0:
            break
        plan = world.step(crash_after=room)
        if not (plan.steps or plan.waits or plan.blocked or world.pods_changed < 20):
            return False
    alive = sorted(i for i in world.pods if story.lost != i)
    if alive:
        world.kill(world.rng.choice(alive))
    ended(story, world)
    return True
