"""How a user reaches its cluster: the listener that fits its authentication, and its address. Pure."""

from __future__ import annotations

from datetime import timedelta
from typing import Final

from kraft_operator.api.listeners import Listener
from kraft_operator.api.user import KRaftUserSpec
from kraft_operator.specs.cluster import NamedCluster, listener_name
from kraft_operator.specs.fronts import bootstrap_host, named_port
from kraft_operator.specs.security import REAUTH, authentication, defaults

FITS: Final = {"ScramSha512": "ScramSha512", "ScramSha256": "ScramSha512", "MutualTls": "MutualTls"}
"""By the authentication of a user: the authentication of the listeners that fit."""


def fitting_listener(cluster: NamedCluster, spec: KRaftUserSpec) -> Listener | None:
    """The listener of a user's clients; None if the cluster has none that fits."""
    wanted = FITS[spec.authentication.type]
    fitting = [one for one in cluster.spec.listeners if authentication(cluster, one) == wanted]
    named = [one for one in fitting if spec.listener in (None, one.name)]
    return named[0] if named else None


def missing_listener(cluster: NamedCluster, spec: KRaftUserSpec) -> str:
    """The message if no listener fits."""
    wanted = FITS[spec.authentication.type]
    which = f"the listener {spec.listener}" if spec.listener is not None else "no listener"
    text = f"{which} of KRaftCluster {cluster.name} authenticates clients by {wanted}: set authentication of a listener"
    if spec.listener is not None:
        text = text.replace(" authenticates", " does not exist, or does not authenticate").replace(
            ": set", ": name one, or set"
        )
    return f"{text} in spec.listeners (it needs spec.security)"


def bootstrap(cluster: NamedCluster, listener: Listener) -> str:
    """`bootstrap.servers` on Kubernetes: an address outside if the resource names one, else the service's address."""
    host, port = bootstrap_host(cluster, listener), named_port(listener) or listener.bootstrap.node_port
    if host is not None and port is not None:
        return f"{host}:{port}"
    if listener.host is not None and listener.first_node_port is not None:
        return f"{listener.host}:{listener.first_node_port}"
    service = "bootstrap" if listener.type == "Internal" else listener.name
    return f"{cluster.name}-{service}.{cluster.namespace}.svc:{listener.port}"


def old_lasts(cluster: NamedCluster, listener: Listener) -> timedelta | None:
    """How long connections with a former password may stay open; None: until they close."""
    config = {**defaults(cluster, ("broker",)), **cluster.spec.config}
    key = f"listener.name.{listener_name(listener).lower()}.{REAUTH}"
    text = config.get(key, config.get(REAUTH, "0")).strip()
    milliseconds = int(text) if text.isdecimal() else 0
    return timedelta(milliseconds=milliseconds) if milliseconds else None


def internal_users(cluster: NamedCluster) -> frozenset[str]:
    """Users of the cluster itself, without `User:`: super users, the nodes and the operator."""
    names = cluster.spec.config.get("super.users", "").split(";")
    found = {name.strip().removeprefix("User:") for name in names if name.strip()}
    if cluster.spec.security is not None:
        found |= set(cluster.spec.security.super_users)
    return frozenset(found)
