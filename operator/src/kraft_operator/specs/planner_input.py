"""Specification and annotations as the planner's input."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any, Final

from kraft_operator.api.base import GROUP
from kraft_operator.api.cluster import VOTERS
from kraft_operator.plan.model.levels import UNKNOWN, level_of
from kraft_operator.plan.model.wanted import STARTS_WITH, ControllerAspects, Pool, ReplacementRequest, Wanted
from kraft_operator.specs.cluster import NamedCluster, digest
from kraft_operator.specs.migration import zookeeper_digest
from kraft_operator.specs.properties import aspects, aspects_of_before, dynamic_values
from kraft_operator.specs.quantities import as_bytes
from kraft_operator.specs.windows import closed_text

SKIP: Final = f"{GROUP}/skip"
"""Annotation, such as `3,101`: nodes that the operator does not change."""
ROLL: Final = f"{GROUP}/roll"
"""Annotation, such as `101=2026-01-01,102=x`: requested restarts. A new word after an id requests a new restart."""
REBALANCE: Final = f"{GROUP}/rebalance"
"""Annotation with any word: the operator balances replicas once for each new word."""
REPLACE: Final = f"replace.{GROUP}/"
"""Prefix of the annotation of a replacement: `3 EmptyDisk`, `3 NewId MetadataPause`. Removed when the replacement is
done."""
WAYS: Final = frozenset({"EmptyDisk", "NewId"})
RISKS: Final = frozenset({"MetadataPause", "DataLoss"})
APPROVE: Final = f"{GROUP}/approve"
"""Annotation with the approved revision."""


def wanted_of(cluster: NamedCluster, annotations: Mapping[str, str], now: datetime | None = None) -> Wanted:
    """Build the planner's input. Without `now`, maintenance windows are open. Non-numeric ids are ignored."""
    spec = cluster.spec
    asked, malformed = requests_of(annotations)
    named = {one.name for one in asked}
    listed = [
        ReplacementRequest(r.name, r.node, r.by, frozenset(r.accept)) for r in spec.replacements if r.name not in named
    ]
    pools = tuple(
        Pool(
            pool.name,
            "controller" in pool.roles,
            "broker" in pool.roles,
            cluster.replicas(pool),
            pool.first_node_id,
            aspects(cluster, pool, broker=True),
            {volume.name: as_bytes(volume.size) for volume in pool.storage.volumes},
            pool.storage.deletion_policy == "Delete",
            aspects_of_before(cluster, pool, broker=True),
            ControllerAspects(aspects(cluster, pool, broker=False), aspects_of_before(cluster, pool, broker=False)),
        )
        for pool in spec.node_pools
    )
    dynamic = dynamic_values(spec)
    rolls = rolls_of(annotations.get(ROLL, ""))
    return Wanted(
        pools=pools,
        cluster_id=spec.cluster_id,
        static_quorum=spec.quorum.mode == "Static",
        first_voters=frozenset(VOTERS),
        dynamic_config=dynamic,
        replacements=(*listed, *asked),
        malformed=malformed,
        parallel_by_rack=spec.update_strategy.parallelism == "Rack",
        parallel_racks=spec.update_strategy.racks_at_once,
        rolls_paused=spec.update_strategy.paused,
        window_closed=closed_text(spec.update_strategy.maintenance_windows, now) if now is not None else "",
        paused=spec.paused,
        hibernated=spec.hibernated,
        supervised=spec.update_strategy.supervised,
        approved=annotations.get(APPROVE, ""),
        revision=_revision(cluster, pools, dynamic, rolls, (*listed, *asked)),
        skip=frozenset(int(word) for word in annotations.get(SKIP, "").split(",") if word.strip().isdecimal()),
        rolls=rolls,
        given_up=frozenset(spec.quorum.give_up),
        unavailable_topics=frozenset(spec.update_strategy.unavailable_topics),
        drain_at_once=spec.drain.partitions_at_once,
        drain_bytes=spec.drain.bytes_per_second,
        metadata_version=None if spec.metadata_version is None else level_of(spec.metadata_version) or UNKNOWN,
        metadata_latest=spec.metadata_version_policy == "Latest",
        racks=spec.rack is not None,
        balance_new=spec.rebalance.after_scaling,
        load="" if spec.rebalance.by_load == "Off" else spec.rebalance.by_load,
        load_percent=spec.rebalance.threshold_percent,
        load_bytes=as_bytes(spec.rebalance.minimum_difference),
        balance=annotations.get(REBALANCE, ""),
        **_migration(cluster),
    )


def _migration(cluster: NamedCluster) -> dict[str, Any]:
    """The fields of `Wanted` about a migration from ZooKeeper."""
    migration = cluster.spec.migration
    if migration is None:
        return {}
    return {
        "migration": migration.phase,
        "zookeeper": zookeeper_digest(cluster, migration),
        "outside": frozenset(migration.brokers),
        "outside_leave": migration.move_replicas,
    }


def _revision(
    cluster: NamedCluster,
    pools: Iterable[Pool],
    dynamic: Mapping[str, str],
    rolls: Mapping[int, str],
    replacements: Iterable[ReplacementRequest],
) -> str:
    """A digest of everything that nodes restart for: in a supervised cluster, a person approves this revision."""
    spec = cluster.spec
    migration = [] if spec.migration is None else [[spec.migration.phase, zookeeper_digest(cluster, spec.migration)]]
    return digest(
        [[pool.name, pool.replicas, {**pool.aspects, STARTS_WITH: sorted(dynamic)}] for pool in pools]
        + [sorted(rolls.items()), spec.quorum.mode]
        + [[one.name, one.node, one.by, sorted(one.accept)] for one in replacements]
        + migration
    )


def requests_of(annotations: Mapping[str, str]) -> tuple[tuple[ReplacementRequest, ...], tuple[str, ...]]:
    """Replacements that annotations request, and errors of annotations that cannot be parsed."""
    found, wrong = [], []
    for key, text in sorted(annotations.items()):
        if not key.startswith(REPLACE):
            continue
        words = text.split()
        node, by, *accepted = words + [""] * (2 - len(words))
        if node.isdecimal() and by in WAYS and RISKS.issuperset(accepted):
            found.append(ReplacementRequest(key.removeprefix(REPLACE), int(node), by, frozenset(accepted)))
        else:
            wrong.append(
                f"annotation {key} is {text!r}: write NODE and {' or '.join(sorted(WAYS))}, then the accepted"
                f" risks ({', '.join(sorted(RISKS))}), for example '3 EmptyDisk'"
            )
    return tuple(found), tuple(wrong)


def request_text(item: Mapping[str, Any]) -> str:
    """The annotation's value for an entry in the form of `spec.replacements`."""
    return " ".join([str(item["node"]), str(item["by"]), *item.get("accept", ())])


def rolls_of(text: str) -> dict[int, str]:
    """The words of the annotation ROLL by node."""
    found = {}
    for word in text.split(","):
        node_id, _, token = word.strip().partition("=")
        if node_id.isdecimal():
            found[int(node_id)] = token
    return found
