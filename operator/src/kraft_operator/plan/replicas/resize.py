"""Changes of a topic's replica count at the request of its KRaftTopic: by reassignment, a few partitions at once.

New replicas go to the broker with the fewest replicas, in another rack if possible. Replicas are removed in this
order: replicas that are not in sync, on a broker that leaves, in the rack of another replica, on the broker with the
most replicas. The preferred leader stays. In-sync replicas that the partition needs for min.insync.replicas stay, too.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace

from kraft_operator.plan.model.observed import Metadata, Partition
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.model.steps import Blocked
from kraft_operator.plan.replicas.balance import Moves, loads
from kraft_operator.plan.replicas.drain import rack_of


def resized(s: Situation, metadata: Metadata, brokers: list[int], room: int) -> Moves:
    """New replica lists, on `brokers`, of at most `room` partitions.

    Adds a block to the plan if nothing can move, and a wait while partitions move.
    """
    todo = [one for one in metadata.partitions if _lacks(s, one)]
    if not todo:
        return {}
    load = loads(metadata, brokers)
    moves: Moves = {}
    blocked: Blocked | None = None
    for partition in todo:
        if len(moves) >= room:
            break
        if partition.moving:
            continue
        # A broker that is down stays in its ISRs until it is fenced, but takes no records.
        counting = replace(partition, isr=partition.isr & s.serving())
        found = _replicas(metadata, counting, s.wanted.topic_replicas[partition.topic], load)
        if isinstance(found, Blocked):
            blocked = blocked or found
            continue
        moves[partition.topic, partition.number] = found
        load.update(set(found).difference(partition.replicas))
        load.subtract(i for i in partition.replicas if i not in found and i in load)
    topics = sorted({partition.topic for partition in todo})
    if blocked is not None and not moves:
        s.plan.block(blocked.reason, blocked.message)
    if moves or any(partition.moving for partition in todo):
        s.plan.waits.append(f"{len(todo)} partitions of {', '.join(topics[:3])} get more or fewer replicas")
    return moves


def _lacks(s: Situation, partition: Partition) -> bool:
    desired = s.wanted.topic_replicas.get(partition.topic)
    return desired is not None and len(partition.replicas) != desired


def _first_to_go(
    metadata: Metadata, partition: Partition, racks: Counter[str], load: Counter[int], node_id: int
) -> tuple[bool, bool, bool, int, int]:
    shares = racks[rack_of(metadata, node_id)] > 1
    return node_id not in partition.isr, node_id not in load, shares, load.get(node_id, 0), node_id


def _replicas(metadata: Metadata, partition: Partition, desired: int, load: Counter[int]) -> tuple[int, ...] | Blocked:
    replicas = list(partition.replicas)
    racks = Counter(rack_of(metadata, i) for i in replicas)
    while len(replicas) < desired:
        free = [i for i in load if i not in replicas]
        if not free:
            text = (
                f"partition {partition.name} is to have {desired} replicas, and only brokers {sorted(load)} are there"
            )
            return Blocked("TooFewBrokers", text + " to take them: add brokers, or set the KRaftTopic's spec.replicas")
        new = min(free, key=lambda i: (racks[rack_of(metadata, i)], load[i], i))
        replicas.append(new)
        racks[rack_of(metadata, new)] += 1
    while len(replicas) > desired:
        gone = max(replicas[1:], key=lambda i: _first_to_go(metadata, partition, racks, load, i))
        replicas.remove(gone)
        racks[rack_of(metadata, gone)] -= 1
    left = partition.isr.intersection(replicas)
    if len(left) < min(partition.min_isr, desired) and len(left) < len(partition.isr):
        lag = sorted(set(replicas) - partition.isr)
        text = f"partition {partition.name} would have {len(left)} in-sync replicas of at least"
        return Blocked(
            "PartitionAtRisk",
            f"{text} {min(partition.min_isr, desired)}: it keeps its replicas until replica {lag[0]} is in sync again",
        )
    return tuple(replicas)
