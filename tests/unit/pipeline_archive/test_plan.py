"""Reassignments: balanced, across racks, by bytes, and with the fewest moves."""

from __future__ import annotations

import json
from random import Random

import pytest

from kraft_pipeline.archive.errors import ArchiveError
from kraft_pipeline.archive.plan import Assignment, from_json, plan, score, to_json

RACKS = {number: f"r{number % 3}" for number in range(6)}


def made(partitions: int, brokers: int, replicas: int = 3) -> Assignment:
    return {("t", p): [(p + i) % brokers for i in range(replicas)] for p in range(partitions)}


def lists_are_sound(after: Assignment, brokers: set[int]) -> None:
    for replicas in after.values():
        assert len(set(replicas)) == len(replicas)
        assert set(replicas) <= brokers


def test_a_balanced_cluster_stays() -> None:
    assert plan(made(60, 6), dict.fromkeys(range(6))) == {}


def test_new_brokers_get_their_share_with_the_fewest_moves() -> None:
    before, racks = made(100, 4), dict.fromkeys(range(5))
    after = plan(before, racks)
    result = score(before, after, racks, {})
    assert result.moved_replicas == 60  # a fifth of 300: no plan as balanced moves fewer
    assert (result.replicas_min, result.replicas_max) == (60, 60)
    assert (result.leaders_min, result.leaders_max) == (20, 20)
    lists_are_sound(after, set(racks))


def test_removed_brokers_are_emptied_with_one_move_a_replica() -> None:
    before, racks = made(90, 6), dict.fromkeys(range(5))
    result = score(before, plan(before, racks), racks, {})
    assert result.moved_replicas == 45
    assert (result.replicas_min, result.replicas_max) == (54, 54)


@pytest.mark.parametrize("seed", range(20))
def test_any_cluster_becomes_level_within_its_racks(seed: int) -> None:
    rng = Random(seed)
    before = {("t", p): rng.sample(range(6), rng.randint(1, 3)) for p in range(rng.randint(1, 200))}
    after = plan(before, RACKS)
    result = score(before, after, RACKS, {})
    lists_are_sound({**before, **after}, set(RACKS))
    assert {key: len(r) for key, r in after.items()} == {key: len(before[key]) for key in after}
    assert result.rack_violations == 0
    assert result.replicas_max - result.replicas_min <= 1
    assert result.leaders_max - result.leaders_min <= 1 or all(len(r) == 1 for r in before.values())


def test_racks_limit_how_even_a_cluster_becomes() -> None:
    """A rack with one broker has a replica of each partition, in excess of its share: the planner never ended."""
    before, racks = {("t", p): [1, 2 + p % 3 % 2] for p in range(12)}, {1: "a", 2: "b", 3: "b"}
    result = score(before, plan(before, racks), racks, {})
    assert (result.replicas_min, result.replicas_max, result.rack_violations, result.moved_replicas) == (6, 12, 0, 2)
    assert (result.leaders_min, result.leaders_max) == (4, 4)


@pytest.mark.parametrize("seed", range(60))
def test_any_racks_are_balanced(seed: int) -> None:
    """Racks of any size, or none; brokers that are removed; as many replicas as brokers."""
    rng = Random(seed)
    racks = {broker: rng.choice([None, "a", "b", "c"]) for broker in range(rng.randint(1, 8))}
    brokers = [*racks, *range(8, 8 + rng.randint(0, 2))]
    before = {}
    for topic in range(5):
        count = rng.randint(1, len(racks))
        before |= {(f"t{topic}", p): rng.sample(brokers, count) for p in range(rng.randint(1, 12))}
    sizes = {key: rng.randint(0, 1 << 30) for key in before if seed % 2}
    after = plan(before, racks, sizes)
    whole = {**before, **after}
    lists_are_sound(whole, set(racks))
    assert {key: len(replicas) for key, replicas in whole.items()} == {key: len(r) for key, r in before.items()}
    now, then = score(before, {}, racks, sizes), score(before, after, racks, sizes)
    assert then.rack_violations <= now.rack_violations or len(brokers) > len(racks)


def test_bytes_are_levelled_by_swaps() -> None:
    rng = Random(7)
    before = made(120, 6)
    sizes = {key: int(rng.paretovariate(1.5) * 1000) for key in before}
    racks = dict.fromkeys(range(6))
    now, then = score(before, {}, racks, sizes), score(before, plan(before, racks, sizes), racks, sizes)
    average = sum(3 * size for size in sizes.values()) / 6
    assert then.bytes_max <= 1.05 * average < now.bytes_max
    assert then.replicas_max - then.replicas_min <= 1
    assert then.moved_bytes < 0.5 * 6 * average


def test_too_few_brokers_for_a_plan_are_refused() -> None:
    with pytest.raises(ArchiveError, match="3 replicas, but there are 2 brokers"):
        plan(made(4, 3), {0: None, 1: None})


def test_the_document_has_the_form_of_kafkas() -> None:
    document = to_json({("b", 1): [2, 1], ("a", 0): [1]})
    assert json.dumps(document) == (
        '{"version": 1, "partitions": [{"topic": "a", "partition": 0, "replicas": [1]}, '
        '{"topic": "b", "partition": 1, "replicas": [2, 1]}]}'
    )
    assert from_json(document) == {("a", 0): [1], ("b", 1): [2, 1]}
    with pytest.raises(ArchiveError, match="not a reassignment"):
        from_json({"partitions": [{"topic": "a"}]})
