"""Steps through the API server: volumes, jobs, pods, and the objects that all nodes share.

Every write is compared with the existing object first. If an object to be created exists already (409), that is fine.
Deletions name the object's uid, so that they never hit a newer object of the same name.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Mapping
from typing import Any, Final

from kraft_operator.api.cluster import CONTROLLER_PORT
from kraft_operator.api.listeners import BY_SNI, Listener
from kraft_operator.apply.fronts import kinds_of, listed
from kraft_operator.apply.objects import marked, same
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.observe import addresses
from kraft_operator.observe.cluster import ListedObjects
from kraft_operator.observe.objects import NODE_LABEL, by_node, disk_of, others
from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.record import Node, Record
from kraft_operator.plan.model.situation import ADDRESSES
from kraft_operator.specs import fronts, network, pods, storage
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, MANAGER, NamedCluster
from kraft_operator.specs.properties import External

Object = dict[str, Any]
SHARED_KINDS: Final = ("Service", "PodDisruptionBudget", "NetworkPolicy")
CONFLICT: Final = 409

KubeStep = (
    do.CreateVolume
    | do.Format
    | do.DropJob
    | do.MarkFormatted
    | do.MarkReplaced
    | do.GrowVolume
    | do.DeleteVolume
    | do.MarkVolume
    | do.CreatePod
    | do.RestoreConfig
    | do.RewriteAspects
    | do.Recreate
    | do.Restart
    | do.Stop
)


class InTheWayError(ApiError):
    """An object to be created has the name of an existing object that is not the operator's."""

    lasting = True

    def __init__(self, kind: str, name: str) -> None:
        text = (
            f"{kind} {name} exists and belongs to another owner: it stays unchanged; delete it, or choose another name"
        )
        super().__init__(CONFLICT, "InTheWay", text)


class ServiceRefusedError(ApiError):
    """Kubernetes refuses a service that the next restart of a broker needs."""

    lasting = True

    def __init__(self, kind: str, name: str, error: ApiError) -> None:
        reason = str(error).partition(": ")[2]
        what = "service" if kind == "Service" else kind
        text = f"{reason}; no node is restarted for {what} {name} until the listener is corrected"
        super().__init__(error.status, error.reason, text)


class NotYetError(Exception):
    """A step waits for something that Kubernetes has not done yet."""


