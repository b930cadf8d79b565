"""Requests to the issuers of cert-manager: a `Certificate` for each listener that names an issuer. Pure.

cert-manager writes the key and the certificate into a Secret, and renews them. The operator copies them to the brokers.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.listeners import Listener
from kraft_operator.security.certificates import as_named
from kraft_operator.security.names import listener_secret
from kraft_operator.specs.cluster import INSTANCE, MANAGED_BY, NamedCluster
from kraft_operator.specs.fronts import bootstrap_host, named_host
from kraft_operator.specs.security import own_certificates

NAMED_BY: Final = "cert-manager.io/certificate-name"
"""The annotation of a Secret that names its Certificate."""
LISTENER: Final = f"{GROUP}/listener"

Object = dict[str, Any]


def secret_of(cluster: NamedCluster, listener: Listener) -> str:
    """The Secret with a listener's own certificate: the given one, or the one that cert-manager writes."""
    assert listener.certificate is not None
    return listener.certificate.secret_name or f"{cluster.name}-{listener_secret(listener.name)}"


def issued_listeners(cluster: NamedCluster) -> list[Listener]:
    """The listeners whose certificates come from issuers."""
    return [one for one in own_certificates(cluster) if one.certificate and one.certificate.issuer_ref is not None]


def certificate(cluster: NamedCluster, listener: Listener, hosts: Collection[str]) -> Object:
    """The Certificate of a listener, valid for `hosts`."""
    assert listener.certificate is not None and listener.certificate.issuer_ref is not None
    name, labels = secret_of(cluster, listener), cluster.labels()
    metadata = cluster.metadata(name)
    metadata["labels"] = {**labels, LISTENER: listener.name}
    named = sorted({as_named(host) for host in hosts})
    addresses = [host for host in named if _is_address(host)]
    dns = [host for host in named if host not in addresses]
    spec = {
        "secretName": name,
        "secretTemplate": {"labels": {key: labels[key] for key in (INSTANCE, MANAGED_BY)}},
        "issuerRef": listener.certificate.issuer_ref.model_dump(),
        **({"dnsNames": dns} if dns else {}),
        **({"ipAddresses": addresses} if addresses else {}),
        "usages": ["digital signature", "key encipherment", "server auth"],
        "privateKey": {"algorithm": "ECDSA", "size": 256, "encoding": "PKCS8", "rotationPolicy": "Always"},
    }
    return {"apiVersion": "cert-manager.io/v1", "kind": "Certificate", "metadata": metadata, "spec": spec}


def _is_address(host: str) -> bool:
    try:
        ipaddress.ip_address(host)
    except ValueError:
        return False
    return True


# Names by which clients reach a listener


def names_needed(
    cluster: NamedCluster,
    listener: Listener,
    node_id: int,
    given: Mapping[str, Collection[str]],
    machine: str = "",
) -> list[frozenset[str]]:
    """The names that a broker advertises at a listener, and those of the first connection.

    `given` are the hosts and addresses that Kubernetes has assigned by service, `machine` the address of the broker's
    machine. A certificate needs one name of each set.
    """
    if listener.type == "Internal":
        bootstrap = f"{cluster.name}-bootstrap.{cluster.namespace}.svc"
        return [frozenset({cluster.host(node_id)}), frozenset({bootstrap})]
    broker = named_host(cluster, listener, node_id)
    if broker is None and listener.type == "NodePort":
        broker = machine or None
    first = bootstrap_host(cluster, listener)
    found = [
        _names(broker, given.get(cluster.external_service(node_id, listener.name), ())),
        _names(first, given.get(f"{cluster.name}-{listener.name}", ())),
    ]
    return [one for one in found if one]


def _names(named: str | None, given: Iterable[str]) -> frozenset[str]:
    return frozenset({named} if named is not None else given)


def hosts_requested(listener: Listener, needed: Iterable[Iterable[frozenset[str]]]) -> set[str]:
    """The names to request from an issuer, for all brokers of a listener."""
    return {host for node in needed for one in node for host in one} | set(listener.bootstrap.alternative_names)
