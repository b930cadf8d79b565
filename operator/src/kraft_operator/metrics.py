"""The operator's metrics. The dashboards and alerts of its chart use these names, and a test compares them.

The reconciler calls it after every pass. prometheus_client's server prints the registry. The series of a deleted
cluster are removed (`forget`), so the number of series is bounded by the existing clusters.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from kraft_operator.plan.conditions import ConditionState
from kraft_operator.plan.model.steps import Plan

CLUSTER: Final = ("namespace", "cluster")
PIPELINE: Final = ("namespace", "kind", "name")
VALUES: Final = {"True": 1.0, "False": 0.0, "Unknown": -1.0}
"""Values of the metrics for a condition's status."""
BUCKETS: Final = (0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30)
"""Seconds of a pass. A quiet pass takes tens of milliseconds; with a slow API server, it takes seconds."""


class Metrics:
    """All of the operator's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        self.leader = Gauge("kraft_operator_leader", "1 if this replica holds the Lease", registry=self.registry)
        self.clusters = Gauge("kraft_operator_clusters", "clusters that this operator watches", registry=self.registry)
        self.queued = Gauge("kraft_operator_queue_length", "clusters that wait for a pass", registry=self.registry)
        self.reconciles = Counter(
            "kraft_operator_reconciles_total", "passes, by result", [*CLUSTER, "result"], registry=self.registry
        )
        self.duration_s = Histogram(
            "kraft_operator_reconcile_duration_seconds", "seconds of a pass", buckets=BUCKETS, registry=self.registry
        )
        self.last_success = Gauge(
            "kraft_operator_last_success_timestamp_seconds",
            "when a pass last ended without an error, in seconds since 1970",
            CLUSTER,
            registry=self.registry,
        )
        self.condition = Gauge(
            "kraft_operator_condition",
            "a condition: 1 true, 0 false, -1 unknown",
            [*CLUSTER, "type"],
            registry=self.registry,
        )
        self.blocked = Gauge(
            "kraft_operator_blocked", "changes that are blocked", [*CLUSTER, "reason"], registry=self.registry
        )
        self.waiting = Gauge("kraft_operator_waits", "things that a pass waits for", CLUSTER, registry=self.registry)
        self.steps = Counter("kraft_operator_steps_total", "steps taken", [*CLUSTER, "step"], registry=self.registry)
        self.writes = Counter(
            "kraft_operator_writes_total", "writes to the API server", ["verb", "kind"], registry=self.registry
        )
        self.requests = Counter(
            "kraft_operator_requests_total", "requests to the API server", ["verb", "kind"], registry=self.registry
        )
        self.api_errors = Counter(
            "kraft_operator_api_errors_total",
            "refusals of the API server, by HTTP status",
            ["code"],
            registry=self.registry,
        )
        self._add_pipelines()
        self._add_times()
        self._reasons: dict[tuple[str, str], dict[str, float]] = {}
        """By cluster and reason: since when a gate is closed, in seconds since the epoch."""
        self._waits: dict[tuple[str, str], tuple[tuple[str, ...], float]] = {}

    def _add_pipelines(self) -> None:
        self.pipeline_condition = Gauge(
            "kraft_operator_pipeline_condition",
            "a condition: 1 true, 0 false",
            [*PIPELINE, "type"],
            registry=self.registry,
        )
        self.pipeline_lag = Gauge(
            "kraft_operator_pipeline_lag_records",
            "records that are not in the table yet",
            PIPELINE,
            registry=self.registry,
        )
        self.pipeline_dead = Gauge(
            "kraft_operator_pipeline_dead_letters",
            "records that could not become rows",
            PIPELINE,
            registry=self.registry,
        )

    def _add_times(self) -> None:
        self.blocked_since = Gauge(
            "kraft_operator_blocked_since_timestamp_seconds",
            "when a gate was closed, in seconds since 1970, as far as this process knows",
            [*CLUSTER, "reason"],
            registry=self.registry,
        )
        self.waiting_since = Gauge(
            "kraft_operator_waits_since_timestamp_seconds",
            "since when passes wait for the same reason, in seconds since 1970; 0 if they do not wait",
            CLUSTER,
            registry=self.registry,
        )

    def passed(
        self, namespace: str, cluster: str, plan: Plan, current: list[ConditionState], *, took_s: float, now_s: float
    ) -> None:
        """Count a pass without an error. `took_s` is its duration, `now_s` the time in seconds since the epoch."""
        result = "blocked" if plan.blocked else "changed" if plan.steps else "waiting" if plan.waits else "unchanged"
        self.reconciles.labels(namespace, cluster, result).inc()
        self.duration_s.observe(took_s)
        self.last_success.labels(namespace, cluster).set(now_s)
        self.waiting.labels(namespace, cluster).set(len(plan.waits))
        for one in current:
            self.condition.labels(namespace, cluster, one.type).set(VALUES[one.status])
        self._note_gates((namespace, cluster), plan, now_s)
        for step in plan.steps:
            self.steps.labels(namespace, cluster, type(step).__name__).inc()

    def _note_gates(self, key: tuple[str, str], plan: Plan, now_s: float) -> None:
        """Note since when each gate is closed, and since when the plan waits for the same thing."""
        before = self._reasons.get(key, {})
        now = {one.reason: before.get(one.reason, now_s) for one in plan.blocked}
        for gone in before.keys() - now.keys():
            self.blocked.remove(*key, gone)
            self.blocked_since.remove(*key, gone)
        for reason, since in now.items():
            self.blocked.labels(*key, reason).set(1)
            self.blocked_since.labels(*key, reason).set(since)
        self._reasons[key] = now
        waits, since = self._waits.get(key, ((), now_s))
        if waits != tuple(plan.waits):
            since = now_s
        self._waits[key] = (tuple(plan.waits), since)
        self.waiting_since.labels(*key).set(since if plan.waits else 0)

    def failed(self, namespace: str, cluster: str, *, took_s: float) -> None:
        """Count a pass that ended with an error."""
        self.reconciles.labels(namespace, cluster, "error").inc()
        self.duration_s.observe(took_s)

    def forget(self, namespace: str, cluster: str) -> None:
        """Remove the series of a deleted cluster."""
        gates = (self.blocked, self.blocked_since, self.waiting, self.waiting_since)
        for metric in (self.reconciles, self.last_success, self.condition, self.steps, *gates):
            metric.remove_by_labels({"namespace": namespace, "cluster": cluster})
        self._reasons.pop((namespace, cluster), None)
        self._waits.pop((namespace, cluster), None)

    def pipeline(self, namespace: str, kind: str, name: str, status: Mapping[str, Any]) -> None:
        """Set the metrics of a pipeline from the status that a pass wrote."""
        for one in status["conditions"]:
            self.pipeline_condition.labels(namespace, kind, name, one["type"]).set(VALUES[one["status"]])
        for metric, key in ((self.pipeline_lag, "lag"), (self.pipeline_dead, "deadLetters")):
            if key in status:
                metric.labels(namespace, kind, name).set(status[key])

    def forget_pipeline(self, namespace: str, kind: str, name: str) -> None:
        """Remove the series of a deleted pipeline."""
        for metric in (self.pipeline_condition, self.pipeline_lag, self.pipeline_dead):
            metric.remove_by_labels({"namespace": namespace, "kind": kind, "name": name})
