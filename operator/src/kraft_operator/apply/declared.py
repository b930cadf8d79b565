"""The resources of a namespace that declare parts of one cluster: which are desired, malformed, or just exist.

KRaftTopics and KRaftUsers share this reading, because it decides deletions: a topic or user whose resource neither
exists nor is malformed may be deleted. `apply.topics` and `apply.users` interpret the specifications.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from typing import Any, Final, Generic, NamedTuple, TypeVar

from pydantic import BaseModel, ValidationError

from kraft_operator.api.problems import VERSIONS, problems, pruned

Spec = TypeVar("Spec", bound=BaseModel)
Identity = tuple[str, str]
"""Name and uid of a resource."""
MESSAGE_CHARS_MAX: Final = 4000


class Declarations(NamedTuple, Generic[Spec]):
    """All resources of one kind in a namespace, as far as they concern one cluster."""

    desired: list[tuple[Mapping[str, Any], Spec]]
    """Valid resources of the cluster, with their specifications."""
    malformed: list[tuple[Mapping[str, Any], str]]
    """Malformed resources, with what is wrong. Their parts of the cluster must be kept."""
    there: frozenset[Identity]
    """Every existing resource, valid or not, of any cluster. Their parts of the cluster must be kept."""


def declarations(
    resources: Iterable[Mapping[str, Any]], model: type[Spec], cluster: str, claimants: Collection[Identity]
) -> Declarations[Spec]:
    """Read the resources of a namespace for one cluster.

    `resources` must be all of their kind in the namespace. `claimants` are the resources for which the operator has
    made something in the cluster: if one of them no longer names the cluster legibly, it is malformed, not absent.
    """
    desired, malformed, there = [], [], set()
    for one in resources:
        metadata, spec = one["metadata"], one.get("spec") or {}
        identity = (metadata["name"], metadata.get("uid", ""))
        there.add(identity)
        if "deletionTimestamp" in metadata:
            continue
        named = spec.get("cluster")
        if named != cluster and identity not in claimants and isinstance(named, str):
            continue
        wrong = pruned(model, spec)
        try:
            # Ignore unknown fields: they may belong to a later version of the definitions.
            parsed = model.model_validate(spec, extra="ignore")
        except ValidationError as error:
            wrong = [*problems(error), *wrong]
        if wrong:
            malformed.append((one, "; ".join(wrong) + VERSIONS))
        elif named == cluster:
            desired.append((one, parsed))
    return Declarations(desired, malformed, frozenset(there))


def ready_status(ready: bool, reason: str, message: str, resource: Mapping[str, Any], now: str) -> dict[str, Any]:
    """`observedGeneration` and `conditions` of a resource's status. `now` is the time if the condition changes now."""
    generation = resource["metadata"].get("generation", 0)
    value = "True" if ready else "False"
    before: Mapping[str, Any] = next(iter(resource.get("status", {}).get("conditions", ())), {})
    condition = {
        "type": "Ready",
        "status": value,
        "reason": reason,
        "message": message[:MESSAGE_CHARS_MAX],
        "lastTransitionTime": before.get("lastTransitionTime", now) if before.get("status") == value else now,
        "observedGeneration": generation,
    }
    return {"observedGeneration": generation, "conditions": [condition]}
