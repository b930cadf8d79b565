"""kopf's handlers: they wake the queues on events, start and stop the operator, and answer probes.

They make no decisions. kopf writes nothing: no annotations, no finalizers, no progress of handlers. Its watches select
by label on the API server, follow `resourceVersion` and bookmarks, and list again after 410.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import kopf

from kraft_operator.admission import configure_webhooks, register_webhooks
from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.user import ROTATE
from kraft_operator.apply.record import name_of_users
from kraft_operator.evictions import register_evictions
from kraft_operator.kube.access import access
from kraft_operator.observe.visible import mark
from kraft_operator.pipelines.kinds import KINDS
from kraft_operator.pipelines.manifests import KIND
from kraft_operator.pipelines.reconcile import key_of
from kraft_operator.reconcile import Key
from kraft_operator.settings import Settings
from kraft_operator.specs.network import PIPELINE_APP

INSTANCE: Final = "app.kubernetes.io/instance"
NAME: Final = "app.kubernetes.io/name"
APPS: Final = frozenset({"kraftcluster", "kraftcluster-format", "kraftcluster-record"})
"""Values of the label NAME of clusters' objects: nodes, pods of format jobs, records."""
SELECTOR: Final = f"{NAME} in ({','.join(sorted({*APPS, PIPELINE_APP}))})"
"""The label selector of the watches on the kinds below."""
OBJECTS: Final = (
    ("", "v1", "pods"),
    ("", "v1", "persistentvolumeclaims"),
    ("", "v1", "services"),
    ("", "v1", "configmaps"),
    ("batch", "v1", "jobs"),
)
PIPELINE_OBJECTS: Final = (
    ("", "v1", "pods"),
    ("", "v1", "configmaps"),
    ("batch", "v1", "jobs"),
    ("batch", "v1", "cronjobs"),
    ("apps", "v1", "deployments"),
    ("networking.k8s.io", "v1", "networkpolicies"),
)
SERVER_S: Final = 270
"""A watch ends after this many seconds and then continues. The API server accepts whole seconds only."""
SILENCE_S: Final = 75.0
"""A watch without an event for this many seconds is dead, because the API server sends a bookmark every minute."""
EXIT_S: Final = 28.0
"""kopf ends the process this many seconds after it began to end. If a watch fails for good, kopf ends, and some of its
tasks can survive their cancellation; by its own default it then waits ten minutes. `Operator.stop` takes 25 s at most.
"""


TOLD_S: Final = 1.0
"""Seconds until the pass for a change that is only reported and that no step depends on."""


class Works(Protocol):
    """The interface of the operator for the handlers."""

    def wake(self, key: Key, after_s: float = 0.0, *, users: bool = True) -> None:
        """Note a change of a cluster: a pass is due in `after_s` seconds.

        `users` is False if neither a KRaftUser nor a claim of a user has changed.
        """

    def wake_pipeline(self, key: Key) -> None:
        """Note a change of a pipeline: a pass is due."""

    async def start(self) -> None:
        """Begin the operator's work in the background. kopf calls it before the first event."""
        ...

    async def stop(self) -> None:
        """Let the current steps end. kopf calls it when the process is to end."""
        ...

    def health(self) -> Mapping[str, Any]:
        """The state for the liveness probe. Raises RuntimeError if only a restart of the process can help."""


def register(made: kopf.OperatorRegistry, operator: Works, ours: Settings | None = None) -> None:
    """Register all handlers of the operator, and the handlers of the webhook if `ours` enables it."""
    _cluster_wakers(made, operator.wake)
    _pipeline_wakers(made, operator.wake_pipeline)
    webhook = ours is not None and bool(ours.webhook_port)
    if webhook:
        register_webhooks(made)
        register_evictions(made)

    async def startup(settings: kopf.OperatorSettings, **_: Any) -> None:
        configure(settings)
        if ours is not None and webhook:
            configure_webhooks(settings, ours)
        await operator.start()

    async def cleanup(**_: Any) -> None:
        await operator.stop()

    async def health(**_: Any) -> Mapping[str, Any]:
        try:
            return operator.health()
        except RuntimeError as error:
            raise kopf.PermanentError(str(error)) from error

    kopf.on.startup(registry=made)(startup)
    kopf.on.cleanup(registry=made)(cleanup)
    kopf.on.probe(registry=made, id="operator")(health)
    kopf.on.login(registry=made)(login)


# Handlers are coroutines, because kopf runs plain functions in threads, and the queues belong to the event loop.


class _Echoes:
    """Distinguishes changes from echoes of the operator's own status writes."""

    def __init__(self) -> None:
        self.seen: dict[Key, object] = {}

    def changed(self, key: Key, mark: object, type_: str | None) -> bool:
        """Whether an event is a change. `mark` has the relevant parts of the object, without its status.

        It contains the uid: a watch that begins anew does not report that an object was deleted and created again.
        """
        if type_ == "DELETED":
            self.seen.pop(key, None)
            return True
        if key in self.seen and self.seen[key] == mark:
            return False
        self.seen[key] = mark
        return True


