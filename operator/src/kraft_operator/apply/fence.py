"""The fence before what disrupts: a second look, a deadline, one try. For both worlds.

A plan is made of views, and takes time to be carried out: objects that all nodes share come first, and the API server
may throttle. What disrupts is therefore planned alone, and right before it everything is looked at and planned again.
Only views younger than the first plan count. If the planner gives another answer, nothing is done in this pass.

Who calls it: the reconciler and the local supervisor, each with its own eyes. It does not act itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from kraft_operator.plan.observed import Observed
from kraft_operator.plan.situation import Situation
from kraft_operator.plan.steps import Plan

LOOKS_S: Final = 3.0
"""How long views younger than the plan are waited for: brokers follow the metadata log within half a second."""
PAUSE_S: Final = 0.2

Look = Callable[[], Awaitable[Observed]]
Think = Callable[[Observed], tuple[Plan, Situation | None]]


@dataclass(frozen=True, slots=True)
class Permit:
    """The plan of a second look, and the moment of the clock at which it expires.

    It is a moment, not a duration: every request between the look and the act counts against it.
    """

    plan: Plan
    expires_at: float


async def looked_again(planned: Plan, look: Look, think: Think, clock: Callable[[], float]) -> Permit | None:
    """A permit if the second look says the same, else None."""
    planned_at = clock()
    while True:
        observed = await look()
        looked_at = clock()
        since_s = looked_at - planned_at
        again, s = think(replace(observed, since_write_ms=min(observed.since_write_ms, since_s * 1000)))
        if again.guarded == planned.guarded:
            return Permit(again, looked_at + again.good_ms / 1000)
        known = s is not None and s.quorum is not None and s.metadata is not None
        if known or since_s > LOOKS_S:
            return None
        await asyncio.sleep(PAUSE_S)
