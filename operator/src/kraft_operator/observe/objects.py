"""Objects of Kubernetes -> the planner's model. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import CONTROLLER_PORT, Listener
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import NODE_CONTAINER
from kraft_operator.kafka.client import Address
from kraft_operator.observe.status import NodeStatus
from kraft_operator.plan.observed import Job, Kube, Pod, Volume
from kraft_operator.plan.record import Node
from kraft_operator.plan.situation import RESIZED, is_controller
from kraft_operator.specs.cluster import Cluster
from kraft_operator.specs.pods import ASPECT, config_map, config_name, mounted
from kraft_operator.specs.properties import External
from kraft_operator.specs.quantities import as_bytes
from kraft_operator.specs.storage import DISK, FORMATS, FORMATTED, REPLACED, VOLUME_MARK, VOLUMES

Object = Mapping[str, Any]
MESSAGE_CHARS_MAX: Final = 500
MACHINE: Final = "volume.kubernetes.io/selected-node"
"""On a claim: for which machine its volume was made."""
JOB_NAME: Final = "batch.kubernetes.io/job-name"
"""On pods of a job."""
NODE_LABEL: Final = f"{GROUP}/node"
POOL_LABEL: Final = f"{GROUP}/pool"
ENDED: Final = frozenset({"Failed", "Succeeded"})


def kube(
    cluster: Cluster,
    pods: Iterable[Object],
    claims: Iterable[Object],
    jobs: Iterable[Object],
    racks: Mapping[str, str] | None = None,
    job_pods: Iterable[Object] = (),
    services: Iterable[Object] = (),
    configs: Iterable[Object] = (),
    told: Mapping[int, NodeStatus] | None = None,
) -> Kube:
    """All of it. `racks` by machine; `configs` are the ConfigMaps that exist; `told` is what nodes say."""
    pods, claims, formatting, told = list(pods), list(claims), list(job_pods), told or {}
    there = {one["metadata"]["name"] for one in configs}
    seen = {
        number: pod(one, (racks or {}).get(one["spec"].get("nodeName", ""), ""), told.get(number))
        for number, one in by_node(pods)
    }
    return Kube(
        {
            number: _grown(one, _complete(cluster, number, one, seen[number], there), claims)
            for number, one in by_node(pods)
        },
        volumes(cluster, claims, racks),
        {(number, disk_of(one)): job(one, formatting) for number, one in by_node(jobs)},
        addresses(cluster, services),
    )


def named(objects: Iterable[dict[str, Any]], name: str) -> list[dict[str, Any]]:
    """Those with this label `app.kubernetes.io/name`."""
    return [one for one in objects if one["metadata"].get("labels", {}).get("app.kubernetes.io/name") == name]


def ours(cluster: Cluster, objects: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Pods and jobs of this cluster. Labels can be copied: an owner cannot, and of orphans only names of ours count."""
    return [one for one in objects if _is_ours(cluster, one)]


def _is_ours(cluster: Cluster, one: Object) -> bool:
    metadata = one["metadata"]
    owners = metadata.get("ownerReferences", ())
    if owners:
        return any(owner["uid"] == cluster.uid for owner in owners)
    number = metadata.get("labels", {}).get(NODE_LABEL, "")
    return bool(number.isdigit() and metadata["name"] == cluster.node(int(number)))


def others(cluster: Cluster, one: Object) -> str | None:
    """The uid of another KRaftCluster that an object goes with, such as the one of this name before it."""
    owners = one["metadata"].get("ownerReferences", ())
    clusters = [owner["uid"] for owner in owners if owner.get("kind") == "KRaftCluster"]
    return None if not clusters or cluster.uid in clusters else str(clusters[0])


def by_node(objects: Iterable[Object]) -> Iterable[tuple[int, Object]]:
    """Those that are marked as some node's."""
    for one in objects:
        number = one["metadata"].get("labels", {}).get(NODE_LABEL, "")
        if number.isdigit():
            yield int(number), one


def disk_of(one: Object) -> int:
    """Which of its node's disks a claim is of, or a job formats."""
    return int(one["metadata"].get("labels", {}).get(DISK, "0"))


def condition_of(one: Object, kind: str) -> Object:
    """A condition of any object, empty when it has none of that type."""
    return next((c for c in one.get("status", {}).get("conditions", ()) if c["type"] == kind), {})


