"""Replicas move off brokers that leave: by reassignment, a bounded number of partitions at once, to where there are
fewest replicas, another rack than the partition's other replicas first. Disturbs nobody: ISRs only grow while
replicas are added.
"""

from __future__ import annotations

from collections import Counter

from kraft_operator.plan.observed import Metadata, Partition
from kraft_operator.plan.record import Node
from kraft_operator.plan.situation import Situation
from kraft_operator.plan.steps import Reassign


def departing(s: Situation) -> list[Node]:
    """Brokers that leave, or whose pool has no brokers any more."""
    found = []
    for node in s.record.nodes:
        pool = s.wanted.pool(node.pool)
        if node.broker and (node.leaving or (pool is not None and not pool.broker)):
            found.append(node)
    return found


def drained(s: Situation, node: Node) -> bool:
    """Whether nothing is on it any more, for certain."""
    return s.metadata is not None and not any(node.id in partition.replicas for partition in s.metadata.partitions)


def drain(s: Situation) -> None:
    """Plan the next moves."""
    leaving = {node.id for node in departing(s)}
    if not leaving:
        return
    if s.metadata is None:
        s.plan.block("PartitionsUnknown", f"the state of partitions is unknown: brokers {sorted(leaving)} stay")
        return
    todo = [partition for partition in s.metadata.partitions if leaving.intersection(partition.replicas)]
    moving = sum(partition.moving for partition in s.metadata.partitions)
    stay = [n.id for n in s.record.nodes if n.broker and n.id not in leaving and s.up(n.id) and s.serves(n.id)]
    moves = moves_of(s.metadata, todo, leaving, stay, s.wanted.drain_at_once - moving)
    if moves:
        s.plan.steps.append(Reassign(moves))
    elif todo and not moving:
        s.plan.block(
            "CannotDrain",
            f"partition {todo[0].name} has {len(todo[0].replicas)} replicas and only brokers {stay} are there to take"
            f" them: brokers {sorted(leaving)} stay until there are more, or the topic has fewer replicas",
        )
    if todo:
        s.plan.waits.append(f"{len(todo)} partitions have to leave brokers {sorted(leaving)}")


def moves_of(
    metadata: Metadata, todo: list[Partition], leaving: set[int], stay: list[int], room: int
) -> dict[tuple[str, int], tuple[int, ...]]:
    """New replicas of at most `room` partitions; without those that cannot move."""
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
    """The replicas with those that leave exchanged, each in its place; None if there are too few brokers."""
    replicas = list(partition.replicas)
    for place, node_id in enumerate(replicas):
        if node_id not in leaving:
            continue
        racks = Counter(_rack(metadata, other) for other in replicas if other not in leaving)
        free = [candidate for candidate in load if candidate not in replicas]
        if not free:
            return None
        replicas[place] = min(free, key=lambda i: (racks[_rack(metadata, i)], load[i], i))
    return tuple(replicas)


def _rack(metadata: Metadata, node_id: int) -> str:
    broker = metadata.brokers.get(node_id)
    return broker.rack if broker is not None else ""
