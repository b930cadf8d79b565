"""A disk of a node: its volume claims, and the job that formats them once."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.pools import NodePool
from kraft_operator.plan.record import Node
from kraft_operator.specs.cluster import Cluster
from kraft_operator.specs.pods import ASPECT, CONFIG, FILE, base, mounts
from kraft_operator.specs.template import container_security

FORMATTED: Final = f"{GROUP}/formatted-for"
"""On a claim: `CLUSTER-ID/NODE-ID`, written after its job is done."""
REPLACED: Final = f"{GROUP}/replaced"
"""Annotation of a claim: the names of its node's finished replacements, separated by commas."""
VOLUME_MARK: Final = f"{GROUP}/volume"
"""On a claim that its pool has no more: `Emptying`, or `Empty` once the broker has said so."""
DISK: Final = f"{GROUP}/disk"
VOLUMES: Final = f"{GROUP}/volumes"
"""On a format job: how many volumes it formats."""
ATTEMPTS_MAX: Final = 3
FORMATS: Final = "format"
"""The container of the job that formats."""


def directory_id(cluster_id: str, node_id: int) -> str:
    """Of the metadata directory of one of a dynamic quorum's first voters: all their jobs must say the same."""
    raw = hashlib.sha256(f"{cluster_id}/{node_id}/directory".encode()).digest()[:16]
    return base64.urlsafe_b64encode(raw).decode().rstrip("=").replace("-", "_", 1)


def claims(cluster: Cluster, pool: NodePool, node: Node) -> list[dict[str, Any]]:
    """The claims of a disk, one for each volume. Claims without an owner outlive the resource."""
    found = []
    for volume in pool.storage.volumes:
        name = cluster.claim(volume.name, node.id, node.disk)
        metadata = cluster.metadata(name, owned=owned(pool), node_id=node.id, pool=pool.name)
        metadata["labels"][DISK] = str(node.disk)
        spec: dict[str, Any] = {
            "accessModes": ["ReadWriteOnce"],
            "resources": {"requests": {"storage": volume.size}},
        }
        if volume.storage_class is not None:
            spec["storageClassName"] = volume.storage_class
        found.append({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": metadata, "spec": spec})
    return found


def owned(pool: NodePool) -> bool:
    """Whether volumes are deleted with the resource."""
    return pool.storage.deletion_policy == "Delete"


def format_job(
    cluster: Cluster,
    pool: NodePool,
    node: Node,
    cluster_id: str,
    config: str,
    dynamic: Mapping[str, str] | None = None,
    volumes: int = 0,
    aspects: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """`kafka-storage format`, which refuses directories of another cluster or node.

    `config`: the ConfigMap with its file.
    `dynamic`, for a controller of a dynamic quorum: `initial` its first voters in Kafka's form, or empty to join.
    `volumes`: how many there are by now, where some came later; those that are formatted already are left as they are.
    `aspects`: what it is made with. It has as much time as it takes to get an image or a machine.
    """
    command = ["kafka-storage", "format", "-c", f"{CONFIG}/{FILE}", "-t", cluster_id, "-g"]
    if dynamic is not None:
        command += ["-I", dynamic["initial"]] if dynamic.get("initial") else ["-N"]
    if cluster.spec.metadata_version is not None:
        command += ["-r", cluster.spec.metadata_version]
    container = {
        "name": FORMATS,
        "image": cluster.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": command,
        # Its node's: it decides on which machine the volume is, and must not starve beside nodes that run.
        "resources": pool.resources.model_dump(),
        "securityContext": container_security(),
        "volumeMounts": mounts(pool),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    metadata = cluster.metadata(cluster.format_job(node.id, node.disk, volumes), node_id=node.id, pool=pool.name)
    metadata["annotations"] = {ASPECT + key: value for key, value in (aspects or {}).items()}
    metadata["labels"] |= {DISK: str(node.disk), VOLUMES: str(len(pool.storage.volumes))}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": ATTEMPTS_MAX - 1,
            "template": {
                # It decides where its volumes are: what spreads the nodes has to find it among them.
                "metadata": {
                    "labels": {
                        **pool.pod.labels,
                        **cluster.labels(pool=pool.name),
                        "app.kubernetes.io/name": "kraftcluster-format",
                        f"{GROUP}/job": "format",
                    }
                },
                "spec": {**base(cluster, pool, node, config), "restartPolicy": "Never", "containers": [container]},
            },
        },
    }
