"""Assignment of the cluster id, node ids, first voters and leaving nodes. Law 6.

Changes the record only; steps follow in later passes. If a resource is created again and volumes of its former nodes
were kept, it takes over their node ids and cluster id. Both are written on the volumes.
"""

from __future__ import annotations

from dataclasses import replace

from kraft_operator.plan.model.observed import Kube
from kraft_operator.plan.model.record import FINALIZED, PREPARING, Node, Record, ReplacementRecord
from kraft_operator.plan.model.steps import Blocked
from kraft_operator.plan.model.wanted import MIGRATE, Pool, Wanted


def assigned(record: Record, wanted: Wanted, kube: Kube, fresh_id: str) -> Record | Blocked:
    """Return the record with all wanted nodes, or the reason why it cannot be made.

    `fresh_id` becomes the id of a cluster without an id.
    """
    if record.cluster_id is None:
        begun = _begun(record, wanted, kube, fresh_id)
        if isinstance(begun, Blocked):
            return begun
        record = begun
    # The first formatted disk determines the beginning of the log, even if the disk is not marked yet.
    decided = any(volume.formatted_for for volume in kube.volumes.values())
    decided = decided or any(job.runs or job.state == "done" for job in kube.jobs.values())
    new_cluster = not decided and not any(node.formatted for node in record.nodes)
    if new_cluster and record.dynamic == wanted.static_quorum:
        record = replace(record, dynamic=not wanted.static_quorum)
    migrating = _migrating(record, wanted, new_cluster=new_cluster)
    if isinstance(migrating, Blocked):
        return migrating
    record = migrating
    for pool in wanted.pools:
        record = _filled(record, pool, wanted.outside)
    controllers = sum(pool.replicas for pool in wanted.pools if pool.controller)
    if new_cluster and wanted.first_voters and controllers not in wanted.first_voters:
        text = f"a new cluster has 1, 3 or 5 controllers, not {controllers}: change the replicas of the pools with the"
        return Blocked("EvenQuorum", text + " role controller; nothing has been formatted yet")
    names = {pool.name for pool in wanted.pools}
    record = record.having(*(replace(node, leaving=True) for node in record.nodes if node.pool not in names))
    if new_cluster and not wanted.migration:
        # Its brokers have no replicas, so all that comes was placed among them: only later brokers need a share.
        record = replace(record, balanced=tuple(node.id for node in record.nodes if node.broker and not node.leaving))
    if not record.voters or new_cluster:
        # No voter has voted yet, unless kept volumes were taken over: then their nodes are the voters again. In a
        # dynamic quorum, these are the voters that the log begins with.
        record = record.voting(node.id for node in record.nodes if node.controller and not node.leaving)
    return record


def _begun(record: Record, wanted: Wanted, kube: Kube, fresh_id: str) -> Record | Blocked:
    """Return the record with the cluster id and the nodes with kept volumes, or the reason against it."""
    kept: dict[int, tuple[int, str]] = {}
    for (node_id, disk), volume in sorted(kube.volumes.items()):
        cluster_id, _, owner = volume.formatted_for.partition("/")
        if owner == str(node_id):
            kept[node_id] = (disk, cluster_id)
    ids = {cluster_id for _, cluster_id in kept.values()}
    if len(ids | ({wanted.cluster_id} - {None})) > 1:
        return Blocked(
            "ForeignVolumes",
            f"volumes of other clusters are in the way ({', '.join(sorted(ids))}): delete them, or name the id"
            " in spec.clusterId and remove the others",
        )
    record = replace(record, cluster_id=wanted.cluster_id or next(iter(ids), fresh_id))
    # Requests older than the record were carried out before, or concern nodes that no longer exist.
    record = replace(
        record,
        replacements=tuple(
            ReplacementRecord(one.name, one.node, one.by, done=True, accept=one.accept) for one in wanted.replacements
        ),
    )
    for pool in wanted.pools:
        mine = [node_id for node_id in kept if 0 <= node_id - pool.first_id < 100]
        if len(mine) > pool.replicas:
            return Blocked(
                "TooManyVolumes",
                f"pool {pool.name} has kept volumes of nodes {mine}, but replicas is {pool.replicas}: delete the"
                " volumes of nodes that had left, or raise replicas",
            )
        record = record.having(
            *(Node(i, pool.name, pool.controller, pool.broker, disk=kept[i][0], formatted=True) for i in mine)
        )
    return record


