"""Comparison of wanted and existing objects, to avoid needless writes. Pure.

The existing object must contain the wanted one. It may also contain defaults of the API server and fields of other
owners. The digest of the last write shows whether a field was wanted before and no longer is.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.specs.cluster import digest

APPLIED: Final = f"{GROUP}/applied"

Object = dict[str, Any]


def marked(wanted: Object) -> Object:
    """Return the object with the digest of itself in an annotation."""
    metadata = wanted["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED: digest(wanted)}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def same(wanted: Object, there: Object | None) -> bool:
    """Whether `there` already contains `wanted`, which must be `marked`. False if `there` is None."""
    return there is not None and within(wanted, there)


def within(wanted: Any, there: Any) -> bool:
    """Whether `there` contains all of `wanted`. Lists must have equal lengths. Missing and empty are the same."""
    if wanted in ({}, [], None):
        return there in ({}, [], None)
    if isinstance(wanted, Mapping):
        return isinstance(there, Mapping) and all(
            key in {"apiVersion", "kind"} or within(value, there.get(key)) for key, value in wanted.items()
        )
    if isinstance(wanted, list):
        return (
            isinstance(there, list)
            and len(wanted) == len(there)
            and all(within(one, other) for one, other in zip(wanted, there, strict=True))
        )
    return bool(wanted == there)


def difference(before: Mapping[str, Any], after: Mapping[str, Any]) -> Object:
    """The merge patch (RFC 7396) that turns `before` into `after`; empty if they are equal."""
    found: Object = {key: None for key in before if key not in after}
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            inner = difference(old, value)
            if inner:
                found[key] = inner
        elif value != old or key not in before:
            found[key] = value
    return found
