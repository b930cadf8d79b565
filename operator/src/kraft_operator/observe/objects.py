"""Conversion of Kubernetes objects to the planner's model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import CONTROLLER_PORT
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import NODE_CONTAINER
from kraft_operator.observe import addresses
from kraft_operator.observe.status import StatusReport
from kraft_operator.plan.model.observed import Job, Kube, Pod, Volume
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import BEING_STARTED, NOT_READY, RESIZED, is_controller
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.pods import ASPECT, config_map, config_name, mounted
from kraft_operator.specs.quantities import as_bytes
from kraft_operator.specs.storage import CLAIMS, DISK, FORMATS, FORMATTED, REPLACED, VOLUME_MARK, VOLUMES
from kraft_protocol.client.aio import Address

Object = Mapping[str, Any]
MESSAGE_CHARS_MAX: Final = 500
MACHINE: Final = "volume.kubernetes.io/selected-node"
"""Annotation of a claim: the machine that its volume was made for."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""Label of a job's pods: the name of the job."""
NODE_LABEL: Final = addresses.NODE_LABEL
POOL_LABEL: Final = f"{GROUP}/pool"
ENDED: Final = frozenset({"Failed", "Succeeded"})


def kube(
    cluster: NamedCluster,
    pods: Iterable[Object],
    claims: Iterable[Object],
    jobs: Iterable[Object],
    racks: Mapping[str, str] | None = None,
    job_pods: Iterable[Object] = (),
    services: Collection[Object] = (),
    configs: Iterable[Object] = (),
    reported: Mapping[int, StatusReport] | None = None,
    routes: Collection[Object] = (),
) -> Kube:
    """Convert the objects of a cluster. `racks` is by machine.

    `configs` are the existing ConfigMaps, `routes` those of OpenShift. `reported` has the answers to
    `/status` by node id.
    """
    pods, claims, formatting, reported = list(pods), list(claims), list(job_pods), reported or {}
    there = {one["metadata"]["name"] for one in configs}
    machines = racks or {}
    seen = {
        number: _add_addresses(
            cluster, one, pod(one, machines.get(one["spec"].get("nodeName", ""), ""), reported.get(number))
        )
        for number, one in by_node(pods)
    }
    return Kube(
        {
            number: _grown(one, _complete(cluster, number, one, seen[number], there), claims)
            for number, one in by_node(pods)
        },
        volumes(cluster, claims, racks),
        {
            (number, disk_of(one)): replace(job(one, formatting), former=_is_former(one, claims))
            for number, one in by_node(jobs)
        },
        addresses.by_broker(cluster, services, routes),
        addresses.listeners(cluster, services, routes, {n: h for n, one in by_node(pods) if (h := host_ip_of(one))}),
    )


