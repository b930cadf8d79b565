"""The sample cluster as objects."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import yaml

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.pools import NodePool
from kraft_operator.plan.model.record import Node
from kraft_operator.specs import network, pods, storage
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.properties import aspects, aspects_of_before

ROOT = Path(__file__).parents[3]
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qk"


def sample(namespace: str = "demo", **changes: Any) -> NamedCluster:
    document = yaml.safe_load((ROOT / "deploy" / "samples" / "kraftcluster.yaml").read_text())
    spec = KRaftClusterSpec.model_validate({**document["spec"], **changes})
    return NamedCluster("sample", namespace, "4f4b1c6e-0000-4000-8000-000000000000", spec)


def pool_aspects(cluster: NamedCluster, pool: NodePool) -> dict[str, str]:
    """The aspects of the nodes that have the roles of their pool."""
    return aspects(cluster, pool, broker="broker" in pool.roles)


def pool_aspects_of_before(cluster: NamedCluster, pool: NodePool) -> dict[str, frozenset[str]]:
    return aspects_of_before(cluster, pool, broker="broker" in pool.roles)


def manifests(cluster: NamedCluster) -> list[dict[str, Any]]:
    """All manifests of a controller and a broker of it, and the shared ones."""
    nodes = (Node(1, "controllers", True, False), Node(101, "brokers", False, True))
    found = [network.nodes_service(cluster), network.bootstrap_service(cluster)]
    found += network.disruption_budgets(cluster, nodes)
    found += network.network_policies(cluster)
    for listener in cluster.spec.listeners:
        if listener.type != "Internal":
            found += [network.external_bootstrap(cluster, listener)]
            found += [network.external_broker(cluster, listener, 101, 0)]
    for pool, node in zip(cluster.spec.node_pools, nodes, strict=True):
        aspects = {"image": cluster.spec.image, "roles": ",".join(pool.roles), "voters": "1,2,3"}
        external = {"external": ("$(HOST_IP)", 31000)}
        found += storage.claims(cluster, pool, node)
        config = pods.config_map(cluster, pool, node, aspects)
        found += [config, storage.format_job(cluster, pool, node, CLUSTER_ID, config["metadata"]["name"])]
        found.append(pods.pod(cluster, pool, node, aspects, external))
    return found


TABLE = {
    "clusterRef": "sample",
    "topics": {"names": ["orders"]},
    "table": {"path": "/lake/orders"},
    "driver": {"volumes": [{"name": "lake", "mountPath": "/lake", "size": "1Gi"}]},
}
ARCHIVE = {"clusterRef": "sample", "table": {"path": "s3://lake/metadata"}}
SCRUB = {"clusterRef": "sample", "topics": ["orders*"]}
SPECS = {"KafkaTable": TABLE, "KafkaMetadataArchive": ARCHIVE, "KafkaScrub": SCRUB}
OPERATORS = {"clusterRef", "driver", "paused", "schedule"}
"""Fields of pipelines that `kraft-pipeline` is not given."""
