"""A pool's pod template as parts of a pod. The template's fields override the operator's defaults."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP, Model
from kraft_operator.api.pools import NodePool
from kraft_operator.api.template import ContainerSecurity, EnvVar, ExtraVolume, Mount, PodSecurity, Sidecar
from kraft_operator.specs.cluster import INSTANCE, NamedCluster

USER: Final = 10001
"""User and group of the image's process. The group owns the volumes."""
MACHINE: Final = "kubernetes.io/hostname"
"""The label of machines by which nodes are kept apart."""
POOL: Final = f"{GROUP}/pool"
PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"
REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"


def given(part: Model) -> dict[str, Any]:
    """The given fields of `part`, under their names in Kubernetes."""
    return {key: value for key, value in part.model_dump(by_alias=True, exclude_none=True).items() if value != []}


def variables(env: Iterable[EnvVar]) -> list[dict[str, Any]]:
    """`env` of a container."""
    found: list[dict[str, Any]] = []
    for one in env:
        if one.value_from is None:
            found.append({"name": one.name, "value": one.value})
        else:
            found.append({"name": one.name, "valueFrom": given(one.value_from)})
    return found


def volume(one: ExtraVolume) -> dict[str, Any]:
    """A volume of a pod."""
    return given(one)


def mounts(asked: Iterable[Mount]) -> list[dict[str, Any]]:
    """`volumeMounts` of a container."""
    return [given(one) for one in asked]


def sidecar(one: Sidecar) -> dict[str, Any]:
    """A container beside the node container."""
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
    """`securityContext` of a pod: a user without privileges, which owns the volumes."""
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
    """`securityContext` of a container: no privileges and no way to get any."""
    return {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
        **(given(asked) if asked is not None else {}),
    }


def affinity(cluster: NamedCluster, pool: NodePool) -> dict[str, Any]:
    """`affinity` of a pod: the template's, and away from nodes that must not fail together with it. May be empty.

    It selects by the label of the pool, which format jobs have, too: if volumes are bound to a machine, the job
    decides.
    """
    found: dict[str, Any] = {**(pool.pod.affinity or {})}
    if pool.pod.anti_affinity == "None":
        return found
    apart: Mapping[str, Any] = found.get("podAntiAffinity", {})
    if apart and pool.pod.anti_affinity == "Preferred":
        return found  # the template has its own rule
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
