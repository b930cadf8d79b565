"""The sender of markers: leaders that move, refuse, do not answer, or do not exist."""

from __future__ import annotations

import itertools

import pytest

from kraft_node.broker.coordinators.transaction.completions import LINGER_MS
from kraft_node.broker.coordinators.transaction.markers import WRITTEN_AT_ONCE
from kraft_node.broker.coordinators.transaction.seams import NO_LEADER, Marker
from kraft_node.broker.coordinators.transaction.states import TransactionState
from kraft_protocol.errors import ErrorCode
from tests.unit.coordinators.transaction.world import OWN_NODE, Link, World

A, A1, B = ("a", 0), ("a", 1), ("b", 0)


@pytest.fixture
def world() -> World:
    return World().elect()


def ending(world: World, *partitions: tuple[str, int], name: str = "t") -> tuple[int, int]:
    """A transaction whose commit is stored."""
    producer = world.producer(name)
    world.add(producer, *partitions, name=name)
    assert world.end(producer, commit=True, name=name, version=4) == ErrorCode.NONE
    world.time.advance()
    return producer


def is_complete(world: World, name: str = "t") -> bool:
    world.time.advance(LINGER_MS)
    return world.transaction(name).values.state is TransactionState.COMPLETE_COMMIT


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ],
)
def test_a_refused_marker_is_sent_again_alone(world: World, code: ErrorCode) -> None:
    ending(world, A, B)
    world.links[1].answer(a=code)
    world.time.advance(1)
    assert not world.links[1].asked
    assert world.coordinator.sender.without_leader == 1
    world.time.advance(30)
    again = world.links[1].answer()
    assert [topic.name for topic in again.markers[0].topics] == ["a"]
    assert is_complete(world)
    assert world.coordinator.sender.without_leader == 0


def test_markers_of_own_partitions_complete_the_transaction_before_the_next_request(world: World) -> None:
    world.leaders |= {A: OWN_NODE, B: OWN_NODE}
    producer = world.producer()
    world.add(producer, A, B)
    assert world.end(producer, commit=True, version=4) == ErrorCode.NONE
    assert {(topic, index) for topic, index, _ in world.written_here} == {A, B}
    assert {marker for _, _, marker in world.written_here} == {Marker(*producer, 3, True, 0)}
    assert world.add(producer, A) == {A: ErrorCode.NONE}
    assert not world.coordinator.sender._endings