# Pods


def pod(one: Object, rack: str = "", told: NodeStatus | None = None) -> Pod:
    """How a pod is. One that has ended for good (evicted, its machine shut down) does not run and is `over`.

    What its process says goes before what its annotations say.
    """
    status = one.get("status", {})
    annotations = one["metadata"].get("annotations", {})
    aspects = {key.removeprefix(ASPECT): value for key, value in annotations.items() if key.startswith(ASPECT)}
    if told is not None:
        aspects |= _told(one, told, aspects)
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
        fails=any(_fails(container) for container in status.get("containerStatuses", ())),
        volumes=mounted(one.get("spec", {})),
    )


def _lost(one: Object) -> bool:
    """Whether its machine does not answer: a kubelet changes both conditions, Kubernetes without it changes one."""
    gone = condition_of(one, "Ready").get("status") == "False"
    return gone and condition_of(one, "ContainersReady").get("status") == "True"


def _fails(container: Object) -> bool:
    """Whether a container waits for something that does not come by itself, such as an image that does not exist."""
    reason = container.get("state", {}).get("waiting", {}).get("reason", "")
    return bool(reason) and not _starts(container)


def _told(one: Object, told: NodeStatus, aspects: Mapping[str, str]) -> dict[str, str]:
    """Aspects as the process has them, where it has read another file than the pod was made with."""
    found = {}
    voters = ",".join(map(str, told.voters))
    if voters != aspects.get("voters", ""):
        found["voters"] = voters
    name = config_name(one["spec"])
    if told.revision and name is not None and not name.endswith(f"-{told.revision}"):
        found["config"] = f"revision {told.revision}"
    return found


def _complete(cluster: Cluster, number: int, one: Object, seen: Pod, configs: Collection[str]) -> Pod:
    """With what it refers to and does not exist."""
    name = config_name(one["spec"])
    if name is None or name in configs:
        return seen
    made = pool_of(cluster, one)
    known = made is not None and name in {
        cluster.node(number),
        config_map(cluster, made, Node(number, made.name, False, False), seen.aspects)["metadata"]["name"],
    }
    return replace(seen, missing=f"ConfigMap {name}", restorable=known)


