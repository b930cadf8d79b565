"""Replacement of a node's disk or machine: `spec.replacements`, one at a time.

EmptyDisk: record the new disk's number (the node no longer starts on the old disk) -> stop the node -> put the new disk
in force -> `provision` creates, formats and starts it -> done when the node counts again. The node's Raft core keeps a
voter with an empty disk from voting and campaigning until both are safe. This module makes sure that all other voters
are live, so that every committed record is on a majority without the lost disk.

NewId: record the new node and mark the old one as leaving. `voters` then adds the new voter and removes the old voter,
one change at a time. If the old host is down, these changes never happen, because no voter can be spared for a
restart. There are two ways out: replace by EmptyDisk first, or accept `MetadataPause`. With `MetadataPause`, the old
host is stopped for good and the voters change in one step (law 4).
"""

from __future__ import annotations

import dataclasses

from kraft_operator.plan.gates import (
    isr_without,
    node_without,
    partitions_known,
    quorum_without,
    voter_sets,
    voters_committed,
)
from kraft_operator.plan.model import wanted as asked
from kraft_operator.plan.model.record import Node, ReplacementRecord
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Blocked, MarkReplaced, Remember, Stop
from kraft_operator.plan.nodes.assign import next_id
from kraft_operator.plan.nodes.voters import dynamic_voters, stale


def pause_accepted(s: Situation) -> bool:
    """Whether the replacement under way accepts a pause of metadata changes."""
    item = s.record.open_replacement()
    if item is None or item.by != "NewId":
        return False
    node, request = s.record.node(item.node), _request(s, item)
    begun = node is not None and node.stopped  # the replacement cannot be undone
    return begun or "MetadataPause" in _accepted(item, request)


def replacement(s: Situation) -> bool:
    """Plan the next step of a replacement. Returns whether a replacement takes precedence over all other work."""
    for text in s.wanted.malformed:
        s.plan.block("ReplacementRefused", text)
    item = s.record.open_replacement()
    if item is None:
        return any(_begin(s, request) for request in s.wanted.replacements if _is_new(s, request))
    node = s.record.node(item.node)
    if node is None or (item.by == "EmptyDisk" and node.leaving):
        s.plan.steps.append(Remember(s.record.replacing(_done(item)), f"node {item.node} has left"))
        return True
    return _empty_disk(s, item, node) if item.by == "EmptyDisk" else _new_id(s, item, node)


def done_before(s: Situation, request: asked.ReplacementRequest) -> bool:
    """Whether a request was carried out: by the record, or by the marks of the volumes if the record lost it.

    The marks have the name and the owner of the disk, which has a new id after a replacement by `NewId`.
    """
    known = [item for item in s.record.replacements if item.name == request.name]
    if known:
        return any(item.done and (item.node, item.by) == (request.node, request.by) for item in known)
    owners = s.replaced().get(request.name, frozenset())
    return bool(owners) and (request.node in owners or s.record.node(request.node) is None)


def _is_new(s: Situation, request: asked.ReplacementRequest) -> bool:
    """Whether the request's name was never used. Blocks if the name belongs to another replacement."""
    former = [f"node {item.node} by {item.by}" for item in s.record.replacements if item.name == request.name]
    former += [f"node {node}" for node in sorted(s.replaced().get(request.name, ()))]
    if former and not done_before(s, request):
        text = f"replacement {request.name} of node {request.node}: the name belongs to the finished replacement of"
        s.plan.block("ReplacementRefused", f"{text} {former[0]}, and a name runs once; choose another name")
    return not former


def _request(s: Situation, item: ReplacementRecord) -> asked.ReplacementRequest | None:
    """The request for a replacement that has begun; None if it was withdrawn."""
    same = (item.name, item.node, item.by)
    return next((one for one in s.wanted.replacements if (one.name, one.node, one.by) == same), None)


def _accepted(item: ReplacementRecord, request: asked.ReplacementRequest | None) -> frozenset[str]:
    """Risks that were accepted when the replacement began, or later."""
    return item.accept | (request.accept if request is not None else frozenset())


def _done(item: ReplacementRecord) -> ReplacementRecord:
    return dataclasses.replace(item, done=True)


def marked(s: Situation, item: ReplacementRecord, node_id: int) -> bool:
    """Whether the node's volumes carry the mark of the finished replacement. If not, plan the mark."""
    node = s.record.node(node_id)
    volume = None if node is None else s.kube.volumes.get((node.id, node.disk))
    if node is None or volume is None or item.name in volume.replaced:
        return True
    earlier = {name for (owner, _), one in s.kube.volumes.items() if owner == node.id for name in one.replaced}
    s.plan.steps.append(MarkReplaced(node.id, node.disk, tuple(sorted({*earlier, item.name}))))
    return False


