"""Kubernetes and Kafka around the whole reconciler, in simulated time, under one seed.

Fault model: the API server answers within milliseconds, or is throttled for up to a minute. A write may be applied and
its answer lost. Pods are deleted at once; containers crash and restart. A broker that died is fenced 9 s later, and is
in its ISRs until then. Views of brokers are stale or missing. The resource is deleted and applied anew. The operator
may die at any await.

The laws judge by the true state, not by the operator's view. What happened within the last GRACE_S is excused, because
the operator cannot look and act at the same moment.

- `isr`       a broker is stopped only if every partition that it is in sync with keeps min.insync.replicas up
- `copy`      a disk is given up only if another copy of each of its partitions is in sync and up
- `quorum`    a controller is stopped only if a majority of the others is up
- `once`      a node gets at most as many disks as replacements were requested
"""

from __future__ import annotations

import asyncio
import copy
import json
from collections import defaultdict
from random import Random
from typing import Any, Final, Protocol

import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.kube.client import ApiError
from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.model import steps as do
from kraft_operator.reconcile import Key
from kraft_protocol.client.aio import Address
from tests.unit.operator.fake_kubernetes import FakeApi, Object
from tests.unit.operator.sample import ROOT

KEY: Final = Key("demo", "sample")
GRACE_S: Final = 5.4
"""As much as the fence permits: views of at most 5 s when the request takes effect, and two ticks of the world."""
SESSION_S: Final = 9.0
VOTERS: Final = (1, 2, 3)
BROKERS: Final = (101, 102, 103)
NEED: Final = 2


def resource(uid: str, **changes: Any) -> Object:
    """The sample as the API server stores it."""
    document = yaml.safe_load((ROOT / "deploy/samples/kraftcluster.yaml").read_text())
    listeners = [one for one in document["spec"]["listeners"] if one.get("type") != "NodePort"]
    spec = KRaftClusterSpec.model_validate({**document["spec"], "listeners": listeners, **changes})
    document["spec"] = spec.model_dump(by_alias=True, exclude_none=True)
    document["metadata"] |= {"namespace": KEY.namespace, "uid": uid, "generation": 1, "resourceVersion": uid}
    return dict(document)


class Clock(Protocol):
    """Simulated time."""

    def time(self) -> float:
        """Seconds."""
        ...


class Partition:
    """Three replicas, of which two must be in sync."""

    def __init__(self, number: int) -> None:
        self.number = number
        self.isr = set(BROKERS)


