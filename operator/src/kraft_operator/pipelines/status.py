"""The status of a pipeline, computed from the observations of a pass. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from kraft_operator.api.pipelines import KafkaTableSpec
from kraft_operator.observe.objects import MESSAGE_CHARS_MAX, condition_of, why_not
from kraft_operator.pipelines.manifests import Pipeline

Object = Mapping[str, Any]
TOPICS_CHARS_MAX: Final = 60
"""The most characters of the topics column of `kubectl get`."""
JOB: Final = "batch.kubernetes.io/job-name"
WAITS: Final = frozenset({"ContainerCreating", "PodInitializing"})
"""Waiting reasons of containers that start normally."""


@dataclass(frozen=True, slots=True)
class Verdict:
    """The state behind the conditions: `state` is Ready, Progressing, Degraded or Idle."""

    state: str
    reason: str
    message: str = ""


@dataclass(frozen=True, slots=True)
class PipelineView:
    """The observations of one pass."""

    workload: Object | None = None
    pods: Sequence[Object] = ()
    jobs: Sequence[Object] = ()
    executors: Sequence[Object] = ()
    """Pods that a driver has created."""
    driver: Object | None = None
    """The answer of a table's driver; None if it got no request or did not answer."""


def table_verdict(one: Pipeline, seen: PipelineView) -> Verdict:
    """The state of a table's driver, which runs in a Deployment."""
    if one.spec.paused:
        stopped = not seen.pods
        return Verdict("Idle" if stopped else "Progressing", "Paused", "" if stopped else "the writer is stopping")
    failure = condition_of(seen.workload or {}, "ReplicaFailure")
    if failure.get("status") == "True":
        return Verdict("Degraded", failure.get("reason", "NoPod"), failure.get("message", ""))
    pod = _newest(seen.pods)
    if pod is None:
        return Verdict("Progressing", "Starting", "the driver's pod is not created yet")
    if condition_of(pod, "Ready").get("status") == "True":
        # A driver waits silently for executors that cannot start.
        wrong = next(filter(None, map(_wrong, seen.executors)), None)
        return Verdict("Degraded", *wrong) if wrong else Verdict("Ready", "Running", _doing(seen.driver))
    if wrong := _wrong(pod):
        return Verdict("Degraded", *wrong)
    return Verdict("Progressing", "Starting", why_not(pod)[:MESSAGE_CHARS_MAX])


def _doing(driver: Object | None) -> str:
    if driver is None:
        return "the driver has not answered the operator"
    words = [f"batch {driver['batch']}"] if "batch" in driver else []
    words += [f"{driver['lag']} records behind"] if "lag" in driver else []
    return ", ".join(words)


def _newest(pods: Iterable[Object]) -> Object | None:
    there = [pod for pod in pods if "deletionTimestamp" not in pod["metadata"]]
    return max(there, key=lambda pod: pod["metadata"].get("creationTimestamp", ""), default=None)


def _wrong(pod: Object) -> tuple[str, str] | None:
    """Reason and message of a problem that needs help; None if the pod is healthy or just starts."""
    status = pod.get("status", {})
    if status.get("phase") == "Failed":
        return status.get("reason", "Failed"), why_not(pod)[:MESSAGE_CHARS_MAX]
    if condition_of(pod, "PodScheduled").get("status") == "False":
        return "NotPlaced", why_not(pod)[:MESSAGE_CHARS_MAX]
    for container in status.get("containerStatuses", ()):
        waiting = container.get("state", {}).get("waiting", {})
        ended = container.get("state", {}).get("terminated") or container.get("lastState", {}).get("terminated", {})
        if waiting and waiting.get("reason") not in WAITS:
            return waiting.get("reason", "Waits"), _last_words(ended) or why_not(pod)[:MESSAGE_CHARS_MAX]
    return None


def _last_words(ended: Object) -> str:
    """The last line that a container logged before it ended with an error."""
    return str(ended.get("message", "")).strip().rpartition("\n")[2][:MESSAGE_CHARS_MAX]


def runs_verdict(one: Pipeline, seen: PipelineView, runs: Sequence[Mapping[str, Any]]) -> Verdict:
    """The state of a Job or CronJob, by its last run."""
    last = runs[-1] if runs else None
    if last is not None and last["result"] == "Failed":
        return Verdict("Degraded", "Failed", last["message"])
    if last is not None and last["result"] == "Running":
        wrong = next(filter(None, map(_wrong, seen.pods)), None)
        return Verdict("Degraded", *wrong) if wrong else Verdict("Progressing", "Running", last["name"])
    if one.spec.paused:
        return Verdict("Idle", "Paused")
    if last is not None:
        return Verdict("Ready", "Succeeded", last["message"])
    return Verdict("Ready", "Scheduled", "no run has begun yet")