def _begin(s: Situation, request: asked.ReplacementRequest) -> bool:
    node = s.record.node(request.node)
    if node is None or node.leaving:
        s.plan.block(
            "ReplacementRefused", f"replacement {request.name}: node {request.node} does not exist or is leaving"
        )
        return False
    refused = _refused(s, node, request)
    if refused is not None:
        s.plan.block("ReplacementRefused", f"replacement {request.name} of node {node.id}: {refused.message}")
        return False
    if request.by == "EmptyDisk":
        # Never reuse the number of a disk: volumes of former disks are kept.
        used = [disk for owner, disk in s.kube.volumes if owner == node.id]
        disk = max([node.disk, *used]) + 1
        item = ReplacementRecord(request.name, node.id, request.by, disk=disk, accept=request.accept)
        record = s.record.replacing(item)
    else:
        pool = s.wanted.pool(node.pool)
        first = pool.first_id if pool is not None else node.id
        new = Node(next_id(s.record, first, s.wanted.outside), node.pool, node.controller, node.broker)
        item = ReplacementRecord(request.name, node.id, request.by, new_id=new.id, accept=request.accept)
        record = s.record.having(new, dataclasses.replace(node, leaving=True)).replacing(item)
    s.plan.steps.append(Remember(record, f"replacement {request.name} of node {node.id} begins"))
    return True


def _refused(s: Situation, node: Node, request: asked.ReplacementRequest) -> Blocked | None:
    """Return the reason not to begin a replacement, or None."""
    if not s.roles(node):
        return Blocked("ReplacementRefused", f"controller {node.id} is not among the voters yet")
    if s.votes(node):
        pause = "MetadataPause" in request.accept
        blocked = _others_live(s, node)
        if blocked is None and request.by == "EmptyDisk" and len(_voters(s)) <= 2:
            # The other voters would not be a majority: they could not commit, or prove which records are committed.
            text = f"none of the voters {_voters(s)} can lose its disk: have three voters first, or replace it by NewId"
            blocked = Blocked("QuorumAtRisk", text)
        if blocked is None and request.by == "NewId" and s.static and node.id not in s.live_voters() and not pause:
            text = f"voter {node.id} is down: replace it by EmptyDisk first, or accept MetadataPause"
            blocked = Blocked("QuorumAtRisk", text)
        if blocked is not None:
            return blocked
    if node.broker and request.by == "EmptyDisk":
        return _last_copies(s, node, accepted="DataLoss" in request.accept)
    return None


def _others_live(s: Situation, node: Node) -> Blocked | None:
    """Return the reason why not all other voters are live, or None. If they are, they have every committed record."""
    if s.quorum is None:
        return Blocked("QuorumUnknown", "the state of the quorum is unknown")
    if s.static and voter_sets(s, node.id) != {s.record.voters}:
        return Blocked("QuorumAtRisk", f"the voters change to {list(s.record.voters)}: wait for the restarts")
    stopped = {other.id for other in s.record.nodes if other.stopped}
    behind = sorted(set(_voters(s)) - {node.id} - stopped - s.live_voters())
    return Blocked("QuorumAtRisk", f"voter {behind[0]} is behind or down: bring it back first") if behind else None


def _voters(s: Situation) -> list[int]:
    """Voters in force, or being put into force."""
    return sorted(s.record.voters if s.static or s.quorum is None else s.quorum.voters)


def _last_copies(s: Situation, node: Node, *, accepted: bool) -> Blocked | None:
    """Return the reason against giving up the disk of a broker now, or None."""
    blocked = partitions_known(s) if accepted else isr_without(s, (node.id,), with_disks=True)
    if blocked is None or blocked.reason != "PartitionAtRisk":
        return blocked
    return Blocked(blocked.reason, f"{blocked.message}; or accept DataLoss")


