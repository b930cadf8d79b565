"""Preview: the restarts by this version of the operator with their reasons, before it is installed or a change is
applied.

Pure functions of the resource and the cluster's pods. They do not know the quorum and the partitions, so the preview
has the restarts, not their times.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from kraft_operator.api.cluster import KRaftClusterSpec
from kraft_operator.api.status import KRaftClusterStatus
from kraft_operator.observe import objects
from kraft_operator.plan.model.observed import Kube
from kraft_operator.plan.model.record import Record
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.wanted import Wanted
from kraft_operator.specs.cluster import NamedCluster
from kraft_operator.specs.mode import in_force
from kraft_operator.specs.planner_input import wanted_of
from kraft_operator.specs.remembered import record_of

Object = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Preview:
    """The changes that the operator would make; empty without changes."""

    restarts: Mapping[int, list[str]] = field(default_factory=dict)
    """Aspects that differ, by node."""
    put: Mapping[str, str] = field(default_factory=dict)
    """Dynamic values that are set without a restart."""
    remove: tuple[str, ...] = ()
    replicas: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    """Number of nodes before and after, by pool, if it changes."""
    emptied: Mapping[int, tuple[str, ...]] = field(default_factory=dict)
    """Removed volumes, by node."""
    deleted: tuple[int, ...] = ()
    """Nodes with removed claims that are deleted when they are empty."""

    balance: tuple[str, ...] = ()
    """Partitions that would move to balance the load, from the operator's last pass."""

    @property
    def lines(self) -> list[str]:
        """The preview as lines of text."""
        found = [f"pool {name}: {now} -> {then} nodes" for name, (now, then) in self.replicas.items()]
        for node, names in sorted(self.emptied.items()):
            then = "deleted" if node in self.deleted else "kept"
            found += [f"volume {name} of node {node} is emptied, then removed; its claim is {then}" for name in names]
        found += [f"node {node} is restarted: {', '.join(why)}" for node, why in sorted(self.restarts.items())]
        found += [f"{key}={value} is set, without a restart" for key, value in sorted(self.put.items())]
        found += [f"{key} is taken back, without a restart" for key in self.remove]
        found += [f"partition {line}" for line in self.balance]
        return found or ["nothing is restarted or changed"]


def preview(resource: Object, pods: Iterable[Object], changed: Object | None = None, image: str = "") -> Preview:
    """Compute a preview. `changed` is the resource as it would be applied; `image` is the operator's default image.


    Raises pydantic.ValidationError for a specification that is not understood.
    """
    given = changed if changed is not None else resource
    metadata = resource["metadata"]
    spec = KRaftClusterSpec.model_validate(given["spec"], extra="ignore")
    status = KRaftClusterStatus.model_validate(resource.get("status", {}), extra="ignore")
    mine = [one for one in pods if "deletionTimestamp" not in one["metadata"]]
    record = record_of(status)
    spec = in_force(spec, record)
    cluster = NamedCluster(metadata["name"], metadata["namespace"], metadata["uid"], spec, image or _image(mine))
    annotations = {**metadata.get("annotations", {}), **given["metadata"].get("annotations", {})}
    wanted = wanted_of(cluster, annotations)
    seen = {number: objects.pod(one) for number, one in objects.by_node(objects.ours(cluster, map(dict, mine)))}
    s = Situation(record, wanted, Kube(seen, {}, {}, {}), None, None)
    reasons = {node.id: s.lacks(node) for node in record.nodes}
    now = {
        pool.name: sum(node.pool == pool.name and not node.leaving for node in record.nodes) for pool in wanted.pools
    }
    known = dict(_dynamic(resource))
    return Preview(
        {node: why for node, why in reasons.items() if why},
        {key: value for key, value in wanted.dynamic_config.items() if known.get(key) != value},
        tuple(sorted(known.keys() - wanted.dynamic_config.keys())),
        {pool.name: (now[pool.name], pool.replicas) for pool in wanted.pools if now[pool.name] != pool.replicas},
        *_leaving(record, wanted),
        tuple(status.balance) if wanted.load else (),
    )


def _leaving(record: Record, wanted: Wanted) -> tuple[dict[int, tuple[str, ...]], tuple[int, ...]]:
    """Volumes that left their pools, by node; and nodes of pools that delete claims."""
    found, deleted = {}, set()
    for node in record.nodes:
        pool = wanted.pool(node.pool)
        names = () if pool is None or node.leaving else tuple(sorted({*node.volumes} - pool.size_bytes.keys()))
        if pool is not None and names:
            found[node.id] = names
            deleted |= {node.id} if pool.delete_volumes else set()
    return found, tuple(sorted(deleted))


def _dynamic(resource: Object) -> Iterable[tuple[str, str]]:
    """The dynamic values that the operator has set so far, from the present specification."""
    config = resource["spec"].get("config", {})
    managed = resource.get("status", {}).get("managedConfig", ())
    return ((key, config.get(key, "")) for key in managed)


def _image(pods: Iterable[Object]) -> str:
    """The image that the nodes run now. The operator's default image is not visible here."""
    images = (
        container["image"] for one in pods for container in one["spec"]["containers"] if container["name"] == "node"
    )
    return next(images, "")
