"""The record, the specification and the views of one pass, and what follows from them. Built once per pass."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from kraft_operator.plan.model.observed import (
    LEFT_OUT,
    PROVEN,
    Aged,
    ControllerMigration,
    Disks,
    Kube,
    Metadata,
    Observed,
    Pod,
    Quorum,
    Replica,
    T,
)
from kraft_operator.plan.model.record import PREPARING, Node, Record
from kraft_operator.plan.model.steps import Plan
from kraft_operator.plan.model.wanted import STARTS_WITH, Wanted, keys_of

AGE_MAX_MS: Final = 15_000
"""The greatest usable age of a view in milliseconds. Every pass observes first, which takes well under a second. This
bound is reached after three failed tries in a row."""
BEHIND_MAX_MS: Final = 3_000
"""A voter that has been behind the leader's log for longer (in milliseconds) is not live. Voters fetch at least twice a
second."""

ROLLED: Final = "roll"
"""The aspect of a manual restart."""
EVICTED: Final = "evict"
"""The aspect of a pod with a pending eviction."""
RESIZED: Final = "resize"
"""The aspect of a pod with a grown volume: its file system grows with the next mount."""
KEEPS: Final = "keeps"
"""The aspect of mounted volumes that were removed from the pool but are not empty yet, separated by commas."""
MIGRATES: Final = "migrates"
"""The aspect of a controller with the keys of the migration: a digest of how it reaches ZooKeeper."""
EMPTIED: Final = "emptied"
"""The reason to restart a pod that mounts an empty volume which was removed from its pool."""
ADDRESSES: Final = "addresses"
"""The aspect of a broker's external addresses, which may change at any time."""
NOT_READY: Final = "is not ready"
BEING_STARTED: Final = "is being started"
"""Messages of a pod if Kubernetes reports no reason."""


