"""The optional admission webhook, served by kopf: checks of resources that CEL cannot express.

A pass makes the same checks. Without the webhook, the same messages are in the status. All replicas serve the webhook.
Its failure must not keep an administrator from changing the resource, so the chart sets `failurePolicy: Ignore`.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any

import kopf
from pydantic import ValidationError

from kraft_operator.api.base import GROUP, VERSION
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.problems import problems
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.api.topic import KRaftTopicSpec
from kraft_operator.api.versions import answer
from kraft_operator.plan.model.levels import NAMES, level_of
from kraft_operator.settings import Settings
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.config_check import cluster_config_problems, topic_config_problems
from kraft_operator.specs.fronts import listener_problems
from kraft_operator.specs.mode import ModeProblem, has_begun, in_force, mode_problems, present, settled
from kraft_operator.specs.remembered import record_of
from kraft_operator.specs.windows import window_problems

INVALID = 422
NOTHING: Mapping[str, Any] = {}


class Server(kopf.WebhookServer):
    """kopf's server, which also converts resources between their versions (`/convert`)."""

    async def __call__(self, fn: Any) -> AsyncIterator[Any]:
        """Serve until cancelled. `fn` answers all requests except conversions."""

        async def serve(
            request: Any,
            *,
            webhook: str | None = None,
            headers: dict[str, str] | None = None,
            sslpeer: dict[str, Any] | None = None,
        ) -> Any:
            if isinstance(request, dict) and request.get("kind") == "ConversionReview":
                return answer(request)
            return await fn(request, webhook=webhook, headers=headers, sslpeer=sslpeer)

        async for config in super().__call__(serve):
            yield config


def register_webhooks(made: kopf.OperatorRegistry) -> None:
    """Register the handlers of `/kraftclusters` and `/krafttopics`."""
    for plural, check in (("kraftclusters", refusals_of_cluster), ("krafttopics", refusals_of_topic)):
        kopf.on.validate(GROUP, VERSION, plural, id=plural, registry=made)(_handler(check))


def configure_webhooks(settings: kopf.OperatorSettings, ours: Settings) -> None:
    """Serve with the certificate in the folder `webhook_certs`. The chart configures the API server."""
    certs = Path(ours.webhook_certs)
    settings.admission.server = Server(
        addr=ours.host, port=ours.webhook_port, certfile=certs / "tls.crt", pkeyfile=certs / "tls.key"
    )


def _handler(check: Any) -> Any:
    def admit(
        spec: Mapping[str, Any], status: Mapping[str, Any] | None = None, operation: str | None = None, **_: Any
    ) -> None:
        lines = check(dict(spec), dict(status or {})) if operation != "DELETE" else []
        if lines:
            raise kopf.AdmissionError("; ".join(lines), code=INVALID)

    return admit


def refusals_of_cluster(spec: Mapping[str, Any], status: Mapping[str, Any] = NOTHING) -> list[str]:
    """The reasons to refuse a KRaftCluster, one message each; empty if it is valid."""
    try:
        parsed = KRaftClusterSpec.model_validate(spec, extra="ignore")
    except ValidationError as error:
        return problems(error)
    lines = [*cluster_config_problems(parsed), *listener_problems(parsed), *window_problems(parsed)]
    level = parsed.metadata_version
    if level is not None and level_of(level) is None:
        lines.append(
            f"spec.metadataVersion: {level} is unknown to this operator, which knows {NAMES[0]} to {NAMES[-1]}"
        )
    return [*lines, *_refusals_by_mode(parsed, status)]


def _refusals_by_mode(given: KRaftClusterSpec, status: Mapping[str, Any]) -> list[str]:
    """Errors that depend on the mode of a cluster that has begun, as its status shows.

    A new resource has no status, but a record that outlived an earlier resource may have a mode. Passes check that.
    """
    try:
        record = record_of(KRaftClusterStatus.model_validate(status, extra="ignore"))
    except ValidationError:
        return []
    if not has_begun(record) or not present(record):
        return []
    found = settled(record, given, remains=False, stopped=given.hibernated)
    if isinstance(found, ModeProblem):
        return [f"spec.security: {found.message}"]
    return mode_problems(NamedCluster("", "", "", in_force(given, found)), given)


def refusals_of_topic(spec: Mapping[str, Any], _status: Mapping[str, Any] = NOTHING) -> list[str]:
    """The reasons to refuse a KRaftTopic, one message each; empty if it is valid."""
    try:
        parsed = KRaftTopicSpec.model_validate(spec, extra="ignore")
    except ValidationError as error:
        return problems(error)
    return topic_config_problems(parsed.config)
