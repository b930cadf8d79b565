"""All views of one cluster, each with its age: objects, processes, quorum, metadata.

The reconciler calls it. It plans nothing and writes nothing.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from kraft_operator.kube.client import Api, ApiError
from kraft_operator.observe import addresses, objects
from kraft_operator.observe.kafka import View
from kraft_operator.observe.source import MetadataSource
from kraft_operator.observe.status import STARTS_S, Statuses
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Aged, Kube, Observed
from kraft_operator.specs.cluster import INSTANCE, NamedCluster
from kraft_operator.specs.properties import volume_of
from kraft_protocol.client.aio import Address, Client

MACHINES_S: Final = 60.0
"""The greatest age of the labels of machines, in seconds. Racks hardly ever change."""

UNAVAILABLE: Final = frozenset({403, 404})
"""Kubernetes does not know a kind, or the operator has no right to it."""

NODES: Final = "kraftcluster"
FORMATS: Final = "kraftcluster-format"
"""Values of the name label of pods: NODES for nodes, FORMATS for jobs that format volumes."""

Object = dict[str, Any]


class Machines:
    """Labels of all machines (Kubernetes nodes), read at most once a minute for all clusters together."""

    def __init__(self, api: Api, clock: Callable[[], float], *, allowed: bool) -> None:
        self._api = api
        self._clock = clock
        self.allowed = allowed
        """Whether the operator may read machines."""
        self._read_at = float("-inf")
        self._labels: dict[str, Mapping[str, str]] = {}

    async def racks(self, label: str) -> dict[str, str]:
        """The value of `label` by machine; empty if a machine lacks the label. Raises ApiError."""
        if self._clock() - self._read_at > MACHINES_S:
            found = await self._api.list("Node", None, only_metadata=True)
            self._labels = {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in found}
            self._read_at = self._clock()
        return {name: labels.get(label, "") for name, labels in self._labels.items()}


@dataclass(slots=True)
class ListedObjects:
    """The listed objects of one cluster, which the steps change."""

    pods: dict[int, Object] = field(default_factory=dict)
    claims: list[Object] = field(default_factory=list)
    jobs: list[Object] = field(default_factory=list)
    configs: dict[str, Object] = field(default_factory=dict)
    """ConfigMaps by name: the files of nodes."""
    services: list[str] = field(default_factory=list)
    """Names of services. Listed only if the cluster has external listeners."""
    addresses: dict[str, frozenset[str]] = field(default_factory=dict)
    """The hosts and addresses outside of Kubernetes by service, those of its Route among them."""


@dataclass(frozen=True, slots=True)
class Found:
    """The result of listing each kind of object once."""

    kube: Kube
    shape: frozenset[tuple[str, bool, int]]
    controllers: Mapping[int, Address]
    brokers: Mapping[int, Address]
    statuses: Mapping[int, Address]
    whole: bool
    """Whether every process has reported the file that it has read. If not, the next look may find more."""


class Look:
    """The views of one cluster, kept between passes. A crash may lose them: nothing depends on them."""

    def __init__(self, client: Client, clock: Callable[[], float], names: dict[str, str] | None = None) -> None:
        """`names` is kept up to date: the host of each node by the address of its pod."""
        self._names = {} if names is None else names
        self.client = client
        self.view = View(client, clock)
        self.written_at = float("-inf")
        self.pods_changed_at = float("-inf")
        self.tried: tuple[do.Step, ...] = ()
        """Steps of the last pass, carried out or refused, without guarded steps."""
        self._clock = clock
        self._statuses = Statuses()
        self._shape: frozenset[tuple[str, bool, int]] | None = None

    async def objects(self, api: Api, cluster: NamedCluster, machines: Machines) -> tuple[Found, ListedObjects]:
        """List all objects of a cluster and read the status of its new processes. Raises ApiError."""
        namespace = cluster.namespace
        selector = f"{INSTANCE}={cluster.name},app.kubernetes.io/name=kraftcluster"
        listed_at = self._clock()
        kinds = ["PersistentVolumeClaim", "Job", "ConfigMap", *(["Service"] if cluster.external else [])]
        # One list for the pods of nodes and of format jobs: both change while nodes are made.
        all_pods, claims, jobs, configs, *rest = await asyncio.gather(
            api.list("Pod", namespace, f"{INSTANCE}={cluster.name}"),
            *(api.list(kind, namespace, selector) for kind in kinds),
        )
        services = rest[0] if rest else []
        routes = await self._routes(api, cluster, selector)
        pods, jobs = objects.ours(cluster, objects.named(all_pods, NODES)), objects.ours(cluster, jobs)
        self._names.clear()
        self._names |= {ip: cluster.host(i) for i, one in objects.by_node(pods) if (ip := objects.ip_of(one))}
        job_pods = objects.named(all_pods, FORMATS) if jobs else []
        shape = objects.shape(pods)
        if shape != self._shape:
            self._shape, self.pods_changed_at = shape, listed_at
        processes = objects.processes(pods)
        ready = {number for number, one in objects.by_node(pods) if objects.pod(one).ready}
        answers = await self._statuses.of(processes, hurry=processes.keys() - ready)
        rack = cluster.spec.rack
        racks = await machines.racks(rack.node_label) if rack is not None and machines.allowed else {}
        found = Found(
            objects.kube(cluster, pods, claims, jobs, racks, job_pods, services, configs, answers, routes),
            shape,
            objects.controllers(pods),
            objects.brokers(pods),
            objects.statuses(pods),
            self._statuses.whole(processes),
        )
        seen = ListedObjects(
            {number: dict(one) for number, one in objects.by_node(pods)},
            [one for one in claims if objects.others(cluster, one) is None],
            list(map(dict, jobs)),
            {one["metadata"]["name"]: one for one in configs},
            [one["metadata"]["name"] for one in services],
            {
                **{one["metadata"]["name"]: addresses.hosts_of(one) for one in services},
                **{one["metadata"]["name"]: frozenset({host}) for one in routes if (host := addresses.route_host(one))},
            },
        )
        return found, seen

    def source(
        self,
        brokers: Mapping[int, Address],
        controllers: Mapping[int, Address],
        statuses: Mapping[int, Address],
        cluster_id: str | None,
    ) -> MetadataSource:
        """The brokers that topics and users are read from, the one first that described the metadata last."""
        return MetadataSource(
            self.client,
            brokers,
            controllers=controllers.values(),
            statuses=statuses,
            cluster_id=cluster_id,
            first=self.view.describing,
        )

    async def _routes(self, api: Api, cluster: NamedCluster, selector: str) -> list[Object]:
        """List Routes if OpenShift assigns hosts of a listener. Raises ApiError."""
        if not any(one.type == "Route" for one in cluster.external):
            return []
        try:
            return await api.list("Route", cluster.namespace, selector)
        except ApiError as error:
            if error.status not in UNAVAILABLE:
                raise
            return []  # the step that makes Routes reports it

    async def observed(
        self, found: Found, listed_at: float, ask: Collection[int] = (), *, migrates: bool = False
    ) -> Observed:
        """Query the cluster's nodes and return all views with their ages.

        `found` was listed at `listed_at` (monotonic seconds). The brokers in `ask` also report their log directories.
        With `migrates`, controllers report the migration from ZooKeeper.
        """
        # Starting processes may take seconds to answer. Volumes and pods would wait for this pass meanwhile.
        starts = not any(ready for _, ready, _ in found.shape)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(STARTS_S if starts else None):
                await self.view.look(found.controllers, found.brokers, found.statuses)
        if ask:
            await self.view.look_at_disks({i: one for i, one in found.brokers.items() if i in ask}, volume_of)
        if migrates:
            await self.view.look_at_migration({i: one for i, one in found.statuses.items() if i in found.controllers})
        now = self._clock()
        return Observed(
            Aged(found.kube, milliseconds(now - listed_at)),
            self.view.quorum,
            self.view.metadata,
            since_write_ms=milliseconds(now - self.written_at),
            since_pod_change_ms=milliseconds(now - self.pods_changed_at),
            disks=self.view.disks if ask else {},
            migration=self.view.migration if migrates else Aged(),
            tried=self.tried,
        )


def milliseconds(seconds: float) -> int:
    """Convert seconds to whole milliseconds; infinity becomes 2**31."""
    return 2**31 if seconds == float("inf") else round(seconds * 1000)
