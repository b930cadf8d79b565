"""Services, disruption budgets and network policies of a cluster."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import CONTROLLER_PORT
from kraft_operator.api.listeners import BY_SNI, Bootstrap, BrokerOverride, Listener
from kraft_operator.plan.model.record import Node
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.fronts import FRONT

MANAGER_APP: Final = "kraftcluster-operator"
"""The label `app.kubernetes.io/name` of the operator's pods, as in its chart."""
PIPELINE_APP: Final = "kraft-pipeline"
"""The label `app.kubernetes.io/name` of pipelines' pods, and the label that names their cluster."""
PIPELINES_CLUSTER: Final = f"{GROUP}/cluster"


def _selector(cluster: NamedCluster, role: str) -> dict[str, str]:
    return {"app.kubernetes.io/instance": cluster.name, f"{GROUP}/{role}": "true"}


def _service(cluster: NamedCluster, name: str, spec: dict[str, Any], node_id: int | None = None) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": cluster.metadata(name, node_id=node_id),
        "spec": spec,
    }


def nodes_service(cluster: NamedCluster) -> dict[str, Any]:
    """The headless service.

    It also resolves nodes that are not ready, because voters must find each other before any is.
    """
    ports = [{"name": "controller", "port": CONTROLLER_PORT}]
    ports += [{"name": listener.name, "port": listener.port} for listener in cluster.listeners]
    selector = {"app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/name": "kraftcluster"}
    return _service(
        cluster,
        cluster.nodes_service,
        {"clusterIP": "None", "publishNotReadyAddresses": True, "selector": selector, "ports": ports},
    )


def bootstrap_service(cluster: NamedCluster) -> dict[str, Any]:
    """The service `NAME-bootstrap`: any ready broker, for clients inside Kubernetes."""
    ports = [{"name": one.name, "port": one.port} for one in cluster.spec.listeners if one.type == "Internal"]
    return _service(
        cluster,
        f"{cluster.name}-bootstrap",
        {"type": "ClusterIP", "selector": _selector(cluster, "broker"), "ports": ports},
    )


def external_bootstrap(cluster: NamedCluster, listener: Listener) -> dict[str, Any]:
    """The service of an external listener: any ready broker, for clients outside Kubernetes."""
    port: dict[str, Any] = {"name": listener.name, "port": listener.port}
    spec = {"type": _service_type(listener), "selector": _selector(cluster, "broker"), "ports": [port]}
    service = _service(cluster, f"{cluster.name}-{listener.name}", spec)
    return _outside(listener, service, listener.bootstrap)


def external_broker(cluster: NamedCluster, listener: Listener, node_id: int, place: int) -> dict[str, Any]:
    """The external address of a broker. `place` numbers brokers from 0, for listeners with fixed ports."""
    port: dict[str, Any] = {"name": listener.name, "port": listener.port}
    if listener.type == "NodePort" and listener.first_node_port is not None:
        port["nodePort"] = listener.first_node_port + place
    spec = {
        "type": _service_type(listener),
        # A client may learn of this broker from metadata before the broker is ready, and must reach it then.
        "publishNotReadyAddresses": True,
        "selector": {"app.kubernetes.io/instance": cluster.name, f"{GROUP}/node": str(node_id)},
        "ports": [port],
    }
    service = _service(cluster, cluster.external_service(node_id, listener.name), spec, node_id)
    return _outside(listener, service, listener.override(node_id))


def _service_type(listener: Listener) -> str:
    """The type of the services: an Ingress or Route leads to a service inside."""
    return "ClusterIP" if listener.type in BY_SNI else listener.type


def _outside(listener: Listener, service: dict[str, Any], own: Bootstrap | BrokerOverride | None) -> dict[str, Any]:
    """Add what the listener asks of its services: annotations, and for load balancers networks, class and address.

    `own` is for this service alone.
    """
    if listener.type in BY_SNI:
        service["metadata"]["annotations"] = {FRONT: listener.type}
        return service
    annotations = {**listener.annotations, **(own.annotations if own is not None else {})}
    if annotations:
        service["metadata"]["annotations"] = annotations
    if own is not None and own.node_port is not None:
        service["spec"]["ports"][0]["nodePort"] = own.node_port
    if own is not None and own.load_balancer_ip is not None:
        service["spec"]["loadBalancerIP"] = own.load_balancer_ip
    if listener.source_ranges:
        service["spec"]["loadBalancerSourceRanges"] = listener.source_ranges
    if listener.load_balancer_class is not None:
        service["spec"]["loadBalancerClass"] = listener.load_balancer_class
    return service