class Cluster:
    """The true state."""

    def __init__(self, loop: Clock, rng: Random, api: SimApi) -> None:
        self.loop, self.rng, self.api = loop, rng, api
        self.partitions = [Partition(number) for number in range(4)]
        self.fenced: dict[int, bool] = {}
        self.died: dict[int, float] = {}
        """When a node's process went down last; those that are down."""
        self.up_at: dict[int, float] = {}
        self.catches_up_s: dict[int, float] = {}
        self.dynamic: dict[str, str] = {}
        self.history: list[tuple[float, frozenset[int], list[frozenset[int]]]] = []
        """Time, who is up, ISRs: as far back as GRACE_S."""
        self.snapshots: list[tuple[float, seen.Metadata]] = []
        self.begun = False

    # Nodes

    def is_up(self, node_id: int) -> bool:
        return node_id in self.up_at

    def went_down(self, node_id: int, *, cleanly: bool) -> None:
        """Apply a clean stop: the broker leaves its ISRs at once, unless it is the last member."""
        if self.up_at.pop(node_id, None) is None:
            return
        self.died[node_id] = self.loop.time()
        if cleanly:
            self.leave_isrs(node_id)
            self.fenced[node_id] = True

    def came_up(self, node_id: int) -> None:
        self.up_at[node_id] = self.loop.time()
        self.died.pop(node_id, None)
        self.catches_up_s[node_id] = self.rng.choice((0.5, 1.0, 4.0, 20.0))
        if node_id in BROKERS:
            self.fenced[node_id] = False

    def leave_isrs(self, node_id: int) -> None:
        for partition in self.partitions:
            if partition.isr != {node_id}:
                partition.isr.discard(node_id)

    def tick(self) -> None:
        """Fence brokers and let replicas catch up; keep earlier states for as long as they excuse."""
        now = self.loop.time()
        for node_id, died in self.died.items():
            if node_id in BROKERS and not self.fenced.get(node_id) and now - died > SESSION_S:
                self.fenced[node_id] = True
                self.leave_isrs(node_id)
        for node_id, since in self.up_at.items():
            if node_id in BROKERS and now - since > self.catches_up_s[node_id]:
                for partition in self.partitions:
                    if any(self.is_up(i) for i in partition.isr):
                        partition.isr.add(node_id)
        self.history.append((now, frozenset(self.up_at), [frozenset(p.isr) for p in self.partitions]))
        while self.history[0][0] < now - GRACE_S:
            del self.history[0]
        if any(i in BROKERS for i in self.up_at):
            self.snapshots = [*self.snapshots, (now, self._metadata())][-40:]

    def _metadata(self) -> seen.Metadata:
        brokers = {i: seen.Broker(fenced) for i, fenced in self.fenced.items()}
        partitions = tuple(seen.Partition("t", p.number, BROKERS, frozenset(p.isr), NEED) for p in self.partitions)
        features = {"metadata.version": 29, "kraft.version": 0}
        return seen.Metadata(brokers, partitions, dict(self.dynamic), features, dict(features))

    def quorum(self) -> seen.Quorum | None:
        up = [i for i in VOTERS if self.is_up(i)]
        if len(up) < 2:
            return None
        late = {i for i in up if self.loop.time() - self.up_at[i] < 1.0}
        voters = {i: seen.Replica(0, 0 if i in up and i not in late else 60_000) for i in VOTERS}
        observers = {i: seen.Replica(0, 0) for i in BROKERS if self.is_up(i)}
        leaders = [i for i in up if i not in late]
        return seen.Quorum(leaders[0], 1, voters, observers) if leaders else None

    # Laws

    def _recently_up(self) -> set[int]:
        return set(self.up_at).union(*(up for _, up, _ in self.history))

    def _counting(self, partition: Partition) -> set[int]:
        """The brokers that are in sync and up, now or a moment ago."""
        recent = partition.isr.union(*(isrs[partition.number] for _, _, isrs in self.history))
        return recent & self._recently_up()

    def check_stop(self, node_id: int) -> None:
        """Laws `isr` and `quorum`, at the moment when the API server accepts a deletion from the operator."""
        if not self.is_up(node_id):
            return
        up = self._recently_up()
        assert node_id not in VOTERS or len(up & {*VOTERS} - {node_id}) >= 2, f"quorum: {node_id} is stopped"
        # One moment's ISRs must allow the stop for all partitions. ISRs of several moments are never mixed: a view of
        # the metadata is of one moment. A node that has just caught up was in no ISR that the operator could see.
        moments = [[frozenset(one.isr) for one in self.partitions], *(isrs for _, _, isrs in reversed(self.history))]
        broken = [self._at_risk(node_id, isrs, up) for isrs in moments]
        assert None in broken, f"isr: {node_id} is stopped, {broken[0]}"

    @staticmethod
    def _at_risk(node_id: int, isrs: list[frozenset[int]], up: set[int]) -> str | None:
        """The first partition that one moment's ISRs leave with too few replicas, or None."""
        for number, isr in enumerate(isrs):
            left = isr & up - {node_id}
            if node_id in isr and len(left) < NEED:
                return f"t-{number} has {sorted(left)}"
        return None

    def check_swap(self, node_id: int) -> None:
        """Law `copy`."""
        for partition in self.partitions:
            assert node_id not in BROKERS or self._counting(partition) - {node_id}, f"copy: the last is on {node_id}"


