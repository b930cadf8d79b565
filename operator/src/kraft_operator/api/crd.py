"""The CustomResourceDefinitions, as plain objects."""

from __future__ import annotations

from typing import Any, Final

from pydantic import BaseModel

from kraft_operator.api.base import CLUSTER_NAME, CLUSTER_NAME_CHARS_MAX, GROUP, VERSION, Rule, rules_of
from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.pipeline_status import KafkaRunStatus, KafkaTableStatus
from kraft_operator.api.pipelines import (
    PIPELINE_NAME_CHARS_MAX,
    KafkaMetadataArchiveSpec,
    KafkaScrubSpec,
    KafkaTableSpec,
)
from kraft_operator.api.schema import structural
from kraft_operator.api.security import MODE_RULES
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.api.topic import KRaftTopicSpec, KRaftTopicStatus
from kraft_operator.api.user import KRaftUserSpec, KRaftUserStatus

CATEGORIES: Final = ["kraft", "all"]
SERVICE_NAME_CHARS_MAX: Final = 63
NODE_ID_CHARS_MAX: Final = 10


def _condition(name: str) -> str:
    return f'.status.conditions[?(@.type=="{name}")].status'


def _column(name: str, path: str, kind: str = "string", *, wide: bool = False) -> dict[str, Any]:
    return {"name": name, "type": kind, "jsonPath": path, **({"priority": 1} if wide else {})}


_REASON: Final = _column("Reason", '.status.conditions[?(@.type=="Ready")].message', wide=True)


def _crd(
    kind: str,
    plural: str,
    short: str,
    spec: type[BaseModel],
    status: type[BaseModel],
    columns: list[dict[str, Any]],
    extra: dict[str, Any],
    rules: tuple[Rule, ...],
) -> dict[str, Any]:
    root: dict[str, Any] = {
        "description": " ".join((spec.__doc__ or "").split()),
        "type": "object",
        "required": ["spec"],
        **rules_of(rules),
        "properties": {
            "apiVersion": {"type": "string"},
            "kind": {"type": "string"},
            "metadata": {"type": "object"},
            "spec": structural(spec),
            "status": structural(status),
        },
    }
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "names": {
                "kind": kind,
                "listKind": f"{kind}List",
                "plural": plural,
                "singular": kind.lower(),
                "shortNames": [short],
                "categories": CATEGORIES,
            },
            "scope": "Namespaced",
            "versions": [
                {
                    "name": VERSION,
                    "served": True,
                    "storage": True,
                    "subresources": {"status": {}, **extra},
                    "additionalPrinterColumns": columns,
                    "schema": {"openAPIV3Schema": root},
                }
            ],
        },
    }


def _name_rule(chars: int, what: str) -> Rule:
    return Rule(
        f"self.metadata.name.size() <= {chars}",
        f"names of pods begin with the {what}'s: choose one of at most {chars} characters",
    )


CLUSTER_RULES: Final = (
    _name_rule(CLUSTER_NAME_CHARS_MAX, "cluster"),
    Rule(
        f"self.metadata.name.matches('{CLUSTER_NAME}')",
        "names of services begin with the cluster's: choose one of lower-case letters, digits and hyphens that begins"
        " with a letter",
    ),
    Rule(
        "self.spec.listeners.all(l, l.type == 'Internal'"
        f" || self.metadata.name.size() + l.name.size() <= {SERVICE_NAME_CHARS_MAX - len('--') - NODE_ID_CHARS_MAX})",
        "services are named CLUSTER-ID-LISTENER for each broker, in at most 63 characters: give the listener a shorter"
        " name",
    ),
    Rule(
        "!has(self.status) || !has(self.status.clusterId) || !has(self.spec.clusterId)"
        " || self.spec.clusterId == self.status.clusterId",
        "the cluster has an id already, status.clusterId: leave spec.clusterId out, or make another KRaftCluster",
    ),
    *MODE_RULES,
)
"""Rules that need more than the specification."""


