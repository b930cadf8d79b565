"""The quota that applies to a client, and the clients that share it: Kafka's ClientQuotaManager (KIP-13, KIP-55).

The controller (controller_mutation_rate) and brokers (bytes and requests) call it for a client without a cached quota.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from kraft_node.metadata.sections import SectionView

Entity: TypeAlias = tuple[tuple[str, str | None], ...]
"""The clients of a stored quota: (type, name or None for the default) pairs, sorted by type."""
Share: TypeAlias = tuple[str, str]
"""User and client id of the clients that share a quota; "" means any."""


def quota_of(
    quotas: SectionView[Entity, Mapping[str, float]], key: str, user: str, client: str
) -> tuple[Share, float] | None:
    """The share and value of the client's quota `key`. The most specific quota counts; None without a quota."""
    candidates: list[tuple[Entity, Share]] = []
    if client:
        candidates += [(_entity(user, client), (user, client)), (_entity(user, None), (user, client))]
    candidates.append(((("user", user),), (user, "")))
    if client:
        candidates += [(_entity(None, client), (user, client)), (_entity(None, None), (user, client))]
    candidates.append(((("user", None),), (user, "")))
    if client:
        candidates += [((("client-id", client),), ("", client)), ((("client-id", None),), ("", client))]
    for entity, share in candidates:
        value = (quotas.get(entity) or {}).get(key)
        if value is not None:
            return share, value
    return None


def _entity(user: str | None, client: str | None) -> Entity:
    return (("client-id", client), ("user", user))
