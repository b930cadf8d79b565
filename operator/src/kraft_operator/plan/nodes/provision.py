"""Volumes, formats and pods: work that disrupts nothing, for all nodes at once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from kraft_operator.plan.model.observed import Job, Volume
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import (
    CreatePod,
    CreateVolume,
    DropJob,
    Format,
    GrowVolume,
    MarkFormatted,
    Remember,
    RestoreConfig,
    RewriteAspects,
)
from kraft_operator.plan.nodes.volumes import released


def provision(s: Situation) -> None:
    """Plan missing volumes, formats, pods and ConfigMaps of all nodes."""
    formatted: list[Node] = []
    for node in s.record.nodes:
        _restore(s, node)
        _rewrite(s, node)
        if node.stopped or node.id in s.wanted.skip:
            continue
        if not node.formatted:
            if s.wanted.pool(node.pool) is None:
                continue  # it leaves as it is
            _format(s, node, formatted)
        elif (
            _own_volume(s, node, formatted) and s.runs(node) and not s.wanted.hibernated and node.id not in s.kube.pods
        ):
            _start(s, node)
    # Steps of one kind are carried out together, kind by kind: no pod waits for the marks of other nodes.
    s.plan.steps.sort(key=lambda step: not isinstance(step, CreatePod))
    record = s.record.having(*formatted)
    if s.wanted.racks:
        record = record.having(*(replace(node, rack=s.rack(node)) for node in record.nodes if node.broker))
    if record != s.record:
        ids = ", ".join(str(node.id) for node in record.nodes if node not in s.record.nodes)
        what = "volumes of {} are formatted" if formatted else "racks of {} are known"
        s.plan.steps.insert(0, Remember(record, what.format(ids)))


def _restore(s: Situation, node: Node) -> None:
    """Restore the missing ConfigMap of an existing pod: the pod needs it at its next start."""
    pod = s.kube.pods.get(node.id)
    if pod is None or not pod.missing or pod.terminating:
        return
    if pod.restorable:
        s.plan.steps.append(RestoreConfig(node.id, pod.missing, pod.aspects))
    elif pod.running:
        text = f"{pod.missing} of {node.kind} is gone, and the specification has changed since: its pod runs, and"
        s.plan.block("ConfigLost", f"{text} would not start again; it restarts as soon as that is safe")


def _rewrite(s: Situation, node: Node) -> None:
    """Rewrite aspects of an older operator, so that later changes are compared in this operator's form."""
    pod, older = s.kube.pods.get(node.id), s.older_aspects(node)
    if pod is not None and older and not pod.terminating and node.id not in s.wanted.skip:
        s.plan.steps.append(RewriteAspects(node.id, older))


def _start(s: Situation, node: Node) -> None:
    if s.wanted.pool(node.pool) is not None:
        s.plan.steps.append(CreatePod(node.id, s.aspects(node)))
    else:
        text = f"{node.kind} has no pod, and its pool {node.pool} was removed: it leaves as it is;"
        s.plan.block("PoolGone", f"{text} if the node must run for that, add the pool again until it has left")


def _own_volume(s: Situation, node: Node, formatted: list[Node]) -> bool:
    """Whether the disk in force exists and belongs to the node. Also plans larger and added volumes."""
    volume = s.kube.volumes.get((node.id, node.disk))
    if s.held(node):
        return False
    if volume is None:
        s.plan.block(
            "VolumeLost",
            f"the volume of {node.kind} (disk {node.disk}) is missing and is not replaced: restore it, or add"
            f" to spec.replacements an entry for node {node.id}",
        )
        return False
    if volume.formatted_for != f"{s.record.cluster_id}/{node.id}":
        whose = volume.formatted_for or "nobody"
        s.plan.block(
            "ForeignVolume", f"the volume of {node.kind} (disk {node.disk}) belongs to {whose}: left untouched"
        )
        return False
    wanted = _sizes(s, node)
    lost = set(node.volumes) - volume.size_bytes.keys() if volume.size_bytes else set()
    if lost:
        s.plan.block(
            "VolumeLost",
            f"volume {min(lost)} of {node.kind} (disk {node.disk}) is missing and is not replaced: restore it, or add"
            f" to spec.replacements an entry for node {node.id}",
        )
        return False
    more = {k: v for k, v in wanted.items() if v > volume.size_bytes.get(k, v)}
    if more:
        s.plan.steps.append(GrowVolume(node.id, node.disk, more))
    return _added(s, node, volume, wanted, formatted)