class SimApi(FakeApi):
    """An API server with delays, beside which other events happen."""

    def __init__(self, loop: Clock, rng: Random, cluster: Any = None) -> None:
        """`cluster`: what checks the laws, if it is not this model of nodes."""
        super().__init__()
        self.loop, self.rng = loop, rng
        self.cluster = cluster or Cluster(loop, rng, self)
        self.slow_until = 0.0
        self.faults = True
        self.disks: dict[int, int] = defaultdict(int)
        self.asked: dict[int, set[str]] = defaultdict(set)
        """Names of replacements that were asked for, by node."""
        self.uids = 0

    async def _wait(self) -> None:
        slow = self.loop.time() < self.slow_until
        await asyncio.sleep(self.rng.uniform(2, 20) if slow else self.rng.uniform(0.002, 0.02))

    async def get(self, kind: str, namespace: str | None, name: str) -> Object | None:
        await self._wait()
        return await super().get(kind, namespace, name)

    async def list(self, kind: str, namespace: str | None, selector: str = "") -> list[Object]:
        await self._wait()
        return await super().list(kind, namespace, selector)

    async def create(self, body: Object) -> Object:
        await self._wait()
        if body["kind"] == "Event":
            return body
        made = await super().create(body)
        self._note(made)
        return made

    async def apply(self, body: Object, *, rehearse: bool = False) -> Object:
        await self._wait()
        return await super().apply(body, rehearse=rehearse)

    async def patch(self, kind: str, namespace: str, name: str, body: Object, part: str | None = None) -> Object:
        await self._wait()
        made = await super().patch(kind, namespace, name, body, part)
        self._note(made)
        return made

    async def delete(
        self, kind: str, namespace: str, name: str, uid: str | None = None, version: str | None = None
    ) -> None:
        await self._wait()
        silent = self.faults and kind == "Pod" and self.rng.random() < 0.3
        there = self.objects.get((kind, namespace, name))
        fits = there is not None and uid in (None, there["metadata"]["uid"])
        fits = fits and there is not None and version in (None, there["metadata"]["resourceVersion"])
        if silent and self.rng.random() < 0.5:
            await asyncio.sleep(5)
            raise ApiError(0, "Timeout", f"DELETE {name}: no answer")
        if kind == "Pod" and fits and there is not None and "deletionTimestamp" not in there["metadata"]:
            self.cluster.check_stop(_node(there))
        await super().delete(kind, namespace, name, uid, version)
        if silent:
            await asyncio.sleep(5)
            raise ApiError(0, "Timeout", f"DELETE {name}: no answer")

    def _note(self, made: Object) -> None:
        """Laws `copy` and `once`, when a record is written."""
        if made.get("kind") != "ConfigMap" or not made["metadata"]["name"].endswith("-record"):
            return
        for node in json.loads(made["data"]["record"])["nodes"]:
            number, disk = node["id"], node["disk"]
            if disk > self.disks[number]:
                self.cluster.check_swap(number)
                assert disk <= len(self.asked[number]), f"once: node {number} gets disk {disk}: {self.asked[number]}"
            self.disks[number] = disk

    # Events

    def work_on(self) -> None:
        """The kubelets, the job controller, the garbage collector."""
        now = self.loop.time()
        owners = {one["metadata"]["uid"] for (kind, *_), one in self.objects.items() if kind == "KRaftCluster"}
        for (kind, namespace, name), one in list(self.objects.items()):
            metadata = one["metadata"]
            owned = {owner["uid"] for owner in metadata.get("ownerReferences", ())}
            if owned and not owned & owners and kind != "Pod":
                del self.objects[kind, namespace, name]
            elif kind == "Job" and "status" not in one:
                one["status"] = {"conditions": [{"type": "Complete", "status": "True"}]}
            elif kind == "Pod":
                if owned and not owned & owners:
                    metadata.setdefault("deletionTimestamp", "now")
                self._pod((kind, namespace, name), one, now)

    def _pod(self, key: tuple[str, str, str], one: Object, now: float) -> None:
        node_id = _node(one)
        due = one.setdefault("due", now + self.rng.uniform(0.5, 3))
        if "deletionTimestamp" in one["metadata"]:
            self.cluster.went_down(node_id, cleanly=True)
            if now > one.setdefault("gone", now + self.rng.uniform(0.5, 3)):
                del self.objects[key]
        elif now > due and not self.cluster.is_up(node_id):
            restarts = one.get("status", {}).get("containerStatuses", [{"restartCount": -1}])[0]["restartCount"] + 1
            self.cluster.came_up(node_id)
            self.reported(one, ready=True, restarts=restarts)

    def reported(self, pod: Object, *, ready: bool, restarts: int) -> None:
        """A kubelet's report about a pod."""
        state = {"running": {}} if ready else {"waiting": {"reason": "CrashLoopBackOff"}}
        value = str(ready)
        pod["status"] = {
            "phase": "Running",
            "podIP": f"10.0.0.{_node(pod)}",
            "conditions": [{"type": kind, "status": value} for kind in ("Ready", "ContainersReady")],
            "containerStatuses": [{"state": state, "restartCount": restarts}],
        }
        pod["metadata"]["resourceVersion"] = str(next(self._versions))

    def crash(self, node_id: int) -> None:
        """Kill the pod's process at once; the container restarts some time later."""
        pod = self.objects.get(("Pod", KEY.namespace, f"sample-{node_id}"))
        if pod is not None and self.cluster.is_up(node_id):
            self.cluster.went_down(node_id, cleanly=False)
            pod["due"] = self.loop.time() + self.rng.choice((4.0, 20.0, 60.0))
            restarts = pod["status"]["containerStatuses"][0]["restartCount"]
            self.reported(pod, ready=False, restarts=restarts)

    def apply_anew(self, spec: Object) -> None:
        """Delete the resource and apply it from Git: another uid, no status, no annotations."""
        self.uids += 1
        made = resource(f"u{self.uids}")
        made["spec"] = copy.deepcopy(spec)
        self.objects["KRaftCluster", *KEY] = made


