"""kopf's part: it watches and wakes the queues, runs the operator between startup and cleanup, and serves probes.

Nothing is decided here. kopf writes nothing either: no annotations, no finalizers, no progress of handlers. Its watches
select by label on the API server, follow `resourceVersion` and bookmarks, and list anew after 410.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

import kopf

from kraft_operator.admission import configure_webhooks, register_webhooks
from kraft_operator.api.base import GROUP, VERSION
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
"""Objects of clusters, by the label NAME: nodes, the jobs' pods, records."""
SELECTOR: Final = f"{NAME} in ({','.join(sorted({*APPS, PIPELINE_APP}))})"
"""What the API server sends of the kinds below."""
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
"""A watch ends after this and begins anew where it was. The API server takes whole seconds only."""
SILENCE_S: Final = 75.0
"""The API server sends a bookmark a minute: a watch that says nothing for longer is dead."""


TOLD_S: Final = 1.0
"""Until a pass for a change that people are told of, and that no step depends on."""


class Works(Protocol):
    """What handlers wake, begin and end."""

    def wake(self, key: Key, after_s: float = 0.0) -> None:
        """Something of this cluster has changed: a pass is due in `after_s`."""

    def wake_pipeline(self, key: Key) -> None:
        """Something of this pipeline has changed."""

    async def start(self) -> None: ...

    async def stop(self) -> None: ...
    def health(self) -> Mapping[str, Any]:
        """For the probe. Raises RuntimeError if only a new process can help."""


def register(made: kopf.OperatorRegistry, operator: Works, ours: Settings | None = None) -> None:
    """All handlers of the operator; those of the webhook where `ours` ask for it."""
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


# Handlers are coroutines: kopf would run plain functions in threads, and queues belong to the loop.


class _Echoes:
    """Tells changes from echoes of a status that we wrote."""

    def __init__(self) -> None:
        self.seen: dict[Key, object] = {}

    def changed(self, key: Key, mark: object, type_: str | None) -> bool:
        """Whether an event is no echo: `mark` is what counts of the object, without its status."""
        if type_ == "DELETED":
            self.seen.pop(key, None)
            return True
        if key in self.seen and self.seen[key] == mark:
            return False
        self.seen[key] = mark
        return True


def _cluster_wakers(made: kopf.OperatorRegistry, wake: Callable[..., None]) -> None:
    echoes, acts, tells = _Echoes(), _Echoes(), _Echoes()

    async def of_cluster(namespace: str | None, name: str | None, meta: Any, type: str | None, **_: Any) -> None:  # noqa: A002
        key = Key(namespace or "", name or "")
        if echoes.changed(key, (meta.get("generation"), tuple(sorted(meta.get("annotations", {}).items()))), type):
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
        if not labels.get(INSTANCE):  # the name of a list would be asked for otherwise
            return
        key, seen = Key(namespace or "", f"{resource.plural}/{name}"), mark(resource.plural, body)
        at_once, at_all = acts.changed(key, hash(repr(seen.acts)), type), tells.changed(key, hash(repr(seen)), type)
        if at_once or at_all:
            wake(Key(namespace or "", labels[INSTANCE]), 0.0 if at_once else TOLD_S)

    async def of_topic(
        namespace: str | None,
        name: str | None,
        meta: Any,
        spec: Any,
        type: str | None,  # noqa: A002
        **_: Any,
    ) -> None:
        """A topic wakes its cluster, and the one that it belonged to."""
        key = Key(namespace or "", f"topic/{name}")
        before, now = echoes.seen.get(key), (meta.get("generation"), spec.get("cluster"))
        if echoes.changed(key, now, type):
            owners = {now[1], before[1] if isinstance(before, tuple) else None}
            for cluster in sorted(filter(None, owners)):
                wake(Key(namespace or "", cluster))

    def is_clusters(value: str | None, **_: Any) -> bool:
        return value in APPS

    kopf.on.event(GROUP, VERSION, "kraftclusters", registry=made)(of_cluster)
    kopf.on.event(GROUP, VERSION, "krafttopics", registry=made)(of_topic)
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
        if echoes.changed(key, meta.get("generation"), type):
            wake(key)

    async def of_pipelines_object(namespace: str | None, labels: Any, **_: Any) -> None:
        if labels.get(KIND) in KINDS:
            wake(key_of(namespace or "", labels[KIND], labels.get(INSTANCE, "")))

    for kind in KINDS.values():
        kopf.on.event(GROUP, VERSION, kind.plural, registry=made)(of_pipeline)
    for group, version, plural in PIPELINE_OBJECTS:
        kopf.on.event(group, version, plural, labels={NAME: PIPELINE_APP}, registry=made)(of_pipelines_object)


async def login(**_: Any) -> kopf.ConnectionInfo:
    """The login of the `kubernetes` package. kopf comes back for another one when it is refused."""
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
    """As little of kopf as it has. Replicas elect the one that works by a Lease, so peering stays off."""
    settings.posting.enabled = False
    settings.scanning.disabled = True
    settings.peering.standalone = True
    settings.networking.connect_timeout = 10
    settings.networking.trust_env = True
    settings.watching.server_timeout = SERVER_S
    settings.watching.client_timeout = SERVER_S + 30
    settings.watching.inactivity_timeout = SILENCE_S
    for group, version, plural in dict.fromkeys((*OBJECTS, *PIPELINE_OBJECTS)):
        settings.watching.label_selectors[group, version, plural] = SELECTOR
