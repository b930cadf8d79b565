"""The fence before a disruption: a second look, a deadline, one try. For clusters on Kubernetes and local clusters.

Carrying out a plan takes time: shared objects come first, and the API server may throttle. Meanwhile the views grow
old. Therefore a disruptive step is planned alone, and right before it everything is observed and planned again. Only
views younger than the first plan count. If the planner gives another answer, nothing is done in this pass.

The reconciler and the local supervisor call it with their own observations. It does not act itself.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from typing import Final

from kraft_operator.plan.model.observed import Observed
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Plan

LOOKS_S: Final = 3.0
"""How long to wait for views younger than the plan. Brokers follow the metadata log within half a second."""
PAUSE_S: Final = 0.2

Look = Callable[[], Awaitable[Observed]]
Think = Callable[[Observed], tuple[Plan, Situation | None]]


@dataclass(frozen=True, slots=True)
class Permit:
    """The plan of a second look, and the time of the clock in seconds at which it expires.

    The expiry is a time, not a duration, so every request between the look and the step counts against it.
    """

    plan: Plan
    expires_at: float


async def look_again(planned: Plan, look: Look, think: Think, clock: Callable[[], float]) -> Permit | None:
    """Observe and plan again. Returns a permit if the guarded step is the same, else None."""
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
