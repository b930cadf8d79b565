"""A node's disk: its volume claims, and the job that formats them."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.pools import NodePool
from kraft_operator.plan.model.record import Node
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.pods import ASPECT, CONFIG, FILE, base, mounts
from kraft_operator.specs.template import container_security

FORMATTED: Final = f"{GROUP}/formatted-for"
"""Annotation of a claim: `CLUSTER-ID/NODE-ID`, written when its format job is done."""
REPLACED: Final = f"{GROUP}/replaced"
"""Annotation of a claim: the names of its node's finished replacements, separated by commas."""
VOLUME_MARK: Final = f"{GROUP}/volume"
"""Annotation of a claim with a volume that left its pool: `Emptying`, or `Empty` once the broker reports it empty."""
DISK: Final = f"{GROUP}/disk"
VOLUMES: Final = f"{GROUP}/volumes"
"""Annotation of a format job: the number of volumes that it formats."""
CLAIMS: Final = f"{GROUP}/claims"
"""Annotation of a format job: the uids of the claims that it formats, separated by commas."""
ATTEMPTS_MAX: Final = 3
FORMATS: Final = "format"
"""The container of a format job."""


def directory_id(cluster_id: str, node_id: int) -> str:
    """Directory id of the metadata directory of a dynamic quorum's first voter.

    All format jobs must use the same ids.
    """
    raw = hashlib.sha256(f"{cluster_id}/{node_id}/directory".encode()).digest()[:16]
    return base64.urlsafe_b64encode(raw).decode().rstrip("=").replace("-", "_", 1)


def claims(cluster: NamedCluster, pool: NodePool, node: Node) -> list[dict[str, Any]]:
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
    """Whether a pool's volumes are deleted with the resource."""
    return pool.storage.deletion_policy == "Delete"


def _format_command(cluster: NamedCluster, cluster_id: str, dynamic: Mapping[str, str] | None) -> list[str]:
    command = ["kafka-storage", "format", "-c", f"{CONFIG}/{FILE}", "-t", cluster_id, "-g"]
    if dynamic is not None:
        command += ["-I", dynamic["initial"]] if dynamic.get("initial") else ["-N"]
    if cluster.spec.metadata_version is not None:
        command += ["-r", cluster.spec.metadata_version]
    return command


def format_job(
    cluster: NamedCluster,
    pool: NodePool,
    node: Node,
    cluster_id: str,
    config: str,
    dynamic: Mapping[str, str] | None = None,
    volumes: int = 0,
    aspects: Mapping[str, str] | None = None,
    claims: Iterable[str] = (),
) -> dict[str, Any]:
    """The job that runs `kafka-storage format`, which refuses directories of another cluster or node.

    - `config`: name of the ConfigMap with the node's file.
    - `dynamic`: for a controller of a dynamic quorum. `initial` has the first voters in Kafka's form, or is empty to
      join.
    - `volumes`: the number of volumes, if some were added later. Formatted volumes stay unchanged.
    - `claims`: the uids of the claims. A claim that is created later under the same name is another claim.
    - `aspects`: the aspects that the job is created with.

    The job has no deadline, because its pod may wait for an image or a machine.
    """
    container = {
        "name": FORMATS,
        "image": cluster.image,
        "imagePullPolicy": cluster.spec.image_pull_policy,
        "command": _format_command(cluster, cluster_id, dynamic),
        # The node's resources: the job decides on which machine the volume is, and must not starve beside running
        # nodes.
        "resources": pool.resources.model_dump(),
        "securityContext": container_security(),
        "volumeMounts": mounts(pool),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    }
    metadata = cluster.metadata(cluster.format_job(node.id, node.disk, volumes), node_id=node.id, pool=pool.name)
    metadata["annotations"] = {ASPECT + key: value for key, value in (aspects or {}).items()}
    metadata["annotations"][CLAIMS] = ",".join(sorted(claims))
    metadata["labels"] |= {DISK: str(node.disk), VOLUMES: str(len(pool.storage.volumes))}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": metadata,
        "spec": {
            "backoffLimit": ATTEMPTS_MAX - 1,
            "template": {
                # The job decides where its volumes are, so it has the label by which nodes are spread.
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
