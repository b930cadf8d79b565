"""Which pods others may evict now (`kubectl drain`), through the disruption budgets.

A budget only counts ready pods. A broker is ready before its replicas are in sync again, so `kubectl drain` could then
take a second replica. Therefore a role is held until every ISR is complete or has a replica to spare. No pod of a held
role may be evicted.
"""

from __future__ import annotations

from typing import Final

from kraft_operator.plan.gates import partitions_known
from kraft_operator.plan.model.situation import Situation

ROLES: Final = frozenset({"controller", "broker"})


def held(s: Situation) -> frozenset[str]:
    """Roles with pods that must not be evicted. A role is held if its state is unknown."""
    found = set()
    voters = s.quorum.voters if s.quorum is not None else ()
    if not voters or not s.live_voters().issuperset(voters):
        found.add("controller")
    if partitions_known(s) is not None or _recover(s):
        found.add("broker")
    return frozenset(found)


def _recover(s: Situation) -> bool:
    """Whether a partition lacks in-sync replicas and cannot spare any of its remaining replicas."""
    assert s.metadata is not None
    serving = s.serving()
    for partition in s.metadata.partitions:
        left = partition.isr & serving
        need = min(partition.min_isr, len(partition.replicas))
        if len(left) < len(partition.replicas) and len(left) <= need:
            return True
    return False
