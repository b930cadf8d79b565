"""Balance against a simple slow twin: its promises, counted one by one, over small clusters of every shape."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from kraft_operator.plan.model import observed as seen
from kraft_operator.plan.replicas.balance import balanced, loads
from tests.tiers import examples

IDS = (101, 102, 103, 104, 105)


@st.composite
def clusters(draw: st.DrawFn) -> tuple[seen.Metadata, list[int]]:
    """Brokers with or without racks, partitions of one to three replicas anywhere."""
    brokers = sorted(draw(st.sets(st.sampled_from(IDS), min_size=2)))
    names = draw(st.sampled_from([("",), ("x", "y"), ("x", "y", "z")]))
    racks = {node_id: draw(st.sampled_from(names)) for node_id in brokers}
    replicas = st.permutations(brokers).flatmap(
        lambda order: st.integers(1, min(3, len(order))).map(lambda count: tuple(order[:count]))
    )
    lists = draw(st.lists(replicas, max_size=14))
    parts = tuple(seen.Partition("t", number, ids, frozenset(ids), 1) for number, ids in enumerate(lists))
    return seen.Metadata({i: seen.Broker(rack=rack) for i, rack in racks.items()}, parts), brokers


def _moved(metadata: seen.Metadata, moves: dict[tuple[str, int], tuple[int, ...]]) -> seen.Metadata:
    parts = []
    for one in metadata.partitions:
        replicas = moves.get((one.topic, one.number), one.replicas)
        parts.append(seen.Partition(one.topic, one.number, replicas, frozenset(replicas), one.min_isr))
    return seen.Metadata(metadata.brokers, tuple(parts))


def _racks(metadata: seen.Metadata, replicas: tuple[int, ...]) -> int:
    return len({metadata.brokers[i].rack for i in replicas})


def _could_be_better(metadata: seen.Metadata, brokers: list[int]) -> bool:
    """The slow twin: whether any single move would even out two counts and keep all racks."""
    load = loads(metadata, brokers)
    for one in metadata.partitions:
        for source in one.replicas:
            for target in brokers:
                after = tuple(target if i == source else i for i in one.replicas)
                closer = target not in one.replicas and load[source] - load[target] >= 2
                if closer and _racks(metadata, after) >= _racks(metadata, one.replicas):
                    return True
    return False


@settings(deadline=None, max_examples=examples(150))
@given(cluster=clusters(), room=st.integers(1, 5))
def test_balancing_ends_in_an_optimum_with_the_fewest_moves(
    cluster: tuple[seen.Metadata, list[int]], room: int
) -> None:
    before, brokers = cluster
    metadata, count = before, 0
    while moves := balanced(metadata, brokers, room):
        assert len(moves) <= room
        count += len(moves)
        assert count <= 200, "it does not end"
        metadata = _moved(metadata, moves)
    assert not _could_be_better(metadata, brokers)
    for old, new in zip(before.partitions, metadata.partitions, strict=True):
        assert len(set(new.replicas)) == len(old.replicas)
        assert _racks(before, new.replicas) >= _racks(before, old.replicas)
    if len({broker.rack for broker in before.brokers.values()}) == 1:
        load = loads(before, brokers)
        each, more = divmod(sum(load.values()), len(brokers))
        wanted = sorted([each + 1] * more + [each] * (len(brokers) - more))
        if sorted(loads(metadata, brokers).values()) == wanted:
            # As few moves as possible: a broker with too many replicas gives away only the surplus.
            least = sum(max(0, have - want) for have, want in zip(sorted(load.values()), wanted, strict=True))
            assert count == least


@settings(deadline=None, max_examples=examples(50))
@given(cluster=clusters())
def test_moving_partitions_are_not_moved_again(cluster: tuple[seen.Metadata, list[int]]) -> None:
    metadata, brokers = cluster
    still = tuple(
        seen.Partition(one.topic, one.number, one.replicas, one.isr, 1, moving=True) for one in metadata.partitions
    )
    assert balanced(seen.Metadata(metadata.brokers, still), brokers, 50) == {}