def named(objects: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """The objects with the label `app.kubernetes.io/name=name`."""
    return [one for one in objects if one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name]


def ours(cluster: NamedCluster, objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """The pods and jobs of this cluster, by their owner. Labels do not count, because they can be copied.

    An orphan belongs to the cluster if it has the name of one of the cluster's nodes.
    """
    return [one for one in objects if _is_ours(cluster, one)]


def _is_ours(cluster: NamedCluster, one: Object) -> bool:
    metadata = one["metadata"]
    owners = metadata.get("ownerReferences", ())
    if owners:
        return any(owner["uid"] == cluster.uid for owner in owners)
    number = metadata.get("labels", {}).get(NODE_LABEL, "")
    return bool(number.isdecimal() and metadata["name"] == cluster.node(int(number)))


def others(cluster: NamedCluster, one: Object) -> str | None:
    """The uid of another KRaftCluster that owns an object, such as a former cluster of this name; else None."""
    owners = one["metadata"].get("ownerReferences", ())
    clusters = [owner["uid"] for owner in owners if owner.get("kind") == "KRaftCluster"]
    return None if not clusters or cluster.uid in clusters else str(clusters[0])


def by_node(objects: Iterable[Object]) -> Iterable[tuple[int, Object]]:
    """Yield the node id and the object, for objects with a node label."""
    for one in objects:
        number = one["metadata"].get("labels", {}).get(NODE_LABEL, "")
        if number.isdecimal():
            yield int(number), one


def disk_of(one: Object) -> int:
    """The number of the disk that a claim belongs to or that a job formats."""
    return int(one["metadata"].get("labels", {}).get(DISK, "0"))


def condition_of(one: Object, kind: str) -> Object:
    """The condition of type `kind` of an object; empty if it does not exist."""
    return next((c for c in one.get("status", {}).get("conditions", ()) if c["type"] == kind), {})


# Pods


def pod(one: Object, rack: str = "", reported: StatusReport | None = None) -> Pod:
    """The state of a pod. A pod that has ended for good (evicted, machine shut down) does not run and is `over`.

    The answer of its process (`reported`) overrides the aspects in its annotations.
    """
    status = one.get("status", {})
    annotations = one["metadata"].get("annotations", {})
    aspects = {key.removeprefix(ASPECT): value for key, value in annotations.items() if key.startswith(ASPECT)}
    if reported is not None:
        aspects |= _reported(one, reported, aspects)
    return Pod(
        running=_runs(status),
        ready=condition_of(one, "Ready").get("status") == "True",
        aspects=aspects,
        terminating="deletionTimestamp" in one["metadata"],
        rack=rack,
        message=why_not(one)[:MESSAGE_CHARS_MAX],
        machine=one.get("spec", {}).get("nodeName", ""),
        lost=_lost(one),
        over=status.get("phase") in ENDED,
        unplaced=condition_of(one, "PodScheduled").get("status") == "False",
        fails=any(map(_fails, _containers(status))),
        volumes=mounted(one.get("spec", {})),
    )


def _lost(one: Object) -> bool:
    """Whether its machine does not answer. A kubelet changes both conditions; without it, only Ready becomes False."""
    gone = condition_of(one, "Ready").get("status") == "False"
    return gone and condition_of(one, "ContainersReady").get("status") == "True"


def _fails(container: Object) -> bool:
    """Whether a container waits for something that needs help, such as an image that does not exist."""
    reason = container.get("state", {}).get("waiting", {}).get("reason", "")
    return bool(reason) and not _starts(container)


def _reported(one: Object, reported: StatusReport, aspects: Mapping[str, str]) -> dict[str, str]:
    """Aspects of the running process that differ, because it has read another file than the pod was made with."""
    found = {}
    voters = ",".join(map(str, reported.voters))
    if voters != aspects.get("voters", ""):
        found["voters"] = voters
    name = config_name(one["spec"])
    if reported.revision and name is not None and not name.endswith(f"-{reported.revision}"):
        found["config"] = f"revision {reported.revision}"
    return found


def _complete(cluster: NamedCluster, number: int, one: Object, seen: Pod, configs: Collection[str]) -> Pod:
    """Add the ConfigMap that the pod refers to, if it does not exist, and whether it can be restored."""
    name = config_name(one["spec"])
    if name is None or name in configs:
        return seen
    made = pool_of(cluster, one)
    known = made is not None and name in {
        cluster.node(number),
        config_map(cluster, made, Node(number, made.name, False, False), seen.aspects)["metadata"]["name"],
    }
    return replace(seen, missing=f"ConfigMap {name}", restorable=known)


def _add_addresses(cluster: NamedCluster, one: Object, seen: Pod) -> Pod:
    """Add the addresses of a running controller: by the name of its pod, and by the pod's IP address."""
    if not seen.running or not is_controller(seen):
        return seen
    number = int(one["metadata"]["labels"][NODE_LABEL])
    hosts = {cluster.host(number), one.get("status", {}).get("podIP", "")} - {""}
    return replace(seen, addresses=frozenset(f"{host}:{CONTROLLER_PORT}" for host in hosts))


def _grown(one: Object, seen: Pod, claims: Iterable[Object]) -> Pod:
    """Mark a pod if a mounted claim has grown and its file system waits for the next mount.

    Only pods that are older than the growth are marked. So the restart happens once, even if the file system does not
    grow.
    """
    volumes = one["spec"].get("volumes", ())
    mine = {volume["persistentVolumeClaim"]["claimName"] for volume in volumes if "persistentVolumeClaim" in volume}
    made = one["metadata"].get("creationTimestamp", "")
    for claim in claims:
        pending = condition_of(claim, "FileSystemResizePending")
        is_mine = claim["metadata"]["name"] in mine and pending.get("status") == "True"
        if is_mine and made and made < pending.get("lastTransitionTime", ""):
            return replace(seen, aspects={**seen.aspects, RESIZED: "pending"})
    return seen


def pool_of(cluster: NamedCluster, one: Object) -> NodePool | None:
    """The pool that a pod was made for; None if it no longer exists."""
    return cluster.pool(one["metadata"].get("labels", {}).get(POOL_LABEL, ""))


def _runs(status: Object) -> bool:
    """Whether the node's container runs or may run. A container that waits for an image or a retry does not run."""
    if status.get("phase") in ENDED:
        return False
    containers = _nodes_own(status)
    if not containers:
        # The kubelet has not reported yet. If the pod is scheduled, its containers may be starting.
        return any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions", ()))
    return any("running" in c.get("state", {}) or _starts(c) for c in containers)


def _nodes_own(status: Object) -> list[Object]:
    """The status of the node's container, without sidecars. For other pods, the statuses of all containers."""
    containers = list(status.get("containerStatuses", ()))
    return [one for one in containers if one.get("name") == NODE_CONTAINER] or containers


def _containers(status: Object) -> list[Object]:
    """The statuses of all containers of a pod. Injected init containers run first: the others wait for them."""
    return [*status.get("initContainerStatuses", ()), *status.get("containerStatuses", ())]


def _starts(container: Object) -> bool:
    waiting = container.get("state", {}).get("waiting", {})
    return waiting.get("reason") in {"ContainerCreating", "PodInitializing"}


def why_not(one: Object) -> str:
    """Why a pod is not ready, as Kubernetes or its container reports it."""
    status = one.get("status", {})
    if _lost(one):
        return f"machine {one['spec'].get('nodeName', '')} does not answer"
    if status.get("phase") in ENDED:
        return f"{status.get('reason', status['phase'])}: {status.get('message', '')}".rstrip(": ")
    for container in _containers(status):
        waiting = container.get("state", {}).get("waiting")
        if waiting and not _starts(container):
            last = container.get("lastState", {}).get("terminated", {}).get("message", "")
            text = last.strip().rpartition("\n")[2] or waiting.get("message", "")
            return f"{waiting.get('reason', 'waits')}: {text}".rstrip(": ")
    placed = condition_of(one, "PodScheduled")
    if placed.get("status") == "False":
        return f"{placed.get('reason', 'not placed')}: {placed.get('message', '')}"
    return NOT_READY if status.get("containerStatuses") else BEING_STARTED


def shape(pods: Iterable[Object]) -> frozenset[tuple[str, bool, int]]:
    """The uid, readiness and restarts of each pod. If they change, older views of quorum and metadata are outdated."""
    return frozenset(
        (
            one["metadata"]["uid"],
            condition_of(one, "Ready").get("status") == "True",
            sum(c.get("restartCount", 0) for c in _nodes_own(one.get("status", {}))),
        )
        for one in pods
    )


def controllers(pods: Iterable[Object]) -> dict[int, Address]:
    """Addresses of running controllers by node id, ready or not."""
    return {
        number: Address(one["status"]["podIP"], CONTROLLER_PORT)
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP") and _runs(one["status"]) and is_controller(pod(one))
    }


def brokers(pods: Iterable[Object]) -> dict[int, Address]:
    """Addresses of ready brokers by node id: the first listener that the broker was started with."""
    return {
        number: Address(one["status"]["podIP"], ports[0])
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP")
        and one["metadata"].get("labels", {}).get(f"{GROUP}/broker") == "true"
        and condition_of(one, "Ready").get("status") == "True"
        and (ports := _listeners(one))
    }


def statuses(pods: Iterable[Object]) -> dict[int, Address]:
    """Addresses by node id where running nodes serve `/status`, ready or not."""
    return {
        number: Address(one["status"]["podIP"], port)
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP") and _runs(one["status"]) and (port := _http_port(one)) is not None
    }


def processes(pods: Iterable[Object]) -> dict[int, tuple[object, Address]]:
    """By node id: a key that is unique for each process of the node, and the address of its `/status`."""
    pods = list(pods)
    where = statuses(pods)
    return {number: (_process(one), where[number]) for number, one in by_node(pods) if number in where}


def _process(one: Object) -> object:
    return one["metadata"]["uid"], sum(c.get("restartCount", 0) for c in _nodes_own(one.get("status", {})))


def _http_port(pod: Object) -> int | None:
    """The HTTP port of a pod's readiness probe; None if unknown."""
    container: Object = next((one for one in pod["spec"]["containers"] if one["name"] == NODE_CONTAINER), {})
    port = container.get("readinessProbe", {}).get("httpGet", {}).get("port")
    return port if isinstance(port, int) else None


def _listeners(pod: Object) -> list[int]:
    """Ports of a pod's listeners. Read from the pod, because the resource may have changed since."""
    ports = next((one.get("ports", ()) for one in pod["spec"]["containers"] if one["name"] == NODE_CONTAINER), ())
    return [one["containerPort"] for one in ports if one["name"] not in {"controller", "metrics"}]


def ip_of(pod: Object) -> str:
    """The address of a pod; empty until it has one."""
    return str(pod.get("status", {}).get("podIP", ""))


def host_ip_of(pod: Object) -> str:
    """The address of a pod's machine; empty until it has one."""
    return str(pod.get("status", {}).get("hostIP", ""))


# Volumes and jobs


def volumes(
    cluster: NamedCluster, claims: Iterable[Object], racks: Mapping[str, str] | None = None
) -> dict[tuple[int, int], Volume]:
    """Volumes by node id and disk.

    Claims that are lost, are being deleted or belong to another KRaftCluster count as missing. The planner decides what
    follows from that.
    """
    found: dict[tuple[int, int], dict[str, Object]] = {}
    for number, one in by_node(claims):
        if others(cluster, one) is not None:
            continue  # Kubernetes is about to delete it
        if one.get("status", {}).get("phase") != "Lost" and "deletionTimestamp" not in one["metadata"]:
            name = one["metadata"]["name"].removesuffix(f"-{cluster.node(number)}-{disk_of(one)}")
            found.setdefault((number, disk_of(one)), {})[name] = one
    return {key: _volume(parts, racks or {}, cluster.uid) for key, parts in found.items()}


def _volume(parts: Mapping[str, Object], racks: Mapping[str, str], uid: str) -> Volume:
    marks = {name: one["metadata"].get("annotations", {}) for name, one in parts.items()}
    owners = sorted({one[FORMATTED] for one in marks.values() if one.get(FORMATTED)})
    sizes = {name: as_bytes(one["spec"]["resources"]["requests"]["storage"]) for name, one in parts.items()}
    machines = [one[MACHINE] for one in marks.values() if one.get(MACHINE)]
    rack = next((racks[one] for one in machines if racks.get(one)), "")
    unmarked = frozenset(name for name, one in marks.items() if not one.get(FORMATTED))
    owned = all(
        any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ())) for one in parts.values()
    )
    # The claims are written one after the other, so only marks that are on all of them count.
    replaced = frozenset.intersection(*(frozenset(one.get(REPLACED, "").split(",")) for one in marks.values())) - {""}
    emptied = {name: one[VOLUME_MARK] for name, one in marks.items() if one.get(VOLUME_MARK)}
    machine = next(iter(machines), "")
    return Volume(", ".join(owners), sizes, unmarked, rack, owned, replaced, emptied, machine)


