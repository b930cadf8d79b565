"""Whom others may evict now (`kubectl drain`): what the disruption budgets say.

A budget alone counts ready pods. A broker is ready before its replicas are in sync again, and a drain that goes on
then takes a second replica. So a role is held until every ISR is whole or has one to spare: none of it may be evicted.
"""

from __future__ import annotations

from typing import Final

from kraft_operator.plan.gates import partitions_known
from kraft_operator.plan.situation import Situation

ROLES: Final = frozenset({"controller", "broker"})


def held(s: Situation) -> frozenset[str]:
    """Roles of which nobody may be evicted; what is unknown is held."""
    found = set()
    voters = s.quorum.voters if s.quorum is not None else ()
    if not voters or not s.live_voters().issuperset(voters):
        found.add("controller")
    if partitions_known(s) is not None or _recover(s):
        found.add("broker")
    return frozenset(found)


def _recover(s: Situation) -> bool:
    """Whether some partition could not spare any of its replicas, and has fewer in sync than it should have."""
    assert s.metadata is not None
    serving = s.serving()
    for partition in s.metadata.partitions:
        left = partition.isr & serving
        need = min(partition.min_isr, len(partition.replicas))
        if len(left) < len(partition.replicas) and len(left) <= need:
            return True
    return False
