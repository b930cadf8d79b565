"""Names of brokers outside of Kubernetes, and the objects that lead there by name: Ingresses and Routes. Pure.

Routers of both kinds read the name in the client's TLS handshake (SNI), and pass the connection through without
decrypting it. So brokers authenticate clients by certificates as on other listeners.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.listeners import BY_SNI, SNI_PORT, Listener
from kraft_operator.specs.cluster import NamedCluster

FRONT: Final = f"{GROUP}/front"
"""Annotation of a service: the kind of the object before it, `Ingress` or `Route`. It has the service's name."""
PASSTHROUGH: Final = {
    "ingress.kubernetes.io/ssl-passthrough": "true",
    "nginx.ingress.kubernetes.io/backend-protocol": "HTTPS",
    "nginx.ingress.kubernetes.io/ssl-passthrough": "true",
}
"""Annotations of an Ingress that make nginx, and controllers with the common annotation, pass TLS through. An Ingress
itself has no field for it. Annotations of the listener take precedence."""

NODE_ID: Final = "{node.id}"
Object = dict[str, Any]


def named_host(cluster: NamedCluster, listener: Listener, node_id: int) -> str | None:
    """The name of a broker for clients outside, by the resource; None if Kubernetes assigns it."""
    override = listener.override(node_id)
    if override is not None and override.host is not None:
        return override.host
    if listener.host_template is not None:
        return _filled(cluster, listener, listener.host_template).replace(NODE_ID, str(node_id))
    return listener.host if listener.type == "NodePort" else None


def bootstrap_host(cluster: NamedCluster, listener: Listener) -> str | None:
    """The name for the first connection of clients, by the resource; None if Kubernetes assigns it."""
    host = listener.bootstrap.host
    return None if host is None else _filled(cluster, listener, host)


def named_port(listener: Listener, node_id: int | None = None) -> int | None:
    """The port of a broker (None: of bootstrap) for clients outside, by the resource; None if Kubernetes assigns it."""
    override = None if node_id is None else listener.override(node_id)
    if override is not None and override.advertised_port is not None:
        return override.advertised_port
    if listener.advertised_port is not None or listener.type == "NodePort":
        return listener.advertised_port
    return SNI_PORT if listener.type in BY_SNI else listener.port


def _filled(cluster: NamedCluster, listener: Listener, template: str) -> str:
    values = {"cluster.name": cluster.name, "cluster.namespace": cluster.namespace, "listener.name": listener.name}
    for key, value in values.items():
        template = template.replace(f"{{{key}}}", value)
    return template


def certified_names(cluster: NamedCluster, node_id: int) -> Iterator[str]:
    """Names outside by the resource for which a broker's certificate must be valid."""
    for listener in cluster.external:
        for host in (named_host(cluster, listener, node_id), bootstrap_host(cluster, listener), listener.host):
            if host:
                yield host
        yield from listener.bootstrap.alternative_names


# Objects


def broker_front(cluster: NamedCluster, listener: Listener, node_id: int) -> Object | None:
    """The Ingress or Route of a broker; None for listeners of other types."""
    override = listener.override(node_id)
    annotations = {**listener.annotations, **(override.annotations if override is not None else {})}
    name = cluster.external_service(node_id, listener.name)
    return _front(cluster, listener, name, named_host(cluster, listener, node_id), annotations, node_id)


def bootstrap_front(cluster: NamedCluster, listener: Listener) -> Object | None:
    """The Ingress or Route for the first connection; None for listeners of other types."""
    annotations = {**listener.annotations, **listener.bootstrap.annotations}
    name = f"{cluster.name}-{listener.name}"
    return _front(cluster, listener, name, bootstrap_host(cluster, listener), annotations, None)


def _front(
    cluster: NamedCluster,
    listener: Listener,
    name: str,
    host: str | None,
    annotations: dict[str, str],
    node_id: int | None,
) -> Object | None:
    if listener.type not in BY_SNI:
        return None
    metadata = cluster.metadata(name, node_id=node_id)
    if listener.type == "Ingress":
        metadata["annotations"] = {**PASSTHROUGH, **annotations}
        return {
            "apiVersion": "networking.k8s.io/v1",
            "kind": "Ingress",
            "metadata": metadata,
            "spec": _ingress(listener, name, host),
        }
    if annotations:
        metadata["annotations"] = annotations
    route = {
        "to": {"kind": "Service", "name": name, "weight": 100},
        "port": {"targetPort": listener.port},
        "tls": {"termination": "passthrough"},
        "wildcardPolicy": "None",
        **({} if host is None else {"host": host}),
    }
    return {"apiVersion": "route.openshift.io/v1", "kind": "Route", "metadata": metadata, "spec": route}


