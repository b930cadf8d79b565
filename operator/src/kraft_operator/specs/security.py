"""What `spec.security` means for a node: the protocol of each listener, its keys and files, and who is a super user.

The listeners of nodes and of controllers trust only the cluster's authority. Listeners for clients trust only the
clients' authority. So no client can connect as a node. A KRaftUser with `controllers` has a second certificate, of the
cluster's authority.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.listeners import Listener
from kraft_operator.security.names import (
    CLIENTS_TRUST,
    CLUSTER_TRUST,
    KEYS,
    NODE,
    OPERATOR,
    listener_file,
    node_name,
    principal,
    user_subject,
)
from kraft_operator.specs.cluster import NamedCluster, listener_name
from kraft_operator.specs.fronts import certified_names

FOLDER: Final = "/etc/kraft-tls"
VOLUME: Final = "tls"
READABLE: Final = 0o444
"""The mode of the files: only the pod's own processes see them."""
CERTIFICATES: Final = f"{GROUP}/certificates"
"""Annotation of a pod: the listeners with certificates of their own that its node knows. Their files must stay."""
LATER: Final = ("tls", "authentication", "annotations", "source_ranges", "load_balancer_class")
"""Fields of listeners that operators without TLS did not have."""
COMMON_NAME: Final = "RULE:^CN=([^,]+)(,.*)?$/$1/"
"""The user of a client's certificate is its common name. No user has the name of a node: that is a whole subject."""
CONTROLLERS: Final = "listener.name.controller."
"""Prefix of the keys of the controllers' listener."""
AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
SCRAM: Final = ("SCRAM-SHA-512", "SCRAM-SHA-256")
"""The mechanisms of passwords. SHA-256 is for clients that do not support SHA-512."""
REAUTH: Final = "connections.max.reauth.ms"
REAUTH_MS: Final = "3600000"
"""Clients with passwords authenticate again within an hour."""
SCRAM_ENTRY: Final = "org.apache.kafka.common.security.scram.ScramLoginModule required;"


def has_tls(cluster: NamedCluster, listener: Listener) -> bool:
    """Whether a listener encrypts."""
    return cluster.secure if listener.tls is None else listener.tls


def authentication(cluster: NamedCluster, listener: Listener) -> str:
    """How clients of a listener authenticate."""
    return listener.authentication or ("MutualTls" if has_tls(cluster, listener) else "Anonymous")


def protocol(cluster: NamedCluster, listener: Listener) -> str:
    """Kafka's security protocol of a listener."""
    by_password = authentication(cluster, listener) == "ScramSha512"
    if has_tls(cluster, listener):
        return "SASL_SSL" if by_password else "SSL"
    return "SASL_PLAINTEXT" if by_password else "PLAINTEXT"


def protocol_map(cluster: NamedCluster, listeners: Iterable[Listener], controllers: str) -> str:
    """`listener.security.protocol.map` of these listeners of brokers, with the controllers' listener last."""
    found = [f"{listener_name(one)}:{protocol(cluster, one)}" for one in listeners]
    return ",".join([*found, f"{controllers}:{'SSL' if cluster.secure else 'PLAINTEXT'}"])


def has_own_certificate(cluster: NamedCluster, listener: Listener) -> bool:
    """Whether a listener presents a certificate that does not come from the cluster's authority."""
    return cluster.secure and has_tls(cluster, listener) and listener.certificate is not None


def own_certificates(cluster: NamedCluster) -> list[Listener]:
    """The listeners with a certificate of their own."""
    return [one for one in cluster.spec.listeners if has_own_certificate(cluster, one)]


