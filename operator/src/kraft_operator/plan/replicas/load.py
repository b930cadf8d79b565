"""Balancing by load: moves balance the bytes of brokers; a new order of the same replicas balances preferred leaders.

While every broker is within the threshold of the mean, nothing is planned. Beyond it, the fullest broker gives a
replica to the broker with the fewest bytes. It is the largest replica that does not make the target fuller than the
source. If all its replicas are too large, it exchanges a replica for a smaller replica. Neither reduces the number of
racks of a partition. Leaders move without copying bytes: the in-sync replica on the broker with the fewest leaders
becomes the first of the list. A plan is bounded, and each of its moves reduces the difference. The next plan follows
once the moves are done.

The bytes come from the brokers' log directories. If a broker does not report them, nothing is planned.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Mapping
from typing import Final

from kraft_operator.plan.model.observed import Disks, Metadata, Partition
from kraft_operator.plan.model.situation import Situation
from kraft_operator.plan.replicas.balance import Moves
from kraft_operator.plan.replicas.drain import rack_of

MOVES_MAX: Final = 10
"""The most partitions of one plan, even if more may move at once: sizes change while the partitions move."""
SWAP_GAIN_MIN: Final = 0.1
"""The least share of the copied bytes by which a swap has to reduce the load of the fuller broker."""
SWAP_TRIES: Final = 20
"""How many replicas of the emptier broker are tried for each replica of the fuller one."""
Sizes = Mapping[int, Mapping[tuple[str, int], int]]
"""Bytes of replicas by broker and partition."""


def by_load(s: Situation, metadata: Metadata, brokers: list[int], room: int) -> Moves:
    """The next moves; `plan.replicas.load` lists them, too. Empty if balanced, if sizes are unknown, or for a
    preview."""
    sizes = _sizes(s.disks, brokers)
    if sizes is None:
        s.plan.waits.append("load: not every broker reports the content of its log directories")
        return {}
    percent, least = s.wanted.load_percent, s.wanted.load_bytes
    moves = balanced_bytes(metadata, brokers, sizes, min(room, MOVES_MAX), percent, least)
    what = "bytes"
    if not moves:
        moves, what = balanced_leaders(metadata, brokers, min(room, MOVES_MAX), percent), "leaders"
    lists = {(one.topic, one.number): one.replicas for one in metadata.partitions}
    for (topic, number), replicas in moves.items():
        was, now = (",".join(map(str, ids)) for ids in (lists[topic, number], replicas))
        s.plan.load.append(f"{topic}-{number}: {was} -> {now}, for {what}")
    return moves if s.wanted.load == "Move" else {}


def _sizes(disks: Mapping[int, Disks], brokers: list[int]) -> Sizes | None:
    """Sizes of all replicas; None unless every broker reports all its directories without errors."""
    found: dict[int, dict[tuple[str, int], int]] = {}
    for broker in brokers:
        known = disks.get(broker)
        if known is None or any(one.error for one in known.directories.values()):
            return None
        found[broker] = {key: size for one in known.directories.values() for key, size in one.replicas.items()}
    return found


def balanced_bytes(metadata: Metadata, brokers: list[int], sizes: Sizes, room: int, percent: int, least: int) -> Moves:
    """New replica lists of at most `room` partitions, balanced by bytes.

    Empty unless a broker is more than `percent` percent and more than `least` bytes above the mean.
    """
    load = {broker: sum(sizes[broker].values()) for broker in brokers}
    mean = sum(load.values()) / max(1, len(load))
    bound = mean + max(mean * percent / 100, least)
    if max(load.values(), default=0) <= bound:
        return {}
    # A plan aims at half of the threshold, so that the next plan does not follow at once.
    goal = mean + max(mean * percent / 200, least / 2)
    steady = [one for one in metadata.partitions if not one.moving and one.isr.issuperset(one.replicas)]
    moves: Moves = {}
    while len(moves) < room:
        source = max(load, key=lambda i: (load[i], -i))
        if load[source] <= goal:
            break
        move = _byte_move(metadata, steady, sizes, load, source, moves)
        swap = None
        if move is None and len(moves) + 2 <= room:
            swap = _swap(metadata, steady, sizes, load, source, moves)
        if move is not None:
            todo = [(move[0], source, move[1])]
        elif swap is not None:
            given, taken, target = swap
            todo = [(given, source, target), (taken, target, source)]
        else:
            break
        for partition, giver, taker in todo:
            key = (partition.topic, partition.number)
            moves[key] = tuple(taker if i == giver else i for i in partition.replicas)
            load[giver] -= sizes[giver][key]
            load[taker] += sizes[giver][key]
    return moves


def _byte_move(
    metadata: Metadata, steady: list[Partition], sizes: Sizes, load: Mapping[int, int], source: int, moves: Moves
) -> tuple[Partition, int] | None:
    """The next move by bytes: a partition and its target. The largest replica that leaves `target` at most as full."""
    mine = [one for one in steady if source in one.replicas and (one.topic, one.number) not in moves]
    for target in sorted(load, key=lambda i: (load[i], i)):
        half = (load[source] - load[target]) // 2
        fit = [
            one
            for one in mine
            if 0 < sizes[source].get((one.topic, one.number), 0) <= half
            and target not in one.replicas
            and _keeps_racks(metadata, one.replicas, source, target)
        ]
        if fit:
            return max(fit, key=lambda one: (sizes[source][one.topic, one.number], one.name)), target
    return None


def _swap(
    metadata: Metadata, steady: list[Partition], sizes: Sizes, load: Mapping[int, int], source: int, moves: Moves
) -> tuple[Partition, Partition, int] | None:
    """The next exchange by bytes: the partition that `source` gives, the partition that it takes, and its partner.

    Of all exchanges with the emptiest partner, the one that brings the two closest to each other.
    """

    def able(giver: int, taker: int) -> list[tuple[int, str, Partition]]:
        """Replicas that may move from `giver` to `taker`, by size."""
        return sorted(
            (sizes[giver].get((one.topic, one.number), 0), one.name, one)
            for one in steady
            if giver in one.replicas
            and taker not in one.replicas
            and (one.topic, one.number) not in moves
            and _keeps_racks(metadata, one.replicas, giver, taker)
        )

    for target in sorted(load, key=lambda i: (load[i], i)):
        half = (load[source] - load[target]) // 2
        theirs = able(target, source) if half > 0 else []
        best: tuple[int, Partition, Partition] | None = None
        for size, _, given in able(source, target) if theirs else ():
            first = bisect_left(theirs, size - half, key=lambda item: item[0])
            for other, _, taken in theirs[first : first + SWAP_TRIES]:
                gain = size - other
                if gain > 0 and gain >= SWAP_GAIN_MIN * (size + other) and (best is None or gain > best[0]):
                    best = (gain, given, taken)
        if best is not None:
            return best[1], best[2], target
    return None


def _keeps_racks(metadata: Metadata, replicas: tuple[int, ...], source: int, target: int) -> bool:
    others = {rack_of(metadata, i) for i in replicas if i != source}
    return len(others | {rack_of(metadata, target)}) >= len(others | {rack_of(metadata, source)})


def balanced_leaders(metadata: Metadata, brokers: list[int], room: int, percent: int) -> Moves:
    """Reordered replica lists of at most `room` partitions, balanced by preferred leaders.

    Empty unless a broker leads more than `percent` percent above the mean.
    """
    led = Counter(dict.fromkeys(brokers, 0))
    led.update(one.replicas[0] for one in metadata.partitions if one.replicas and one.replicas[0] in led)
    mean = sum(led.values()) / max(1, len(led))
    if max(led.values(), default=0) <= mean * (1 + percent / 100):
        return {}
    moves: Moves = {}
    steady = [one for one in metadata.partitions if not one.moving and one.isr.issuperset(one.replicas)]
    while len(moves) < room:
        found = _leader_move(steady, led, moves)
        if found is None:
            break
        partition, target = found
        rest = [i for i in partition.replicas if i != target]
        moves[partition.topic, partition.number] = (target, *rest)
        led[partition.replicas[0]] -= 1
        led[target] += 1
    return moves


def _leader_move(steady: list[Partition], led: Counter[int], moves: Moves) -> tuple[Partition, int] | None:
    """The next leader move: from the broker that leads most to a replica on a broker that leads at least two fewer."""
    for source in sorted(led, key=lambda i: (-led[i], i)):
        free = [
            (led[target], target, one)
            for one in steady
            if one.replicas[0] == source and (one.topic, one.number) not in moves
            for target in one.replicas[1:]
            if target in led and led[source] - led[target] >= 2
        ]
        if free:
            _, target, partition = min(free, key=lambda item: (item[0], item[1], item[2].name))
            return partition, target
    return None
