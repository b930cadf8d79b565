"""Blocks that are reported only after a while, because they often end by themselves. Until then the plan waits."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft_operator.plan.gates import voters_committed
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Plan

UNKNOWN_S: Final = 10.0
"""Missing or outdated views are reported only after this many seconds: after a step, they are outdated."""
UNKNOWN: Final = frozenset({"QuorumUnknown", "PartitionsUnknown", "VotersChange"})
UNPLACED: Final = frozenset({"Unschedulable"})
UNPLACED_S: Final = 30.0
"""Pods without a machine are reported only after this many seconds: volumes are being bound, other pods still end."""


@dataclass(slots=True)
class Patience:
    """When the views were last known, and when all pods last had a machine (monotonic seconds)."""

    known_at: float = float("-inf")
    placed_at: float = float("-inf")

    def hold(self, s: Situation | None, plan: Plan, now: float) -> None:
        """Make blocks of the plan to waits if their causes have not lasted long enough."""
        if s is not None and s.quorum is not None and s.metadata is not None and voters_committed(s) is None:
            self.known_at = now
        if not any(one.reason in UNPLACED for one in plan.blocked):
            self.placed_at = now
        young = UNKNOWN if now - self.known_at < UNKNOWN_S else frozenset()
        young |= UNPLACED if now - self.placed_at < UNPLACED_S else frozenset()
        plan.waits += [one.message for one in plan.blocked if one.reason in young]
        plan.blocked = [one for one in plan.blocked if one.reason not in young]
