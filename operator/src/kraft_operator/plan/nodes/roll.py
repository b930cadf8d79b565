"""Restarts: controllers one at a time, the active controller last, then brokers.

Brokers restart one at a time, or together by rack as far as every ISR allows. A node that does not become ready stops
the roll.
"""

from __future__ import annotations

from kraft_operator.plan.gates import isr_without, node_without
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import EVICTED, ROLLED, Situation, is_controller
from kraft_operator.plan.model.steps import Recreate, Restart
from kraft_operator.plan.nodes.replace import pause_accepted
from kraft_operator.plan.nodes.volumes import leaving_out, volumes_empty


def recover(s: Situation) -> None:
    """Recreate pods that have no running process; this disrupts nothing."""
    idle = []
    for node in s.record.nodes:
        pod = s.kube.pods.get(node.id)
        if (
            pod is not None
            and not pod.running
            and not pod.terminating
            and node.id not in s.wanted.skip
            and (pod.over or s.lacks(node) or (pod.missing and not pod.restorable))
        ):
            idle.append(node)
    if idle:
        lacks = sorted({reason for node in idle for reason in s.lacks(node)})
        lost = sorted(s.kube.pods[node.id].missing for node in idle if s.kube.pods[node.id].missing)
        why = f"they do not run, and lack {', '.join([*lacks, *lost])}" if lacks or lost else "they have ended"
        s.plan.steps.append(Recreate(tuple(node.id for node in idle), why))


def roll(s: Situation) -> bool:
    """Plan the next restart. Returns whether any pod needs a restart."""
    able = [node for node in s.record.nodes if node.id not in s.wanted.skip and _may_roll(s, node)]
    # While a node could not start again, the roll restarts no other node. So it goes first, or the roll never ends.
    lost = [node for node in able if _lost(s, node)]
    behind = [node for node in able if s.lacks(node) or node in lost]
    if not behind:
        return False
    if s.wanted.rolls_paused:
        s.plan.block(
            "RollPaused", f"nodes {[node.id for node in behind]} need a restart, and updateStrategy.paused is set"
        )
        return True
    if s.wanted.window_closed:
        waiting = [node for node in behind if not _at_any_time(s, node)]
        behind = [node for node in behind if node not in waiting]
        if waiting:
            text = f"nodes {[node.id for node in waiting]} need a restart: {s.wanted.window_closed}"
            s.plan.block("OutsideWindow", text)
        if not behind:
            return True
    failing = [node for node in behind if not s.up(node.id)] or [node for node in behind if node in lost]
    unsettled = s.unsettled()
    if unsettled and not failing:
        s.plan.waits.append(f"no further node restarts: {unsettled[0]}")
        return True
    controllers = [node for node in failing or behind if _controls(s, node)]
    if controllers:
        leader = s.quorum.leader if s.quorum is not None else -1
        # Controllers with an older voter set restart first: while the sets differ, majorities are harder to reach.
        order = {node.id: ("voters" not in s.lacks(node), node.id == leader, node.id) for node in controllers}
        _restart(s, [min(controllers, key=lambda node: order[node.id])])
    else:
        _brokers(s, failing or behind)
    return True


def _lost(s: Situation, node: Node) -> bool:
    """Whether its pod refers to a configuration that is gone and cannot be made again as it was."""
    pod = s.kube.pods[node.id]
    return bool(pod.missing) and not pod.restorable


def _at_any_time(s: Situation, node: Node) -> bool:
    """Whether its restart needs no window: it is manual, an eviction requests it, or the node is down anyway."""
    return not s.up(node.id) or not {ROLLED, EVICTED}.isdisjoint(s.lacks(node))


def _may_roll(s: Situation, node: Node) -> bool:
    """Whether a node can be restarted: its pod exists and stays, and all its formatted volumes exist.

    Kubernetes keeps a deleted claim until no pod uses it. Until then nothing is lost, and `provision` reports it.
    """
    pod = s.kube.pods.get(node.id)
    volume = s.kube.volumes.get((node.id, node.disk))
    whole = volume is not None and not {*node.volumes} - volume.size_bytes.keys()
    return pod is not None and not pod.terminating and s.runs(node) and whole


def _controls(s: Situation, node: Node) -> bool:
    """Whether it is a controller, before or after the restart."""
    return s.votes(node) or is_controller(s.kube.pods[node.id])


def _restart(s: Situation, nodes: list[Node]) -> None:
    """Restart these nodes if the first one passes the gates; else block with the gate's reason."""
    blocked = node_without(s, nodes[0], pause_accepted=pause_accepted(s)) or volumes_empty(s, nodes[0])
    if blocked is not None:
        s.plan.block(blocked.reason, blocked.message)
        return
    lacks = sorted({reason for node in nodes for reason in s.lacks(node) or [s.kube.pods[node.id].missing]})
    marks = tuple(mark for node in nodes if (mark := leaving_out(s, node)) is not None)
    s.plan.steps.append(Restart(tuple(node.id for node in nodes), ", ".join(lacks), marks))


def _brokers(s: Situation, behind: list[Node]) -> None:
    ready = [node for node in behind if isr_without(s, (node.id,)) is None and volumes_empty(s, node) is None]
    if not ready:
        _restart(s, behind[:1])
        return
    together = ready[:1]
    if s.wanted.parallel_by_rack:
        racks = {s.kube.pods[ready[0].id].rack}
        for node in _by_rack(s, ready[1:], first=s.kube.pods[ready[0].id].rack):
            beside, rack = {other.id for other in together} | {node.id}, s.kube.pods[node.id].rack
            if "" in racks | {rack} or len(racks | {rack}) > s.wanted.parallel_racks:
                continue
            if isr_without(s, beside) is None:
                together.append(node)
                racks.add(rack)
    _restart(s, together)


def _by_rack(s: Situation, nodes: list[Node], first: str) -> list[Node]:
    """Sort nodes by rack, the rack `first` before the others: a rack is finished before the next begins."""
    return sorted(nodes, key=lambda node: (s.kube.pods[node.id].rack != first, s.kube.pods[node.id].rack, node.id))