def job(one: Object, pods: Iterable[Object] = ()) -> Job:
    """The state of a format job; `failed` once Kubernetes has given up.

    `pods` may include pods of other jobs. The job's own pods show why it failed and whether a container runs.
    """
    metadata = one["metadata"]
    mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get(JOB_NAME) == metadata["name"]]
    annotations = metadata.get("annotations", {})
    found = Job(
        "running",
        next(filter(None, map(_message, mine)), "")[:MESSAGE_CHARS_MAX],
        int(metadata.get("labels", {}).get(VOLUMES, "0")),
        {key.removeprefix(ASPECT): value for key, value in annotations.items() if key.startswith(ASPECT)},
        "deletionTimestamp" in metadata or any(_runs(pod.get("status", {})) for pod in mine),
        mounted(one.get("spec", {}).get("template", {}).get("spec", {})),
    )
    failed = condition_of(one, "Failed")
    if failed.get("status") == "True":
        text = f"{failed.get('reason', '')}: {failed.get('message', '')}".strip(": ")
        return replace(found, state="failed", message=found.message or text)
    done = condition_of(one, "Complete").get("status") == "True" or one.get("status", {}).get("succeeded", 0)
    return replace(found, state="done") if done or any(_succeeded(pod, metadata.get("uid")) for pod in mine) else found