@dataclass(slots=True)
class Situation:
    """Everything that a pass knows. `quorum` and `metadata` are None if unknown or too old."""

    record: Record
    wanted: Wanted
    kube: Kube
    quorum: Quorum | None
    metadata: Metadata | None
    plan: Plan = field(default_factory=Plan)
    moves: dict[tuple[str, int], tuple[int, ...]] = field(default_factory=dict)
    """Replicas that are about to move."""
    disks: Mapping[int, Disks] = field(default_factory=dict)
    """Log directories by broker, for brokers with a recent answer."""
    migration: Mapping[int, ControllerMigration] = field(default_factory=dict)
    """Reports of the migration by controller, for controllers with a recent answer."""

    # Roles and states of nodes

    @property
    def static(self) -> bool:
        """Whether the voters are in the configuration. Stays true until a switch to a dynamic quorum is complete."""
        return not self.record.dynamic

    def voters_wanted(self) -> tuple[int, ...]:
        """The ids of the voters that the specification requests."""
        return tuple(
            node.id
            for node in self.record.nodes
            if not node.leaving and (pool := self.wanted.pool(node.pool)) is not None and pool.controller
        )

    def votes(self, node: Node) -> bool:
        """Whether a node runs as a controller.

        In a static quorum, these are voters, the joining voter, and former voters that other controllers still count.
        """
        if not self.static:
            return node.controller
        if node.id in self.record.voters or node.id == self.record.joining:
            return True
        return node.controller and self.counted(node.id)

    def counted(self, node_id: int) -> bool:
        """Whether another running controller has this node among its voters."""
        return any(node_id in pod_voters(pod) for other, pod in self.controller_pods().items() if other != node_id)

    def controller_pods(self) -> dict[int, Pod]:
        """Pods that run as controllers, by node id. Includes former voters, which use the voters of their start."""
        return {i: p for i, p in self.kube.pods.items() if p.running and is_controller(p)}

    def roles(self, node: Node) -> tuple[str, ...]:
        """The roles that the process of a node should have now."""
        return ("broker",) * node.broker + ("controller",) * self.votes(node)

    def live_voters(self) -> frozenset[int]:
        """Controllers that are up and, by the leader's view, at most `BEHIND_MAX_MS` behind."""
        if self.quorum is None:
            return frozenset()
        return frozenset(
            node_id
            for node_id, replica in {**self.quorum.observers, **self.quorum.voters}.items()
            if (node_id == self.quorum.leader or _current(replica)) and self.up(node_id)
        )

    def up(self, node_id: int) -> bool:
        """Whether a node's pod is ready and not terminating."""
        pod = self.kube.pods.get(node_id)
        return pod is not None and pod.ready and not pod.terminating

    def held(self, node: Node) -> bool:
        """Whether a node's disk is about to be replaced: the node must not start on the old disk."""
        item = self.record.open_replacement()
        return item is not None and item.by == "EmptyDisk" and item.node == node.id and node.disk < item.disk

    def runs(self, node: Node) -> bool:
        """Whether a node should have a pod."""
        return not (node.stopped or self.held(node) or not self.roles(node) or self.too_early(node))

    def too_early(self, node: Node) -> bool:
        """Whether a broker must wait for the metadata: it cannot register while the metadata is in ZooKeeper."""
        return node.broker and self.record.migration == PREPARING and node.id not in self.kube.pods

    def unsettled(self) -> list[str]:
        """Nodes that change or fail, as messages: each names the node and the condition that it waits for."""
        found = []
        for node in self.record.nodes:
            if node.leaving or node.id in self.wanted.skip or not self.runs(node):
                continue
            pod = self.kube.pods.get(node.id)
            if pod is not None and pod.missing:
                found.append(f"{node.kind}: {pod.missing} is missing")
            elif not self.up(node.id):
                found.append(f"{node.kind}{_not_up(pod)}")
            elif self.metadata is not None and pod is not None and is_broker(pod) and not self.serves(node.id):
                found.append(f"{node.kind} is not unfenced yet")
        return found

    def outdated(self) -> list[str]:
        """Brokers that advertise an outdated external address, as messages."""
        found = []
        for node in self.record.nodes:
            pod, now = self.kube.pods.get(node.id), self.kube.addresses.get(node.id)
            was = None if pod is None else pod.aspects.get(ADDRESSES)
            if was is not None and now is not None and now != was:
                found.append(f"{node.kind}: advertises {was}, and is reached by {now} once it has been restarted")
        return found

    def stops(self, node: Node) -> str:
        """A message for a node with a stopping pod. It names the machine if the machine does not answer."""
        pod = self.kube.pods.get(node.id)
        lost = f" on machine {pod.machine}, which does not answer" if pod is not None and pod.lost else ""
        return f"{node.kind} stops{lost}"

    def serving(self) -> frozenset[int]:
        """Brokers that are up, registered and not fenced. Brokers outside have no pod: their registration counts."""
        brokers = {} if self.metadata is None else self.metadata.brokers
        return frozenset(i for i, one in brokers.items() if not one.fenced and (self.up(i) or self.outside(i)))

    def outside(self, node_id: int) -> bool:
        """Whether it is a broker of the migration that the operator does not manage."""
        return node_id in self.wanted.outside and self.record.node(node_id) is None

    def serves(self, node_id: int) -> bool:
        """Whether a node is a registered broker that is not fenced."""
        broker = None if self.metadata is None else self.metadata.brokers.get(node_id)
        return broker is not None and not broker.fenced

    def replaced(self) -> dict[str, frozenset[int]]:
        """Nodes with marks of finished replacements on their volumes, by the names of the replacements."""
        found: dict[str, frozenset[int]] = {}
        for (node_id, _), volume in self.kube.volumes.items():
            for name in volume.replaced:
                found[name] = found.get(name, frozenset()) | {node_id}
        return found

    # The wanted state of pods

    def aspects(self, node: Node) -> dict[str, str]:
        """The aspects that a node's pod must have: values by name. A difference needs a restart (see `lacks`)."""
        pool = self.wanted.pool(node.pool)
        aspects = dict(pool.aspects_of(broker=node.broker)) if pool is not None else {}
        aspects["roles"] = ",".join(self.roles(node))
        if self.static:
            # A former voter that other controllers still count runs on with the voters before the change.
            voters = {*self.record.voters, node.id} if self.votes(node) else set(self.record.voters)
            aspects["voters"] = ",".join(map(str, sorted(voters)))
        else:
            aspects["quorum"] = "dynamic"
            aspects["bootstrap"] = ",".join(map(str, self.voters_wanted()))
        rack = self.rack(node)
        if self.wanted.racks and node.broker and rack:
            aspects["rack"] = rack
        if node.broker and node.id in self.kube.addresses:
            aspects[ADDRESSES] = self.kube.addresses[node.id]
        if self.record.migrates and self.votes(node):
            aspects[MIGRATES] = self.wanted.zookeeper
        if node.id in self.wanted.rolls:
            aspects[ROLLED] = self.wanted.rolls[node.id]
        kept = self.kept(node)
        if kept:
            aspects[KEEPS] = ",".join(sorted(kept))
        return aspects

    def older_aspects(self, node: Node) -> dict[str, str]:
        """The wanted aspects that a node's pod has in the form of an older operator: they mean the same."""
        pool, pod = self.wanted.pool(node.pool), self.kube.pods.get(node.id)
        if pool is None or pod is None:
            return {}
        target = self.aspects(node)
        return {
            key: target[key]
            for key, forms in pool.before_of(broker=node.broker).items()
            if key in target and pod.aspects.get(key) != target[key] and pod.aspects.get(key, "") in forms
        }

    def removed(self, node: Node) -> frozenset[str]:
        """Formatted volumes of a node's disk that were removed from its pool."""
        pool, volume = self.wanted.pool(node.pool), self.kube.volumes.get((node.id, node.disk))
        if pool is None or volume is None or not pool.size_bytes:
            return frozenset()
        return frozenset(volume.size_bytes.keys() - pool.size_bytes.keys() - volume.unmarked)

    def kept(self, node: Node) -> frozenset[str]:
        """Removed volumes that the node's next pod must mount, because no broker has proven that they are empty."""
        return frozenset(name for name in self.removed(node) if not self._empty(node, name))

    def _empty(self, node: Node, name: str) -> bool:
        """Whether a removed volume is certainly empty.

        `EMPTY` holds while the broker that mounts the volume is up, or once a pod runs without it. If the pod ended by
        itself in between, the broker may have created replicas there, so it has to report the volume's content again.
        """
        volume, pod = self.kube.volumes.get((node.id, node.disk)), self.kube.pods.get(node.id)
        mark = None if volume is None else volume.marks.get(name)
        if mark not in PROVEN:
            return False
        if not node.broker and (pod is None or not is_broker(pod)):
            return True
        if pod is None:
            return mark == LEFT_OUT or name not in node.volumes
        return self.up(node.id) or not pod.mounts(name)

    def dropped(self, node: Node) -> frozenset[str]:
        """Volumes that a node's pod mounts and that its next pod will not mount."""
        pool, pod = self.wanted.pool(node.pool), self.kube.pods.get(node.id)
        if pool is None or pod is None or not pool.size_bytes:
            return frozenset()
        return pod.volumes - pool.size_bytes.keys() - self.kept(node)

    def format_aspects(self, node: Node) -> dict[str, str]:
        """The aspects that the format job of a node's disk must have."""
        pool = self.wanted.pool(node.pool)
        assert pool is not None, "law: nothing is formatted for a removed pool"
        level = self.wanted.metadata_version
        first = self.record.voters if self.record.dynamic and node.controller else ()
        return {
            **pool.aspects_of(broker=node.broker),
            "metadata-version": "" if level is None else str(level),
            "first-voters": ",".join(map(str, first)),
        }

    def rack(self, node: Node) -> str:
        """The rack of the machine where a node runs or ran, else of the machine of its volumes; empty if unknown."""
        pod = self.kube.pods.get(node.id)
        volume = self.kube.volumes.get((node.id, node.disk))
        now, bound = pod.rack if pod is not None else "", volume.rack if volume is not None else ""
        return now or node.rack or bound

    def _finds_quorum(self, pod: Pod) -> bool:
        """Whether enough of the controllers that a pod of a dynamic quorum knows are still wanted voters."""
        known = {int(word) for word in pod.aspects.get("bootstrap", "").split(",") if word}
        there = set(self.voters_wanted())
        return len(known & there) >= min(2, len(there))

    def lacks(self, node: Node) -> list[str]:
        """The aspects that differ, sorted: the reasons why a node's pod needs a restart.

        Brokers find the leader through any voter, so they get a new voter set only once the voters have settled. A
        node of a removed pool only waits to leave and needs no restart.
        """
        pod = self.kube.pods.get(node.id)
        if pod is None or (node.leaving and self.wanted.pool(node.pool) is None):
            return []
        target = self.aspects(node)
        if pod.running and keys_of(pod.aspects.get(STARTS_WITH, "")) <= keys_of(target.get(STARTS_WITH, "")):
            target.pop(STARTS_WITH, None)
        if target.pop(KEEPS, "") and KEEPS not in pod.aspects:
            # The pod was made before the volume was removed from the pool, so its configuration differs anyway. The
            # restart comes once the volume is empty.
            target.pop("config", None)
        if self._finds_quorum(pod):
            target.pop("bootstrap", None)
        if ADDRESSES not in pod.aspects:  # the pod is from an older operator
            target.pop(ADDRESSES, None)
        if not self.votes(node) and pod_voters(pod) and self.voters_wanted() != self.record.voters:
            target.pop("voters", None)
        older = self.older_aspects(node)
        lacks = {key for key, value in target.items() if pod.aspects.get(key) != value and key not in older}
        if self.dropped(node):
            lacks.add(EMPTIED)
        if MIGRATES in pod.aspects and MIGRATES not in target:
            lacks.add(MIGRATES)  # the migration is finalized
        if pod.volumes and self.kept(node) - pod.volumes:
            lacks.add(KEEPS)  # the broker must mount the volume to report its content
        return sorted(lacks | ({EVICTED, RESIZED} & pod.aspects.keys()))


