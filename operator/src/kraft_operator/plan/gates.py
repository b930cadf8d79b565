"""Gates: may nodes go down now? Laws 2, 3 and 5 of the package. A gate returns None, or the reason against it."""

from __future__ import annotations

from collections.abc import Collection

from kraft_operator.plan.model.observed import Partition
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import Situation, pod_voters
from kraft_operator.plan.model.steps import Blocked


def majority(voters: Collection[int]) -> int:
    """The number of voters that form a majority of `voters`."""
    return len(voters) // 2 + 1


def voter_sets(s: Situation, without: int) -> set[tuple[int, ...]]:
    """Every voter set that some controller uses once controller `without` is down."""
    if not s.static:
        return {tuple(sorted(s.quorum.voters))} if s.quorum is not None else set()
    sets = {s.record.voters} if s.record.voters else set()
    if s.quorum is not None and without == s.quorum.leader and without not in s.record.voters:
        # Controllers with the voters in force do not follow this leader, so they are not live now. Without it they are.
        return sets
    # A joining controller counts itself as a voter; the others do not count it yet.
    beside = {without, s.record.joining}
    sets.update(tuple(sorted(pod_voters(pod))) for i, pod in s.controller_pods().items() if i not in beside)
    return sets


def quorum_without(s: Situation, gone: int, *, pause_accepted: bool = False) -> Blocked | None:
    """Law 3: return the reason against taking controller `gone` down, or None.

    `pause_accepted` permits the loss of the majority if all remaining voters are live. While voters in the log may not
    be committed, no live controller goes down: the former voters may count again.
    """
    if s.quorum is None:
        text = f"the state of the quorum is unknown: controller {gone} stays up until a controller names the leader"
        return Blocked("QuorumUnknown", text)
    live = s.live_voters()
    change = voters_committed(s)
    if change is not None and gone in live:
        return Blocked(change.reason, f"{change.message}: controller {gone} stays up until they are")
    stopped = {node.id for node in s.record.nodes if node.stopped}
    for voters in sorted(voter_sets(s, gone)):
        others = set(voters) - {gone} - stopped
        down = sorted(others - live)
        unavoidable = not down and (len(voters) <= 2 or pause_accepted)
        if len(others & live) < majority(voters) and not unavoidable:
            text = f"without {gone}, voters {list(voters)} have no majority"
            if down:
                text = f"voter {down[0]} is behind or down: {text}; wait for it, or replace it: spec.replacements"
            else:
                text = f"no voter can be spared: {text}; add voters"
            return Blocked("QuorumAtRisk", text)
    return None


def voters_committed(s: Situation) -> Blocked | None:
    """Return the reason not to rely on the voters in the log, or None. Static voters are in the configuration."""
    if s.static or s.quorum is None or not s.quorum.changing:
        return None
    text = f"voters {sorted(s.quorum.voters)} are in the log of leader {s.quorum.leader}, and may not be committed yet"
    return Blocked("VotersChange", text)


def voters_found(s: Situation, gone: int | None = None) -> Blocked | None:
    """Return the reason against a change of the voters in the log, or None: a voter that stays has moved.

    Example: the leader stops with an uncommitted record that removes the second of three voters. Then it needs the
    vote of the third voter, and sends its request to the address in its log. The third lacks that record, so it cannot
    be elected itself.
    """
    if s.static or s.quorum is None:
        return None
    for node_id, voter in sorted(s.quorum.voters.items()):
        pod = s.kube.pods.get(node_id)
        now = sorted(pod.addresses) if pod is not None and node_id != gone else []
        if now and voter.address and not any(_is_at(voter.address, one) for one in now):
            text = f"voter {node_id} listens at {now[0]}, and the other voters look for it at {voter.address}: the"
            return Blocked("VoterMoved", f"{text} voters stay as they are until the log has its new address")
    return None


def _is_at(registered: str, address: str) -> bool:
    """Whether both are the same `HOST:PORT`. A node may have registered the longer form of its host's name."""
    (host, _, port), (short, _, other) = registered.rpartition(":"), address.rpartition(":")
    return port == other and (host == short or host.startswith(f"{short}."))


def partitions_known(s: Situation) -> Blocked | None:
    """Return the reason not to rely on the observed partitions, or None if they are complete."""
    if s.metadata is None:
        return Blocked("PartitionsUnknown", "the state of partitions is unknown")
    if s.metadata.unseen:
        return Blocked("PartitionsUnseen", s.metadata.unseen)
    return None


def isr_without(s: Situation, gone: Collection[int], *, with_disks: bool = False) -> Blocked | None:
    """Law 5: return the reason against taking the brokers `gone` down now, or None. The only gate for brokers.

    `with_disks` means that their disks are given up for good. A replica counts if it is in the ISR and its broker is
    up. The ISR alone is not enough: a dead broker stays in its ISRs until it is fenced. A copy on a disk that is given
    up must not be the last copy that counts, for any ISR before.
    """
    unknown = partitions_known(s)
    if unknown is not None:
        return Blocked(unknown.reason, f"{unknown.message}: {_brokers(gone)} up until a broker reports the partitions")
    assert s.metadata is not None
    serving = s.serving()
    for partition in s.metadata.partitions:
        if partition.isr.isdisjoint(gone) and not (with_disks and set(partition.replicas) & {*gone}):
            continue
        left = len(partition.isr.intersection(serving).difference(gone))
        need = min(partition.min_isr, len(partition.replicas))
        if with_disks and not left:
            return Blocked("PartitionAtRisk", f"no other copy of partition {partition.name} is in sync and up")
        if partition.isr.isdisjoint(gone) or left >= need or partition.topic in s.wanted.unavailable_topics:
            continue
        return Blocked("PartitionAtRisk", _at_risk(partition, gone, left, need, serving))
    return None


def _at_risk(partition: Partition, gone: Collection[int], left: int, need: int, serving: frozenset[int]) -> str:
    text = f"partition {partition.name} would have {left} in-sync replicas of at least {need}: {_brokers(gone)} up"
    lag = sorted({*partition.replicas}.difference(partition.isr.intersection(serving), gone))
    if lag and lag[0] in partition.isr:
        return f"{text} until broker {lag[0]} is up again"
    if lag:
        return f"{text} until replica {lag[0]} is in sync again"
    return f"{text}; give the topic more replicas, or name it in updateStrategy.unavailableTopics"


def _brokers(gone: Collection[int]) -> str:
    return f"broker {', '.join(map(str, sorted(gone)))} stay{'s' * (len(gone) == 1)}"


def node_without(s: Situation, node: Node, *, pause_accepted: bool = False) -> Blocked | None:
    """Apply both gates to a node, or return None. The roles of its pod count as well as the roles in the record."""
    pod = s.kube.pods.get(node.id)
    roles = set(s.roles(node)) if pod is None else {*pod.aspects.get("roles", "").split(","), *s.roles(node)}
    blocked = None
    if "controller" in roles:
        blocked = quorum_without(s, node.id, pause_accepted=pause_accepted)
    if blocked is None and "broker" in roles:
        blocked = isr_without(s, (node.id,))
    return blocked
