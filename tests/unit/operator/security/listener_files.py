"""Authorities and certificates of listeners, as tests need them."""

from __future__ import annotations

import base64
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

from kraft_operator.security.certificates import Authority, issue, new_authority

NOW = datetime.now(UTC)


def public_authority(name: str = "public") -> Authority:
    """An authority that is not the cluster's."""
    return new_authority(name, NOW - timedelta(days=40), 3650)


def certificate(
    authority: Authority,
    names: Collection[str],
    *,
    begins: datetime = NOW,
    days: int = 90,
    trusted: str | None = None,
    server: bool = True,
) -> dict[str, str]:
    """The entries of a Secret. Clients trust `trusted`, by default the authority; empty: what their system trusts."""
    leaf = issue(authority, {"CN": "kafka.example.com"}, begins, days, names=names, server=server)
    found = {"tls.crt": leaf.chain, "tls.key": leaf.key}
    text = authority.certificate if trusted is None else trusted
    return {**found, "ca.crt": text} if text else found


def secret(name: str, data: dict[str, str], *, allowed: bool = True, **metadata: Any) -> dict[str, Any]:
    """The Secret as the API server stores it."""
    labels = {"kraftcluster.io/certificate": "allowed"} if allowed else {}
    return {
        "kind": "Secret",
        "metadata": {"name": name, "namespace": "demo", "uid": name, "resourceVersion": "1", "labels": labels}
        | metadata,
        "data": {key: base64.b64encode(text.encode()).decode() for key, text in data.items()},
    }
