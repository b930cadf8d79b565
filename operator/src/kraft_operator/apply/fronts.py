"""Ingresses and Routes of a cluster: which kinds have to be listed, and what their refusal means."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from typing import Any, Final

from kraft_operator.api.listeners import BY_SNI
from kraft_operator.kube.client import Api, ApiError
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.fronts import FRONT

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404

Object = dict[str, Any]


class FrontRefusedError(ApiError):
    """Kubernetes does not know Routes, or the operator has no right to them or to Ingresses."""

    lasting = True

    def __init__(self, kind: str, error: ApiError) -> None:
        if error.status == NOT_FOUND:
            text = f"this Kubernetes does not know the kind {kind}"
            text += ": Routes are of OpenShift; choose type Ingress or LoadBalancer for the listener"
        else:
            text = f"the operator has no right to the kind {kind}: update its Role ({error})"
        super().__init__(error.status, error.reason, text)


def kinds_of(cluster: NamedCluster, services: Iterable[Mapping[str, Any]]) -> list[str]:
    """Kinds of objects that are wanted before services, or that there may be: an existing service names its front."""
    named = {one["metadata"].get("annotations", {}).get(FRONT, "") for one in services}
    return sorted(({one.type for one in cluster.external} | named) & BY_SNI)


async def listed(
    api: Api, kinds: Iterable[str], namespace: str, selector: str
) -> tuple[dict[tuple[str, str], Object], dict[str, FrontRefusedError]]:
    """The objects of these kinds by kind and name, and the refusal of each kind that cannot be listed.

    Raises ApiError for failures that may pass.
    """
    there: dict[tuple[str, str], Object] = {}
    refused: dict[str, FrontRefusedError] = {}

    async def one(kind: str) -> None:
        try:
            there.update(
                {(kind, found["metadata"]["name"]): found for found in await api.list(kind, namespace, selector)}
            )
        except ApiError as error:
            if error.status not in {FORBIDDEN, NOT_FOUND}:
                raise
            refused[kind] = FrontRefusedError(kind, error)

    await asyncio.gather(*(one(kind) for kind in kinds))
    return there, refused