def _migrating(record: Record, wanted: Wanted, *, new_cluster: bool) -> Record | Blocked:
    """Return the record with the start of a migration from ZooKeeper, or the reason against it.

    Only controllers with an empty log can migrate a cluster.
    """
    if new_cluster and wanted.migration == FINALIZED:
        text = "spec.migration.phase is Finalized, and this cluster has not migrated anything: set it to Migrate, or"
        return Blocked("MigrationNotStarted", f"{text} remove spec.migration for a cluster without ZooKeeper")
    if new_cluster:
        return replace(record, migration=PREPARING if wanted.migration else "")
    if record.migrates and not wanted.migration:
        text = f"spec.migration was removed in the phase {record.migration}: add it again. It may go once"
        return Blocked("MigrationUnfinished", f"{text} status.migration.phase is {FINALIZED}")
    if wanted.migration == MIGRATE and not record.migration:
        text = "the nodes of this cluster have metadata of their own, so they cannot migrate a cluster with ZooKeeper:"
        return Blocked("MigrationRefused", f"{text} remove spec.migration, and make another KRaftCluster with it")
    return record


def _filled(record: Record, pool: Pool, outside: frozenset[int]) -> Record:
    """Add missing nodes of a pool, let the surplus nodes with the highest ids leave, and give roles.

    Brokers that still leave stay if they are wanted again: a new broker would copy all their replicas.
    """
    record = _kept(record, pool)
    mine = [node for node in record.nodes if node.pool == pool.name]
    # A role is given at once. `voters` and `leave` take it away once nothing depends on it.
    record = record.having(
        *(
            replace(node, controller=node.controller or pool.controller, broker=node.broker or pool.broker)
            for node in mine
            if not node.leaving
        )
    )
    active = [node for node in mine if not node.leaving]
    surplus = sorted(active, key=lambda node: node.id)[pool.replicas :]
    record = record.having(*(replace(record.node(node.id) or node, leaving=True) for node in surplus))
    for _ in range(pool.replicas - len(active)):
        record = record.having(Node(next_id(record, pool.first_id, outside), pool.name, pool.controller, pool.broker))
    return record


def _kept(record: Record, pool: Pool) -> Record:
    """Return the record with as many leaving brokers kept as the pool lacks, the lowest ids first.

    A voter may have left the quorum already, and a stopped broker is free to be unregistered: they leave. So does a
    node that another one replaces.
    """
    mine = [node for node in record.nodes if node.pool == pool.name]
    lacks = max(pool.replicas - sum(not node.leaving for node in mine), 0)
    replaced = {one.node for one in record.replacements if one.by == "NewId" and not one.done}
    may_stay = [
        node
        for node in sorted(mine, key=lambda node: node.id)
        if node.leaving and node.broker and not node.controller and not node.stopped and node.id not in replaced
    ][: lacks if pool.broker and not pool.controller else 0]
    if not may_stay:
        return record
    kept = {node.id for node in may_stay}
    # Replicas that have moved away are balanced as after a broker was added.
    record = replace(record, balanced=tuple(broker for broker in record.balanced if broker not in kept))
    return record.having(*(replace(node, leaving=False) for node in may_stay))


def next_id(record: Record, first: int, outside: frozenset[int]) -> int:
    """The lowest id from `first` on that no present or former node and no broker `outside` has."""
    taken = {node.id for node in record.nodes} | set(record.retired) | outside
    while first in taken:
        first += 1
    return first
