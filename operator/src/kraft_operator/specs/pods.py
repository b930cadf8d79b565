"""A node's pod and its configuration file. Hardened for the `restricted` pod security standard: nothing runs as root,
can become root, writes outside its volumes or knows the API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import CONTROLLER_PORT
from kraft_operator.api.pipelines import Driver
from kraft_operator.api.pools import NodePool, Volume
from kraft_operator.api.template import NODE_CONTAINER, PodTemplate, Probes
from kraft_operator.plan.record import Node
from kraft_operator.plan.situation import KEEPS
from kraft_operator.specs import template
from kraft_operator.specs.cluster import Cluster, digest
from kraft_operator.specs.properties import DATA, External, advertised, properties, text

CONFIG: Final = "/etc/kraft"
FILE: Final = "server.properties"
ASPECT: Final = f"aspect.{GROUP}/"
"""What a pod was made with, as annotations."""
CLAIM: Final = "volume-"
"""Before the names of a pool's volumes in a pod; those of templates are never named so."""
REVISION: Final = "config.revision"
"""A key of the file that the node repeats in `/status`: which file it has read."""
STARTING_S_MAX: Final = 600
"""Before the kubelet kills a node that starts: recovery of many logs after a crash takes its time."""


def config_map(
    cluster: Cluster, pool: NodePool, node: Node, aspects: Mapping[str, str], *, name: str = ""
) -> dict[str, Any]:
    """The file of one node. Its name says what is in it, and it never changes: no kubelet can have an older one.

    `name` is for pods of older operators, which refer to one of a fixed name.
    """
    pool, rack = keeping(pool, aspects), aspects.get("rack", "")
    values = properties(
        cluster, pool, node.id, _roles(aspects), ids(aspects, "voters"), ids(aspects, "bootstrap"), rack
    )
    revision = digest(values)
    metadata = cluster.metadata(name or f"{cluster.node(node.id)}-{revision}", node_id=node.id, pool=pool.name)
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return {**found, "data": {FILE: text({**values, REVISION: revision})}, **({} if name else {"immutable": True})}


def config_name(spec: Mapping[str, Any]) -> str | None:
    """The ConfigMap that a pod's specification refers to."""
    volumes = (one for one in spec.get("volumes", ()) if one["name"] == "config")
    return next((one["configMap"]["name"] for one in volumes if "configMap" in one), None)


def pod(cluster: Cluster, pool: NodePool, node: Node, aspects: Mapping[str, str], external: External) -> dict[str, Any]:
    """The pod that is to have `aspects`; `external` are its addresses outside."""
    pool, roles = keeping(pool, aspects), _roles(aspects)
    metadata = cluster.metadata(cluster.node(node.id), node_id=node.id, pool=pool.name)
    marks = metadata["labels"] | {f"{GROUP}/{role}": "true" for role in roles}
    metadata["labels"] = pool.pod.labels | marks  # those by which it is found come last
    metadata["annotations"] = {**pool.pod.annotations, **{ASPECT + key: value for key, value in aspects.items()}}
    command = ["kafka-server-start", f"{CONFIG}/{FILE}"]
    if "broker" in roles:
        command += ["--override", f"advertised.listeners={advertised(cluster, node.id, external)}"]
    container = {
        "name": NODE_CONTAINER,
        "image": cluster.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": command,
        "env": [
            *template.variables(pool.pod.env),
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
        ],
        "ports": _ports(cluster, roles),
        "resources": pool.resources.model_dump(),
        "securityContext": template.container_security(pool.pod.container_security_context),
        "volumeMounts": [*mounts(pool), *template.mounts(pool.pod.mounts)],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # why it does not start, for the status
        **_probes(cluster, pool.pod.probes),
    }
    spec: dict[str, Any] = {
        **base(cluster, pool, node, config_map(cluster, pool, node, aspects)["metadata"]["name"]),
        "hostname": cluster.node(node.id),
        "subdomain": cluster.nodes_service,
        "restartPolicy": "Always",
        "terminationGracePeriodSeconds": pool.pod.termination_grace_seconds,
        "containers": [container, *map(template.sidecar, pool.pod.sidecars)],
        "automountServiceAccountToken": pool.pod.automount_service_account_token,
    }
    spec["volumes"] = [*spec["volumes"], *map(template.volume, pool.pod.volumes)]
    if pool.pod.service_account_name is not None:
        spec["serviceAccountName"] = pool.pod.service_account_name
    if aspects.get("rack") and cluster.spec.rack is not None:
        spec["affinity"] = _near(cluster.spec.rack.node_label, aspects["rack"], spec.get("affinity"))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def keeping(pool: NodePool, aspects: Mapping[str, str]) -> NodePool:
    """The pool with volumes that it has no more behind its own, as long as a pod has to mount them."""
    names = [name for name in aspects.get(KEEPS, "").split(",") if name]
    if not names:
        return pool
    own = pool.storage.volumes
    volumes = [*own, *(Volume(name=name) for name in names if name not in {one.name for one in own})]
    return pool.model_copy(update={"storage": pool.storage.model_copy(update={"volumes": volumes})})


