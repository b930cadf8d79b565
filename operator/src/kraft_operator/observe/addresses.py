"""Addresses of listeners for clients outside Kubernetes, from services, Routes and the resource. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.listeners import Listener
from kraft_operator.plan.model.observed import ListenerSeen
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.fronts import bootstrap_host, named_host, named_port
from kraft_operator.specs.properties import External

Object = Mapping[str, Any]
NODE_LABEL: Final = f"{GROUP}/node"
MACHINE_HOST: Final = "$(HOST_IP)"
"""A placeholder for the address of the machine, which is known when the pod runs."""


def by_broker(cluster: NamedCluster, services: Iterable[Object], routes: Iterable[Object] = ()) -> dict[int, str]:
    """External addresses by node id, as text. Brokers without an address for every external listener are missing."""
    there = {one["metadata"]["name"]: one for one in services}
    fronts = {one["metadata"]["name"]: one for one in routes}
    numbers = {one["metadata"].get("labels", {}).get(NODE_LABEL, "") for one in there.values()}
    found = {}
    for node_id in sorted(int(number) for number in numbers if number.isdecimal()):
        mine: External = {
            listener.name: outside
            for listener in cluster.external
            if (name := cluster.external_service(node_id, listener.name)) in there
            and (outside := of_broker(cluster, listener, node_id, there[name], fronts.get(name))) is not None
        }
        if len(mine) == len(cluster.external):
            found[node_id] = as_text(mine)
    return found


def of_broker(
    cluster: NamedCluster, listener: Listener, node_id: int, service: Object, route: Object | None = None
) -> tuple[str, int] | None:
    """The host and port of a broker for external clients; None until Kubernetes has assigned them."""
    host = named_host(cluster, listener, node_id) or _assigned(listener, service, route)
    return _with_port(host, named_port(listener, node_id), service)


def _of_bootstrap(
    cluster: NamedCluster, listener: Listener, service: Object, route: Object | None
) -> tuple[str, int] | None:
    """As `of_broker`, for the first connection."""
    named = bootstrap_host(cluster, listener) or (listener.host if listener.type == "NodePort" else None)
    return _with_port(named or _assigned(listener, service, route), named_port(listener), service)


def _assigned(listener: Listener, service: Object, route: Object | None) -> str | None:
    """The host that Kubernetes has assigned."""
    if listener.type == "NodePort":
        return MACHINE_HOST
    if listener.type == "Route":
        return route_host(route)
    # Choose the same address every time, for any order: a different address needs a restart.
    return min(given(service), key=lambda host: (":" in host, host), default=None)


def _with_port(host: str | None, port: int | None, service: Object) -> tuple[str, int] | None:
    if port is None:
        port = service.get("spec", {}).get("ports", [{}])[0].get("nodePort")
    return None if host is None or port is None else (host, int(port))


def route_host(route: Object | None) -> str | None:
    """The host of a Route, which OpenShift assigns if the resource names none; None if it is not known."""
    return (route or {}).get("spec", {}).get("host") or None


def given(service: Object) -> list[str]:
    """The address of each ingress point of a load balancer: its name, or else its IP address."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    return [str(host) for one in ingress if (host := one.get("hostname") or one.get("ip"))]


def hosts_of(service: Object) -> frozenset[str]:
    """All hosts and addresses that a load balancer has given to a service."""
    ingress = service.get("status", {}).get("loadBalancer", {}).get("ingress", ())
    return frozenset(str(host) for one in ingress for host in (one.get("hostname"), one.get("ip")) if host)


def as_text(external: External) -> str:
    """External addresses as the value of an aspect: `NAME=HOST:PORT`, sorted, separated by commas."""
    return ",".join(f"{name}={host}:{port}" for name, (host, port) in sorted(external.items()))


def listeners(
    cluster: NamedCluster, services: Iterable[Object], routes: Iterable[Object], machines: Mapping[int, str]
) -> tuple[ListenerSeen, ...]:
    """The addresses of all listeners for the status. `machines` is the address of each broker's machine, as known."""
    there = {one["metadata"]["name"]: one for one in services}
    fronts = {one["metadata"]["name"]: one for one in routes}
    found = []
    for listener in cluster.spec.listeners:
        if listener.type == "Internal":
            host = f"{cluster.name}-bootstrap.{cluster.namespace}.svc"
            found.append(ListenerSeen(listener.name, listener.type, f"{host}:{listener.port}"))
            continue
        name = f"{cluster.name}-{listener.name}"
        at = _of_bootstrap(cluster, listener, there[name], fronts.get(name)) if name in there else None
        any_machine = min(machines.values(), default=None)
        brokers = {}
        for one in there.values():
            number = one["metadata"].get("labels", {}).get(NODE_LABEL, "")
            broker = one["metadata"]["name"]
            if number.isdecimal() and broker == cluster.external_service(int(number), listener.name):
                outside = of_broker(cluster, listener, int(number), one, fronts.get(broker))
                if text := _shown(outside, machines.get(int(number))):
                    brokers[int(number)] = text
        found.append(ListenerSeen(listener.name, listener.type, _shown(at, any_machine), brokers))
    return tuple(found)


def _shown(address: tuple[str, int] | None, machine: str | None) -> str:
    """`HOST:PORT`; empty if the host or port is not known."""
    host, port = address or ("", 0)
    host = (machine or "") if host == MACHINE_HOST else host
    return f"{f'[{host}]' if ':' in host else host}:{port}" if host else ""