def properties(cluster: NamedCluster, folder: str, roles: Collection[str]) -> dict[str, str]:
    """The keys of TLS, authentication and permissions; `folder` has the node's files. Empty without TLS."""
    security = cluster.spec.security
    if security is None or not cluster.secure:
        return {}
    found = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": f"{folder}/{KEYS}",
        "ssl.truststore.type": "PEM",
        "ssl.truststore.location": f"{folder}/{CLUSTER_TRUST}",
        "ssl.client.auth": "required",
        # An address outside may go, and the certificate with it; the subject never changes.
        "ssl.allow.san.changes": "true",
    }
    if "controller" in roles:
        found[f"{CONTROLLERS}ssl.principal.mapping.rules"] = _rules_of_controllers(cluster)
    for listener in cluster.spec.listeners if "broker" in roles else ():
        found |= _of_listener(cluster, listener, folder)
        if has_own_certificate(cluster, listener):
            prefix = _prefix(listener)
            found[f"{prefix}ssl.keystore.location"] = f"{folder}/{listener_file(listener.name)}"
            found[f"{prefix}ssl.allow.dn.changes"] = "true"  # another authority may write another subject
    if security.authorization == "Acls":
        own = [principal(role, cluster.name, cluster.namespace) for role in (NODE, OPERATOR)]
        users = [f"User:{name}" for name in security.super_users]
        found |= {"authorizer.class.name": AUTHORIZER, "super.users": ";".join([*own, *users])}
    return found


def defaults(cluster: NamedCluster, roles: Collection[str]) -> dict[str, str]:
    """Keys that hold unless `config` has them: a former password ends in a known time, also on open connections."""
    by_password = any(authentication(cluster, one) == "ScramSha512" for one in cluster.spec.listeners)
    return {REAUTH: REAUTH_MS} if by_password and "broker" in roles else {}


def _rules_of_controllers(cluster: NamedCluster) -> str:
    """A user at the controllers has the same name as at listeners for clients. Nodes and the operator stay subjects."""
    subject = user_subject("([^,]+)", cluster.name, cluster.namespace)
    pattern = ",".join(f"{key}={value}" for key, value in subject.items()).replace(".", "[.]")
    return f"RULE:^{pattern}$/$1/,DEFAULT"


def _prefix(listener: Listener) -> str:
    return f"listener.name.{listener_name(listener).lower()}."


def _of_listener(cluster: NamedCluster, listener: Listener, folder: str) -> dict[str, str]:
    prefix = _prefix(listener)
    by = authentication(cluster, listener)
    found = {}
    if has_tls(cluster, listener):
        found[f"{prefix}ssl.client.auth"] = "required" if by == "MutualTls" else "none"
        found[f"{prefix}ssl.truststore.location"] = f"{folder}/{CLIENTS_TRUST}"
    if by == "MutualTls":
        found[f"{prefix}ssl.principal.mapping.rules"] = COMMON_NAME
    elif by == "ScramSha512":
        found[f"{prefix}sasl.enabled.mechanisms"] = ",".join(SCRAM)
        found |= {f"{prefix}{mechanism.lower()}.sasl.jaas.config": SCRAM_ENTRY for mechanism in SCRAM}
    return found


# Parts of pods


def volumes(cluster: NamedCluster, node_id: int) -> list[dict[str, Any]]:
    """The volume with the files of a node. The kubelet replaces them while the pod runs."""
    if not cluster.secure:
        return []
    secret = {"secretName": f"{cluster.name}-{node_name(node_id)}", "defaultMode": READABLE}
    return [{"name": VOLUME, "secret": secret}]


def pod_annotations(cluster: NamedCluster, roles: Collection[str]) -> dict[str, str]:
    """Annotations of a node's pod."""
    own = [one.name for one in own_certificates(cluster)] if "broker" in roles else []
    return {CERTIFICATES: ",".join(own)} if own else {}


def mounts(cluster: NamedCluster) -> list[dict[str, Any]]:
    """The mount of this volume."""
    return [{"name": VOLUME, "mountPath": FOLDER, "readOnly": True}] if cluster.secure else []


# Names of certificates


def names(cluster: NamedCluster, node_id: int, is_broker: bool, outside: Iterable[str] = ()) -> set[str]:
    """The hosts and addresses that a node's certificate is valid for. `outside`: those given by Kubernetes."""
    found = set(_in_kubernetes(cluster, f"{cluster.node(node_id)}.{cluster.nodes_service}"))
    found.add(cluster.node(node_id))
    if is_broker:
        services = [f"{cluster.name}-bootstrap", *(f"{cluster.name}-{one.name}" for one in cluster.external)]
        for service in services:
            found.update(_in_kubernetes(cluster, service))
        found.update(certified_names(cluster, node_id))
        found.update(host for host in outside if host and "$" not in host)
    return found


def _in_kubernetes(cluster: NamedCluster, host: str) -> list[str]:
    space = f"{host}.{cluster.namespace}"
    return [host, space, f"{space}.svc", f"{space}.svc.cluster.local"]
