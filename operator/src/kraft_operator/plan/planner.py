"""The planner's order of work. `plan` is pure: a pass depends on its arguments only.

The order: assign nodes, and record that before any other step. Record formatted volumes the same way. Then plan all
work that does not disrupt, for all nodes at once. Then plan at most one disruption, tried in this order: a replacement,
a restart, a change of voters, a node that leaves.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kraft_operator.plan.evictions import held
from kraft_operator.plan.migration import migrate
from kraft_operator.plan.model.observed import Aged, Observed
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.situation import Situation, situation
from kraft_operator.plan.model.steps import Blocked, Plan, Recreate, Remember, Restart, SetConfig, Stop
from kraft_operator.plan.model.values import same
from kraft_operator.plan.model.wanted import STARTS_WITH, Wanted, keys_of
from kraft_operator.plan.nodes.assign import assigned
from kraft_operator.plan.nodes.finalize import finalize
from kraft_operator.plan.nodes.leave import leave
from kraft_operator.plan.nodes.lost import report_lost, report_unplaced
from kraft_operator.plan.nodes.provision import provision
from kraft_operator.plan.nodes.replace import replacement
from kraft_operator.plan.nodes.roll import recover, roll
from kraft_operator.plan.nodes.volumes import empty
from kraft_operator.plan.nodes.voters import change_voters, former_leader
from kraft_operator.plan.replicas.moves import move, throttles

ACT_AGE_MAX_MS: Final = 5_000
"""The greatest age of any view, in milliseconds, when a node is taken down."""


def plan(record: Record, wanted: Wanted, observed: Observed, fresh_id: str) -> Plan:
    """Plan the next steps.

    `fresh_id` becomes the cluster id if the record, the specification and kept volumes lack an id.
    """
    s = situation(record, wanted, observed)
    if s is None:
        return Plan(blocked=[Blocked("KubernetesUnknown", "pods and volumes are not known well enough to take a step")])
    if wanted.paused:
        return Plan(blocked=[Blocked("Paused", "spec.paused is set: the operator only watches")])
    now = assigned(record, wanted, s.kube, fresh_id)
    if isinstance(now, Blocked):
        return Plan(blocked=[now])
    if now != record:
        return Plan(steps=[Remember(now, "nodes are assigned")])
    gone = _all_gone(s)
    if gone is not None:
        return Plan(blocked=[gone])
    s.plan.held = held(s)
    report_lost(s)
    provision(s)
    if s.plan.steps and isinstance(s.plan.steps[0], Remember):
        del s.plan.steps[1:]  # the next plan follows at once, from the same views: it starts the nodes of the record
        return s.plan
    recover(s)
    empty(s)
    move(s)
    _configure(s)
    migrate(s)
    _name_failing(s)
    report_unplaced(s)
    if wanted.hibernated:
        _hibernate(s)
    elif not any(isinstance(step, Remember | Recreate) for step in s.plan.steps):
        # Decisions from above come first: of two record writes in one plan, one would be lost.
        _disturb(s)
        _supervise(s)
    _fence(s, observed)
    return s.plan


def _fence(s: Situation, observed: Observed) -> None:
    """Keep a guarded step only if it is alone in the plan and all views are recent enough for it.

    All other steps come first. Steps that the previous pass already tried do not delay the guarded step. A view that
    the situation dropped as too old counts as unknown, and its age does not matter. While a cluster hibernates, the
    last controllers have no leader that describes the quorum again.
    """
    plan, act = s.plan, s.plan.guarded
    if act is None:
        return
    views: list[tuple[Aged[Any], object]] = [
        (observed.kube, s.kube),
        (observed.quorum, s.quorum),
        (observed.metadata, s.metadata),
        (observed.migration, s.migration or None),
        *((view, s.disks.get(node)) for node, view in observed.disks.items()),
    ]
    plan.good_ms = ACT_AGE_MAX_MS - max(view.age_ms for view, used in views if used is not None)
    others = [step for step in plan.steps if step != act]
    if all(step in observed.tried for step in others) and plan.good_ms > 0:
        plan.steps = [act]
        return
    plan.steps = others
    if plan.good_ms <= 0:
        plan.waits.append(f"{type(act).__name__} waits: the views are older than {ACT_AGE_MAX_MS // 1000} s")


def _name_failing(s: Situation) -> None:
    """Report pods that cannot start without help: the image cannot be pulled, or the process ends at each start."""
    for node in s.record.nodes:
        pod = s.kube.pods.get(node.id)
        if pod is not None and pod.fails and not pod.terminating:
            s.plan.block("PodFails", f"the pod of {node.kind} does not start: {pod.message}")


def _all_gone(s: Situation) -> Blocked | None:
    """Block if the record has formatted nodes, but no volume or pod exists; None otherwise.

    Either a restore is not complete, or a new cluster should begin with an old record.
    """
    formatted = [node.id for node in s.record.nodes if node.formatted and not node.leaving]
    if not formatted or s.kube.volumes or s.kube.pods or any(s.held(node) for node in s.record.nodes):
        return None
    text = f"the record has nodes {formatted}, but their volumes do not exist: restore the volumes; or, to begin a new"
    how = "delete the resource and its record (on Kubernetes the ConfigMap NAME-record), and apply it again"
    return Blocked("VolumesGone", f"{text} cluster, {how}")


def _disturb(s: Situation) -> None:
    """Plan at most one disruption; without a disruption, plan to finalize metadata.version."""
    if former_leader(s) or replacement(s):
        return
    if roll(s) and s.plan.disruptive is not None:
        return
    if change_voters(s) and any(isinstance(step, Remember | Restart) for step in s.plan.steps):
        return
    if s.plan.disruptive is None and not leave(s):
        finalize(s)


def _configure(s: Situation) -> None:
    """Set the wanted dynamic values, and remove values that the operator has set and that are no longer wanted.

    A value is removed only once no running node was started with a value of its key. Otherwise, the value from the
    node's file would come into force again.
    """
    if s.metadata is None or not any(not broker.fenced for broker in s.metadata.brokers.values()):
        return
    there, wanted = s.metadata.dynamic_config, {**throttles(s), **s.wanted.dynamic_config}
    managed = tuple(sorted({*s.record.managed_config, *wanted}))
    if managed != s.record.managed_config:
        if not any(isinstance(step, Remember) for step in s.plan.steps):
            record = replace(s.record, managed_config=managed)
            s.plan.steps.append(Remember(record, "dynamic values are about to be set"))
        return
    put = {key: value for key, value in wanted.items() if not same(there.get(key), value)}
    held = {key for pod in s.kube.pods.values() for key in keys_of(pod.aspects.get(STARTS_WITH, ""))}
    remove = tuple(key for key in managed if key in there and key not in wanted and key not in held)
    if put or remove:
        s.plan.steps.append(SetConfig(put, remove))


def _hibernate(s: Situation) -> None:
    """Stop all nodes one by one, without gates. Brokers stop first, because their clean stop needs the controllers."""
    if any(pod.terminating for pod in s.kube.pods.values()):
        s.plan.waits.append("hibernation: a node stops")
        return
    running = [node for node in s.record.nodes if node.id in s.kube.pods and node.id not in s.wanted.skip]
    if running:
        leader = s.quorum.leader if s.quorum is not None else -1
        first = min(running, key=lambda node: (not node.broker, node.id == leader, node.id))
        s.plan.steps.append(Stop(first.id, "hibernation"))


def _supervise(s: Situation) -> None:
    """Hold back the disruptive step of a supervised cluster until its revision is approved."""
    step = s.plan.disruptive
    if step is None or not s.wanted.supervised or s.wanted.approved == s.wanted.revision:
        return
    s.plan.steps.remove(step)
    s.plan.pending = step
    s.plan.block("ApprovalNeeded", f"revision {s.wanted.revision} waits for approval: kubectl kraft approve")
