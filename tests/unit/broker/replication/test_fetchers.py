"""Which fetcher follows which partition: one for each leader and lane; partitions move when the number changes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from kraft_node.broker.replication import fetchers as module
from kraft_node.broker.replication.fetchers import Fetchers, fetcher_number
from tests.unit.broker.world import topic_id


@dataclass(eq=False)
class Partition:
    """The parts of a partition that fetchers use before they fetch."""

    topic: str
    index: int
    leader_id: int
    leader_epoch: int = 0
    topic_id: Any = field(default_factory=lambda: topic_id(1))


class Recorded:
    """Replaces a fetcher; records its partitions and its lane."""

    made: list[Recorded]

    def __init__(self, env: Any, node_id: int, source: int, settings: Any, epoch: Any, peer: Any, quota: Any) -> None:
        self.source = source
        self.lane = peer()
        self.keys: set[Any] = set()
        self.closed = False
        self.bytes_in = 0
        Recorded.made.append(self)

    def add(self, partition: Partition) -> None:
        self.keys.add((partition.topic_id, partition.index))

    def remove(self, key: Any) -> None:
        self.keys.discard(key)

    def __len__(self) -> int:
        return len(self.keys)

    def close(self) -> None:
        self.closed = True


@pytest.fixture
def fetchers(monkeypatch: pytest.MonkeyPatch) -> Fetchers:
    Recorded.made = []
    monkeypatch.setattr(module, "Fetcher", Recorded)
    monkeypatch.setattr(module, "FetcherSettings", lambda config: config)
    none: Any = None
    return Fetchers(none, 1, none, none, lambda node_id, lane: (node_id, lane), none)  # type: ignore[arg-type,return-value]


def now() -> dict[Any, set[int]]:
    """The numbers of the partitions by the lane that fetches them."""
    return {made.lane: {index for _, index in made.keys} for made in Recorded.made if not made.closed}


def test_each_leader_has_one_fetcher_by_default(fetchers: Fetchers) -> None:
    for index in range(4):
        fetchers.follow(Partition("t", index, leader_id=2 + index % 2))  # type: ignore[arg-type]
    assert now() == {(2, 0): {0, 2}, (3, 0): {1, 3}}


def test_partitions_move_when_the_number_changes_and_back(fetchers: Fetchers) -> None:
    partitions = [Partition("t", index, leader_id=2) for index in range(4)]
    for partition in partitions:
        fetchers.follow(partition)  # type: ignore[arg-type]
    fetchers.resize(2)
    assert now() == {(2, 0): {0, 2}, (2, 1): {1, 3}}
    partitions[1].leader_id, partitions[1].leader_epoch = 3, 1
    fetchers.follow(partitions[1])  # type: ignore[arg-type]
    assert now() == {(2, 0): {0, 2}, (2, 1): {3}, (3, 1): {1}}
    fetchers.drop(partitions[3])  # type: ignore[arg-type]
    assert now() == {(2, 0): {0, 2}, (3, 1): {1}}
    fetchers.resize(1)
    assert now() == {(2, 0): {0, 2}, (3, 0): {1}}
    assert len(fetchers) == 3


@pytest.mark.parametrize(
    ("topic", "index", "count", "number"),
    [
        ("t", 49, 7, 5), ("foo", 1, 3, 1), ("histories", 0, 7, 3), ("__consumer_offsets", 49, 7, 6),
        ("orders.eu-west_1", 1, 7, 0), ("orders.eu-west_1", 0, 3, 2), ("zzzzzzzz", 49, 7, 0), ("zzzzzzzz", 0, 1, 0),
    ],
)  # fmt: skip
def test_a_partition_belongs_to_the_fetcher_that_java_would_choose(
    topic: str, index: int, count: int, number: int
) -> None:
    """The numbers come from Java's String.hashCode and Kafka's Utils.abs."""
    assert fetcher_number(topic, index, count) == number