def is_controller(pod: Pod) -> bool:
    """Whether a pod was started as a controller."""
    return "controller" in pod.aspects.get("roles", "").split(",")


def is_broker(pod: Pod) -> bool:
    """Whether a pod was started as a broker. A node with a new broker role becomes a broker with its restart."""
    return "broker" in pod.aspects.get("roles", "").split(",")


def pod_voters(pod: Pod) -> tuple[int, ...]:
    """The ids of the voters that a pod was started with; empty for a dynamic quorum."""
    return tuple(int(word) for word in pod.aspects.get("voters", "").split(",") if word)


def _not_up(pod: Pod | None) -> str:
    """The end of a message about a node that is not up: a verb, or a colon and what Kubernetes reports."""
    if pod is None:
        return " has no pod yet"
    if pod.terminating and not pod.lost:
        return " stops"
    reported = pod.message or NOT_READY
    return f" {reported}" if reported in (NOT_READY, BEING_STARTED) else f": {reported}"


def _current(replica: Replica) -> bool:
    return replica.behind_ms <= BEHIND_MAX_MS


def fresh(seen: Aged[T], *, newer_than_ms: float) -> T | None:
    """The view's value; None if its age exceeds `AGE_MAX_MS` or is not below `newer_than_ms`."""
    return seen.value if seen.age_ms <= AGE_MAX_MS and seen.age_ms < newer_than_ms else None