def test_refused_marker_of_an_own_partition_follows_its_leader(world: World) -> None:
    world.leaders |= {A: OWN_NODE, B: OWN_NODE}
    world.here = lambda done: done(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    ending(world, A, B)
    assert world.coordinator.sender.without_leader == 1
    world.leaders[A] = 2
    world.here = lambda done: done(ErrorCode.NONE)
    world.time.advance(30)
    assert world.describe("t")[0].topics[0].topic == "a"
    world.links[2].answer()
    assert is_complete(world)
    assert [(topic, index) for topic, index, _ in world.written_here].count(B) == 2


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_fenced_marker_of_an_own_partition_ends_the_sending(world: World, code: ErrorCode) -> None:
    world.leaders |= {A: OWN_NODE, B: OWN_NODE}
    world.here = lambda done: done(code)
    ending(world, A, B)
    assert len(world.written_here) == 1
    assert not is_complete(world)


def test_marker_of_an_own_partition_counts_when_it_is_replicated(world: World) -> None:
    world.leaders[A] = OWN_NODE
    waiting = []
    world.here = waiting.append
    producer = ending(world, A)
    assert world.add(producer, A) == {A: ErrorCode.CONCURRENT_TRANSACTIONS}
    waiting.pop()(ErrorCode.NONE)
    assert is_complete(world)


def test_commit_by_a_follower_writes_own_markers_in_the_next_turn(world: World) -> None:
    world.leaders[A] = OWN_NODE
    producer = world.producer()
    world.add(producer, A)
    world.logs.hold = True
    assert world.end(producer, commit=True, version=4) is None
    world.logs.commit()
    assert world.written_here == [], "nothing is appended in the midst of a follower's fetch"
    world.logs.hold = False
    assert is_complete(world)


def test_marker_of_an_own_partition_after_a_resignation_changes_nothing(world: World) -> None:
    world.leaders[A] = OWN_NODE
    waiting = []
    world.here = waiting.append
    ending(world, A)
    world.coordinator.on_resign(0)
    waiting.pop()(ErrorCode.NONE)
    world.here = lambda done: done(ErrorCode.NONE)
    world.elect(4)
    assert is_complete(world)
    assert [marker.coordinator_epoch for _, _, marker in world.written_here] == [3, 4]


def test_many_markers_of_own_partitions_are_handled_in_turns(world: World) -> None:
    many = [("many", number) for number in range(WRITTEN_AT_ONCE + 5)]
    world.leaders |= dict.fromkeys(many, OWN_NODE)
    world.links[OWN_NODE] = Link()
    ending(world, *many)
    assert len(world.written_here) == WRITTEN_AT_ONCE
    (topic,) = world.links[OWN_NODE].answer().markers[0].topics
    assert len(topic.partition_indexes) == 5
    assert is_complete(world)


def test_a_marker_follows_its_partition_to_a_new_leader(world: World) -> None:
    ending(world, A)
    world.leaders[A] = 2
    world.links[1].answer(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    world.time.advance(30)
    assert not world.links[1].asked
    world.links[2].answer()
    assert is_complete(world)


def test_markers_wait_for_a_leader(world: World) -> None:
    world.leaders[A] = NO_LEADER
    ending(world, A, A1)
    world.links[2].answer()
    world.time.advance(60_000)
    assert not is_complete(world)
    assert world.describe("t")[0].topics[0].partitions == [0]
    world.leaders[A] = 2
    world.time.advance(1_000)
    world.links[2].answer()
    assert is_complete(world)


@pytest.mark.parametrize("gone", ["connection", "address"])
def test_markers_to_a_broker_that_is_away_are_kept(world: World, gone: str) -> None:
    link = world.links[1]
    if gone == "address":
        del world.links[1]
    ending(world, A)
    for _ in range(10):
        if gone == "connection":
            link.fail()
        world.time.advance(1_000)
    world.links[1] = link
    world.time.advance(1_000)
    ending(world, B, name="u")
    if gone == "connection":
        link.fail()
        world.time.advance(1_000)
    assert len(link.asked) == 1
    assert len(link.answer().markers) == (2 if gone == "connection" else 1)
    world.time.advance()
    if link.asked:
        link.answer()
    assert is_complete(world, "t")
    assert is_complete(world, "u")


def test_a_broker_that_is_away_is_tried_ever_less_often(world: World) -> None:
    ending(world, A)
    tries = []
    for _ in range(200):
        if world.links[1].asked:
            tries.append(world.time.now)
            world.links[1].fail()
        world.time.advance(20)
    pauses = [after - before for before, after in itertools.pairwise(tries)]
    assert pauses == sorted(pauses)
    assert pauses[0] <= 40
    assert 1_000 <= pauses[-1] <= 1_040


def test_a_deleted_partition_needs_no_marker(world: World) -> None:
    producer = world.producer()
    world.add(producer, A, A1)
    del world.leaders[A]
    world.end(producer, commit=True, version=4)
    world.time.advance()
    world.links[2].answer()
    assert is_complete(world)
    del world.leaders[A1]
    world.add(producer, B)
    world.end(producer, commit=True, version=4)
    world.time.advance()
    world.leaders.clear()
    world.links[1].answer(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    world.time.advance(30)
    assert is_complete(world)


@pytest.mark.parametrize("code", [ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, ErrorCode.UNSUPPORTED_VERSION])
def test_a_partition_that_cannot_have_markers_is_dropped(world: World, code: ErrorCode) -> None:
    ending(world, A)
    world.links[1].answer(code)
    assert is_complete(world)


@pytest.mark.parametrize("code", [ErrorCode.INVALID_PRODUCER_EPOCH, ErrorCode.TRANSACTION_COORDINATOR_FENCED])
def test_a_fenced_ending_is_given_up(world: World, code: ErrorCode) -> None:
    producer = ending(world, A, A1)
    world.links[1].answer(code)
    world.links[2].answer()
    world.time.advance(60_000)
    assert not is_complete(world)
    assert not world.links[1].asked
    assert world.end(producer, commit=True, version=4) == ErrorCode.CONCURRENT_TRANSACTIONS


def test_endings_of_one_turn_share_a_request_and_the_next_waits(world: World) -> None:
    producers = {}
    for name in ("t", "u", "v"):
        producers[name] = world.producer(name)
        world.add(producers[name], A, name=name)
    world.logs.hold = True
    for name in ("t", "u"):
        assert world.end(producers[name], commit=True, name=name, version=4) is None
    world.logs.hold = False
    world.logs.commit()
    world.time.advance()
    world.end(producers["v"], commit=True, name="v", version=4)
    world.time.advance()
    assert len(world.links[1].asked) == 1
    assert len(world.links[1].answer().markers) == 2
    world.time.advance()
    assert len(world.links[1].answer().markers) == 1
    assert all(is_complete(world, name) for name in producers)


def test_a_partition_that_refuses_does_not_hold_up_others(world: World) -> None:
    ending(world, A)
    for _ in range(6):
        world.links[1].answer(ErrorCode.NOT_ENOUGH_REPLICAS)
        world.time.advance(1_000)
    world.links[1].answer(ErrorCode.NOT_ENOUGH_REPLICAS)
    ending(world, B, name="u")
    world.links[1].answer()
    assert is_complete(world, "u")


def test_an_answer_after_the_resignation_changes_nothing(world: World) -> None:
    ending(world, A)
    world.coordinator.on_resign(0)
    world.links[1].answer()
    world.elect(epoch=9)
    assert not is_complete(world)
    assert world.links[1].answer().markers[0].coordinator_epoch == 9
    assert is_complete(world)
