"""Balancing of replicas among brokers by count, with the fewest moves and without fewer racks per partition.

Replicas move singly from the broker with the most replicas to the broker with the fewest. Moves end when no two counts
differ by more than 1. A move is not made if it would reduce the number of racks of a partition. Every move brings the
counts closer together, so the moves end. Only surplus replicas move.
"""

from __future__ import annotations

from collections import Counter

from kraft_operator.plan.model.observed import Metadata
from kraft_operator.plan.replicas.drain import rack_of

Moves = dict[tuple[str, int], tuple[int, ...]]


def spread(metadata: Metadata, brokers: list[int]) -> str:
    """The replica counts as text, for messages."""
    load = loads(metadata, brokers)
    return ", ".join(f"{node_id} has {load[node_id]}" for node_id in brokers)


def loads(metadata: Metadata, brokers: list[int]) -> Counter[int]:
    """The number of replicas of each broker."""
    load = Counter(dict.fromkeys(brokers, 0))
    for partition in metadata.partitions:
        load.update(node_id for node_id in partition.replicas if node_id in load)
    return load


def balanced(metadata: Metadata, brokers: list[int], room: int) -> Moves:
    """New replica lists of at most `room` partitions, each with one replica moved; empty if no move helps."""
    load = loads(metadata, brokers)
    racks = {node_id: rack_of(metadata, node_id) for node_id in brokers}
    holds: dict[int, list[int]] = {node_id: [] for node_id in brokers}
    for number, partition in enumerate(metadata.partitions):
        if not partition.moving:
            for node_id in partition.replicas:
                if node_id in holds:
                    holds[node_id].append(number)
    moves: Moves = {}
    while len(moves) < room:
        move = _next(metadata, load, racks, holds, moves)
        if move is None:
            break
        number, source, target = move
        partition = metadata.partitions[number]
        moves[partition.topic, partition.number] = tuple(target if i == source else i for i in partition.replicas)
        load[source] -= 1
        load[target] += 1
        holds[source].remove(number)
    return moves


def _next(
    metadata: Metadata, load: Counter[int], racks: dict[int, str], holds: dict[int, list[int]], moves: Moves
) -> tuple[int, int, int] | None:
    """The next move: index of the partition, source and target broker; None if racks or counts allow no move."""
    for source in sorted(load, key=lambda i: (-load[i], i)):
        for target in sorted(load, key=lambda i: (load[i], i)):
            if load[source] - load[target] < 2:
                break
            for number in holds[source]:
                partition = metadata.partitions[number]
                if (partition.topic, partition.number) in moves or target in partition.replicas:
                    continue
                if _racks_after(metadata, partition.replicas, racks, source, target):
                    return number, source, target
    return None


def _racks_after(
    metadata: Metadata, replicas: tuple[int, ...], racks: dict[int, str], source: int, target: int
) -> bool:
    """Whether the replicas are in at least as many racks after the move."""
    others = [racks.get(i, "") or rack_of(metadata, i) for i in replicas if i != source]
    return len({*others, racks[target]}) >= len({*others, racks[source]})