def _sizes(s: Situation, node: Node) -> Mapping[str, int]:
    pool = s.wanted.pool(node.pool)
    return pool.size_bytes if pool is not None else {}


def _added(s: Situation, node: Node, volume: Volume, wanted: Mapping[str, int], formatted: list[Node]) -> bool:
    """Plan volumes that were added to a pool: create them at once, format them while the node is down for its restart.

    Returns whether the node may run. A running pod goes on without them, because its directories are locked against
    a format. Volumes that were removed from the pool are recorded until they are empty and no pod mounts them.
    """
    if not volume.size_bytes or s.wanted.pool(node.pool) is None:
        return True
    there, unmarked = volume.size_bytes.keys() & wanted.keys(), volume.unmarked & wanted.keys()
    if wanted.keys() - volume.size_bytes.keys():
        s.plan.steps.append(CreateVolume(node.id, node.disk))
        return node.id in s.kube.pods
    if not unmarked:
        mine = there | (s.removed(node) - released(s, node))
        if set(node.volumes) != mine:
            formatted.append(replace(node, volumes=tuple(sorted(mine))))
        # The mark means that no pod needs the volume. If the volume has returned, the mark goes before a pod mounts
        # it.
        return not volume.marks.keys() & wanted.keys()
    if node.id in s.kube.pods:
        return True
    job = s.kube.jobs.get((node.id, node.disk))
    names = ", ".join(sorted(unmarked))
    if job is None or 0 < job.volumes < len(there):
        aspects = s.format_aspects(node)
        s.plan.steps.append(Format(node.id, node.disk, volumes=len(there), aspects=aspects))
    else:
        _follow(s, node, job, f"volume {names}")
    return False


def _format(s: Situation, node: Node, formatted: list[Node]) -> None:
    """Plan the next step towards a formatted disk. If it is formatted, add the node to `formatted`."""
    key = (node.id, node.disk)
    volume = s.kube.volumes.get(key)
    job = s.kube.jobs.get(key)
    own = f"{s.record.cluster_id}/{node.id}"
    sizes = _sizes(s, node)
    if volume is None or (volume.size_bytes and sizes.keys() - volume.size_bytes.keys()):
        s.plan.steps.append(CreateVolume(*key))
    elif volume.formatted_for == own and not (volume.unmarked & sizes.keys() if sizes else volume.unmarked):
        mine = volume.size_bytes.keys() - volume.unmarked
        formatted.append(replace(node, formatted=True, volumes=tuple(sorted(mine))))
    elif volume.formatted_for not in {"", own}:
        s.plan.block(
            "ForeignVolume",
            f"the volume of {node.kind} (disk {node.disk}) belongs to {volume.formatted_for}: left untouched",
        )
    elif job is None:
        # The log begins with the first disks of the first voters. All other controllers join an existing quorum.
        joins = not s.static and (node.id not in s.record.voters or node.disk > 0)
        s.plan.steps.append(Format(*key, joins=joins, aspects=s.format_aspects(node)))
    else:
        _follow(s, node, job, "its volume")


def _follow(s: Situation, node: Node, job: Job, what: str) -> None:
    """Follow an existing format job: mark the volumes, drop it to apply a correction, or report its state.

    A job of a deleted volume proves nothing about the volume that took its name.
    """
    if job.former and not job.runs:
        s.plan.steps.append(DropJob(node.id, node.disk))
    elif job.former:
        s.plan.waits.append(f"{node.kind}: the job that formats a deleted volume ends")
    elif job.state == "done":
        s.plan.steps.append(MarkFormatted(node.id, node.disk, tuple(sorted(job.mounts))))
    elif not job.runs and job.aspects is not None and job.aspects != s.format_aspects(node):
        s.plan.steps.append(DropJob(node.id, node.disk))
    elif job.state == "failed":
        text = f"{node.kind}: {what} was not formatted: {job.message}"
        s.plan.block("FormatFailed", text + "; correct the cause, or delete the job to run it again")
    else:
        s.plan.waits.append(f"{node.kind}: {what} is being formatted" + (f": {job.message}" if job.message else ""))
