"""Placement of the replicas of new partitions (KIP-36, KIP-631)."""

from __future__ import annotations

import random
from collections import Counter

import pytest

from kraft_node.controller.partitions.placement import StripedPlacer, UsableBroker
from kraft_protocol.errors import ErrorCode, KafkaError


def placed(brokers: list[UsableBroker], partitions: int, replicas: int, seed: int = 1) -> list[list[int]]:
    return StripedPlacer(brokers, random.Random(seed)).place(partitions, replicas)


@pytest.mark.parametrize("racks", [1, 3])
def test_all_other_brokers_share_the_partitions_of_a_broker_that_ends(racks: int) -> None:
    """They all went to the next broker: without racks, the order of the brokers was never shuffled."""
    brokers = [UsableBroker(i, f"rack{i % racks}" if racks > 1 else None, False) for i in range(6)]
    rows = placed(brokers, 600, 3)
    assert Counter(row[0] for row in rows) == dict.fromkeys(range(6), 100), "each leads as often as the others"
    for ended in range(6):
        heirs = Counter(row[1] for row in rows if row[0] == ended)
        others = [i for i in range(6) if i != ended and (racks == 1 or i % racks != ended % racks)]
        assert set(heirs) == set(others)
        assert max(heirs.values()) <= 2 * 100 / len(others)


def test_a_partition_has_each_broker_once_and_racks_as_far_as_they_go() -> None:
    brokers = [UsableBroker(i, f"rack{i % 3}", False) for i in range(7)]
    for row in placed(brokers, 100, 3):
        assert len({i % 3 for i in row}) == 3
    for row in placed(brokers, 100, 7):
        assert sorted(row) == list(range(7))


def test_fenced_brokers_never_lead_and_come_last() -> None:
    brokers = [UsableBroker(i, None, i >= 4) for i in range(6)]
    for row in placed(brokers, 100, 5):
        assert set(row[:4]) == {0, 1, 2, 3}
        assert row[4] in {4, 5}


def test_what_cannot_be_placed_is_refused() -> None:
    for brokers, replicas in (([UsableBroker(1, None, True)], 1), ([UsableBroker(1, None, False)], 2), ([], 0)):
        with pytest.raises(KafkaError) as caught:
            placed(brokers, 1, replicas)
        assert caught.value.code is ErrorCode.INVALID_REPLICATION_FACTOR
