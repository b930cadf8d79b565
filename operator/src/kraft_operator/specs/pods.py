"""A node's pod and its configuration file.

The pod meets the `restricted` pod security standard. No process runs as root or can become root. No process writes
outside its volumes or has a token for the API server.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import CONTROLLER_PORT
from kraft_operator.api.pipeline_driver import Driver
from kraft_operator.api.pools import NodePool, VolumeSpec
from kraft_operator.api.template import NODE_CONTAINER, PodTemplate, Probes
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import KEEPS, MIGRATES
from kraft_operator.specs import migration, security, template
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.properties import DATA, External, advertised, properties, text

CONFIG: Final = "/etc/kraft"
FILE: Final = "server.properties"
ASPECT: Final = f"aspect.{GROUP}/"
"""Prefix of the annotations with the aspects that a pod was created with."""
CLAIM: Final = "volume-"
"""Prefix of the names of a pool's volumes in a pod. Names of a template's volumes never have it."""
REVISION: Final = "config.revision"
"""A key of the file that the node repeats in `/status`. It shows which file the node has read."""
STARTING_S_MAX: Final = 600
"""Time until the kubelet kills a starting node. Recovery of many logs after a crash takes long."""


def config_map(
    cluster: NamedCluster, pool: NodePool, node: Node, aspects: Mapping[str, str], *, name: str = ""
) -> dict[str, Any]:
    """The ConfigMap with a node's file. It is named by its content and never changes, so no kubelet has an older
    version.

    `name` is for pods of older operators, which refer to a fixed name.
    """
    pool, rack = keeping(pool, aspects), aspects.get("rack", "")
    values = properties(
        cluster,
        pool,
        node.id,
        _roles(aspects),
        ids(aspects, "voters"),
        ids(aspects, "bootstrap"),
        rack,
        migrates=MIGRATES in aspects,
    )
    revision = digest(values)
    metadata = cluster.metadata(name or f"{cluster.node(node.id)}-{revision}", node_id=node.id, pool=pool.name)
    found = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata}
    return {**found, "data": {FILE: text({**values, REVISION: revision})}, **({} if name else {"immutable": True})}


def config_name(spec: Mapping[str, Any]) -> str | None:
    """The name of the ConfigMap in a pod's specification."""
    volumes = (one for one in spec.get("volumes", ()) if one["name"] == "config")
    return next((one["configMap"]["name"] for one in volumes if "configMap" in one), None)


