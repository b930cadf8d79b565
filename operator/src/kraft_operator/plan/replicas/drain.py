"""Moves of replicas off brokers that leave: by reassignment, a bounded number of partitions at once.

The target is a rack without other replicas of the partition if possible, then the broker with the fewest replicas.
"""

from __future__ import annotations

from collections import Counter

from kraft_operator.plan.model.observed import Metadata, Partition
from kraft_operator.plan.model.record import Node
from kraft_operator.plan.model.situation import Situation


def departing(s: Situation) -> list[Node]:
    """Brokers that leave, and brokers of a pool that has lost the broker role."""
    found = []
    for node in s.record.nodes:
        pool = s.wanted.pool(node.pool)
        if node.broker and (node.leaving or (pool is not None and not pool.broker)):
            found.append(node)
    return found


def drained(s: Situation, node: Node) -> bool:
    """Whether a node certainly has no replicas. False if not all partitions are known."""
    if s.metadata is None or s.metadata.unseen:
        return False
    return not any(node.id in partition.replicas for partition in s.metadata.partitions)


def moves_of(
    metadata: Metadata, todo: list[Partition], leaving: set[int], stay: list[int], room: int
) -> dict[tuple[str, int], tuple[int, ...]]:
    """New replica lists of at most `room` partitions of `todo`, without partitions that cannot move.

    Replicas move from the brokers `leaving` to the brokers `stay`.
    """
    load = Counter(dict.fromkeys(stay, 0))
    for partition in metadata.partitions:
        load.update(node_id for node_id in partition.replicas if node_id in load)
    moves: dict[tuple[str, int], tuple[int, ...]] = {}
    for partition in todo:
        if len(moves) >= room:
            break
        replicas = None if partition.moving else _targets(metadata, partition, leaving, load)
        if replicas is not None:
            moves[partition.topic, partition.number] = replicas
            load.update(set(replicas).difference(partition.replicas))
    return moves


def _targets(metadata: Metadata, partition: Partition, leaving: set[int], load: Counter[int]) -> tuple[int, ...] | None:
    """The replica list with each leaving broker replaced in its place; None with too few brokers."""
    replicas = list(partition.replicas)
    for place, node_id in enumerate(replicas):
        if node_id not in leaving:
            continue
        racks = Counter(rack_of(metadata, other) for other in replicas if other not in leaving)
        free = [candidate for candidate in load if candidate not in replicas]
        if not free:
            return None
        replicas[place] = min(free, key=lambda i: (racks[rack_of(metadata, i)], load[i], i))
    return tuple(replicas)


def rack_of(metadata: Metadata, node_id: int) -> str:
    """The rack of a registered broker; empty if unknown."""
    broker = metadata.brokers.get(node_id)
    return broker.rack if broker is not None else ""