def _grown(one: Object, seen: Pod, claims: Iterable[Object]) -> Pod:
    """Marked if a claim that it mounts has grown, and its file system waits for the next mount.

    Only a pod that is older than that: the restart is done once, whatever becomes of the file system.
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


def pool_of(cluster: Cluster, one: Object) -> NodePool | None:
    """The pool that a pod was made for, where it still exists."""
    return cluster.pool(one["metadata"].get("labels", {}).get(POOL_LABEL, ""))


def _runs(status: Object) -> bool:
    """Whether a container of it runs, or may: what waits for an image or for its next try does not."""
    if status.get("phase") in ENDED:
        return False
    containers = _nodes_own(status)
    if not containers:
        # Placed or not: the kubelet has said nothing yet, so what it may be starting is not taken for stopped.
        return any(c["type"] == "PodScheduled" and c["status"] == "True" for c in status.get("conditions", ()))
    return any("running" in c.get("state", {}) or _starts(c) for c in containers)


def _nodes_own(status: Object) -> list[Object]:
    """The container that runs the node, without sidecars; in other pods all of them."""
    containers = list(status.get("containerStatuses", ()))
    return [one for one in containers if one.get("name") == NODE_CONTAINER] or containers


def _starts(container: Object) -> bool:
    waiting = container.get("state", {}).get("waiting", {})
    return waiting.get("reason") in {"ContainerCreating", "PodInitializing"}


def why_not(one: Object) -> str:
    """Why a pod is not ready, in the words of Kubernetes or of its container."""
    status = one.get("status", {})
    if _lost(one):
        return f"machine {one['spec'].get('nodeName', '')} does not answer"
    if status.get("phase") in ENDED:
        return f"{status.get('reason', status['phase'])}: {status.get('message', '')}".rstrip(": ")
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting")
        if waiting and waiting.get("reason") != "ContainerCreating":
            last = container.get("lastState", {}).get("terminated", {}).get("message", "")
            text = last.strip().rpartition("\n")[2] or waiting.get("message", "")
            return f"{waiting.get('reason', 'waits')}: {text}".rstrip(": ")
    placed = condition_of(one, "PodScheduled")
    if placed.get("status") == "False":
        return f"{placed.get('reason', 'not placed')}: {placed.get('message', '')}"
    return "is not ready" if status.get("containerStatuses") else "is being started"


def shape(pods: Iterable[Object]) -> frozenset[tuple[str, bool, int]]:
    """What of pods makes older views of quorum and metadata worthless when it changes: who is there, who is ready."""
    return frozenset(
        (
            one["metadata"]["uid"],
            condition_of(one, "Ready").get("status") == "True",
            sum(c.get("restartCount", 0) for c in _nodes_own(one.get("status", {}))),
        )
        for one in pods
    )


def controllers(pods: Iterable[Object]) -> dict[int, Address]:
    """Where controllers can be asked, ready or not."""
    return {
        number: Address(one["status"]["podIP"], CONTROLLER_PORT)
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP") and _runs(one["status"]) and is_controller(pod(one))
    }


def brokers(pods: Iterable[Object]) -> dict[int, Address]:
    """Where brokers can be asked: those that are ready, each by the first listener that it was started with."""
    return {
        number: Address(one["status"]["podIP"], ports[0])
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP")
        and one["metadata"].get("labels", {}).get(f"{GROUP}/broker") == "true"
        and condition_of(one, "Ready").get("status") == "True"
        and (ports := _listeners(one))
    }


def statuses(pods: Iterable[Object]) -> dict[int, Address]:
    """Where nodes serve `/status`, ready or not."""
    return {
        number: Address(one["status"]["podIP"], port)
        for number, one in by_node(pods)
        if one.get("status", {}).get("podIP") and _runs(one["status"]) and (port := _http_port(one)) is not None
    }


def processes(pods: Iterable[Object]) -> dict[int, tuple[object, Address]]:
    """What tells a node's process from others of it, and where it serves `/status`."""
    pods = list(pods)
    where = statuses(pods)
    return {number: (_process(one), where[number]) for number, one in by_node(pods) if number in where}


def _process(one: Object) -> object:
    return one["metadata"]["uid"], sum(c.get("restartCount", 0) for c in _nodes_own(one.get("status", {})))


def _http_port(pod: Object) -> int | None:
    """Where its probes ask."""
    container: Object = next((one for one in pod["spec"]["containers"] if one["name"] == NODE_CONTAINER), {})
    port = container.get("readinessProbe", {}).get("httpGet", {}).get("port")
    return port if isinstance(port, int) else None


def _listeners(pod: Object) -> list[int]:
    """Ports of a pod's listeners: what the resource says by now it may not have yet."""
    ports = next((one.get("ports", ()) for one in pod["spec"]["containers"] if one["name"] == NODE_CONTAINER), ())
    return [one["containerPort"] for one in ports if one["name"] not in {"controller", "metrics"}]


# Addresses outside


def addresses(cluster: Cluster, services: Iterable[Object]) -> dict[int, str]:
    """Of each broker for which every listener outside has one."""
    there = {one["metadata"]["name"]: (number, one) for number, one in by_node(services)}
    found = {}
    for node_id in {number for number, _ in there.values()}:
        mine: External = {
            listener.name: outside
            for listener in cluster.external
            if (of := there.get(cluster.external_service(node_id, listener.name))) is not None
            and (outside := address(listener, of[1])) is not None
        }
        if len(mine) == len(cluster.external):
            found[node_id] = addresses_text(mine)
    return found


def address(listener: Listener, service: Object) -> tuple[str, int] | None:
    """What clients outside reach a broker by; None while there is none."""
    if listener.type == "NodePort":
        port = service["spec"]["ports"][0].get("nodePort")
        return None if port is None else (listener.host or "$(HOST_IP)", int(port))
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    hosts = [str(host) for one in ingress if (host := one.get("hostname") or one.get("ip"))]
    # Of several the same one every time, whatever their order: another one is a restart.
    return (min(hosts, key=lambda host: (":" in host, host)), listener.port) if hosts else None


def addresses_text(external: External) -> str:
    """As an aspect."""
    return ",".join(f"{name}={host}:{port}" for name, (host, port) in sorted(external.items()))