def _is_former(one: Object, claims: Iterable[Object]) -> bool:
    """Whether a claim of this format job no longer exists. Jobs of older operators do not name their claims."""
    named = one["metadata"].get("annotations", {}).get(CLAIMS, "")
    there = {claim["metadata"].get("uid") for claim in claims if "deletionTimestamp" not in claim["metadata"]}
    return bool(named) and not there.issuperset(named.split(","))


def _succeeded(pod: Object, job_uid: str | None) -> bool:
    """Whether a pod of this job has formatted the disk. Kubernetes completes the job some seconds later.

    A former job of the same name may have left a pod, so the owner's uid counts. Injected containers may run on.
    """
    owners = pod["metadata"].get("ownerReferences", ())
    if job_uid is None or not any(one.get("kind") == "Job" and one.get("uid") == job_uid for one in owners):
        return False
    statuses = pod.get("status", {}).get("containerStatuses", ())
    ended = (one.get("state", {}).get("terminated", {}) for one in statuses if one.get("name") == FORMATS)
    return any(state.get("exitCode") == 0 for state in ended)


def _message(pod: Object) -> str:
    """Why a job's pod does not succeed: the last line of its container, or the reason for waiting; else empty."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            return ended.get("message", "").strip().rpartition("\n")[2] or f"it ended with {ended['exitCode']}"
    return "" if _runs(pod.get("status", {})) else why_not(pod)
