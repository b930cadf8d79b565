"""Filter of watch events: the parts of an object that a pass could act on. Pure.

The scheduler, the kubelet and controllers write each object several times. A pass reads all objects again, so an event
that changes nothing for the planner must not cause a pass.

The handlers call it. A mark holds everything that `observe.objects` and the steps read from an object.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from kraft_operator.api.base import GROUP
from kraft_operator.observe import objects
from kraft_operator.observe.cluster import NODES

Object = Mapping[str, Any]
RECORDS: Final = "kraftcluster-record"
"""The name label of records."""
NAME: Final = "app.kubernetes.io/name"
METADATA: Final = ("name", "uid", "labels", "ownerReferences", "creationTimestamp", "deletionTimestamp")


class Mark(NamedTuple):
    """The relevant parts of an object, to compare between events."""

    acts: object
    """Parts that the planner acts on. If they change, a pass is due."""
    reports: object
    """Parts that are only reported, or that change with the operator's own writes. A pass may come later."""


def mark(plural: str, one: Object) -> Mark:
    """The mark of an object of a cluster; `plural` is the plural name of its kind, such as `pods`."""
    metadata = one["metadata"]
    known = {key: metadata.get(key) for key in METADATA}
    annotations = metadata.get("annotations", {})
    mine = {key: value for key, value in annotations.items() if GROUP in key}
    acts, reports = _PARTS.get(plural, _whole)(one)
    return Mark((known, mine, acts), (reports, annotations))


def _whole(one: Object) -> tuple[object, object]:
    content = {key: value for key, value in one.items() if key != "metadata"}
    # Nearly all writes of a record are this operator's own.
    return (None, content) if _name(one) == RECORDS else (content, None)


def _pod(one: Object) -> tuple[object, object]:
    seen, status = objects.pod(one), one.get("status", {})
    reports = (seen.message, seen.machine, seen.running, seen.unplaced, status.get("hostIP"), one.get("spec"))
    if _name(one) != NODES:
        # A format job's pod: the planner acts on exit codes. The condition that the pod waits for is only reported.
        statuses = status.get("containerStatuses", ())
        ends = [(one.get("name"), one.get("state", {}).get("terminated", {})) for one in statuses]
        codes = [(name, state.get("exitCode")) for name, state in ends]
        return (seen.over, codes), (*reports, [state.get("message") for _, state in ends])
    acts = (seen.running, seen.ready, seen.lost, seen.over, seen.fails, status.get("podIP"))
    return (*acts, objects.shape([one])), reports


def _job(one: Object) -> tuple[object, object]:
    return objects.job(one), None


def _claim(one: Object) -> tuple[object, object]:
    status = one.get("status", {})
    grows = objects.condition_of(one, "FileSystemResizePending")
    lost, size = status.get("phase") == "Lost", one["spec"].get("resources")
    return (lost, size, grows.get("status"), grows.get("lastTransitionTime")), None


def _name(one: Object) -> str:
    return str(one["metadata"].get("labels", {}).get(NAME, ""))


_PARTS: Final = {"pods": _pod, "jobs": _job, "persistentvolumeclaims": _claim}
