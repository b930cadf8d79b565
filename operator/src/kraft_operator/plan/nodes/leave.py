"""Removal of a node, or of a node's role.

The order: drain the broker and remove the voter -> stop the node for good -> unregister the broker -> keep or delete
its volumes by the policy -> forget the node and retire its id.
"""

from __future__ import annotations

from dataclasses import replace

from kraft_operator.plan.gates import node_without
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import DeleteVolume, DropJob, Remember, Stop, Unregister
from kraft_operator.plan.nodes.replace import marked
from kraft_operator.plan.nodes.voters import former
from kraft_operator.plan.replicas.drain import drained


def leave(s: Situation) -> bool:
    """Plan the next step of a node that leaves or gives up a role. Returns whether there was a step."""
    return any(_leaves(s, node) if node.leaving else _gives_up_role(s, node) for node in s.record.nodes)


def _free(s: Situation, node: Node) -> bool:
    """Whether a node is out of the quorum and has no replicas."""
    return (not node.controller or former(s, node)) and (not node.broker or drained(s, node))


def _leaves(s: Situation, node: Node) -> bool:
    if not _free(s, node) or node.id in s.wanted.skip:
        return False
    pod = s.kube.pods.get(node.id)
    if not node.stopped:
        s.plan.steps.append(Remember(s.record.having(replace(node, stopped=True)), f"{node.kind} is free to go"))
    elif pod is not None:
        blocked = None if pod.terminating or not pod.running else node_without(s, node)
        if pod.terminating:
            s.plan.waits.append(s.stops(node))
        elif blocked is not None:
            s.plan.block(blocked.reason, blocked.message)
        else:
            s.plan.steps.append(Stop(node.id, f"{node.kind} has left"))
    elif s.metadata is not None and node.id in s.metadata.brokers:
        s.plan.steps.append(Unregister(node.id))
    elif node.broker and s.metadata is None:
        s.plan.block("PartitionsUnknown", f"whether {node.kind} is still registered is unknown")
    else:
        _forget(s, node)
    return True


def _forget(s: Situation, node: Node) -> None:
    jobs = [disk for owner, disk in s.kube.jobs if owner == node.id]
    if jobs:
        s.plan.steps += [DropJob(node.id, disk) for disk in jobs]
        return
    pool = s.wanted.pool(node.pool)
    disks = [
        disk
        for (owner, disk), volume in s.kube.volumes.items()
        if owner == node.id
        and volume.formatted_for in {"", f"{s.record.cluster_id}/{node.id}"}  # others are left untouched
        and (volume.owned if pool is None else pool.delete_volumes)
    ]
    if disks:
        s.plan.steps += [DeleteVolume(node.id, disk) for disk in disks]
        return
    record = s.record.without(node.id)
    item = record.open_replacement()
    if item is not None and item.by == "NewId" and item.node == node.id:
        if item.new_id is not None and not marked(s, item, item.new_id):
            return
        record = record.replacing(replace(item, done=True))
    s.plan.steps.append(Remember(record, f"{node.kind} is forgotten, its id retired"))


def _gives_up_role(s: Situation, node: Node) -> bool:
    """Remove a role that the pool has lost, once nothing depends on it. Returns whether the record changes.

    The restart without the role follows from the record.
    """
    pool = s.wanted.pool(node.pool)
    if pool is None:
        return False
    controller = node.controller and (pool.controller or not former(s, node))
    broker = node.broker and (pool.broker or not drained(s, node))
    if (controller, broker) == (node.controller, node.broker):
        return False
    s.plan.steps.append(
        Remember(
            s.record.having(replace(node, controller=controller, broker=broker)), f"node {node.id} gives up a role"
        )
    )
    return True