def runs(seen: PipelineView) -> list[dict[str, Any]]:
    """The runs as entries of the status, oldest first."""
    found = []
    for job in sorted(seen.jobs, key=lambda job: job["metadata"].get("creationTimestamp", "")):
        status = job.get("status", {})
        failed, done = condition_of(job, "Failed"), condition_of(job, "Complete")
        result = "Failed" if failed.get("status") == "True" else "Running"
        result = "Succeeded" if done.get("status") == "True" else result
        run = {
            "name": job["metadata"]["name"],
            "result": result,
            "started": status.get("startTime"),
            "finished": status.get("completionTime") or (failed.get("lastTransitionTime") if failed else None),
            "message": _message(job, seen.pods) or (failed.get("message", "") if result == "Failed" else ""),
        }
        found.append({key: value for key, value in run.items() if value is not None})
    return found


def _message(job: Object, pods: Iterable[Object]) -> str:
    """The last log line of the newest pod of a job; empty if it has not ended."""
    mine = [pod for pod in pods if pod["metadata"].get("labels", {}).get(JOB) == job["metadata"]["name"]]
    pod = _newest(mine)
    for container in (pod or {}).get("status", {}).get("containerStatuses", ()):
        ended = container.get("state", {}).get("terminated")
        if ended:
            return _last_words(ended)
    return ""


def status(one: Pipeline, seen: PipelineView, resource: Object, now: str) -> dict[str, Any]:
    """The whole status. Fields that the driver does not report this time keep their values."""
    before = resource.get("status", {})
    found: dict[str, Any] = {}
    servers = one.resolved.get("bootstrapServers") or one.spec.bootstrap_servers
    if servers:
        found["bootstrapServers"] = servers
    if isinstance(one.spec, KafkaTableSpec):
        verdict = table_verdict(one, seen)
        found |= _table(one.spec, seen.driver, before)
    else:
        done = runs(seen)
        verdict = runs_verdict(one, seen, done)
        found |= _runs(done, before)
    return found | _common(verdict, resource, now)


def refused(verdict: Verdict, resource: Object, now: str) -> dict[str, Any]:
    """The status of a refused pipeline: new conditions, all other fields unchanged."""
    return {**resource.get("status", {}), **_common(verdict, resource, now)}


def _table(spec: KafkaTableSpec, driver: Object | None, before: Object) -> dict[str, Any]:
    topics = spec.topics.pattern or ",".join(spec.topics.names or ())
    found: dict[str, Any] = {
        "topics": topics if len(topics) <= TOPICS_CHARS_MAX else topics[: TOPICS_CHARS_MAX - 1] + "…"
    }
    kept = {key: before[key] for key in ("lag", "deadLetters", "lastBatch") if key in before}
    if driver is None:
        return found | kept
    found |= kept | {key: driver[key] for key in ("lag", "deadLetters") if key in driver}
    if "batch" in driver:
        found["lastBatch"] = {
            "number": driver["batch"],
            "rows": driver["lastBatchRows"],
            "seconds": driver["lastBatchSeconds"],
            "time": driver["lastBatchTime"],
        }
    return found


def _runs(done: Sequence[Mapping[str, Any]], before: Object) -> dict[str, Any]:
    found: dict[str, Any] = {key: before[key] for key in ("lastRun", "lastSuccess") if key in before}
    if done:
        found["lastRun"] = done[-1]
    for run in done:
        if run["result"] == "Succeeded" and "finished" in run:
            found["lastSuccess"] = run["finished"]
    return found


def _common(verdict: Verdict, resource: Object, now: str) -> dict[str, Any]:
    generation = resource["metadata"].get("generation", 0)
    there = {one["type"]: one for one in resource.get("status", {}).get("conditions", ())}
    found = []
    for kind in ("Ready", "Progressing", "Degraded"):
        value = "True" if verdict.state == kind else "False"
        same = there.get(kind, {}).get("status") == value
        found.append(
            {
                "type": kind,
                "status": value,
                "reason": verdict.reason,
                "message": verdict.message[:4000],
                "lastTransitionTime": there[kind]["lastTransitionTime"] if same else now,
                "observedGeneration": generation,
            }
        )
    return {"observedGeneration": generation, "conditions": found}
