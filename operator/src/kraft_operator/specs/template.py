"""A pool's pod template as pieces of a pod: what was asked for, over what the operator gives every pod."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP, Model
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import ContainerSecurity, EnvVar, ExtraVolume, Mount, PodSecurity, Sidecar
from kraft_operator.specs.cluster import INSTANCE, Cluster

USER: Final = 10001
"""Of the image; volumes belong to this group."""
MACHINE: Final = "kubernetes.io/hostname"
"""The label of a machine by which nodes are kept apart."""
POOL: Final = f"{GROUP}/pool"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def given(part: Model) -> dict[str, Any]:
    """The fields of it that were given, in Kubernetes' words."""
    return {key: value for key, value in part.model_dump(by_alias=True, exclude_none=True).items() if value != []}


def variables(env: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """Of a container."""
    found: list[dict[str, Any]] = []
    for one in env:
        if one.value_from is None:
            found.append({"name": one.name, "value": one.value})
        else:
            found.append({"name": one.name, "valueFrom": given(one.value_from)})
    return found


def volume(one: ExtraVolume) -> dict[str, Any]:
    """Of a pod."""
    return given(one)


def mounts(asked: Iterable[Mount]) -> list[dict[str, Any]]:
    """Of a container."""
    return [given(one) for one in asked]


def sidecar(one: Sidecar) -> dict[str, Any]:
    """A container beside the node's."""
    plain = given(one)
    for key in ("env", "mounts", "resources", "securityContext"):
        plain.pop(key, None)
    return {
        **plain,
        "env": variables(one.env),
        "volumeMounts": mounts(one.mounts),
        "resources": {key: value for key, value in one.resources.model_dump().items() if value},
        "securityContext": container_security(one.security_context),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }


def pod_security(asked: PodSecurity | None = None) -> dict[str, Any]:
    """A user of no rights, to which the volumes belong."""
    return {
        "runAsNonRoot": True,
        "runAsUser": USER,
        "runAsGroup": USER,
        "fsGroup": USER,
        "fsGroupChangePolicy": "OnRootMismatch",
        "seccompProfile": {"type": "RuntimeDefault"},
        **(given(asked) if asked is not None else {}),
    }


def container_security(asked: ContainerSecurity | None = None) -> dict[str, Any]:
    """No way to more rights than it has."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        **(given(asked) if asked is not None else {}),
    }


def affinity(cluster: Cluster, pool: NodePool) -> dict[str, Any]:
    """What was asked for, and apart from the nodes that must not fail with it; empty for nothing.

    Pools are the mark, as jobs that format have it, too: where volumes stay on their machine, the job decides.
    """
    found: dict[str, Any] = {**(pool.pod.affinity or {})}
    if pool.pod.anti_affinity == "None":
        return found
    apart: Mapping[str, Any] = found.get("podAntiAffinity", {})
    if apart and pool.pod.anti_affinity == "Preferred":
        return found  # the author has said it in more words
    pools = [one.name for one in cluster.spec.node_pools if "controller" in one.roles]
    if "controller" not in pool.roles:
        pools = [pool.name]
    term = {
        "labelSelector": {
            "matchLabels": {INSTANCE: cluster.name},
            "matchExpressions": [{"key": POOL, "operator": "In", "values": sorted(pools)}],
        },
        "topologyKey": MACHINE,
    }
    if pool.pod.anti_affinity == "Required":
        more = {REQUIRED: [*apart.get(REQUIRED, ()), term]}
    else:
        more = {PREFERRED: [{"weight": 100, "podAffinityTerm": term}]}
    return {**found, "podAntiAffinity": {**apart, **more}}
