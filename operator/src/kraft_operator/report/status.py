"""The status of the resource from record, situation and plan. Pure: equal input gives an equal status."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, Final, Literal

from kraft_operator.api.base import GROUP
from kraft_operator.api.status import (
    PARTITIONS_NAMED_MAX,
    BrokerAddress,
    Condition,
    KRaftClusterStatus,
    ListenerStatus,
    MigrationStatus,
    NodeStatus,
    PartitionsStatus,
    StepStatus,
)
from kraft_operator.plan import conditions as planned
from kraft_operator.plan.migration import active_migration, partitions_outside
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.levels import name_of
from kraft_operator.plan.model.observed import Metadata, Observed
from kraft_operator.plan.model.record import FINALIZED, MIGRATED, PLAINTEXT, Node, Record
from kraft_operator.plan.model.situation import BEHIND_MAX_MS, BEING_STARTED, Situation, is_broker
from kraft_operator.plan.model.steps import DISRUPTIVE, Plan, Step
from kraft_operator.specs.cluster import INSTANCE, NamedCluster
from kraft_operator.specs.mode import has_begun, secured
from kraft_operator.specs.remembered import remembered

LISTED_MAX: Final = 5
"""Maximum number of names in the text of a step."""
PLAN_LINES_MAX: Final = 20
"""Maximum number of next steps. The nodes' `needsRestart` has all of them."""


def status(
    cluster: NamedCluster,
    record: Record,
    s: Situation | None,
    plan: Plan,
    before: KRaftClusterStatus,
    *,
    generation: int,
    now: str,
    version: str = "",
    revision: str = "",
) -> KRaftClusterStatus:
    """The whole status. `now` is written only to conditions that changed since `before`.

    `record` is the record in force; it is newer than the situation's if the plan changed it. `version` is the
    finalized metadata.version, empty if unknown.
    """
    nodes = [_node(cluster, node, s, plan) for node in record.nodes]
    values: dict[str, Any] = {
        **remembered(record),
        "observedGeneration": generation,
        "conditions": _conditions(cluster, record, s, plan, before, generation, now),
        "security": (record.security or PLAINTEXT) if has_begun(record) else None,
        "nodes": nodes,
        "listeners": before.listeners if s is None else _listeners(s),
        "migration": _migration(record, s, before),
        "leader": None if s is None or s.quorum is None else s.quorum.leader,
        "version": version or before.version,
        "controllers": _share(nodes, "controller"),
        "brokers": _share(nodes, "broker"),
        "partitions": before.partitions if s is None or s.metadata is None else _partitions(s.metadata),
        "replicas": _scaled(cluster, record),
        "selector": f"{INSTANCE}={cluster.name},{_scaled_label(cluster)}",
        "step": _step(plan),
        "plan": _lines(nodes, plan),
        "balance": plan.load,
        "revision": revision,
        "lastReconcileTime": before.last_reconcile_time,
    }
    return KRaftClusterStatus.model_validate(values)


def document(status: KRaftClusterStatus) -> dict[str, Any]:
    """The phase as a text of the resource."""
    return status.model_dump(by_alias=True, exclude_none=True)


def version_of(observed: Observed) -> str:
    """The finalized metadata.version by name; empty if it is unknown."""
    metadata = observed.metadata.value
    level = None if metadata is None else metadata.features.get("metadata.version")
    return "" if level is None else name_of(level)


def _conditions(
    cluster: NamedCluster,
    record: Record,
    s: Situation | None,
    plan: Plan,
    before: KRaftClusterStatus,
    generation: int,
    now: str,
) -> list[Condition]:
    """The conditions, each with the time of its last change."""
    old = {condition.type: condition for condition in before.conditions}
    found = []
    states = [*planned.conditions(s, plan), planned.ConditionState("Secured", *secured(cluster))]
    migrated = planned.migrated(s, record.migration)
    for condition in states if migrated is None else [*states, migrated]:
        former = old.get(condition.type)  # type: ignore[call-overload]
        since = former.last_transition_time if former is not None and former.status == condition.status else now
        values = {**condition._asdict(), "last_transition_time": since, "observed_generation": generation}
        found.append(Condition.model_validate(values))
    return found


def _migration(record: Record, s: Situation | None, before: KRaftClusterStatus) -> MigrationStatus | None:
    """The migration from ZooKeeper. What is unknown now stays as it was."""
    if not record.migration:
        return None
    found = MigrationStatus.model_validate({"phase": record.migration})
    active = active_migration(s) if s is not None and record.migration != FINALIZED else None
    if active is not None:
        found.state, found.driver, found.lag = active.state, active.driver, active.lag
        found.brokers_on_zookeeper, found.blockers = list(active.on_zookeeper), list(active.blockers)
    elif before.migration is not None and record.migrates:
        found = before.migration.model_copy(update={"phase": found.phase})
    if record.migration == MIGRATED:
        outside = partitions_outside(s) if s is not None else None
        if outside is None and before.migration is not None:
            outside = before.migration.partitions_outside
        found.partitions_outside = outside
    return found