def _empty_disk(s: Situation, item: ReplacementRecord, node: Node) -> bool:
    accepted = "DataLoss" in _accepted(item, _request(s, item))
    if node.disk < item.disk:
        if node.id in s.kube.pods:
            blocked = quorum_without(s, node.id) if s.votes(node) else None
            if blocked is None and node.broker:
                blocked = _last_copies(s, node, accepted=accepted)
            _stop(s, item, node, blocked, "gets an empty disk")
        else:
            # Check again: while the node stopped, its disk may have become the last one with some data.
            last = _last_copies(s, node, accepted=False) if node.broker and not accepted else None
            blocked = (_others_live(s, node) if s.votes(node) else None) or last
            if last is not None and last.reason == "PartitionAtRisk" and (node.id, node.disk) in s.kube.volumes:
                # The node starts again on its old disk, so that the others can catch up from it. The request waits.
                others = tuple(one for one in s.record.replacements if one.name != item.name)
                why = f"{node.kind} starts again on its disk: {last.message}"
                s.plan.steps.append(Remember(dataclasses.replace(s.record, replacements=others), why))
            elif blocked is not None:
                s.plan.block(blocked.reason, f"replacement {item.name}: {blocked.message}")
            else:
                new = dataclasses.replace(node, disk=item.disk, formatted=False)
                why = f"{node.kind} goes over to disk {item.disk}"
                s.plan.steps.append(Remember(s.record.having(new), why, guarded=True))
        return True
    waits = _not_yet(s, node)
    if waits is not None and node.controller and not s.static and node.formatted and dynamic_voters(s):
        # `dynamic_voters` removes the voter of the old disk and adds the voter of the new disk.
        return True
    if waits is None:
        if marked(s, item, node.id):
            s.plan.steps.append(Remember(s.record.replacing(_done(item)), f"replacement {item.name} is done"))
    else:
        s.plan.waits.append(f"replacement {item.name}: {waits}")
    return True


def _stop(s: Situation, item: ReplacementRecord, node: Node, blocked: Blocked | None, purpose: str) -> None:
    """Stop the node, unless it stops already or `blocked` says why it must not stop."""
    if s.kube.pods[node.id].terminating:
        s.plan.waits.append(f"replacement {item.name}: {s.stops(node)}")
    elif blocked is not None:
        s.plan.block(blocked.reason, f"replacement {item.name}: {blocked.message}")
    else:
        s.plan.steps.append(Stop(node.id, f"replacement {item.name}: {node.kind} {purpose}"))


def _not_yet(s: Situation, node: Node) -> str | None:
    """Why a node with a new disk does not count yet; None if it counts."""
    if not node.formatted or not s.up(node.id):
        return f"{node.kind} is not ready"
    if s.votes(node) and node.id not in s.live_voters():
        return f"voter {node.id} catches up"
    change = voters_committed(s) if node.controller else None
    if node.controller and not s.static and (node.id not in _voters(s) or stale(s, node.id) or change is not None):
        return f"controller {node.id} does not vote with its new disk yet"
    if node.broker:
        unknown = partitions_known(s)
        if unknown is not None:
            return unknown.message
        assert s.metadata is not None
        for partition in s.metadata.partitions:
            if node.id in partition.replicas and node.id not in partition.isr:
                return f"partition {partition.name} catches up on broker {node.id}"
    return None


def _new_id(s: Situation, item: ReplacementRecord, node: Node) -> bool:
    """Swap the voters if the pause is accepted. Otherwise `voters`, `drain` and `leave` do the work."""
    if not s.static or node.id not in s.record.voters or not pause_accepted(s):
        return False
    if not node.stopped:
        if node.id in s.live_voters():
            return False
        blocked = _others_live(s, node)
        if blocked is None and node.broker:
            blocked = node_without(s, node, pause_accepted=True)
        if blocked is not None:
            s.plan.block(blocked.reason, f"replacement {item.name}: {blocked.message}")
        else:
            gone = dataclasses.replace(node, stopped=True)
            s.plan.steps.append(Remember(s.record.having(gone), f"{node.kind} is stopped for good"))
    elif node.id in s.kube.pods:
        blocked = node_without(s, node, pause_accepted=True)
        _stop(s, item, node, blocked, "is stopped for good")
    else:
        return _swap(s, item, node)
    return True


def _swap(s: Situation, item: ReplacementRecord, node: Node) -> bool:
    """Put the new voter in the place of the old voter, after the host of the old voter is gone for good."""
    blocked = _others_live(s, node)
    new = s.record.node(item.new_id) if item.new_id is not None else None
    if blocked is not None:
        s.plan.block(blocked.reason, f"replacement {item.name}: {blocked.message}")
    elif new is None or new.leaving:
        s.plan.steps.append(
            Remember(s.record.voting({*s.record.voters} - {node.id}), f"voter {node.id} leaves the quorum")
        )
    elif not new.formatted:
        s.plan.waits.append(f"replacement {item.name}: node {item.new_id} is being made")
    else:
        voters = {*s.record.voters, new.id} - {node.id}
        s.plan.steps.append(Remember(s.record.voting(voters), f"voter {new.id} takes the place of {node.id}"))
    return True
