"""Is an object as it should be? Pure: what is wanted against what is there, so that nothing is written without need.

What is wanted has to be in what is there; the API server's defaults and what others own may be there besides. What was
wanted before and is no longer is told by the digest of the last write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.specs.cluster import digest

APPLIED: Final = f"{GROUP}/applied"

Object = dict[str, Any]


def marked(wanted: Object) -> Object:
    """With the digest of itself."""
    metadata = wanted["metadata"]
    annotations = {**metadata.get("annotations", {}), APPLIED: digest(wanted)}
    return {**wanted, "metadata": {**metadata, "annotations": annotations}}


def same(wanted: Object, there: Object | None) -> bool:
    """Whether `there` needs no write to be `wanted`, which is marked."""
    return there is not None and within(wanted, there)


def within(wanted: Any, there: Any) -> bool:
    """Whether all of `wanted` is in `there`; lists have to be as long. Nothing may be missing as well as empty."""
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
    """The merge patch (RFC 7396) that makes `after` of `before`; empty when they are the same."""
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
