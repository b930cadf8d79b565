"""kopf's part: it watches, and wakes the queue. Nothing is decided here, and nothing is written: no annotations, no
finalizers, no progress of handlers.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any, Final

import kopf

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.kube.config import ACCOUNT
from kraft_operator.pipelines.kinds import KINDS
from kraft_operator.pipelines.manifests import KIND
from kraft_operator.pipelines.reconcile import key_of
from kraft_operator.reconcile import Key
from kraft_operator.specs.cluster import MANAGER
from kraft_operator.specs.network import PIPELINE_APP

INSTANCE: Final = "app.kubernetes.io/instance"
SELECTOR: Final = {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/name": "kraftcluster"}
"""Objects whose events wake the cluster that they belong to."""
OBJECTS: Final = (
    ("", "v1", "pods"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("batch", "v1", "jobs"),
)


PIPELINES: Final = {"app.kubernetes.io/managed-by": MANAGER, "app.kubernetes.io/name": PIPELINE_APP}
PIPELINE_OBJECTS: Final = (("", "v1", "pods"), ("batch", "v1", "jobs"), ("apps", "v1", "deployments"))


def registry(wake: Callable[[Key], None], wake_pipeline: Callable[[Key], None]) -> kopf.OperatorRegistry:
    """Handlers that wake."""
    made = kopf.OperatorRegistry()

    seen: dict[Key, object] = {}

    def of_cluster(namespace: str | None, name: str | None, meta: Any, type: str | None, **_: Any) -> None:  # noqa: A002
        """Status is what we write ourselves: it wakes nobody."""
        key = Key(namespace or "", name or "")
        marks = (meta.get("generation"), tuple(sorted(meta.get("annotations", {}).items())))
        if type == "DELETED":
            seen.pop(key, None)
        elif seen.get(key) == marks:
            return
        else:
            seen[key] = marks
        wake(key)

    def of_object(namespace: str | None, labels: Any, **_: Any) -> None:
        wake(Key(namespace or "", labels.get(INSTANCE, "")))

    def of_topic(namespace: str | None, name: str | None, meta: Any, spec: Any, type: str | None, **_: Any) -> None:  # noqa: A002
        """A topic wakes its cluster."""
        key = Key(namespace or "", f"topic/{name}")
        if type != "DELETED" and seen.get(key) == meta.get("generation"):
            return
        if type == "DELETED":
            seen.pop(key, None)
        else:
            seen[key] = meta.get("generation")
        if spec.get("cluster"):
            wake(Key(namespace or "", spec["cluster"]))

    def of_pipeline(namespace: str | None, name: str | None, body: Any, meta: Any, type: str | None, **_: Any) -> None:  # noqa: A002
        key = key_of(namespace or "", body["kind"], name or "")
        if type == "DELETED":
            seen.pop(key, None)
        elif seen.get(key) == meta.get("generation"):
            return
        else:
            seen[key] = meta.get("generation")
        wake_pipeline(key)

    def of_pipelines_object(namespace: str | None, labels: Any, **_: Any) -> None:
        if labels.get(KIND) in KINDS:
            wake_pipeline(key_of(namespace or "", labels[KIND], labels.get(INSTANCE, "")))

    kopf.on.event(GROUP, VERSION, "kraftclusters", registry=made)(of_cluster)
    kopf.on.event(GROUP, VERSION, "krafttopics", registry=made)(of_topic)
    for group, version, plural in OBJECTS:
        kopf.on.event(group, version, plural, labels=SELECTOR, registry=made)(of_object)
    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, registry=made)(of_pipeline)
    for group, version, plural in PIPELINE_OBJECTS:
        kopf.on.event(group, version, plural, labels=PIPELINES, registry=made)(of_pipelines_object)
    kopf.on.login(registry=made)(_login)
    return made


def _login(**arguments: Any) -> kopf.ConnectionInfo | None:
    """As `kube.config` does: kopf reads tokens and files itself, and comes back for them when it is refused."""
    if os.environ.get("KUBECONFIG") or not (ACCOUNT / "token").exists():
        return kopf.login_with_kubeconfig(**arguments)
    return kopf.login_with_service_account(**arguments)


def settings() -> kopf.OperatorSettings:
    """As little of kopf as it has."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.peering.standalone = True
    made.watching.server_timeout = 270
    made.watching.client_timeout = 300
    made.networking.connect_timeout = 10
    return made


async def watch(wake: Callable[[Key], None], wake_pipeline: Callable[[Key], None], namespaces: Sequence[str]) -> None:
    """Until cancelled. All namespaces if none is named."""
    await kopf.operator(
        registry=registry(wake, wake_pipeline),
        settings=settings(),
        standalone=True,
        clusterwide=not namespaces,
        namespaces=namespaces,
    )