def mounted(spec: Mapping[str, Any]) -> frozenset[str]:
    """Names of the pool's volumes that a pod's specification has."""
    names = (one["name"] for one in spec.get("volumes", ()) if "persistentVolumeClaim" in one)
    return frozenset(name.removeprefix(CLAIM) for name in names if name.startswith(CLAIM))


def rehearsal(cluster: Cluster, pool: NodePool) -> dict[str, Any]:
    """A pod as restarts of this pool make it, under a name that no node has."""
    node = Node(pool.first_node_id, pool.name, "controller" in pool.roles, "broker" in pool.roles)
    aspects = {"roles": ",".join(sorted(pool.roles)), "voters": str(pool.first_node_id)}
    external = {one.name: ("example.invalid", one.port) for one in cluster.external}
    made = pod(cluster, pool, node, aspects, external)
    made["metadata"] |= {"name": f"{cluster.name}-{pool.name}-rehearsal"}
    return made


def base(cluster: Cluster, pool: NodePool, node: Node, config: str) -> dict[str, Any]:
    """What a node's pod and its format job's have in common: who they are, where they run, what they see."""
    spec: dict[str, Any] = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "securityContext": template.pod_security(pool.pod.security_context),
        "volumes": [
            {"name": "config", "configMap": {"name": config}},
            {"name": "tmp", "emptyDir": {"sizeLimit": "64Mi"}},
            *(
                {
                    "name": f"{CLAIM}{one.name}",
                    "persistentVolumeClaim": {"claimName": cluster.claim(one.name, node.id, node.disk)},
                }
                for one in pool.storage.volumes
            ),
        ],
    }
    if pool.pod.topology_spread_constraints:
        spec["topologySpreadConstraints"] = pool.pod.topology_spread_constraints
    spec |= placement(pool.pod, cluster.spec.image_pull_secrets)
    affinity = template.affinity(cluster, pool)
    return {**spec, "affinity": affinity} if affinity else spec


def mounts(pool: NodePool) -> list[dict[str, Any]]:
    """Of the configuration, the volumes and the only other place that can be written."""
    return [
        {"name": "config", "mountPath": CONFIG, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (an emptyDir of the pod's own)
        *({"name": f"{CLAIM}{one.name}", "mountPath": f"{DATA}/{one.name}"} for one in pool.storage.volumes),
    ]


def placement(of: PodTemplate | Driver, image_pull_secrets: Sequence[str]) -> dict[str, Any]:
    """Where a pod may run and how urgent it is, of what was asked for; and who may pull its image."""
    spec: dict[str, Any] = {}
    if image_pull_secrets:
        spec["imagePullSecrets"] = [{"name": name} for name in image_pull_secrets]
    if of.affinity is not None:
        spec["affinity"] = of.affinity
    if of.tolerations:
        spec["tolerations"] = of.tolerations
    if of.node_selector:
        spec["nodeSelector"] = of.node_selector
    if of.priority_class_name is not None:
        spec["priorityClassName"] = of.priority_class_name
    return spec


def _roles(aspects: Mapping[str, str]) -> list[str]:
    return [role for role in aspects.get("roles", "").split(",") if role]


def ids(aspects: Mapping[str, str], aspect: str) -> list[int]:
    """Node ids that an aspect names."""
    return [int(word) for word in aspects.get(aspect, "").split(",") if word]


def _near(label: str, rack: str, affinity: Mapping[str, Any] | None) -> dict[str, Any]:
    """Rather on a machine of the rack that its `broker.rack` says: elsewhere it would be restarted with another one."""
    found: dict[str, Any] = {**(affinity or {})}
    machines = {**found.get("nodeAffinity", {})}
    wish = {"matchExpressions": [{"key": label, "operator": "In", "values": [rack]}]}
    preferred = [*machines.get("preferredDuringSchedulingIgnoredDuringExecution", ())]
    machines["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, {"weight": 100, "preference": wish}]
    return {**found, "nodeAffinity": machines}


def _ports(cluster: Cluster, roles: list[str]) -> list[dict[str, Any]]:
    ports = []
    if "broker" in roles:
        # A listener's name may be longer than a port's, and of two the same up to there.
        ports += [{"name": f"listener-{one.port}", "containerPort": one.port} for one in cluster.spec.listeners]
    if "controller" in roles:
        ports.append({"name": "controller", "containerPort": CONTROLLER_PORT})
    if cluster.spec.metrics.enabled:
        ports.append({"name": "metrics", "containerPort": cluster.spec.metrics.port})
    return ports


def _probes(cluster: Cluster, asked: Probes) -> dict[str, Any]:
    """`/livez` while its loop turns, `/readyz` once a broker is unfenced, a controller follows a leader."""
    port = cluster.spec.metrics.port

    def probe(path: str, period_s: int, failures: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": port}, "periodSeconds": period_s, "failureThreshold": failures}

    return {
        "startupProbe": probe("/livez", 1, STARTING_S_MAX) | template.given(asked.startup),
        "readinessProbe": probe("/readyz", 1, 3) | template.given(asked.readiness),
        "livenessProbe": probe("/livez", 10, 6) | template.given(asked.liveness),
    }