class SimView:
    """The answers of nodes, in place of `observe.kafka.View`: late, stale, or missing."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.describing: int | None = None
        self._quorum: tuple[float, seen.Quorum] | None = None
        self._metadata: tuple[float, seen.Metadata] | None = None

    async def look(self, controllers: dict[int, Address], brokers: dict[int, Address], _statuses: object) -> None:
        cluster = self._cluster
        faults = cluster.api.faults
        await asyncio.sleep(cluster.rng.choice((0.02, 0.02, 0.5)))
        asked_at, found = cluster.loop.time(), cluster.quorum()
        if found is not None and any(cluster.is_up(i) for i in controllers):
            self._quorum = (asked_at, found)
        if not cluster.snapshots or not any(cluster.is_up(i) for i in brokers):
            return
        if faults and cluster.rng.random() < 0.2:
            return
        behind_s = cluster.rng.choice((0.0, 0.2, 0.5, 4.0)) if faults else 0.0
        at = asked_at - behind_s
        self._metadata = max((one for one in cluster.snapshots if one[0] <= at), default=cluster.snapshots[0], key=_at)
        await asyncio.sleep(cluster.rng.choice((0.02, 0.3)))

    @property
    def quorum(self) -> seen.Aged[seen.Quorum]:
        return self._seen(self._quorum)

    @property
    def metadata(self) -> seen.Aged[seen.Metadata]:
        return self._seen(self._metadata)

    def _seen(self, view: tuple[float, Any] | None) -> seen.Aged[Any]:
        if view is None:
            return seen.Aged()
        return seen.Aged(view[1], round((self._cluster.loop.time() - view[0]) * 1000))


def _at(snapshot: tuple[float, seen.Metadata]) -> float:
    return snapshot[0]


def _node(pod: Object) -> int:
    return int(pod["metadata"]["labels"]["kraftcluster.io/node"])


async def by_kafka(cluster: Cluster, step: do.Step) -> None:
    """Steps that the cluster itself carries out."""
    await asyncio.sleep(0.05)
    if isinstance(step, do.SetConfig):
        cluster.dynamic.update(step.put)
        for key in step.remove:
            cluster.dynamic.pop(key, None)
