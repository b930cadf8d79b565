"""Who votes: from the present voters to the wanted ones, one at a time. Law 4.

Static: remember the next set; `provision` starts the new voter (with an empty disk it only reads until it is sure),
`roll` takes the others over to the set, one by one, the new one counting in every gate; then the next change.
Voters are added before any is removed, so that the quorum is never smaller than either end.
"""

from __future__ import annotations

from kraft_operator.plan.gates import node_without, quorum_without
from kraft_operator.plan.record import Node
from kraft_operator.plan.situation import Situation, pod_voters
from kraft_operator.plan.steps import AddVoter, Remember, RemoveVoter, Restart


def change_voters(s: Situation) -> bool:
    """Plan the next change; whether one is under way."""
    wanted = set(s.voters_wanted())
    if not s.wanted.static_quorum:
        return _dynamic(s, wanted)
    present = set(s.record.voters)
    if not wanted or wanted == present:
        return False
    if s.quorum is None:
        s.plan.block("QuorumUnknown", "the state of the quorum is unknown: its voters stay as they are")
        return True
    late = [node_id for node_id in sorted(present | set(s.controller_pods())) if _behind(s, node_id)]
    if late:
        s.plan.waits.append(f"voters change to {sorted(wanted)}: controller {late[0]} has to follow first")
        return True
    leader = s.quorum.leader
    added, removed = sorted(wanted - present), sorted(present - wanted, key=lambda i: (i == leader, -i))
    if added:
        new = s.record.node(added[0])
        if new is None or not new.formatted:
            s.plan.waits.append(f"voters change to {sorted(wanted)}: node {added[0]} is being made")
            return True
        s.plan.steps.append(Remember(s.record.voting(present | {new.id}), f"voter {new.id} joins"))
    elif removed[0] == leader and len(present) > 2:  # of two, who stays cannot lead before it is alone
        _hand_over(s, leader)
    else:
        s.plan.steps.append(Remember(s.record.voting(present - {removed[0]}), f"voter {removed[0]} leaves the quorum"))
    return True


def former_leader(s: Situation) -> bool:
    """Whether a former voter leads, which those with the voters in force do not follow; plans that it hands over."""
    leader = s.quorum.leader if s.quorum is not None else -1
    node = s.record.node(leader)
    if node is None or not s.wanted.static_quorum or leader in s.record.voters or not s.up(leader):
        return False
    live = s.live_voters()
    if not any(pod_voters(pod) == s.record.voters and i not in live for i, pod in s.controller_pods().items()):
        return False
    _hand_over(s, leader)
    return True


def _hand_over(s: Situation, leader: int) -> None:
    """By a clean stop: no request for it exists."""
    node = s.record.node(leader)
    blocked = node_without(s, node) if node is not None else None
    if blocked is not None:
        s.plan.block(blocked.reason, blocked.message)
    else:
        s.plan.steps.append(Restart((leader,), "it hands over before it leaves the quorum"))


def _behind(s: Situation, node_id: int) -> bool:
    """Whether a controller is not live, or runs with other voters than those being put into force."""
    pod = s.kube.pods.get(node_id)
    return pod is None or node_id not in s.live_voters() or pod_voters(pod) != s.record.voters


def former(s: Situation, node: Node) -> bool:
    """Whether a controller has left the quorum for certain: nobody counts with it any more."""
    if not s.wanted.static_quorum:
        return s.quorum is not None and node.id not in s.quorum.voters
    return node.id not in s.record.voters and not s.counted(node.id)


def _dynamic(s: Situation, wanted: set[int]) -> bool:
    if s.quorum is None:
        return False
    present, leader = set(s.quorum.voters), s.quorum.leader
    live = s.live_voters()
    for node_id in sorted(wanted - present):
        if node_id in live:
            s.plan.steps.append(AddVoter(node_id))
        else:
            s.plan.waits.append(f"controller {node_id} catches up before it votes")
        return True
    for node_id in sorted(present - wanted, key=lambda i: (i == leader, -i)) if wanted else ():
        blocked = quorum_without(s, node_id)
        if blocked is not None:
            s.plan.block(blocked.reason, blocked.message)
        else:
            s.plan.steps.append(RemoveVoter(node_id, f"voter {node_id} leaves the quorum"))
        return True
    return False
