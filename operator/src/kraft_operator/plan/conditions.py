"""Conditions of the resource, computed from a plan. Pure; the reconciler adds times and writes them.

- Ready: all nodes serve.
- QuorumHealthy: all voters are live.
- Progressing: the operator works or waits for something to finish.
- Degraded: the operator cannot continue without the user.
- Paused: a user's request makes the operator wait.
- Migrated: no migration from ZooKeeper is under way any more. Only clusters with `spec.migration` have it.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from kraft_operator.plan.migration import active_migration, reason_against_end
from kraft_operator.plan.model.record import FINALIZED, FINALIZING, PREPARING
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Plan

TELLS_MAX: Final = 5
"""The most reasons that one message spells out. The log has all of them."""

WAITING: Final = frozenset({"Paused", "RollPaused", "ApprovalNeeded", "OutsideWindow"})
"""Reasons of work that waits at the request of a user. They count as Paused, not as Degraded."""


class ConditionState(NamedTuple):
    """A condition without its times."""

    type: str
    status: str
    reason: str
    message: str


def conditions(s: Situation | None, plan: Plan) -> list[ConditionState]:
    """All five conditions, always in the same order. `s` is None while pods and volumes are unknown."""
    return [_ready(s), _quorum(s), _progressing(s, plan), _degraded(plan), _paused(plan)]


def migrated(s: Situation | None, phase: str) -> ConditionState | None:
    """The condition Migrated of a cluster that migrates from ZooKeeper, in the recorded phase; None for others."""
    if phase == FINALIZED:
        return ConditionState("Migrated", "True", phase, "nothing is written to ZooKeeper any more")
    if not phase:
        return None
    if phase == FINALIZING:
        return ConditionState("Migrated", "False", phase, "the controllers restart without ZooKeeper")
    active = active_migration(s) if s is not None else None
    if s is None or active is None:
        return ConditionState("Migrated", "Unknown", "MigrationUnknown", "no controller reports that it is active")
    if active.blockers:
        return ConditionState("Migrated", "False", "MigrationBlocked", _joined(list(active.blockers)))
    if phase == PREPARING:
        return ConditionState("Migrated", "False", phase, "the controllers migrate the metadata from ZooKeeper")
    against = reason_against_end(s)
    if against is not None:
        return ConditionState("Migrated", "False", "BrokersOnZooKeeper" if active.on_zookeeper else phase, against)
    return ConditionState("Migrated", "False", "ReadyToFinalize", "set spec.migration.phase to Finalized")


def _joined(texts: list[str]) -> str:
    more = len(texts) - TELLS_MAX
    return "; ".join(texts[:TELLS_MAX]) + (f"; and {more} more" if more > 0 else "")


def _ready(s: Situation | None) -> ConditionState:
    if s is None:
        return ConditionState("Ready", "Unknown", "KubernetesUnknown", "pods and volumes are not known")
    if s.wanted.hibernated:
        running = sum(node.id in s.kube.pods for node in s.record.nodes)
        nodes = f"{running} nodes still have a pod" if running else "all nodes are stopped"
        return ConditionState("Ready", "False", "Hibernated", f"{nodes}; their volumes stay")
    missing = [*s.unsettled(), *s.outdated()]
    if not s.record.nodes:
        return ConditionState("Ready", "False", "Beginning", "nodes are being assigned")
    if missing:
        return ConditionState("Ready", "False", "NodesNotReady", _joined(missing))
    early = [node.id for node in s.record.nodes if s.too_early(node) and not node.stopped]
    if early:
        text = f"brokers {early} start once the controllers have migrated the metadata"
        return ConditionState("Ready", "False", "MetadataInZooKeeper", text)
    if s.quorum is None:
        return ConditionState("Ready", "Unknown", "QuorumUnknown", "the state of the quorum is unknown")
    return ConditionState("Ready", "True", "Serving", f"{len(s.record.nodes)} nodes serve")


def _quorum(s: Situation | None) -> ConditionState:
    if s is None or s.quorum is None:
        return ConditionState("QuorumHealthy", "Unknown", "QuorumUnknown", "no controller has named the leader")
    behind = sorted(set(s.quorum.voters) - s.live_voters())
    if behind:
        names = ", ".join(map(str, behind))
        return ConditionState(
            "QuorumHealthy", "False", "VotersBehind", f"voter {names} of {sorted(s.quorum.voters)} behind or down"
        )
    return ConditionState("QuorumHealthy", "True", "AllCaughtUp", f"{s.quorum.leader} leads in epoch {s.quorum.epoch}")


def _progressing(s: Situation | None, plan: Plan) -> ConditionState:
    if plan.steps:
        names = list(dict.fromkeys(type(step).__name__ for step in plan.steps))
        return ConditionState("Progressing", "True", names[-1], _joined(names))
    if plan.waits:
        return ConditionState("Progressing", "True", "Waiting", _joined(plan.waits))
    missing = s.unsettled() if s is not None and not s.wanted.hibernated and not s.wanted.paused else []
    if missing:
        return ConditionState("Progressing", "True", "Waiting", _joined(missing))
    return ConditionState(
        "Progressing", "False", "Settled", "nothing to do" if not plan.blocked else "see Degraded, Paused"
    )


def _degraded(plan: Plan) -> ConditionState:
    wrong = [blocked for blocked in plan.blocked if blocked.reason not in WAITING]
    if not wrong:
        return ConditionState("Degraded", "False", "NothingBlocked", "")
    return ConditionState("Degraded", "True", wrong[0].reason, _joined([blocked.message for blocked in wrong]))


def _paused(plan: Plan) -> ConditionState:
    waiting = [blocked for blocked in plan.blocked if blocked.reason in WAITING]
    if not waiting:
        return ConditionState("Paused", "False", "NotPaused", "")
    return ConditionState("Paused", "True", waiting[0].reason, _joined([blocked.message for blocked in waiting]))