# Volumes and jobs


def volumes(
    cluster: Cluster, claims: Iterable[Object], racks: Mapping[str, str] | None = None
) -> dict[tuple[int, int], Volume]:
    """By node and disk. A claim that is lost or being deleted, or goes with another KRaftCluster, is not there; which
    should be, the planner knows."""
    found: dict[tuple[int, int], dict[str, Object]] = {}
    for number, one in by_node(claims):
        if others(cluster, one) is not None:
            continue  # it is about to be collected
        if one.get("status", {}).get("phase") != "Lost" and "deletionTimestamp" not in one["metadata"]:
            name = one["metadata"]["name"].removesuffix(f"-{cluster.node(number)}-{disk_of(one)}")
            found.setdefault((number, disk_of(one)), {})[name] = one
    return {key: _volume(parts, racks or {}, cluster.uid) for key, parts in found.items()}


def _volume(parts: Mapping[str, Object], racks: Mapping[str, str], uid: str) -> Volume:
    marks = {name: one["metadata"].get("annotations", {}) for name, one in parts.items()}
    owners = sorted({one[FORMATTED] for one in marks.values() if one.get(FORMATTED)})
    sizes = {name: as_bytes(one["spec"]["resources"]["requests"]["storage"]) for name, one in parts.items()}
    rack = next((racks[one[MACHINE]] for one in marks.values() if racks.get(one.get(MACHINE, ""))), "")
    unmarked = frozenset(name for name, one in marks.items() if not one.get(FORMATTED))
    owned = all(
        any(owner["uid"] == uid for owner in one["metadata"].get("ownerReferences", ())) for one in parts.values()
    )
    # On all of them, as they are written one after the other.
    replaced = frozenset.intersection(*(frozenset(one.get(REPLACED, "").split(",")) for one in marks.values())) - {""}
    emptied = {name: one[VOLUME_MARK] for name, one in marks.items() if one.get(VOLUME_MARK)}
    return Volume(", ".join(owners), sizes, unmarked, rack, owned, replaced, emptied)


def job(one: Object, pods: Iterable[Object] = ()) -> Job:
    """`failed` when Kubernetes has given up. `pods` may be any: its own say why, and whether something runs."""
    metadata = one["metadata"]
    mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get(JOB_NAME) == metadata["name"]]
    annotations = metadata.get("annotations", {})
    said = Job(
        "running",
        next(filter(None, map(_said, mine)), "")[:MESSAGE_CHARS_MAX],
        int(metadata.get("labels", {}).get(VOLUMES, "0")),
        {key.removeprefix(ASPECT): value for key, value in annotations.items() if key.startswith(ASPECT)},
        "deletionTimestamp" in metadata or any(_runs(pod.get("status", {})) for pod in mine),
    )
    failed = condition_of(one, "Failed")
    if failed.get("status") == "True":
        text = f"{failed.get('reason', '')}: {failed.get('message', '')}".strip(": ")
        return replace(said, state="failed", message=said.message or text)
    done = condition_of(one, "Complete").get("status") == "True" or one.get("status", {}).get("succeeded", 0)
    return replace(said, state="done") if done or any(_succeeded(pod, metadata.get("uid")) for pod in mine) else said


def _succeeded(pod: Object, job_uid: str | None) -> bool:
    """Whether a pod of the very job has formatted: Kubernetes tells that of the job some seconds later.

    A job of before may have left a pod under the same name. Other containers, which were injected, may run on.
    """
    owners = pod["metadata"].get("ownerReferences", ())
    if job_uid is None or not any(one.get("kind") == "Job" and one.get("uid") == job_uid for one in owners):
        return False
    statuses = pod.get("status", {}).get("containerStatuses", ())
    ended = (one.get("state", {}).get("terminated", {}) for one in statuses if one.get("name") == FORMATS)
    return any(state.get("exitCode") == 0 for state in ended)


def _said(pod: Object) -> str:
    """Why a job's pod does not do it: its container's last words, or what it waits for."""
    for container in pod.get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated", {})
        if ended.get("exitCode"):
            return ended.get("message", "").strip().rpartition("\n")[2] or f"it ended with {ended['exitCode']}"
    return "" if _runs(pod.get("status", {})) else why_not(pod)
