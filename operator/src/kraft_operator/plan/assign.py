"""Who there is: the cluster's id, node ids, the first voters, and who shall leave. Law 6.

Works on the record alone, before anything is made of it. A resource that is made again over volumes that were kept
takes them up: ids and cluster id are on them.
"""

from __future__ import annotations

from dataclasses import replace

from kraft_operator.plan.observed import Kube
from kraft_operator.plan.record import Node, Record, Replacement
from kraft_operator.plan.steps import Blocked
from kraft_operator.plan.wanted import Pool, Wanted


def assigned(record: Record, wanted: Wanted, kube: Kube, fresh_id: str) -> Record | Blocked:
    """The record with everybody in it who is wanted; `fresh_id` is the id of a cluster that has none yet."""
    if record.cluster_id is None:
        begun = _begun(record, wanted, kube, fresh_id)
        if isinstance(begun, Blocked):
            return begun
        record = begun
    # What a log begins with is on the first disk that is formatted, be it not marked yet.
    decided = any(volume.formatted_for for volume in kube.volumes.values())
    decided = decided or any(job.runs or job.state == "done" for job in kube.jobs.values())
    new_cluster = not decided and not any(node.formatted for node in record.nodes)
    if new_cluster and record.dynamic == wanted.static_quorum:
        record = replace(record, dynamic=not wanted.static_quorum)
    for pool in wanted.pools:
        record = _filled(record, pool)
    controllers = sum(pool.replicas for pool in wanted.pools if pool.controller)
    if new_cluster and wanted.first_voters and controllers not in wanted.first_voters:
        text = f"a new cluster has 1, 3 or 5 controllers, not {controllers}: change the replicas of the pools with the"
        return Blocked("EvenQuorum", text + " role controller; nothing has been formatted yet")
    names = {pool.name for pool in wanted.pools}
    record = record.having(*(replace(node, leaving=True) for node in record.nodes if node.pool not in names))
    if not record.voters or new_cluster:
        # Nobody has voted yet, unless the volumes have been taken up from before: then these are the voters again. In a
        # dynamic quorum these are the voters that the log begins with.
        record = record.voting(node.id for node in record.nodes if node.controller and not node.leaving)
    return record


def _begun(record: Record, wanted: Wanted, kube: Kube, fresh_id: str) -> Record | Blocked:
    """Id of the cluster; nodes whose volumes were kept."""
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
    # A request that is older than the record was carried out before, or is for a node that is no more.
    record = replace(
        record,
        replacements=tuple(
            Replacement(one.name, one.node, one.by, done=True, accept=one.accept) for one in wanted.replacements
        ),
    )
    for pool in wanted.pools:
        mine = [node_id for node_id in kept if 0 <= node_id - pool.first_id < 100]
        if len(mine) > pool.replicas:
            return Blocked(
                "TooManyVolumes",
                f"pool {pool.name} has kept volumes of nodes {mine}, but replicas is {pool.replicas}: delete those of"
                " nodes that had left, or raise replicas",
            )
        record = record.having(
            *(Node(i, pool.name, pool.controller, pool.broker, disk=kept[i][0], formatted=True) for i in mine)
        )
    return record


def _filled(record: Record, pool: Pool) -> Record:
    """Add nodes that are missing in a pool, let the youngest leave that are too many, give roles."""
    mine = [node for node in record.nodes if node.pool == pool.name]
    # A role is given at once, and taken away when nothing depends on it any more: `voters` and `leave`.
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
        record = record.having(Node(next_id(record, pool.first_id), pool.name, pool.controller, pool.broker))
    return record


def next_id(record: Record, first: int) -> int:
    """The first id from there on that nobody has or had."""
    taken = {node.id for node in record.nodes} | set(record.retired)
    while first in taken:
        first += 1
    return first
