"""How replicas that are read over the network share tasks."""

from __future__ import annotations

from collections import Counter

import pytest

from kraft_pipeline.scrub.wire import PLACES, TASK_OFFSETS, tasks_of


def test_small_replicas_share_tasks() -> None:
    """Each replica had a task of its own, and a task costs some 50 ms."""
    assert set(tasks_of([10] * 10_000, 4)) == {0, 1, 2, 3}
    assert set(Counter(tasks_of([10] * 10_000, 4)).values()) == {2_500}
    assert set(Counter(tasks_of([0] * 100, 4)).values()) == {25}


def test_large_replicas_have_tasks_of_their_own() -> None:
    offsets = [TASK_OFFSETS * 3, 1, 1, TASK_OFFSETS * 3, 1]
    tasks = tasks_of(offsets, 2)
    assert max(tasks) == 4, "there are no more replicas"
    assert tasks[0] != tasks[3]
    assert sorted(Counter(tasks).values()) == [1] * 5
    mixed = tasks_of([TASK_OFFSETS, *[1] * 1000], 2)
    assert Counter(mixed)[mixed[0]] == 1, "the small ones go elsewhere"


@pytest.mark.parametrize("parallelism", [1, 8])
def test_few_replicas_make_few_tasks(parallelism: int) -> None:
    assert tasks_of([], parallelism) == []
    assert sorted(tasks_of([5, 5], parallelism)) == ([0, 0] if parallelism == 1 else [0, 1])


def test_places_are_those_of_the_rows() -> None:
    assert (PLACES["topic"], PLACES["base"], PLACES["high"], PLACES["compacted"]) == (0, 6, 7, 8)