def _node(cluster: NamedCluster, node: Node, s: Situation | None, plan: Plan) -> NodeStatus:
    pool = cluster.pool(node.pool)
    roles: list[Literal["controller", "broker"]] = []
    roles += ["controller"] * node.controller
    roles += ["broker"] * node.broker
    found = NodeStatus(
        id=node.id,
        pool=node.pool,
        roles=roles,
        disk=node.disk,
        formatted=node.formatted,
        leaving=node.leaving,
        stopped=node.stopped,
        volumes=list(node.volumes),
        rack=node.rack,
        pod=cluster.node(node.id),
        volume=cluster.claim(pool.storage.volumes[0].name, node.id, node.disk) if pool is not None else "",
    )
    if s is None:
        return found
    found.state = state(node, s, plan)
    found.needs_restart = s.lacks(node)
    if s.quorum is not None:
        replica = {**s.quorum.observers, **s.quorum.voters}.get(node.id)
        found.epoch = s.quorum.epoch
        if node.controller:
            votes = "voter" if node.id in s.quorum.voters else "observer"
            found.quorum = "leader" if node.id == s.quorum.leader else votes
        # A follower that fetches twice a second is always a record or two behind: not worth a write of the status.
        found.lag = None if replica is None else replica.lag if replica.behind_ms > BEHIND_MAX_MS else 0
    return found


def state(node: Node, s: Situation, plan: Plan) -> str:
    """The state of a node in one or two words."""
    pod = s.kube.pods.get(node.id)
    if pod is None:
        return _state_without_pod(node, s, plan)
    if pod.lost:
        return "MachineLost"
    if pod.terminating:
        return "Stopping"
    if pod.unplaced:
        return "Unschedulable"
    if not pod.ready:
        # A pod that was just made has no state yet.
        return "Starting" if pod.running or pod.message == BEING_STARTED else "Failing"
    if is_broker(pod) and s.metadata is not None and not s.serves(node.id):
        return "Fenced"
    return "Leaving" if node.leaving else "Ready"


def _state_without_pod(node: Node, s: Situation, plan: Plan) -> str:
    """The state of a node without a pod. It waits if this plan does not start it, for example for its volume."""
    if node.stopped or s.wanted.hibernated:
        return "Stopped"
    if any(isinstance(step, do.CreatePod) and step.node == node.id for step in plan.steps):
        return "Starting"
    if node.formatted:
        return "Waiting"
    job = s.kube.jobs.get((node.id, node.disk))
    return "Failing" if job is not None and job.state == "failed" else "Formatting"


def _listeners(s: Situation) -> list[ListenerStatus]:
    return [
        ListenerStatus(
            name=one.name,
            type=one.type,
            bootstrap_servers=one.bootstrap,
            brokers=[BrokerAddress(node=node, address=address) for node, address in sorted(one.brokers.items())],
        )
        for one in s.kube.listeners
    ]


def _share(nodes: list[NodeStatus], role: str) -> str:
    mine = [node for node in nodes if role in node.roles and not node.stopped]
    return f"{sum(node.state in {'Ready', 'Leaving'} for node in mine)}/{len(mine)}"


def _scaled(cluster: NamedCluster, record: Record) -> int:
    """The number of nodes in the pool that `spec.replicas` scales."""
    names = {pool.name for pool in cluster.spec.node_pools if pool.replicas is None}
    return sum(node.pool in names and not node.stopped for node in record.nodes)


def _scaled_label(cluster: NamedCluster) -> str:
    """The selector of their pods; of all brokers if no pool follows `spec.replicas`."""
    pool = next((pool.name for pool in cluster.spec.node_pools if pool.replicas is None), None)
    return f"{GROUP}/broker=true" if pool is None else f"{GROUP}/pool={pool}"


def _partitions(metadata: Metadata) -> PartitionsStatus:
    """Partitions with problems; partitions that refuse writes come first."""
    found = metadata.partitions
    behind = [one for one in found if len(one.isr) < len(one.replicas)]
    refused = {one.name for one in behind if len(one.isr) < min(one.min_isr, len(one.replicas))}
    named = sorted(behind, key=lambda one: (one.name not in refused, one.topic, one.number))
    return PartitionsStatus(
        total=len(found),
        under_replicated=len(behind),
        under_min_isr=len(refused),
        moving=sum(one.moving for one in found),
        named=[
            f"{one.name}: in sync {_ids(one.isr)} of {_ids(one.replicas)}, at least {one.min_isr}"
            for one in named[:PARTITIONS_NAMED_MAX]
        ],
    )


def _ids(ids: Iterable[int]) -> str:
    return ",".join(map(str, sorted(ids))) or "none"


