"""Balance by load over small clusters of every shape: it ends, every plan makes brokers more alike, racks stay."""

from __future__ import annotations

from collections import Counter

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.replicas.load import balanced_bytes, balanced_leaders
from tests.tiers import examples

IDS = (101, 102, 103, 104)
PERCENT = 20
Sizes = dict[int, dict[tuple[str, int], int]]


@st.composite
def clusters(draw: st.DrawFn) -> tuple[seen.Metadata, list[int], Sizes]:
    """Brokers with or without racks; in-sync partitions, each with a size."""
    brokers = sorted(draw(st.sets(st.sampled_from(IDS), min_size=2)))
    names = draw(st.sampled_from([("",), ("x", "y")]))
    racks = {node_id: draw(st.sampled_from(names)) for node_id in brokers}
    replicas = st.permutations(brokers).flatmap(
        lambda order: st.integers(1, min(3, len(order))).map(lambda count: tuple(order[:count]))
    )
    lists = draw(st.lists(replicas, max_size=12))
    parts = tuple(seen.Partition("t", number, ids, frozenset(ids), 1) for number, ids in enumerate(lists))
    bytes_of = [draw(st.integers(0, 1000)) for _ in parts]
    sizes: Sizes = {i: {} for i in brokers}
    for one, size in zip(parts, bytes_of, strict=True):
        for i in one.replicas:
            sizes[i]["t", one.number] = size
    return seen.Metadata({i: seen.Broker(rack=rack) for i, rack in racks.items()}, parts), brokers, sizes


def _moved(metadata: seen.Metadata, sizes: Sizes, moves: dict[tuple[str, int], tuple[int, ...]]) -> seen.Metadata:
    parts = []
    for one in metadata.partitions:
        key = (one.topic, one.number)
        now = moves.get(key, one.replicas)
        size = sizes[one.replicas[0]].get(key, 0)
        for i in one.replicas:
            sizes[i].pop(key, None)
        for i in now:
            sizes[i][key] = size
        parts.append(seen.Partition(one.topic, one.number, now, frozenset(now), one.min_isr))
    return seen.Metadata(metadata.brokers, tuple(parts))


def _squares(values: list[int]) -> int:
    return sum(value * value for value in values)


@settings(deadline=None, max_examples=examples(200))
@given(cluster=clusters(), room=st.integers(1, 4), least=st.sampled_from([0, 100]))
def test_plans_reduce_differences_in_bytes_and_end(
    cluster: tuple[seen.Metadata, list[int], Sizes], room: int, least: int
) -> None:
    metadata, brokers, sizes = cluster
    racks = {i: one.rack for i, one in metadata.brokers.items()}
    for _ in range(100):
        moves = balanced_bytes(metadata, brokers, sizes, room, PERCENT, least)
        if not moves:
            break
        before = [sum(sizes[i].values()) for i in brokers]
        mean = sum(before) / len(before)
        assert max(before) > mean + max(mean * PERCENT / 100, least), "nothing moves within the threshold"
        assert len(moves) <= room
        for one in metadata.partitions:
            now = moves.get((one.topic, one.number), one.replicas)
            assert len(set(now)) == len(one.replicas)
            assert len({racks[i] for i in now}) >= len({racks[i] for i in one.replicas})
        metadata = _moved(metadata, sizes, moves)
        assert _squares([sum(sizes[i].values()) for i in brokers]) < _squares(before)
    else:
        raise AssertionError("it does not end")


def _could_swap(metadata: seen.Metadata, brokers: list[int], sizes: Sizes) -> bool:
    """Whether some exchange with the fullest broker brings two brokers closer to each other, by trying all."""
    load = {i: sum(sizes[i].values()) for i in brokers}
    racks = {i: one.rack for i, one in metadata.brokers.items()}
    source = max(load, key=lambda i: (load[i], -i))

    def may(one: seen.Partition, giver: int, taker: int) -> bool:
        now = [taker if i == giver else i for i in one.replicas]
        spread = len({racks[i] for i in now}) >= len({racks[i] for i in one.replicas})
        return giver in one.replicas and taker not in one.replicas and spread

    for target in brokers:
        for given_ in (one for one in metadata.partitions if may(one, source, target)):
            for taken in (one for one in metadata.partitions if may(one, target, source)):
                more, less = sizes[source]["t", given_.number], sizes[target]["t", taken.number]
                if 0 < more - less <= (load[source] - load[target]) // 2 and more - less >= 0.1 * (more + less):
                    return True
    return False


@settings(deadline=None, max_examples=examples(200))
@given(cluster=clusters(), least=st.sampled_from([0, 100]))
def test_beyond_the_threshold_replicas_stay_only_if_no_swap_helps(
    cluster: tuple[seen.Metadata, list[int], Sizes], least: int
) -> None:
    metadata, brokers, sizes = cluster
    load = [sum(sizes[i].values()) for i in brokers]
    mean = sum(load) / len(load)
    if max(load) > mean + max(mean * PERCENT / 100, least) and not balanced_bytes(
        metadata, brokers, sizes, 2, PERCENT, least
    ):
        assert not _could_swap(metadata, brokers, sizes)


@settings(deadline=None, max_examples=examples(200))
@given(cluster=clusters(), room=st.integers(1, 4))
def test_leaders_are_balanced_without_moving_a_byte(cluster: tuple[seen.Metadata, list[int], Sizes], room: int) -> None:
    metadata, brokers, sizes = cluster
    for _ in range(100):
        moves = balanced_leaders(metadata, brokers, room, PERCENT)
        if not moves:
            break
        led = Counter(one.replicas[0] for one in metadata.partitions)
        for one in metadata.partitions:
            assert set(moves.get((one.topic, one.number), one.replicas)) == set(one.replicas)
        metadata = _moved(metadata, sizes, moves)
        after = Counter(one.replicas[0] for one in metadata.partitions)
        assert _squares([after[i] for i in brokers]) < _squares([led[i] for i in brokers])
    else:
        raise AssertionError("it does not end")
