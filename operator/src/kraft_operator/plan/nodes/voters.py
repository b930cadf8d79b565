"""Changes of the voters: from the present to the wanted voters, one at a time. Law 4.

A voter that is down blocks every change except its own removal. The plan names the voter and the remedy.

Static quorums: `provision` starts the joining controller; with an empty disk, it only replicates until voting is safe.
Once it has caught up, the next voter set is recorded. `roll` restarts the others with the new set, one by one, and the
new voter counts in every gate. Then the next change follows.
Voters are added before voters are removed, so the quorum is never smaller than the smaller of the two sets.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from kraft_operator.plan.gates import (
    isr_without,
    majority,
    node_without,
    quorum_without,
    voters_committed,
    voters_found,
)
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import Situation, pod_voters
from kraft_operator.plan.model.steps import AddVoter, Blocked, Remember, RemoveVoter, Restart, SetFeature, Stop

KRAFT_VERSION: Final = "kraft.version"


def change_voters(s: Situation) -> bool:
    """Plan the next change of voters. Returns whether a change is under way."""
    wanted = set(s.voters_wanted())
    if not s.static:
        return dynamic_voters(s)
    present, joining = set(s.record.voters), s.record.joining
    if joining is not None and joining not in wanted - present:
        s.plan.steps.append(Remember(replace(s.record, joining=None), f"controller {joining} no longer joins"))
        return True
    if not wanted or wanted == present:
        return False if s.wanted.static_quorum else _go_dynamic(s)
    if s.quorum is None:
        s.plan.block("QuorumUnknown", "the state of the quorum is unknown: its voters stay as they are")
        return True
    leader = s.quorum.leader
    added, removed = sorted(wanted - present), sorted(present - wanted, key=lambda i: (i == leader, -i))
    running = (present | set(s.controller_pods())) - {joining}
    late = [node_id for node_id in sorted(running) if _behind(s, node_id)]
    lost = next((node_id for node_id in removed if _given_up(s, node_id)), None)
    if lost is not None and not added and {*late} <= {lost}:
        return _take_out(s, lost)
    if late:
        _report_late(s, late[0], sorted(wanted))
        return True
    if added:
        new = s.record.node(added[0])
        if new is None or not new.formatted:
            s.plan.waits.append(f"voters change to {sorted(wanted)}: node {added[0]} is being made")
            return True
        _join(s, new)
    elif removed[0] == leader and len(present) > 2:  # of two voters, the one that stays cannot lead until it is alone
        _hand_over(s, leader)
    else:
        s.plan.steps.append(Remember(s.record.voting(present - {removed[0]}), f"voter {removed[0]} leaves the quorum"))
    return True


def _join(s: Situation, new: Node) -> None:
    """Start a joining voter first; the others count it only once it has caught up.

    Otherwise, a lone voter that crashes meanwhile could never be elected again. It would need the vote of the joining
    voter, which does not vote while it may have lost records.
    """
    if s.record.joining is None:
        s.plan.steps.append(Remember(replace(s.record, joining=new.id), f"controller {new.id} is started as a voter"))
    elif s.record.joining == new.id and new.id in s.live_voters():
        record = replace(s.record.voting({*s.record.voters, new.id}), joining=None)
        s.plan.steps.append(Remember(record, f"voter {new.id} joins"))
    else:
        s.plan.waits.append(f"controller {s.record.joining} catches up before it votes")


def _report_late(s: Situation, late: int, wanted: list[int]) -> None:
    """Report why the voters do not change yet, with the remedy."""
    if s.up(late) and late in s.live_voters():
        s.plan.waits.append(f"voters change to {wanted}: controller {late} has to follow first")
        return
    item = s.record.open_replacement()
    if late not in s.record.voters:
        s.plan.waits.append(f"voters change to {wanted}: controller {late} has to catch up or stop first")
    elif item is not None and item.by == "NewId" and item.node == late:
        text = f"voter {late} is down, and replacement {item.name} needs it up: bring it back, or accept MetadataPause"
        s.plan.block("VoterDown", text)
    else:
        text = f"voter {late} is behind or down: voters {list(s.record.voters)} do not change to {wanted}; wait for it,"
        text += " or replace its disk first: spec.replacements, by EmptyDisk"
        if late not in wanted:
            text += "; as it is to leave, it can be named in quorum.giveUp"
        s.plan.block("VoterDown", text)


def _given_up(s: Situation, node_id: int) -> bool:
    """Whether to remove a leaving voter while it is down: it is named in quorum.giveUp, or its removal has begun."""
    node = s.record.node(node_id)
    if node is None or not node.leaving:
        return False
    return node.stopped or (node_id in s.wanted.given_up and node_id not in s.live_voters())


def _take_out(s: Situation, gone: int) -> bool:
    """Remove a voter that was given up. It is stopped for good first, so that it never runs with the old voters again.

    The other voters restart one by one while the lost voter still counts. So more than a majority must be live.
    """
    node = s.record.node(gone)
    assert node is not None, "law: the voters that are given up are known"
    live = s.live_voters().intersection(s.record.voters) - {gone}
    blocked = isr_without(s, (gone,)) if node.broker and not node.stopped else None
    if len(live) <= majority(s.record.voters) and not node.stopped:
        text = f"voter {gone} is down, and voters {sorted(live)} are too few to restart one of them: replace its disk"
        blocked = Blocked("VoterDown", text + " first: spec.replacements, by EmptyDisk")
    pod = s.kube.pods.get(gone)
    if pod is not None and node.stopped and not pod.terminating:
        blocked = node_without(s, node)
    if blocked is not None:
        s.plan.block(blocked.reason, blocked.message)
    elif not node.stopped:
        s.plan.steps.append(Remember(s.record.having(replace(node, stopped=True)), f"{node.kind} is stopped for good"))
    elif pod is None:
        voters = set(s.record.voters) - {gone}
        s.plan.steps.append(Remember(s.record.voting(voters), f"voter {gone} leaves the quorum"))
    elif pod.terminating:
        s.plan.waits.append(s.stops(node))
    else:
        s.plan.steps.append(Stop(gone, "it leaves the quorum, and was given up"))
    return True


def _go_dynamic(s: Situation) -> bool:
    """Switch a static quorum to a dynamic one: finalize kraft.version 1, then restart without static voters.

    Until the level is certainly finalized, all nodes start with `controller.quorum.voters`.
    """
    if s.metadata is None or s.quorum is None:
        s.plan.block("QuorumUnknown", "the state of the quorum is unknown: it does not become dynamic")
        return False
    if s.metadata.features.get(KRAFT_VERSION, 0) >= 1:
        s.plan.steps.append(Remember(replace(s.record, dynamic=True), "the voters are in the log"))
        return True
    late = [node_id for node_id in s.record.voters if _behind(s, node_id)]
    if late:
        s.plan.block("VoterDown", f"voter {late[0]} is behind or down: the quorum does not become dynamic; wait for it")
    elif s.metadata.supported and s.metadata.supported.get(KRAFT_VERSION, 0) < 1:
        s.plan.block(
            "FeatureUnsupported", "the image does not know kraft.version 1: the quorum does not become dynamic"
        )
    else:
        s.plan.steps.append(SetFeature(KRAFT_VERSION, 1))
    return False


def former_leader(s: Situation) -> bool:
    """Whether a former voter leads that controllers with the voters in force do not follow. If so, plan its restart."""
    leader = s.quorum.leader if s.quorum is not None else -1
    node = s.record.node(leader)
    if node is None or not s.static or leader in s.record.voters or not s.up(leader):
        return False
    live = s.live_voters()
    if not any(pod_voters(pod) == s.record.voters and i not in live for i, pod in s.controller_pods().items()):
        return False
    _hand_over(s, leader)
    return True


def _hand_over(s: Situation, leader: int) -> None:
    """Hand over the leadership by a clean restart of the leader, because no request for a hand-over exists."""
    node = s.record.node(leader)
    blocked = node_without(s, node) if node is not None else None
    if blocked is not None:
        s.plan.block(blocked.reason, blocked.message)
    else:
        s.plan.steps.append(Restart((leader,), "it hands over before it leaves the quorum"))


def _behind(s: Situation, node_id: int) -> bool:
    """Whether a controller is not live, or runs with other voters than the voters that are being put into force."""
    pod = s.kube.pods.get(node_id)
    return pod is None or node_id not in s.live_voters() or pod_voters(pod) != s.record.voters


def former(s: Situation, node: Node) -> bool:
    """Whether a controller has certainly left the quorum: no other controller counts it as a voter.

    A removal that is not committed may be lost with the leader. Then the controller votes again.
    """
    if not s.static:
        return s.quorum is not None and not s.quorum.changing and node.id not in s.quorum.voters
    return node.id not in s.record.voters and not s.counted(node.id)


def dynamic_voters(s: Situation) -> bool:
    """Plan one change of a dynamic quorum's voters. Returns whether a change is under way.

    Raft permits one change at a time (KIP-853). The next change waits until the last change is committed and the log
    has the present address of every voter.
    """
    wanted = set(s.voters_wanted())
    if not wanted:
        return False
    if s.quorum is None:
        s.plan.waits.append("the log's voters are unknown until a controller has named the leader")
        return False
    present, leader = set(s.quorum.voters), s.quorum.leader
    live = s.live_voters()
    change = voters_committed(s)
    if change is not None:
        s.plan.waits.append(change.message)
        return True
    for node_id in sorted(present & wanted):
        if stale(s, node_id):
            _remove_voter(s, node_id, f"voter {node_id} has another disk")
            return True
    for node_id in sorted(wanted - present):
        moved = voters_found(s)
        if moved is not None:
            s.plan.block(moved.reason, moved.message)
        elif node_id in live:
            s.plan.steps.append(AddVoter(node_id))
        else:
            s.plan.waits.append(f"controller {node_id} catches up before it votes")
        return True
    for node_id in sorted(present - wanted, key=lambda i: (i == leader, i in live, -i)):
        _remove_voter(s, node_id, f"voter {node_id} leaves the quorum")
        return True
    return False


def stale(s: Situation, node_id: int) -> bool:
    """Whether the voter of this id has another directory id than the running node, because its disk was replaced."""
    if s.quorum is None:
        return False
    voter, observer = s.quorum.voters.get(node_id), s.quorum.observers.get(node_id)
    return voter is not None and observer is not None and voter.directory != observer.directory


def _remove_voter(s: Situation, node_id: int, why: str) -> None:
    blocked = quorum_without(s, node_id) or voters_found(s, node_id)
    if blocked is not None:
        s.plan.block(blocked.reason, blocked.message)
    else:
        s.plan.steps.append(RemoveVoter(node_id, why))