def pod(
    cluster: NamedCluster, pool: NodePool, node: Node, aspects: Mapping[str, str], external: External
) -> dict[str, Any]:
    """A node's pod with `aspects`. `external` has its addresses outside Kubernetes."""
    pool, roles = keeping(pool, aspects), _roles(aspects)
    metadata = cluster.metadata(cluster.node(node.id), node_id=node.id, pool=pool.name)
    marks = metadata["labels"] | {f"{GROUP}/{role}": "true" for role in roles}
    metadata["labels"] = pool.pod.labels | marks  # the labels by which pods are found take precedence
    metadata["annotations"] = {
        **pool.pod.annotations,
        **{ASPECT + key: value for key, value in aspects.items()},
        **security.pod_annotations(cluster, roles),
    }
    command = ["kafka-server-start", f"{CONFIG}/{FILE}"]
    if "broker" in roles:
        command += ["--override", f"advertised.listeners={advertised(cluster, node.id, external)}"]
    if MIGRATES in aspects:
        command += migration.overrides(cluster)
    container = {
        "name": NODE_CONTAINER,
        "image": cluster.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": command,
        "env": [
            *template.variables(pool.pod.env),
            {"name": "HOST_IP", "valueFrom": {"fieldRef": {"fieldPath": "status.hostIP"}}},
            *(migration.variables(cluster) if MIGRATES in aspects else ()),
        ],
        "ports": _ports(cluster, roles),
        "resources": pool.resources.model_dump(),
        "securityContext": template.container_security(pool.pod.container_security_context),
        "volumeMounts": [
            *mounts(pool),
            *security.mounts(cluster),
            *(migration.mounts(cluster) if MIGRATES in aspects else ()),
            *template.mounts(pool.pod.mounts),
        ],
        "terminationMessagePolicy": "FallbackToLogsOnError",  # the status shows why a node does not start
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
    spec["volumes"] += [*security.volumes(cluster, node.id), *map(template.volume, pool.pod.volumes)]
    if MIGRATES in aspects:
        spec["volumes"] += migration.volumes(cluster)
    if pool.pod.service_account_name is not None:
        spec["serviceAccountName"] = pool.pod.service_account_name
    if aspects.get("rack") and cluster.spec.rack is not None:
        spec["affinity"] = _near(cluster.spec.rack.node_label, aspects["rack"], spec.get("affinity"))
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def keeping(pool: NodePool, aspects: Mapping[str, str]) -> NodePool:
    """The pool with its volumes, followed by removed volumes that a pod still has to mount."""
    names = [name for name in aspects.get(KEEPS, "").split(",") if name]
    if not names:
        return pool
    own = pool.storage.volumes
    volumes = [*own, *(VolumeSpec(name=name) for name in names if name not in {one.name for one in own})]
    return pool.model_copy(update={"storage": pool.storage.model_copy(update={"volumes": volumes})})


def mounted(spec: Mapping[str, Any]) -> frozenset[str]:
    """Names of the pool's volumes in a pod's specification."""
    names = (one["name"] for one in spec.get("volumes", ()) if "persistentVolumeClaim" in one)
    return frozenset(name.removeprefix(CLAIM) for name in names if name.startswith(CLAIM))


def rehearsal(cluster: NamedCluster, pool: NodePool) -> dict[str, Any]:
    """A pod as after this pool's next restart, with a name that no node has."""
    node = Node(pool.first_node_id, pool.name, "controller" in pool.roles, "broker" in pool.roles)
    aspects = {"roles": ",".join(sorted(pool.roles)), "voters": str(pool.first_node_id)}
    external = {one.name: ("example.invalid", one.port) for one in cluster.external}
    made = pod(cluster, pool, node, aspects, external)
    made["metadata"] |= {"name": f"{cluster.name}-{pool.name}-rehearsal"}
    return made


def base(cluster: NamedCluster, pool: NodePool, node: Node, config: str) -> dict[str, Any]:
    """Common parts of the specifications of a node's pod and of its format job: account, placement, volumes."""
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
    """Mounts of the configuration, of the volumes, and of the temporary folder."""
    return [
        {"name": "config", "mountPath": CONFIG, "readOnly": True},
        {"name": "tmp", "mountPath": "/tmp"},  # noqa: S108  (an emptyDir of the pod's own)
        *({"name": f"{CLAIM}{one.name}", "mountPath": f"{DATA}/{one.name}"} for one in pool.storage.volumes),
    ]


def placement(of: PodTemplate | Driver, image_pull_secrets: Sequence[str]) -> dict[str, Any]:
    """Placement, priority and pull secrets from the pool's template."""
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
    """Node ids in the value of an aspect."""
    return [int(word) for word in aspects.get(aspect, "").split(",") if word]


def _near(label: str, rack: str, affinity: Mapping[str, Any] | None) -> dict[str, Any]:
    """Prefer a machine of the rack in `broker.rack`: in another rack the node would restart again to change it."""
    found: dict[str, Any] = {**(affinity or {})}
    machines = {**found.get("nodeAffinity", {})}
    desired = {"matchExpressions": [{"key": label, "operator": "In", "values": [rack]}]}
    preferred = [*machines.get("preferredDuringSchedulingIgnoredDuringExecution", ())]
    machines["preferredDuringSchedulingIgnoredDuringExecution"] = [*preferred, {"weight": 100, "preference": desired}]
    return {**found, "nodeAffinity": machines}


def _ports(cluster: NamedCluster, roles: list[str]) -> list[dict[str, Any]]:
    ports = []
    if "broker" in roles:
        # A listener's name may be longer than the maximum of a port's name, and two may have equal beginnings.
        ports += [{"name": f"listener-{one.port}", "containerPort": one.port} for one in cluster.listeners]
    if "controller" in roles:
        ports.append({"name": "controller", "containerPort": CONTROLLER_PORT})
    if cluster.spec.metrics.enabled:
        ports.append({"name": "metrics", "containerPort": cluster.spec.metrics.port})
    return ports


def _probes(cluster: NamedCluster, asked: Probes) -> dict[str, Any]:
    """Probes.

    `/livez` answers while the event loop runs, `/readyz` once a broker is unfenced or a controller follows a leader.
    """
    port = cluster.spec.metrics.port

    def probe(path: str, period_s: int, failures: int) -> dict[str, Any]:
        return {"httpGet": {"path": path, "port": port}, "periodSeconds": period_s, "failureThreshold": failures}

    return {
        "startupProbe": probe("/livez", 1, STARTING_S_MAX) | template.given(asked.startup),
        "readinessProbe": probe("/readyz", 1, 3) | template.given(asked.readiness),
        "livenessProbe": probe("/livez", 10, 6) | template.given(asked.liveness),
    }
