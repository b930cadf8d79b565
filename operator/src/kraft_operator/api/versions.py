"""Versions of the resources: v1alpha1, which the operator reads and writes, and v1beta1, which can be served beside it.

KRaftCluster differs by two names: `rebalance` is `balance`, and `drain` is `moves`: its limits hold for every move.
All other kinds are the same in both. A conversion loses nothing in either direction; keys that it does not know stay.

The API server converts through the webhook of the operator (`answer`). Definitions with both versions are applied by
`kubectl kraft versions serve`; the definitions in `deploy/crds` have v1alpha1 only and need no webhook.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.crd import crds

BETA: Final = "v1beta1"
VERSIONS: Final = (VERSION, BETA)
PATH: Final = "convert"
"""The path of the webhook."""
RENAMED: Final = {"KRaftCluster": {"rebalance": "balance", "drain": "moves"}}
"""Keys of `spec` in v1alpha1 -> in v1beta1, by kind."""

Object = dict[str, Any]


class ConversionError(ValueError):
    """A part that cannot be converted, and the reason."""


def converted(resource: Mapping[str, Any], version: str) -> Object:
    """The same resource in another version (`v1beta1`). Raises ConversionError."""
    group, _, present = str(resource.get("apiVersion", "")).partition("/")
    if group != GROUP or present not in VERSIONS or version not in VERSIONS:
        known = ", ".join(VERSIONS)
        text = (
            f"{resource.get('kind')} of {resource.get('apiVersion')!r} cannot become {version!r}: {GROUP} has {known}"
        )
        raise ConversionError(text)
    names = RENAMED.get(str(resource.get("kind")), {})
    if version == present:
        names = {}
    elif version == VERSION:
        names = {new: old for old, new in names.items()}
    found = dict(copy.deepcopy(dict(resource)))
    found["apiVersion"] = f"{GROUP}/{version}"
    if isinstance(found.get("spec"), dict):
        found["spec"] = {names.get(key, key): value for key, value in found["spec"].items()}
    return found


def answer(review: Mapping[str, Any]) -> Object:
    """The answer to a ConversionReview of the API server: all objects, or the reason why one cannot be converted."""
    request = review.get("request") or {}
    group, _, version = str(request.get("desiredAPIVersion", "")).partition("/")
    response: Object = {"uid": request.get("uid", "")}
    try:
        if group != GROUP:
            raise ConversionError(f"{request.get('desiredAPIVersion')!r} is not a version of {GROUP}")
        response["convertedObjects"] = [converted(one, version) for one in request.get("objects", ())]
        response["result"] = {"status": "Success"}
    except ConversionError as error:
        response["convertedObjects"] = []
        response["result"] = {"status": "Failed", "message": str(error)}
    return {"apiVersion": review.get("apiVersion"), "kind": "ConversionReview", "response": response}


def with_beta(crd: Mapping[str, Any], storage: str, client: Mapping[str, Any]) -> Object:
    """A definition that serves both versions and stores `storage`. `client` is how the API server finds the webhook."""
    found = copy.deepcopy(dict(crd))
    spec = found["spec"]
    (old,) = spec["versions"]
    new = copy.deepcopy(old)
    new["name"] = BETA
    names = RENAMED.get(spec["names"]["kind"], {})
    schema = new["schema"]["openAPIV3Schema"]["properties"]["spec"]
    schema["properties"] = {names.get(key, key): value for key, value in schema["properties"].items()}
    old["storage"], new["storage"] = storage == VERSION, storage == BETA
    spec["versions"] = [new, old]
    if names:
        webhook = {"conversionReviewVersions": ["v1"], "clientConfig": dict(client)}
        spec["conversion"] = {"strategy": "Webhook", "webhook": webhook}
    return found


def definitions(storage: str, client: Mapping[str, Any] | None) -> list[Object]:
    """All definitions: with both versions, or without a webhook with v1alpha1 only."""
    if client is None:
        return [copy.deepcopy(crd) for crd in crds()]
    return [with_beta(crd, storage, client) for crd in crds()]
