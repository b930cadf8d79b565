"""Evictions as planned restarts (`kubectl drain`), through the optional webhook.

The webhook marks the pod of a node and refuses its eviction with 429, so `kubectl drain` tries again. A pass then
restarts the marked node through the same gates as any change. The new pod has no mark, and Kubernetes does not place
it on a cordoned machine. Without the webhook, disruption budgets refuse the evictions that the gates would refuse, and
allow the rest.
"""

from __future__ import annotations

from typing import Any, Final

import kopf

from kraft_operator.kube.client import Api, ApiError
from kraft_operator.plan.model.situation import EVICTED
from kraft_operator.specs.pods import ASPECT

MARK: Final = ASPECT + EVICTED
"""Annotation of a pod with a pending eviction."""
NODES: Final = "kraftcluster"
"""The label `app.kubernetes.io/name` of nodes' pods."""
TOO_MANY: Final = 429


def register_evictions(made: kopf.OperatorRegistry) -> None:
    """Register the handler of `/evictions`, which every replica serves."""

    async def evict(namespace: str | None, name: str | None, dryrun: bool = False, **_: Any) -> None:
        async with Api() as api:
            refusal = await refuse_eviction(api, namespace or "", name or "", dryrun=dryrun)
        if refusal:
            raise kopf.AdmissionError(refusal, code=TOO_MANY)

    kopf.on.validate("", "v1", "pods", subresource="eviction", id="evictions", registry=made)(evict)


async def refuse_eviction(api: Api, namespace: str, name: str, *, dryrun: bool) -> str:
    """Mark the pod of a running node, and return why its eviction is refused. Returns an empty text for other pods."""
    pod = await api.get("Pod", namespace, name)
    if pod is None or not _is_running_node(pod):
        return ""
    if MARK not in pod["metadata"].get("annotations", {}) and not dryrun:
        version = pod["metadata"]["resourceVersion"]
        change = {"metadata": {"resourceVersion": version, "annotations": {MARK: "asked"}}}
        try:
            await api.patch("Pod", namespace, name, change)
        except ApiError as error:  # `kubectl drain` tries again, and then this handler does, too
            return f"pod {name} could not be annotated for a restart: {error}"
    text = f"pod {name} is a node of a Kafka cluster"
    return (
        f"{text}: the operator restarts it when no partition and no quorum is at risk (kubectl kraft status shows why)"
    )


def _is_running_node(pod: dict[str, Any]) -> bool:
    """Whether a pod is a running node. The gates need not protect pods that have ended, stop or never started."""
    metadata, status = pod["metadata"], pod.get("status", {})
    if metadata.get("labels", {}).get("app.kubernetes.io/name") != NODES or "deletionTimestamp" in metadata:
        return False
    return bool(status.get("phase") == "Running")