def nodes_of(step: Step) -> list[int]:
    """The nodes that a step changes."""
    nodes = getattr(step, "nodes", None)
    if nodes is not None:
        return list(nodes)
    node = getattr(step, "node", None)
    return [] if node is None else [node]


def step_text(step: Step) -> str:
    """A step in words: its kind, its nodes, and its reason or its effect."""
    return step_texts([step])[0]


def step_texts(steps: Iterable[Step]) -> list[str]:
    """Steps of the same kind in words. Steps that differ only in their node share a sentence."""
    groups: dict[tuple[str, str], list[str]] = {}
    for step in steps:
        what = getattr(step, "why", "") or _changes(step)
        groups.setdefault((type(step).__name__, what), []).extend(map(str, nodes_of(step)))
    return [
        kind + (f" {', '.join(nodes)}" if nodes else "") + (f": {what}" if what else "")
        for (kind, what), nodes in groups.items()
    ]


def _changes(step: Step) -> str:
    """The effect of a step without a reason."""
    match step:
        case do.CreateVolume(disk=disk):
            return f"the claims of disk {disk} are created"
        case do.Format(disk=disk):
            return f"the job that formats disk {disk} is created"
        case do.DropJob(disk=disk):
            return f"the job that formats disk {disk} is deleted"
        case do.MarkFormatted(disk=disk):
            return f"disk {disk} is formatted, and its claims are marked as the node's"
        case do.MarkReplaced(disk=disk, names=names):
            return f"the claims of disk {disk} record that replacement {_listed(list(names))} is done"
        case do.GrowVolume(size_bytes=sizes):
            return _listed([f"{name} to {size} bytes" for name, size in sorted(sizes.items())])
        case do.MarkVolume(volumes=volumes, mark=mark):
            return f"volume {', '.join(volumes)} is {mark.lower()}" if mark else f"volume {', '.join(volumes)} is back"
        case do.Cordon(paths=paths):
            return f"no new replica goes to {', '.join(paths)}" if paths else "new replicas go to all log directories"
        case do.MoveLogs(moves=moves):
            return f"{len(moves)} replicas move to other log directories"
        case do.DeleteVolume(disk=disk, volumes=volumes) if volumes:
            return f"the claims of volume {', '.join(volumes)} (disk {disk}), which are empty"
        case do.DeleteVolume(disk=disk):
            return f"the claims of disk {disk} are deleted by deletionPolicy"
        case do.CreatePod():
            return "its pod is created"
        case do.RestoreConfig(name=name):
            return f"{name} is created again, as its pod needs it"
        case do.RewriteAspects():
            return "the annotations of its pod get the form of this operator, without a restart"
        case do.SetConfig(put=put, remove=remove):
            return _listed(
                [*(f"{key}={value}" for key, value in put.items()), *(f"{key} is removed" for key in remove)]
            )
        case do.SetFeature(name=name, level=level):
            return f"{name} is finalized at level {level}"
        case do.Throttle(topics=topics, on=on):
            return f"replicas of {_listed(topics)} are throttled {'while they move' if on else 'no longer'}"
        case do.Reassign(moves=moves):
            return _listed([f"{topic}-{number} to {_ids(ids)}" for (topic, number), ids in moves.items()])
        case do.Unregister():
            return "its registration is removed"
        case do.AddVoter():
            return "it becomes a voter"
    return ""


def _listed(words: Sequence[str]) -> str:
    more = len(words) - LISTED_MAX
    return ", ".join(words[:LISTED_MAX]) + (f" and {more} more" if more > 0 else "")


def _step(plan: Plan) -> StepStatus | None:
    step = plan.pending or plan.disruptive or (plan.steps[-1] if plan.steps else None)
    waits = plan.waits[0] if plan.waits else plan.blocked[0].message if plan.blocked else ""
    if step is None:
        return StepStatus(action="Wait", waits_for=waits) if plan.waits else None
    waits = "approval" if step is plan.pending else waits if isinstance(step, DISRUPTIVE) else ""
    return StepStatus(action=type(step).__name__, nodes=nodes_of(step), why=getattr(step, "why", ""), waits_for=waits)


def _lines(nodes: list[NodeStatus], plan: Plan) -> list[str]:
    """The current step, the condition that it waits for, and the nodes that follow."""
    lines = [step_text(step) for step in plan.steps]
    if plan.pending is not None:
        lines.append(f"{step_text(plan.pending)} (waits for approval)")
    lines += [f"waits: {text}" for text in plan.waits]
    lines += [f"{blocked.reason}: {blocked.message}" for blocked in plan.blocked]
    now = {node_id for step in (*plan.steps, plan.pending) if step is not None for node_id in nodes_of(step)}
    for node in nodes:
        if node.needs_restart and node.id not in now:
            lines.append(f"later: Restart {node.id}: {', '.join(node.needs_restart)}")
    more = len(lines) - PLAN_LINES_MAX
    return [*lines[:PLAN_LINES_MAX], f"and {more} more"] if more > 0 else lines
