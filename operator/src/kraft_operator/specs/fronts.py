"""Names of brokers outside of Kubernetes, and the objects that lead there by name: Ingresses and Routes. Pure.

Routers of both kinds read the name in the client's TLS handshake (SNI), and pass the connection through without
decrypting it. So brokers authenticate clients by certificates as on other listeners.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

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

Object = dict[str, Any]


def named_host(cluster: NamedCluster, listener: Listener, node_id: int) -> str | None:
    """The name of a broker for clients outside, by the resource; None if Kubernetes assigns it."""
    override = listener.override(node_id)
    if override is not None and override.host is not None:
        return override.host
    if listener.host_template is not None:
        return _filled(cluster, listener, listener.host_template).replace("{node.id}", str(node_id))
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


def listener_problems(spec: KRaftClusterSpec) -> list[str]:
    """Errors that no rule of the resource can find: names that lead to two brokers, and overrides of no broker."""
    found = []
    taken: dict[str, str] = {}
    cluster = NamedCluster("{cluster.name}", "{cluster.namespace}", "", spec)
    for listener in cluster.external:
        where = f"spec.listeners {listener.name}"
        for override in listener.brokers:
            pool = cluster.pool_of_id(override.node)
            if pool is None or "broker" not in pool.roles:
                found.append(f"{where} brokers {override.node}: no pool of brokers has this node id")
        if listener.type not in BY_SNI:
            continue
        found += [f"{where} {text}" for text in _shadowed(listener)]
        parts = {"bootstrap": bootstrap_host(cluster, listener)}
        parts |= {f"brokers {one.node}": one.host for one in listener.brokers}
        for part, host in parts.items():
            if host is not None and host in taken:
                found.append(f"{where} {part}: the name {host} already leads to {taken[host]}: choose another")
            elif host is not None:
                taken[host] = f"{listener.name} {part}"
        template = listener.host_template
        if template is not None:
            shown = _filled(cluster, listener, template)
            if shown in taken:
                found.append(f"{where} hostTemplate: {taken[shown]} has the same: choose another")
            taken[shown] = listener.name
    return found


def _shadowed(listener: Listener) -> Iterator[str]:
    """Overrides whose host is the name that hostTemplate gives to another broker."""
    if listener.host_template is None:
        return
    before, _, after = listener.host_template.partition("{node.id}")
    for one in listener.brokers:
        middle = (one.host or "").removeprefix(before).removesuffix(after)
        if one.host == f"{before}{middle}{after}" and middle.isdecimal() and int(middle) != one.node:
            yield f"brokers {one.node}: the name {one.host} is that of broker {middle} by hostTemplate: choose another"
