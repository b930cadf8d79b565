"""The security mode of a cluster: with TLS or in plaintext. The record keeps it from the first pass on. Pure.

Without `spec.security`, a new cluster has TLS. A cluster that has begun keeps the recorded mode, so neither a later
operator nor its default changes a running cluster. If the mode is unknown, nothing is done.

Plaintext is the absence of a mark, as in records of operators that did not know TLS by default. So these can still read
the record of such a cluster, and refuse the record of a cluster with TLS.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final, NamedTuple

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.listeners import BY_SNI
from kraft_operator.api.security import NODES_LISTENER, NODES_PORT, SECURITY_KEYS, Security
from kraft_operator.plan.model.record import PLAINTEXT, TLS, Record
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.security import authentication, has_tls


class ModeProblem(NamedTuple):
    """Why the operator must not act."""

    reason: str
    message: str


class Secured(NamedTuple):
    """The condition `Secured` without its times."""

    status: str
    reason: str
    message: str


_STATE: Final = "say it in spec.security.tls: Enabled, or Disabled if its nodes have no TLS"


def asked(spec: KRaftClusterSpec) -> str:
    """The mode that the specification names; empty if it names none."""
    if spec.security is None:
        return ""
    return TLS if spec.security.tls == "Enabled" else PLAINTEXT


def has_begun(record: Record) -> bool:
    """Whether the record is of a cluster whose nodes may exist."""
    return record.cluster_id is not None or bool(record.nodes)


def present(record: Record) -> str:
    """The mode of a cluster that has begun; empty if the record does not show it."""
    if record.security:
        return record.security
    # An operator that did not record the mode could turn TLS off again, and the authorities stayed.
    return "" if record.authorities else PLAINTEXT


def must_look(record: Record, spec: KRaftClusterSpec) -> bool:
    """Whether `settled` depends on what exists beside the record."""
    if not has_begun(record):
        return not asked(spec) and not record.security
    return spec.hibernated and asked(spec) not in {"", present(record)}


def settled(record: Record, spec: KRaftClusterSpec, *, remains: bool, stopped: bool) -> Record | ModeProblem:
    """The record with the mode in force, or why it cannot be known or changed.

    `remains`: formatted volumes of an earlier cluster of this name exist. `stopped`: no node has a pod. Both count only
    if `must_look`.
    """
    wanted = asked(spec)
    if not has_begun(record):
        if not wanted and not record.security and remains:
            text = "volumes of this cluster exist, and its record is lost, so it is unknown whether its nodes have TLS"
            return ModeProblem("SecurityUnknown", f"{text}: restore the record, or {_STATE}")
        return _in_mode(record, wanted or record.security or TLS)
    now = present(record)
    if not now:
        if not wanted:
            text = "the record has certificate authorities, but not whether the nodes have TLS now"
            return ModeProblem("SecurityUnknown", f"{text}: {_STATE}")
        return _in_mode(record, wanted)
    if wanted in {"", now} or (not record.security and record.authorities):
        return _in_mode(record, now)
    if not spec.hibernated:
        text = f"this cluster runs {_words(now)}, and spec.security asks for {_words(wanted)}"
        why = "nodes with TLS and nodes without it cannot connect to each other"
        return ModeProblem("SecurityModeChanged", f"{text}: {why}: set hibernated to true, and change it then")
    return _in_mode(record, wanted) if stopped else record


def _words(mode: str) -> str:
    return "with TLS" if mode == TLS else "without TLS"


def _in_mode(record: Record, mode: str) -> Record:
    mark = mode if mode == TLS or record.authorities else ""
    return record if record.security == mark else replace(record, security=mark)


def in_force(spec: KRaftClusterSpec, record: Record) -> KRaftClusterSpec:
    """The specification with the mode of the record spelled out: all else reads `security` alone."""
    return spelled_out(spec, present(record) if has_begun(record) or record.security else asked(spec) or TLS)


def spelled_out(spec: KRaftClusterSpec, mode: str) -> KRaftClusterSpec:
    """The specification of a cluster that runs in `mode`, with the mode in `security`."""
    if asked(spec) == mode or (mode != TLS and spec.security is None):
        return spec
    values = Security() if spec.security is None else spec.security
    tls = "Enabled" if mode == TLS else "Disabled"
    return spec.model_copy(update={"security": values.model_copy(update={"tls": tls})})


def open_listeners(cluster: NamedCluster) -> list[str]:
    """Listeners outside of Kubernetes that serve clients without authentication, by name."""
    return [one.name for one in cluster.external if authentication(cluster, one) == "Anonymous"]


def unaccepted(cluster: NamedCluster) -> list[str]:
    """Open listeners that `security.openListeners` does not name."""
    accepted = cluster.spec.security.open_listeners if cluster.spec.security is not None else ()
    return [name for name in open_listeners(cluster) if name not in accepted]


def mode_problems(cluster: NamedCluster, given: KRaftClusterSpec) -> list[str]:
    """Errors of a specification `given` without `security`, which the API server cannot find: it has no mode there.

    `cluster` has the specification in force.
    """
    if given.security is not None:
        return []
    if not cluster.secure:
        wrong = [one.name for one in given.listeners if one.authentication is not None or one.tls or one.certificate]
        text = "spec.listeners[{}]: this cluster began without TLS, so it has no tls, certificate or authentication"
        sni = [one.name for one in given.listeners if one.type in BY_SNI]
        more = "spec.listeners[{}]: an Ingress or Route needs TLS, and this cluster began without it"
        return [*(text.format(name) for name in wrong), *(more.format(name) for name in sni)]
    found = [
        f"spec.listeners[{one.name}]: port {NODES_PORT} and the name {NODES_LISTENER} are of the nodes' own listener:"
        " choose others"
        for one in given.listeners
        if one.port == NODES_PORT or one.name == NODES_LISTENER
    ]
    if given.metrics.port == NODES_PORT:
        found.append(f"spec.metrics.port: port {NODES_PORT} is of the nodes' own listener: choose another")
    found += [
        f"spec.listeners[{name}]: without authentication it is open to everybody who reaches it: set authentication to"
        " MutualTls or ScramSha512, or name it in security.openListeners"
        for name in unaccepted(cluster)
    ]
    keys = sorted({*given.config, *(key for pool in given.node_pools for key in pool.config)} & {*SECURITY_KEYS})
    found += [f"spec.config: {key} follows from spec.security: use that" for key in keys]
    return found


def secured(cluster: NamedCluster) -> Secured:
    """The condition `Secured`: whether all connections are encrypted, and all clients are authenticated."""
    everybody = ", ".join(unaccepted(cluster))
    if everybody:
        text = f"everybody who reaches listener {everybody} gets in: set its authentication, or accept it by name in"
        return Secured("False", "OpenListener", f"{text} security.openListeners")
    if not cluster.secure:
        return Secured("False", "Plaintext", "connections have no TLS")
    clear = [one.name for one in cluster.spec.listeners if not has_tls(cluster, one)]
    if clear:
        return Secured("False", "ListenerWithoutTls", f"listener {', '.join(clear)} has no TLS")
    anonymous = [one.name for one in cluster.spec.listeners if authentication(cluster, one) == "Anonymous"]
    if anonymous:
        text = f"listener {', '.join(anonymous)} serves clients without authentication"
        return Secured("False", "AnonymousClients", text)
    return Secured("True", "TlsAndAuthentication", "all connections have TLS, and all clients authenticate")
