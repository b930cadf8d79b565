"""The beginning of a pass: the record and the mode of the cluster (`specs.mode`), before anything else is done.

If either cannot be read, the reason is reported, and the pass ends.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Final

from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.apply.kubernetes import InTheWayError, NotYetError
from kraft_operator.apply.record import BadRecordError, RecordObject
from kraft_operator.kube.client import Api
from kraft_operator.observe import objects
from kraft_operator.plan.model.record import Record
from kraft_operator.reporting import Reporter
from kraft_operator.security.cluster_security import ClusterSecurity
from kraft_operator.specs.cluster import INSTANCE, NamedCluster
from kraft_operator.specs.mode import ModeProblem, in_force, mode_problems, must_look, settled
from kraft_operator.specs.storage import FORMATTED

LEAVES_S: Final = 1.0
"""Seconds between passes over a deleted cluster until the garbage collector has deleted its objects."""
BLOCKED_S: Final = 5.0
"""Seconds between passes that a person must unblock."""

Object = dict[str, Any]


async def begin(
    api: Api,
    reporter: Reporter,
    secure: ClusterSecurity,
    resource: Object,
    cluster: NamedCluster,
    before: KRaftClusterStatus,
    kept: RecordObject,
) -> tuple[NamedCluster, Record] | float:
    """The cluster in its mode and its record, which is written; or the seconds until the next pass. Raises ApiError."""
    try:
        record = kept.read(before)
    except (BadRecordError, InTheWayError) as error:
        await reporter.wrong(resource, "RecordNotUnderstood", str(error))
        return BLOCKED_S
    except NotYetError as error:
        await reporter.wrong(resource, "RecordLeaves", str(error))
        return LEAVES_S
    begun = await in_mode(api, cluster, record)
    if isinstance(begun, ModeProblem):
        await reporter.wrong(resource, *begun)
        return BLOCKED_S
    await kept.keep(begun[1])
    try:
        await secure.prepare(begun[0])
    except InTheWayError as error:
        await reporter.wrong(resource, "InTheWay", str(error))
        return BLOCKED_S
    return begun


async def in_mode(api: Api, cluster: NamedCluster, record: Record) -> tuple[NamedCluster, Record] | ModeProblem:
    """The cluster with the specification in force, and the record with its mode. Raises ApiError.

    The caller writes the record before it acts.
    """
    remains = stopped = False
    if must_look(record, cluster.spec):
        claims, pods = await _look(api, cluster)
        remains, stopped = bool(claims), not pods
    found = settled(record, cluster.spec, remains=remains, stopped=stopped)
    if isinstance(found, ModeProblem):
        return found
    became = replace(cluster, spec=in_force(cluster.spec, found))
    wrong = mode_problems(became, cluster.spec)
    if wrong:
        return ModeProblem("SecurityNotValid", "; ".join(wrong))
    return became, found


async def _look(api: Api, cluster: NamedCluster) -> tuple[list[Object], list[Object]]:
    """Formatted volumes, and pods, of this cluster or of a former one of its name that left them."""
    selector = f"{INSTANCE}={cluster.name},app.kubernetes.io/name=kraftcluster"
    claims = await api.list("PersistentVolumeClaim", cluster.namespace, selector)
    pods = await api.list("Pod", cluster.namespace, selector)
    kept = [
        one for one in claims if objects.others(cluster, one) is None and "deletionTimestamp" not in one["metadata"]
    ]
    return [one for one in kept if one["metadata"].get("annotations", {}).get(FORMATTED)], pods