def _ingress(listener: Listener, service: str, host: str | None) -> Object:
    backend = {"service": {"name": service, "port": {"number": listener.port}}}
    return {
        "rules": [{"host": host, "http": {"paths": [{"path": "/", "pathType": "Prefix", "backend": backend}]}}],
        "tls": [{"hosts": [host]}],
        **({} if listener.ingress_class is None else {"ingressClassName": listener.ingress_class}),
    }


# Checks


class _Template(NamedTuple):
    """The names that `hostTemplate` of a listener gives to its brokers."""

    listener: Listener
    field: str
    text: str

    def broker(self, host: str) -> int | None:
        """The broker that has this name by the template; None if no broker can have it."""
        first, *others = map(re.escape, self.text.split(NODE_ID))
        found = re.fullmatch(first + "(0|[1-9][0-9]*)" + r"\1".join(others), host)
        return None if found is None or self._has_own(int(found[1])) else int(found[1])

    def name(self, node_id: int) -> str:
        """The name of a broker by the template."""
        return self.text.replace(NODE_ID, str(node_id))

    def names(self, brokers: Iterable[int]) -> set[str]:
        """The names of these brokers, without brokers that have a name of their own."""
        return {self.name(node_id) for node_id in brokers if not self._has_own(node_id)}

    def _has_own(self, node_id: int) -> bool:
        override = self.listener.override(node_id)
        return override is not None and override.host is not None


def listener_problems(
    spec: KRaftClusterSpec, name: str = "{cluster.name}", namespace: str = "{cluster.namespace}"
) -> list[str]:
    """Errors that no rule of the resource can find: names that lead to two brokers, and overrides of no broker.

    `name` and `namespace` of the cluster fill its templates, if they are known.
    """
    found = []
    cluster = NamedCluster(name, namespace, "", spec)
    for listener in cluster.external:
        for override in listener.brokers:
            pool = cluster.pool_of_id(override.node)
            if pool is None or "broker" not in pool.roles:
                text = f"{_field(listener)} brokers {override.node}: no pool of brokers has this node id"
                found.append(text)
    return found + list(_shared_names(cluster))


def _shared_names(cluster: NamedCluster) -> Iterator[str]:
    """Names that two brokers, or a broker and bootstrap, have at routers, which see nothing but the name."""
    routed = [one for one in cluster.external if one.type in BY_SNI]
    taken: dict[str, str] = {}
    for listener in routed:
        parts = {"bootstrap.host": bootstrap_host(cluster, listener)}
        parts |= {f"brokers {one.node} host": one.host for one in listener.brokers}
        for part, host in parts.items():
            if host is not None and host in taken:
                yield f"{_field(listener)} {part}: the name {host} already leads to {taken[host]}: choose another"
            elif host is not None:
                taken[host] = f"{_field(listener)} {part}"
    templates = [one for listener in routed if (one := _template(cluster, listener)) is not None]
    for template, (host, field) in itertools.product(templates, taken.items()):
        node_id = template.broker(host)
        if node_id is not None:
            yield f"{field}: the name {host} is that of broker {node_id} by {template.field}: choose another"
    brokers = {
        pool.first_node_id + number
        for pool in cluster.spec.node_pools
        if "broker" in pool.roles
        for number in range(cluster.replicas(pool))
    }
    for first, second in itertools.combinations(templates, 2):
        shared = sorted(first.names(brokers) & second.names(brokers))
        if shared or first.text == second.text:
            name = shared[0] if shared else second.text
            yield f"{second.field}: {first.field} has the same name {name}: choose another"


def _template(cluster: NamedCluster, listener: Listener) -> _Template | None:
    if listener.host_template is None:
        return None
    return _Template(listener, f"{_field(listener)} hostTemplate", _filled(cluster, listener, listener.host_template))


def _field(listener: Listener) -> str:
    return f"spec.listeners {listener.name}"