def cluster_crd() -> dict[str, Any]:
    """`kraftclusters.kraftcluster.io`."""
    columns = [
        _column("Ready", _condition("Ready")),
        _column("Leader", ".status.leader", "integer"),
        _column("Controllers", ".status.controllers"),
        _column("Brokers", ".status.brokers"),
        _column("Version", ".status.version"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Step", ".status.step.action", wide=True),
        _REASON,
    ]
    scale = {
        "specReplicasPath": ".spec.replicas",
        "statusReplicasPath": ".status.replicas",
        "labelSelectorPath": ".status.selector",
    }
    return _crd(
        "KRaftCluster",
        "kraftclusters",
        "kc",
        KRaftClusterSpec,
        KRaftClusterStatus,
        columns,
        {"scale": scale},
        CLUSTER_RULES,
    )


def topic_crd() -> dict[str, Any]:
    """`krafttopics.kraftcluster.io`."""
    columns = [
        _column("Cluster", ".spec.cluster"),
        _column("Partitions", ".status.partitions", "integer"),
        _column("Replicas", ".status.replicas", "integer"),
        _column("Ready", _condition("Ready")),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _REASON,
    ]
    return _crd("KRaftTopic", "krafttopics", "kt", KRaftTopicSpec, KRaftTopicStatus, columns, {}, ())


def user_crd() -> dict[str, Any]:
    """`kraftusers.kraftcluster.io`."""
    columns = [
        _column("Cluster", ".spec.cluster"),
        _column("Authentication", ".spec.authentication.type"),
        _column("ACLs", ".status.acls", "integer"),
        _column("Ready", _condition("Ready")),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Secret", ".status.secret", wide=True),
        _column("Expires", ".status.expires", "date", wide=True),
        _REASON,
    ]
    return _crd("KRaftUser", "kraftusers", "ku", KRaftUserSpec, KRaftUserStatus, columns, {}, ())


_RUNS: Final = [
    _column("Schedule", ".spec.schedule"),
    _column("Result", ".status.lastRun.result"),
    _column("Finished", ".status.lastRun.finished", "date"),
    _column("Ready", _condition("Ready")),
    _column("Age", ".metadata.creationTimestamp", "date"),
    _REASON,
]


def table_crd() -> dict[str, Any]:
    """`kafkatables.kraftcluster.io`."""
    columns = [
        _column("Topics", ".status.topics"),
        _column("Format", ".spec.table.format"),
        _column("Ready", _condition("Ready")),
        _column("Lag", ".status.lag", "integer"),
        _column("Dead", ".status.deadLetters", "integer"),
        _column("Age", ".metadata.creationTimestamp", "date"),
        _column("Batch", ".status.lastBatch.number", "integer", wide=True),
        _column("Path", ".spec.table.path", wide=True),
        _REASON,
    ]
    return _pipeline("KafkaTable", "ktab", KafkaTableSpec, KafkaTableStatus, columns)


def archive_crd() -> dict[str, Any]:
    """`kafkametadataarchives.kraftcluster.io`."""
    columns = [_column("Format", ".spec.table.format"), *_RUNS]
    return _pipeline("KafkaMetadataArchive", "karch", KafkaMetadataArchiveSpec, KafkaRunStatus, columns)


def scrub_crd() -> dict[str, Any]:
    """`kafkascrubs.kraftcluster.io`."""
    return _pipeline("KafkaScrub", "kscrub", KafkaScrubSpec, KafkaRunStatus, _RUNS)


def _pipeline(
    kind: str, short: str, spec: type[BaseModel], status: type[BaseModel], columns: list[dict[str, Any]]
) -> dict[str, Any]:
    rule = _name_rule(PIPELINE_NAME_CHARS_MAX, "resource")
    return _crd(kind, f"{kind.lower()}s", short, spec, status, columns, {}, (rule,))


def crds() -> tuple[dict[str, Any], ...]:
    """All definitions."""
    return cluster_crd(), topic_crd(), user_crd(), table_crd(), archive_crd(), scrub_crd()