class Hands:
    """Writes to the API server for one cluster, during one pass."""

    def __init__(self, api: Api, cluster: NamedCluster, record: Record, seen: ListedObjects) -> None:
        self._api = api
        self._cluster = cluster
        self._record = record
        self._seen = seen

    async def carry_out(self, step: KubeStep) -> None:
        """Carry out a step. Raises ApiError or NotYetError."""
        match step:
            case do.CreateVolume():
                await self._create_all(storage.claims(self._cluster, *self._pool_and(step.node)), disk=step.disk)
            case do.Format():
                await self._format(step)
            case do.DropJob():
                await self._drop_jobs(step.node)
            case do.MarkFormatted():
                await self._mark(step)
            case do.MarkReplaced():
                await self._annotate(step.node, step.disk, storage.REPLACED, ",".join(step.names))
            case do.GrowVolume():
                await self._grow(step)
            case do.DeleteVolume():
                for claim in self._claims(step.node, step.disk, step.volumes):
                    await self._delete(claim)
            case do.MarkVolume():
                mark = step.mark or None
                await self._annotate(step.node, step.disk, storage.VOLUME_MARK, mark, step.volumes)
            case do.CreatePod():
                await self._start(step)
            case do.RestoreConfig():
                pool, node = self._pool_and(step.node)
                legacy = self._cluster.node(node.id)
                name = legacy if step.name.removeprefix("ConfigMap ") == legacy else ""
                await self._ensure(pods.config_map(self._cluster, pool, node, step.aspects, name=name))
            case do.RewriteAspects():
                await self._rewrite(step)
            case do.Restart():
                for one in step.marks:
                    await self.carry_out(one)
                await asyncio.gather(*(self._stop(node) for node in step.nodes))
            case do.Recreate():
                await asyncio.gather(*(self._stop(node) for node in step.nodes))
            case do.Stop():
                await self._stop(step.node)

    # Volumes

    def _pool_and(self, node_id: int) -> tuple[Any, Node]:
        node = self._record.node(node_id)
        pool = self._cluster.pool(node.pool) if node is not None else None
        if node is None or pool is None:
            raise NotYetError(f"node {node_id} has no pool")
        return pool, node

    def _own_claims(self) -> list[tuple[int, Object]]:
        """The cluster's claims with their node ids. Only these are written to or deleted.

        A claim of this name and these labels may hold the data of a former cluster, which kept it.
        """
        return [
            (number, dict(claim))
            for number, claim in by_node(self._seen.claims)
            if others(self._cluster, claim) is None
            and claim["metadata"].get("annotations", {}).get(storage.FORMATTED, "")
            in {"", f"{self._record.cluster_id}/{number}"}
        ]

    def _claims(self, node_id: int, disk: int, volumes: Collection[str] = ()) -> list[Object]:
        """The cluster's own claims of a disk; only the claims of `volumes`, if any are given."""
        names = {self._cluster.claim(volume, node_id, disk) for volume in volumes}
        return [
            claim
            for number, claim in self._own_claims()
            if number == node_id and disk_of(claim) == disk and (not names or claim["metadata"]["name"] in names)
        ]

    async def _create_all(self, wanted: list[Object], *, disk: int) -> None:
        for one in wanted:
            assert one["metadata"]["labels"][storage.DISK] == str(disk), "the record has another disk in force"
            await self._create(one)

    async def _format(self, step: do.Format) -> None:
        pool, node = self._pool_and(step.node)
        voters = sorted({*self._record.voters, *((node.id,) if node.controller else ())})
        roles = ",".join(role for role, has in (("broker", node.broker), ("controller", node.controller)) if has)
        known = "bootstrap" if self._record.dynamic else "voters"
        aspects = {"roles": roles, known: ",".join(map(str, voters))}
        config = pods.config_map(self._cluster, pool, node, aspects)
        await self._ensure_config(config)
        dynamic = None
        if self._record.dynamic and node.controller:
            dynamic = {"initial": "" if step.joins else self._initial_voters()}
        cluster_id = self._record.cluster_id
        assert cluster_id is not None
        name = config["metadata"]["name"]
        claims = [claim["metadata"]["uid"] for claim in self._claims(step.node, step.disk)]
        job = storage.format_job(
            self._cluster, pool, node, cluster_id, name, dynamic, step.volumes, step.aspects, claims
        )
        await self._create(job)

    def _initial_voters(self) -> str:
        """The initial voters of a dynamic quorum: `ID@HOST:PORT:DIRECTORY-ID`, separated by commas (KIP-853)."""
        return ",".join(
            f"{i}@{self._cluster.host(i)}:{CONTROLLER_PORT}:{storage.directory_id(self._record.cluster_id or '', i)}"
            for i in self._record.voters
        )

    async def _mark(self, step: do.MarkFormatted) -> None:
        await self._annotate(
            step.node, step.disk, storage.FORMATTED, f"{self._record.cluster_id}/{step.node}", step.volumes
        )
        await self._drop_jobs(step.node)

    async def _annotate(
        self, node_id: int, disk: int, key: str, value: str | None, volumes: Collection[str] = ()
    ) -> None:
        """Annotate all claims of a disk, or only the claims of `volumes`. A value of None removes the annotation."""
        for claim in self._claims(node_id, disk, volumes):
            if claim["metadata"].get("annotations", {}).get(key) != value:
                version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
                await self._patch(claim, {"metadata": {"annotations": {key: value}, **version}})

    async def _drop_jobs(self, node_id: int) -> None:
        for number, one in by_node(self._seen.jobs):
            if number == node_id:
                await self._delete({**one, "kind": "Job"})

    async def _grow(self, step: do.GrowVolume) -> None:
        """Enlarge claims. The size is the text of the specification, so that both have the same text."""
        pool, _ = self._pool_and(step.node)
        sizes = {volume.name: volume.size for volume in pool.storage.volumes}
        for claim in self._claims(step.node, step.disk):
            name = claim["metadata"]["name"].removesuffix(f"-{self._cluster.node(step.node)}-{step.disk}")
            if name in step.size_bytes:
                await self._patch(claim, {"spec": {"resources": {"requests": {"storage": sizes[name]}}}})

    async def _patch(self, claim: Object, patch: Object) -> None:
        name = claim["metadata"]["name"]
        await self._api.patch("PersistentVolumeClaim", self._cluster.namespace, name, patch)

    # Pods

    async def _start(self, step: do.CreatePod) -> None:
        pool, node = self._pool_and(step.node)
        external = await self._addresses(node) if "broker" in step.aspects.get("roles", "") else {}
        aspects = {**step.aspects, **({ADDRESSES: addresses.as_text(external)} if external else {})}
        await self._ensure_config(pods.config_map(self._cluster, pool, node, aspects))
        await self._create(pods.pod(self._cluster, pool, node, aspects, external))

    async def _addresses(self, node: Node) -> External:
        """Ensure a broker's external services and return their addresses. Raises NotYetError if one is missing."""
        found: dict[str, tuple[str, int]] = {}
        for listener, wanted, front in self._services(node):
            service = await self._ensure_or_keep(wanted)
            before = None if front is None else await self._ensure_or_keep(front)
            outside = addresses.of_broker(self._cluster, listener, node.id, service, before)
            if outside is None:
                kind = "service" if front is None else front["kind"]
                raise NotYetError(f"{kind} {service['metadata']['name']} has no address outside yet")
            found[listener.name] = outside
        return found

    def _services(self, node: Node) -> list[tuple[Listener, Object, Object | None]]:
        """The external listeners of a broker, each with its wanted service, and the Ingress or Route before it."""
        cluster, place = self._cluster, self._place(node)
        return [
            (
                one,
                network.external_broker(cluster, one, node.id, place),
                fronts.broker_front(cluster, one, node.id),
            )
            for one in cluster.external
        ]

    def _place(self, node: Node) -> int:
        """The position of a broker, counted from the lowest first id of a broker pool. Other nodes do not change it."""
        return node.id - min(p.first_node_id for p in self._cluster.spec.node_pools if "broker" in p.roles)

    async def _rewrite(self, step: do.RewriteAspects) -> None:
        """Annotate a pod in the observed version: a newer pod of this name has its own aspects."""
        pod = self._seen.pods.get(step.node)
        if pod is None:
            return
        metadata = pod["metadata"]
        change = {
            "resourceVersion": metadata["resourceVersion"],
            "annotations": {pods.ASPECT + key: value for key, value in step.aspects.items()},
        }
        await self._api.patch("Pod", self._cluster.namespace, metadata["name"], {"metadata": change})

    async def _stop(self, node_id: int) -> None:
        """Delete a pod once, and only in the observed version. A late deletion could hit a pod that the operator has
        not observed."""
        pod = self._seen.pods.get(node_id)
        if pod is None or "deletionTimestamp" in pod["metadata"]:
            return
        name, uid, version = (pod["metadata"][key] for key in ("name", "uid", "resourceVersion"))
        try:
            await self._api.delete("Pod", self._cluster.namespace, name, uid, version)
        except ApiError as error:
            if error.status != CONFLICT:
                raise
            raise NotYetError(f"pod {name} has changed since it was looked at") from None

    # Shared objects

    async def share(self, held: frozenset[str] = frozenset()) -> None:
        """Write services, budgets and policies, and delete the objects of removed nodes.

        Budgets forbid evictions of the roles `held`. A refusal does not delay other objects; it is raised at the end.
        """
        cluster = self._cluster
        selector = f"{INSTANCE}={cluster.name},app.kubernetes.io/name=kraftcluster"
        kinds = (*SHARED_KINDS, "ConfigMap")
        mine = f"{selector},{MANAGED_BY}={MANAGER}"
        lists = await asyncio.gather(*(self._api.list(kind, cluster.namespace, mine) for kind in kinds))
        there = {
            (kind, one["metadata"]["name"]): one for kind, found in zip(kinds, lists, strict=True) for one in found
        }
        services = [one for (kind, _), one in there.items() if kind == "Service"]
        known, unlisted = await listed(self._api, kinds_of(cluster, services), cluster.namespace, mine)
        there |= known
        wanted = [network.nodes_service(cluster), network.bootstrap_service(cluster)]
        wanted += [network.external_bootstrap(cluster, one) for one in cluster.external]
        wanted += [front for one in cluster.external if (front := fronts.bootstrap_front(cluster, one)) is not None]
        wanted += [*network.disruption_budgets(cluster, self._record.nodes, held), *network.network_policies(cluster)]
        names = {(one["kind"], one["metadata"]["name"]) for one in wanted}
        later: list[Object] = []
        for node in self._record.nodes:
            pool = cluster.pool(node.pool)
            if pool is not None and "broker" in pool.roles and not node.stopped:
                # Existing services change with their broker's restart, because it advertises their addresses.
                for _, *objects in self._services(node):
                    for one in objects:
                        if one is not None:
                            is_new = (one["kind"], one["metadata"]["name"]) not in there
                            (wanted if is_new else later).append(one)
        await self._drop(known, names)  # before services lose the annotation that names them
        refused = await self._ensure_all(
            [one for one in wanted if one["kind"] not in unlisted],
            [one for one in later if one["kind"] not in unlisted],
            there,
        )
        refused = refused or next(iter(unlisted.values()), None)
        await self._drop({key: one for key, one in there.items() if key not in known}, names)
        await self._own()
        await self._take_up_orphans()
        if refused is not None:
            raise refused

    async def _drop(self, there: Mapping[tuple[str, str], Object], names: Collection[tuple[str, str]]) -> None:
        """Delete objects of removed nodes, listeners and roles, but not `names`."""
        used = self._configs_in_use()
        for key, one in there.items():
            if key not in names and (
                one["metadata"]["name"] not in used if key[0] == "ConfigMap" else self._left_behind(key[0], one)
            ):
                self._seen.configs.pop(key[1], None)
                await self._delete({**one, "kind": key[0]})

    async def _ensure_all(
        self, wanted: list[Object], later: list[Object], there: Mapping[tuple[str, str], Object]
    ) -> ApiError | NotYetError | None:
        """Write the objects `wanted` and return the first refusal, or None.

        Objects in `later` are written at a broker's restart. Here, a dry run checks that Kubernetes accepts them.
        """

        async def put(number: int, one: Object) -> None:
            known = there.get((one["kind"], one["metadata"]["name"]))
            await (self._ensure(one, known) if number < len(wanted) else self._rehearse(one, known))

        both = [*wanted, *later]
        results = await asyncio.gather(*(put(*one) for one in enumerate(both)), return_exceptions=True)
        refused: ApiError | NotYetError | None = None
        for one, error in zip(both, results, strict=True):
            if isinstance(error, NotYetError):
                refused = refused or error
            elif isinstance(error, ApiError) and error.lasting:
                service = one["kind"] in {"Service", *BY_SNI} and not isinstance(error, InTheWayError)
                # Hibernation only stops nodes, so no node waits for an address.
                if service and not self._cluster.spec.hibernated and not isinstance(refused, ServiceRefusedError):
                    refused = ServiceRefusedError(one["kind"], one["metadata"]["name"], error)
                refused = refused or error
            elif error is not None:
                raise error
        return refused

    async def _rehearse(self, service: Object, there: Object | None) -> None:
        wanted = marked(service)
        if not same(wanted, there):
            await self._api.apply(wanted, rehearse=True)

    async def _own(self) -> None:
        """Set or remove the owner of claims, so that volumes are deleted with the resource or stay, by the policy of
        the pool."""
        for number, claim in self._own_claims():
            node = self._record.node(number)
            pool = self._cluster.pool(node.pool) if node is not None else None
            if pool is None or "deletionTimestamp" in claim["metadata"]:
                continue
            owners = claim["metadata"].get("ownerReferences", [])
            rest = [one for one in owners if one["uid"] != self._cluster.uid]
            if storage.owned(pool) != (rest != owners):
                version = {"resourceVersion": claim["metadata"]["resourceVersion"]}
                wanted = rest + self._cluster.owner() * storage.owned(pool)
                await self._patch(claim, {"metadata": {**version, "ownerReferences": wanted}})

    async def _take_up_orphans(self) -> None:
        """Adopt pods that a former resource of this name left behind (`kubectl delete --cascade=orphan`)."""
        for pod in self._seen.pods.values():
            metadata = pod["metadata"]
            if not metadata.get("ownerReferences"):
                change = {"resourceVersion": metadata["resourceVersion"], "ownerReferences": self._cluster.owner()}
                await self._api.patch("Pod", self._cluster.namespace, metadata["name"], {"metadata": change})

    def _configs_in_use(self) -> set[str | None]:
        """Names of the ConfigMaps that a pod or a format job refers to."""
        specs = [pod["spec"] for pod in self._seen.pods.values()]
        specs += [job["spec"]["template"]["spec"] for job in self._seen.jobs]
        return {pods.config_name(spec) for spec in specs}

    def _left_behind(self, kind: str, one: Object) -> bool:
        """Whether an object belongs to a node, a listener or a role that no longer exists."""
        number = one["metadata"].get("labels", {}).get(NODE_LABEL, "")
        node = self._record.node(int(number)) if number.isdecimal() else None
        if node is None:
            return True
        names = {
            self._cluster.external_service(node.id, listener.name)
            for listener in self._cluster.external
            if kind in {"Service", listener.type}
        }
        return not node.broker or one["metadata"]["name"] not in names

    # Writes

    async def _ensure(self, wanted: Object, there: Object | None = None) -> Object:
        """Write an object by server-side apply, unless it is already as wanted. Returns the object.

        Raises ApiError, InTheWayError or NotYetError.
        """
        wanted = marked(wanted)
        name, kind = wanted["metadata"]["name"], wanted["kind"]
        there = there or await self._api.get(kind, self._cluster.namespace, name)
        if there is not None:
            self._must_be_mine(kind, there)
            if same(wanted, there):
                return there
        return await self._api.apply(wanted)

    async def _ensure_or_keep(self, wanted: Object) -> Object:
        """As `_ensure`, but an existing object stays as it is if Kubernetes refuses the change.

        A broker that is down must not wait until a listener is corrected. `share` reports the refusal.
        """
        try:
            return await self._ensure(wanted)
        except InTheWayError:
            raise
        except ApiError as error:
            there = None
            if error.lasting:
                there = await self._api.get(wanted["kind"], self._cluster.namespace, wanted["metadata"]["name"])
            if there is None:
                raise
            return there

    async def _ensure_config(self, wanted: Object) -> None:
        """Ensure a ConfigMap. Its name contains the digest of its content, so a listed one needs no further read."""
        there = self._seen.configs.get(wanted["metadata"]["name"])
        if there is None:
            await self._create(wanted)
            return
        await self._ensure(wanted, there)

    async def _create(self, wanted: Object) -> None:
        try:
            await self._api.create(marked(wanted))
        except ApiError as error:
            if error.status != CONFLICT or error.reason != "AlreadyExists":
                raise
            metadata = wanted["metadata"]
            there = await self._api.get(wanted["kind"], metadata["namespace"], metadata["name"])
            if there is not None:
                self._must_be_mine(wanted["kind"], there)

    def _must_be_mine(self, kind: str, there: Object) -> None:
        """Check that an existing object is the cluster's own, because names of other clusters may collide.

        Raises InTheWayError, or NotYetError if the object belongs to a deleted cluster.
        """
        labels, name = there["metadata"].get("labels", {}), there["metadata"]["name"]
        if (before := others(self._cluster, there)) is not None:
            text = (
                f"{kind} {name} goes with the KRaftCluster of uid {before}, which is deleted: it has to be gone first"
            )
            raise NotYetError(f"{text}; if it stays, delete it")
        if (labels.get(INSTANCE), labels.get(MANAGED_BY)) != (self._cluster.name, MANAGER):
            raise InTheWayError(kind, there["metadata"]["name"])

    async def _delete(self, one: Mapping[str, Any]) -> None:
        kind = one.get("kind", "PersistentVolumeClaim")
        await self._api.delete(kind, self._cluster.namespace, one["metadata"]["name"], one["metadata"]["uid"])
