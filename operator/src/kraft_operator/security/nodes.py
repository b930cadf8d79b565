"""Which certificate a node needs. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import datetime, timedelta
from typing import Final

from kraft_operator.security.authorities import State
from kraft_operator.security.certificates import (
    CertificateError,
    Leaf,
    as_named,
    ends_at,
    is_issued_by,
    issue,
    names_in,
)
from kraft_operator.security.names import CLIENTS_TRUST, CLUSTER_TRUST, KEYS

LEAF_DAYS: Final = 365
RENEW_DAYS: Final = 60

Files = Mapping[str, str]


def why_due(chain: str, authority: State, names: Collection[str], now: datetime) -> str:
    """Why a node needs a new certificate; empty if the present one stays. Names may only be added."""
    if not chain:
        return "it has none"
    try:
        if not is_issued_by(chain, authority.current.certificate):
            return "it is of another authority"
        missing = sorted(set(map(as_named, names)) - names_in(chain))
        if missing:
            return f"it lacks the name {missing[0]}"
        if ends_at(chain) - now < timedelta(days=RENEW_DAYS):
            # A leaf may be cut short by its authority, which is then renewed first.
            longest = min(now + timedelta(days=LEAF_DAYS), ends_at(authority.current.certificate))
            return "its time is nearly over" if longest - ends_at(chain) > timedelta(days=1) else ""
    except CertificateError:
        return "it is damaged"
    return ""


def files_of(
    before: Files | None, role: Mapping[str, str], names: Collection[str], cluster: State, clients: State, now: datetime
) -> tuple[dict[str, str], str]:
    """The files of a node as they should be, and why its certificate is new (empty if it stays)."""
    pem = (before or {}).get(KEYS, "")
    why = why_due(chain_of(pem), cluster, names, now)
    if why:
        pem = leaf_for(role, names, cluster, now).pem
    return {KEYS: pem, CLUSTER_TRUST: cluster.anchors, CLIENTS_TRUST: clients.anchors}, why


def leaf_for(role: Mapping[str, str], names: Collection[str], cluster: State, now: datetime) -> Leaf:
    """A certificate for a node."""
    return issue(cluster.current, role, now, LEAF_DAYS, names=names, server=True)


def chain_of(pem: str) -> str:
    """The certificates of a text that may begin with a key."""
    _, mark, rest = pem.partition("-----BEGIN CERTIFICATE-----")
    return mark + rest