def situation(record: Record, wanted: Wanted, observed: Observed) -> Situation | None:
    """Build the situation of a pass. Returns None if pods and volumes are unknown.

    Views of another cluster are dropped, with a block in the plan.
    """
    kube = fresh(observed.kube, newer_than_ms=observed.since_write_ms)
    if kube is None:
        return None
    newer_than_ms = min(observed.since_write_ms, observed.since_pod_change_ms)
    quorum = fresh(observed.quorum, newer_than_ms=newer_than_ms)
    metadata = fresh(observed.metadata, newer_than_ms=newer_than_ms)
    disks = {node: fresh(view, newer_than_ms=newer_than_ms) for node, view in observed.disks.items()}
    known = {node: view for node, view in disks.items() if view is not None}
    migration = fresh(observed.migration, newer_than_ms=newer_than_ms) or {}
    found = Situation(record, wanted, kube, quorum, metadata, disks=known, migration=migration)
    for who, view in (("the active controller", quorum), ("a broker", metadata)):
        if view is not None and record.cluster_id is not None and view.cluster_id not in {"", record.cluster_id}:
            text = f"{who} of this cluster's pods belongs to cluster {view.cluster_id}, not to {record.cluster_id}:"
            text += " its answers are ignored; find out which process answers at the pod's address"
            found.plan.block("AnotherCluster", text)
            found.quorum = found.metadata = None
    return found
