"""A `KRaftCluster` with its names: the input of every manifest."""

from __future__ import annotations

import hashlib
import json
from dataclasses import dataclass
from typing import Any, Final

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.listeners import Listener
from kraft_operator.api.pools import NodePool
from kraft_operator.api.security import NODES_LISTENER, NODES_PORT

MANAGER: Final = "kraft-operator"
"""Field manager of every write, and value of the label `app.kubernetes.io/managed-by`."""
INSTANCE: Final = "app.kubernetes.io/instance"
MANAGED_BY: Final = "app.kubernetes.io/managed-by"
DIGEST_CHARS: Final = 12


@dataclass(frozen=True, slots=True)
class NamedCluster:
    """A resource: its namespace, name, uid and specification."""

    name: str
    namespace: str
    uid: str
    spec: KRaftClusterSpec
    default_image: str = ""
    """The operator's default image, for a resource without an image."""

    @property
    def image(self) -> str:
        """The image of its nodes."""
        return self.spec.image or self.default_image

    # Names

    def node(self, node_id: int) -> str:
        """Name of a node's pod, host, configuration and services."""
        return f"{self.name}-{node_id}"

    @property
    def nodes_service(self) -> str:
        """Name of the headless service that gives every node a stable host name."""
        return f"{self.name}-nodes"

    def host(self, node_id: int) -> str:
        """The DNS name of a node's pod in the headless service."""
        return f"{self.node(node_id)}.{self.nodes_service}.{self.namespace}.svc"

    def external_service(self, node_id: int, listener: str) -> str:
        """Name of a broker's service for clients outside Kubernetes."""
        return f"{self.node(node_id)}-{listener}"

    def claim(self, volume: str, node_id: int, disk: int) -> str:
        """The name of a volume's claim."""
        return f"{volume}-{self.node(node_id)}-{disk}"

    def format_job(self, node_id: int, disk: int, volumes: int = 0) -> str:
        """The name of the job that formats a node's disk."""
        return f"{self.node(node_id)}-format-{disk}" + (f"-{volumes}" if volumes else "")

    # Marks

    def labels(self, node_id: int | None = None, pool: str | None = None) -> dict[str, str]:
        """Labels of an object of the cluster, of a node, or of a pool."""
        marks = {
            "app.kubernetes.io/name": "kraftcluster",
            INSTANCE: self.name,
            MANAGED_BY: MANAGER,
        }
        if node_id is not None:
            marks[f"{GROUP}/node"] = str(node_id)
        if pool is not None:
            marks[f"{GROUP}/pool"] = pool
        return marks

    def owner(self) -> list[dict[str, Any]]:
        """The owner references of the cluster's objects: they are deleted with the resource."""
        return [
            {
                "apiVersion": f"{GROUP}/{VERSION}",
                "kind": "KRaftCluster",
                "name": self.name,
                "uid": self.uid,
                "controller": True,
                "blockOwnerDeletion": False,
            }
        ]

    def metadata(self, name: str, *, owned: bool = True, **labels: Any) -> dict[str, Any]:
        """`metadata` of an object of this cluster."""
        data: dict[str, Any] = {"name": name, "namespace": self.namespace, "labels": self.labels(**labels)}
        if owned:
            data["ownerReferences"] = self.owner()
        return data

    # Security

    @property
    def secure(self) -> bool:
        """Whether all connections between nodes have TLS."""
        return self.spec.security is not None and self.spec.security.tls == "Enabled"

    # Pools and listeners

    @property
    def listeners(self) -> list[Listener]:
        """All listeners of brokers. With TLS, the first one is for the nodes and the operator alone."""
        own = [Listener(name=NODES_LISTENER, port=NODES_PORT)] if self.secure else []
        return [*own, *self.spec.listeners]

    @property
    def internal(self) -> Listener:
        """The listener of brokers that the nodes themselves use."""
        return next(one for one in self.listeners if one.type == "Internal")

    @property
    def external(self) -> list[Listener]:
        """Listeners for clients outside Kubernetes, with an address for each broker."""
        return [listener for listener in self.spec.listeners if listener.type != "Internal"]

    def pool(self, name: str) -> NodePool | None:
        """The pool with this name; None if the specification lacks it."""
        return next((pool for pool in self.spec.node_pools if pool.name == name), None)

    def pool_of_id(self, node_id: int) -> NodePool | None:
        """The pool that a node id belongs to: ids are assigned upwards from the pool's first. None below all pools."""
        below = [pool for pool in self.spec.node_pools if pool.first_node_id <= node_id]
        return max(below, key=lambda pool: pool.first_node_id, default=None)

    def replicas(self, pool: NodePool) -> int:
        """The number of nodes of a pool; `spec.replicas` for the pool without its own number."""
        return self.spec.replicas if pool.replicas is None else pool.replicas


def listener_name(listener: Listener) -> str:
    """The listener's name in Kafka, which is upper case."""
    return listener.name.upper().replace("-", "_")


def digest(value: object) -> str:
    """Digest of a JSON value. Equal values have equal digests, with any order of their keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:DIGEST_CHARS]
