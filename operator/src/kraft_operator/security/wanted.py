"""What `spec.security` and annotations ask of the certificates of a cluster."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import timedelta
from typing import Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.security import CertificateAuthority, Security
from kraft_operator.security.authorities import Asked, Policy
from kraft_operator.security.keeper import Needs
from kraft_operator.security.listeners import OwnCertificate
from kraft_operator.security.names import CLIENTS, CLUSTER
from kraft_operator.specs.cluster import NamedCluster

REPLACE_AUTHORITY: Final = f"{GROUP}/replace-authority"
"""Annotation, such as `cluster=2026-01`: a new word requests another authority with another key."""
FORGET_AUTHORITY: Final = f"{GROUP}/forget-authority"
"""Annotation, such as `clients=3f2a…`: the former authority with this fingerprint need not be trusted any more."""


def needs_of(
    cluster: NamedCluster,
    annotations: Mapping[str, str],
    nodes: Mapping[int, Collection[str]],
    known: Collection[tuple[str, str]],
    listeners: Mapping[str, OwnCertificate] | None = None,
    retained: Mapping[int, Collection[str]] | None = None,
) -> Needs:
    """What a cluster with TLS needs. `nodes` are the names of its nodes, `known` the authorities of the record.

    `listeners` have certificates of their own. `retained` are those whose files processes may still read, by node.
    """
    security = cluster.spec.security
    assert security is not None, "only clusters with TLS need certificates"
    requests, forgotten = (_words(annotations.get(key, "")) for key in (REPLACE_AUTHORITY, FORGET_AUTHORITY))
    both = (CLUSTER, CLIENTS)
    return Needs(
        cluster.name,
        cluster.namespace,
        nodes,
        dict(known),
        {name: Asked(request=requests.get(name, ""), forget=forgotten.get(name, "")) for name in both},
        {name: secret for name in both if (secret := _source(security, name).secret_name)},
        {name: _policy(security, name) for name in both},
        listeners or {},
        retained or {},
    )


def _source(security: Security, name: str) -> CertificateAuthority:
    return security.cluster_authority if name == CLUSTER else security.clients_authority


def _policy(security: Security, name: str) -> Policy:
    of = _source(security, name)
    overlap = timedelta(minutes=of.overlap_minutes)
    return Policy(of.validity_days, of.renew_before_days, overlap, keeps_former=name == CLIENTS)


def _words(text: str) -> dict[str, str]:
    """The words by authority. Entries for other names are ignored."""
    pairs = (word.strip().partition("=") for word in text.split(","))
    return {name: word for name, _, word in pairs if name in {CLUSTER, CLIENTS} and word}
