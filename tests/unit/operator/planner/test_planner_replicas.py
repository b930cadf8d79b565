"""Whole stories of replicas: balance, replication factors, throttles."""

from __future__ import annotations

from dataclasses import replace

import pytest

from kraft_operator.plan.model import steps as do
from kraft_operator.plan.model.observed import Broker, Metadata, Partition
from kraft_operator.plan.model.steps import Blocked
from kraft_operator.plan.replicas.balance import loads
from kraft_operator.plan.replicas.moves import RATES
from kraft_operator.plan.replicas.resize import _replicas
from tests.unit.operator.outcomes import blocked
from tests.unit.operator.world import Partition as WorldPartition
from tests.unit.operator.world import World, made, wanted

# Balance


def _loads(world: World) -> dict[int, int]:
    found = dict.fromkeys(sorted(world.registered), 0)
    for partition in world.partitions.values():
        for node_id in partition.replicas:
            found[node_id] += 1
    return found


def test_a_new_broker_gets_replicas_with_as_few_moves_as_possible() -> None:
    world = made(balance_new=True)
    world.make_topics(count=12)
    world.done.clear()
    world.wanted = wanted(brokers=4, balance_new=True)
    world.settle()
    assert _loads(world) == {101: 9, 102: 9, 103: 9, 104: 9}
    moved = sum(len(step.moves) for step in world.done if isinstance(step, do.Reassign))
    assert moved == 9
    world.done.clear()
    world.settle()
    assert not world.actions(do.Reassign)


def test_topics_of_a_new_cluster_stay_where_their_owner_has_placed_them() -> None:
    """On a real cluster: a topic that was created within a second after the first brokers were ready, and placed on two
    of them, moved to the third, because all brokers still counted as new."""
    world = World(wanted(balance_new=True))
    while len(world.registered) < 3:
        world.step()
    for index in range(8):
        world.partitions["heavy", index] = WorldPartition((101, 102), {101, 102}, min_isr=1)
    world.settle()
    assert not world.actions(do.Reassign)
    world.wanted = wanted(brokers=4, balance_new=True)
    world.settle()
    assert _loads(world) == dict.fromkeys((101, 102, 103, 104), 4), "a later broker gets its share of everything"


def test_replicas_move_to_a_new_broker_only_on_request() -> None:
    world = made()
    world.make_topics(count=12)
    world.wanted = wanted(brokers=4)
    world.settle()
    assert _loads(world)[104] == 0
    world.wanted = wanted(brokers=4, balance="please")
    world.settle()
    assert max(_loads(world).values()) - min(_loads(world).values()) <= 1
    assert world.record.balanced_for == "please"


def test_balance_keeps_the_racks_of_a_partition_apart() -> None:
    racks = {101: "x", 102: "y", 103: "x", 104: "y"}
    world = World(wanted(brokers=2, racks=True, balance_new=True), racks=racks, volume_racks=racks)
    world.settle()
    world.make_topics(rf=2, count=10)
    world.wanted = wanted(brokers=4, racks=True, balance_new=True)
    world.settle()
    assert _loads(world) == {101: 5, 102: 5, 103: 5, 104: 5}
    for partition in world.partitions.values():
        assert {racks[i] for i in partition.replicas} == {"x", "y"}


def test_moves_wait_for_a_broker_that_is_down() -> None:
    world = made(balance_new=True)
    world.make_topics(count=12)
    world.wanted = wanted(brokers=4, balance_new=True, skip=frozenset({102}))
    world.kill(102)
    for _ in range(30):
        world.step()
    assert not world.actions(do.Reassign)
    assert "replicas are balanced once all brokers serve" in world.last.waits


# More or fewer replicas


def _counts(world: World) -> set[int]:
    return {len(partition.replicas) for partition in world.partitions.values()}


def test_replicas_of_topics_change_a_few_partitions_at_a_time() -> None:
    world = made(brokers=4)
    world.make_topics(rf=2, count=12)
    topics = sorted({topic for topic, _ in world.partitions})
    world.done.clear()
    world.wanted = wanted(brokers=4, drain_at_once=5, topic_replicas=dict.fromkeys(topics, 3))
    world.settle()
    assert _counts(world) == {3}
    assert max(len(step.moves) for step in world.done if isinstance(step, do.Reassign)) <= 5
    firsts = {key: (partition.replicas[0],) for key, partition in world.partitions.items()}
    world.wanted = wanted(brokers=4, topic_replicas=dict.fromkeys(topics, 1))
    world.settle()
    assert {key: partition.replicas for key, partition in world.partitions.items()} == firsts


def test_replicas_without_enough_brokers_are_reported() -> None:
    world = made()
    world.make_topics(rf=2, count=4)
    topics = sorted({topic for topic, _ in world.partitions})
    world.wanted = wanted(topic_replicas=dict.fromkeys(topics, 4))
    assert "only brokers [101, 102, 103]" in blocked(world)["TooFewBrokers"]
    assert not world.actions(do.Reassign)


def test_fewer_replicas_permit_a_broker_to_leave() -> None:
    world = made()
    world.make_topics(rf=3, count=4)
    topics = sorted({topic for topic, _ in world.partitions})
    world.wanted = wanted(brokers=2)
    assert "CannotDrain" in blocked(world)
    world.wanted = wanted(brokers=2, topic_replicas=dict.fromkeys(topics, 2))
    world.settle()
    assert set(_loads(world)) == {101, 102}


def test_replicas_out_of_sync_are_removed_first() -> None:
    partition = Partition("t", 0, (1, 2, 3), frozenset({1, 2}), 2)
    metadata = Metadata(dict.fromkeys((1, 2, 3), Broker()), (partition,))
    load = loads(metadata, [1, 2, 3])
    assert _replicas(metadata, partition, 2, load) == (1, 2)
    assert _replicas(metadata, replace(partition, isr=frozenset({2})), 2, load) == (1, 2)
    found = _replicas(metadata, replace(partition, isr=frozenset({2, 3})), 1, load)
    assert isinstance(found, Blocked)
    assert "t-0 would have 0 in-sync replicas of at least 1" in found.message


# Throttle


@pytest.mark.parametrize("what", ["drain", "balance"])
def test_a_throttle_is_set_before_moves_and_removed_after_them(what: str) -> None:
    world = made(brokers=4)
    world.make_topics(count=12)
    world.done.clear()
    if what == "drain":
        world.wanted = wanted(brokers=3, drain_bytes=1000, drain_at_once=5)
    else:
        world.wanted = wanted(brokers=5, drain_bytes=1000, drain_at_once=5, balance="now")
    applied = world.apply

    def held(step: do.Step) -> None:
        if isinstance(step, do.Reassign):
            assert {topic for topic, _ in step.moves} <= world.throttled
            assert {world.dynamic[key] for key in RATES} == {"1000"}
            assert len(step.moves) <= 5
        applied(step)

    world.apply = held  # type: ignore[method-assign]
    world.settle()
    assert len(world.actions(do.Reassign)) > 1
    assert not world.throttled
    assert not world.dynamic