def _cluster_wakers(made: kopf.OperatorRegistry, wake: Callable[..., None]) -> None:
    echoes, acts, reports = _Echoes(), _Echoes(), _Echoes()

    async def of_cluster(namespace: str | None, name: str | None, meta: Any, type: str | None, **_: Any) -> None:  # noqa: A002
        key = Key(namespace or "", name or "")
        annotations = tuple(sorted(meta.get("annotations", {}).items()))
        if echoes.changed(key, (meta.get("uid"), meta.get("generation"), annotations), type):
            wake(key)

    async def of_object(
        namespace: str | None,
        name: str | None,
        labels: Any,
        body: Any,
        resource: kopf.Resource,
        type: str | None,  # noqa: A002
        **_: Any,
    ) -> None:
        if not labels.get(INSTANCE):  # otherwise kopf would request the name of a list
            return
        key, seen = Key(namespace or "", f"{resource.plural}/{name}"), mark(resource.plural, body)
        at_once, at_all = acts.changed(key, hash(repr(seen.acts)), type), reports.changed(key, hash(repr(seen)), type)
        if at_once or at_all:
            cluster = labels[INSTANCE]
            is_claims = resource.plural == "configmaps" and name == name_of_users(cluster)
            wake(Key(namespace or "", cluster), 0.0 if at_once else TOLD_S, users=is_claims)

    async def of_declared(
        namespace: str | None,
        name: str | None,
        meta: Any,
        spec: Any,
        resource: kopf.Resource,
        type: str | None,  # noqa: A002
        **_: Any,
    ) -> None:
        """Wake the cluster of a topic or a user, and its former cluster."""
        key, rotation = Key(namespace or "", f"{resource.plural}/{name}"), meta.get("annotations", {}).get(ROTATE)
        before, now = echoes.seen.get(key), (meta.get("uid"), spec.get("cluster"), meta.get("generation"), rotation)
        if echoes.changed(key, now, type):
            owners = {now[1], before[1] if isinstance(before, tuple) else None}
            for cluster in sorted(filter(None, owners)):
                wake(Key(namespace or "", cluster))

    def is_clusters(value: str | None, **_: Any) -> bool:
        return value in APPS

    kopf.on.event(GROUP, VERSION, "kraftclusters", registry=made)(of_cluster)
    for plural in ("krafttopics", "kraftusers"):
        kopf.on.event(GROUP, VERSION, plural, registry=made)(of_declared)
    for group, version, plural in OBJECTS:
        kopf.on.event(group, version, plural, labels={NAME: is_clusters}, registry=made)(of_object)


def _pipeline_wakers(made: kopf.OperatorRegistry, wake: Callable[[Key], None]) -> None:
    echoes = _Echoes()

    async def of_pipeline(
        namespace: str | None,
        name: str | None,
        body: Any,
        meta: Any,
        type: str | None,  # noqa: A002
        **_: Any,
    ) -> None:
        key = key_of(namespace or "", body["kind"], name or "")
        if echoes.changed(key, (meta.get("uid"), meta.get("generation")), type):
            wake(key)

    async def of_pipelines_object(namespace: str | None, labels: Any, **_: Any) -> None:
        if labels.get(KIND) in KINDS:
            wake(key_of(namespace or "", labels[KIND], labels.get(INSTANCE, "")))

    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, registry=made)(of_pipeline)
    for group, version, plural in PIPELINE_OBJECTS:
        kopf.on.event(group, version, plural, labels={NAME: PIPELINE_APP}, registry=made)(of_pipelines_object)


async def login(**_: Any) -> kopf.ConnectionInfo:
    """The login that the `kubernetes` package loads. kopf requests another login if the API server refuses this
    login."""
    found = (await access()).configuration
    scheme, _blank, token = (await found.get_api_key_with_prefix("BearerToken") or "").partition(" ")
    return kopf.ConnectionInfo(
        server=found.host,
        ca_path=found.ssl_ca_cert,
        insecure=not found.verify_ssl,
        scheme=scheme or None,
        token=token or None,
        certificate_path=found.cert_file,
        private_key_path=found.key_file,
        proxy_url=found.proxy,
        trust_env=True,
    )


def configure(settings: kopf.OperatorSettings) -> None:
    """Turn off kopf's own features. Replicas elect a leader through a Lease, so peering is off."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.connect_timeout = 10
    settings.networking.trust_env = True
    settings.process.ultimate_exiting_timeout = EXIT_S
    settings.watching.server_timeout = SERVER_S
    settings.watching.client_timeout = SERVER_S + 30
    settings.watching.inactivity_timeout = SILENCE_S
    for group, version, plural in dict.fromkeys((*OBJECTS, *PIPELINE_OBJECTS)):
        settings.watching.label_selectors[group, version, plural] = SELECTOR