def disruption_budgets(
    cluster: NamedCluster, nodes: Iterable[Node], held: frozenset[str] = frozenset()
) -> list[dict[str, Any]]:
    """Budgets that allow one eviction at a time per role, and no eviction of `held` roles.

    If a node has both roles, a single budget covers all nodes, because Kubernetes evicts no pod with two budgets.
    Budgets use `minAvailable`: for `maxUnavailable`, Kubernetes takes the size from the resource's scale, which counts
    a single pool.
    """
    if not cluster.spec.pod_disruption_budget.enabled:
        return []
    there = [node for node in nodes if not node.stopped]
    if any(node.controller and node.broker for node in there):
        everybody = {"app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/name": "kraftcluster"}
        return [_budget(cluster, "nodes", everybody, len(there) - (not held))]
    roles = {"broker": [node for node in there if node.broker], "controller": [n for n in there if n.controller]}
    return [
        _budget(cluster, f"{role}s", _selector(cluster, role), len(mine) - (role not in held))
        for role, mine in roles.items()
        if mine
    ]


def _budget(cluster: NamedCluster, whose: str, selector: dict[str, str], stay: int) -> dict[str, Any]:
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": cluster.metadata(f"{cluster.name}-{whose}"),
        "spec": {"minAvailable": stay, "selector": {"matchLabels": selector}},
    }


def network_policies(cluster: NamedCluster) -> list[dict[str, Any]]:
    """Network policies of the cluster.

    Clients reach the brokers' listeners. The cluster's nodes, its pipelines and the operator reach all ports. Format
    jobs have no network access. If the network does not enforce policies, everything still works.
    """
    policies = cluster.spec.network_policies
    if not policies.enabled:
        return []
    mine = {"matchLabels": {"app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/name": "kraftcluster"}}
    operator = {"podSelector": {"matchLabels": {"app.kubernetes.io/name": MANAGER_APP}}, "namespaceSelector": {}}
    pipelines = {"matchLabels": {"app.kubernetes.io/name": PIPELINE_APP, PIPELINES_CLUSTER: cluster.name}}
    clients: dict[str, Any] = {"ports": [{"port": one.port} for one in cluster.spec.listeners]}
    outside = cluster.spec.migration.network_peers if cluster.spec.migration is not None else []
    if policies.clients:
        clients["from"] = [*policies.clients, *outside]
    nodes: list[dict[str, Any]] = [{"from": [{"podSelector": mine}, {"podSelector": pipelines}, operator]}]
    if cluster.spec.metrics.enabled:
        nodes.append({"ports": [{"port": cluster.spec.metrics.port}]})  # the kubelet's probes and Prometheus

    def policy(name: str, selector: dict[str, Any], ingress: list[dict[str, Any]], *more: str) -> dict[str, Any]:
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "NetworkPolicy",
            "metadata": cluster.metadata(f"{cluster.name}-{name}"),
            "spec": {"podSelector": selector, "policyTypes": ["Ingress", *more], "ingress": ingress},
        }

    found = [policy("nodes", mine, nodes)]
    if any("broker" in pool.roles for pool in cluster.spec.node_pools):
        found.append(policy("clients", {"matchLabels": _selector(cluster, "broker")}, [clients]))
    if outside:
        brokers = {"from": outside, "ports": [{"port": CONTROLLER_PORT}]}
        found.append(policy("migration", {"matchLabels": _selector(cluster, "controller")}, [brokers]))
    jobs = {"app.kubernetes.io/instance": cluster.name, "app.kubernetes.io/name": "kraftcluster-format"}
    found.append(policy("format", {"matchLabels": jobs}, [], "Egress"))
    return found
