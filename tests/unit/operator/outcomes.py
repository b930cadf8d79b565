"""What a planner did in a simulated cluster: blocked steps and restarted nodes."""

from __future__ import annotations

from kraft_operator.plan.model import steps as do
from tests.unit.operator.world import World


def blocked(world: World, passes: int = 30) -> dict[str, str]:
    """The messages of the blocked steps after some passes, by reason."""
    for _ in range(passes):
        world.step()
    return {one.reason: one.message for one in world.last.blocked}


def restarts(world: World) -> list[int]:
    """The restarted nodes in order."""
    return [node for step in world.done if isinstance(step, do.Restart) for node in step.nodes]
