"""What brokers that use ZooKeeper are told: everything first, then what changes, everything again after a failure."""

from __future__ import annotations

from typing import Any

import pytest

from kraft_node.base.env import Env
from kraft_node.metadata.loader import MetadataLoader
from kraft_node.migration.claim import ControllerClaim
from kraft_node.migration.steering import Steering
from kraft_node.migration.tree.values import MigrationValue
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import codec
from kraft_protocol.wire.api import API
from kraft_protocol.wire.messages import (
    LeaderAndIsrResponse,
    StopReplicaResponse,
    UpdateMetadataResponse,
)
from kraft_protocol.wire.stored import (
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from tests.stopped_time import SeededRandom, StoppedTime

INCREMENTAL, FULL = 1, 2
CLAIM = ControllerClaim(7, 0, 0, MigrationValue())
A, B, G = Uuid(b"a" * 16), Uuid(b"b" * 16), Uuid(b"g" * 16)
RESPONSES = {4: LeaderAndIsrResponse, 5: StopReplicaResponse, 6: UpdateMetadataResponse}
REQUESTS_MAX = 50


class World:
    """Steering with an image, and the requests of each broker in order. Answers are given by `answer`."""

    def __init__(self) -> None:
        self.time = StoppedTime(now=1_000)
        self.loader = MetadataLoader()
        self.sent: list[tuple[int, Any]] = []
        self.waiting: list[Any] = []
        self.offset = 0
        nothing: Any = None
        env = Env(self.time, self.time, SeededRandom(), nothing, nothing, nothing)
        self.steering = Steering(env, 3000, "PLAINTEXT", self.loader.image, lambda node: Peer(self, node))
        self.loader.publishers.append(self.steering.moved)

    def commit(self, *records: Any) -> None:
        self.loader.apply([(self.offset + i, record) for i, record in enumerate(records)], 1, 0)
        self.offset += len(records)
        self.loader.publish()

    def answer(self, **fields: Any) -> None:
        """Answer every request, also those that follow; `fields` are for the first only."""
        while self.waiting:
            request, done = self.waiting.pop(0)
            done(RESPONSES[request.SCHEMA.api_key](**fields))
            fields = {}

    def settle(self) -> None:
        """Answer requests until there are none, however many turns they take."""
        self.time.advance(1)
        while self.waiting:
            self.answer()
            self.time.advance(1)

    def take(self, node: int) -> list[Any]:
        """The requests that the broker got since the last call; each has a form on the wire."""
        found = [request for to, request in self.sent if to == node]
        self.sent = [one for one in self.sent if one[0] != node]
        decoded = []
        for request in found:
            api = API[request.SCHEMA.api_key]
            version = api.max_version
            decoded.append(codec.decode(api.request, codec.encode(request, version), version))
        return decoded


class Peer:
    def __init__(self, world: World, node: int) -> None:
        self._world, self._node = world, node

    def send(self, request: Any, version: int | None, done: Any, timeout_ms: int) -> None:
        self._world.sent.append((self._node, request))
        self._world.waiting.append((request, done))


def broker(number: int, *, epoch: int = 0, zookeeper: bool = True, fenced: bool = False) -> RegisterBrokerRecord:
    endpoint = RegisterBrokerRecord.BrokerEndpoint("PLAINTEXT", "h", 9000 + number, 0)
    return RegisterBrokerRecord(
        broker_id=number,
        is_migrating_zk_broker=zookeeper,
        incarnation_id=Uuid(bytes([number] * 15 + [epoch])),
        broker_epoch=epoch or number,
        end_points=[endpoint],
        rack=None,
        fenced=fenced,
    )


def partition(topic: Uuid, number: int, *replicas: int) -> PartitionRecord:
    return PartitionRecord(
        partition_id=number,
        topic_id=topic,
        replicas=list(replicas),
        isr=list(replicas),
        leader=replicas[0],
        leader_epoch=3,
        partition_epoch=5,
    )


def names(requests: list[Any]) -> list[str]:
    return [type(request).__name__ for request in requests]


@pytest.fixture
def world() -> World:
    """Two brokers with ZooKeeper, one without; topic a on all of them; both have received everything."""
    made = World()
    made.commit(broker(1), broker(2), broker(3, zookeeper=False), TopicRecord("a", A), partition(A, 0, 1, 2, 3))
    made.steering.begin(CLAIM)
    made.answer()
    return made


def test_each_broker_with_zookeeper_gets_all_metadata(world: World) -> None:
    assert world.take(3) == []
    update, leaders = world.take(1)
    assert (update.type, leaders.type) == (FULL, FULL)
    assert (update.controller_id, update.is_k_raft_controller, update.controller_epoch) == (3000, True, 7)
    assert (update.broker_epoch, leaders.broker_epoch) == (1, 1)
    assert [one.id for one in update.live_brokers] == [1, 2, 3]
    (topic,) = leaders.topic_states
    (state,) = topic.partition_states
    assert (state.leader, state.leader_epoch, state.partition_epoch, state.is_new) == (1, 3, 5, False)
    assert world.steering.waiting == []


def test_the_news_of_a_claim_names_the_controller_and_changes_no_partition(world: World) -> None:
    world.steering.end()
    world.take(1), world.take(2)
    failures: list[list[str]] = []
    world.steering.announce(CLAIM, failures.append)
    (news,) = world.take(1)
    assert (news.type, news.controller_id, news.is_k_raft_controller) == (INCREMENTAL, 3000, True)
    assert (news.controller_epoch, news.topic_states) == (7, [])
    assert [(one.id, one.endpoints[0].port) for one in news.live_brokers] == [(1, 9001), (2, 9002), (3, 9003)]
    (first, done), (_, other) = world.waiting
    done(RESPONSES[first.SCHEMA.api_key]())
    assert failures == [], "broker 2 has not answered"
    other(OSError("gone"))
    assert failures == [["broker 2: gone"]]
    assert world.take(3) == []


def test_a_change_is_told_to_all_and_led_by_its_replicas(world: World) -> None:
    world.take(1), world.take(2)
    world.commit(TopicRecord("b", B), partition(B, 0, 2))
    world.answer()
    (update,) = world.take(1)
    assert (update.type, [topic.topic_name for topic in update.topic_states]) == (INCREMENTAL, ["b"])
    leaders, update = world.take(2)
    assert (leaders.type, update.type) == (INCREMENTAL, INCREMENTAL)
    assert [one.is_new for one in leaders.topic_states[0].partition_states] == [True]
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=B, leader=2))
    world.answer()
    leaders, _ = world.take(2)
    assert [(one.is_new, one.leader_epoch) for one in leaders.topic_states[0].partition_states] == [(False, 4)]


def test_replicas_of_a_deleted_topic_stop_before_a_topic_of_its_name_begins(world: World) -> None:
    world.take(1)
    world.commit(RemoveTopicRecord(A), TopicRecord("a", B), partition(B, 0, 1))
    world.answer()
    stop, leaders, update = world.take(1)
    (topic,) = stop.topic_states
    assert [(one.leader_epoch, one.delete_partition) for one in topic.partition_states] == [(-2, True)]
    assert leaders.topic_states[0].topic_id == B
    assert [(one.topic_id, one.partition_states[0].leader) for one in update.topic_states] == [(A, -2), (B, 1)]


def test_a_replica_that_was_moved_away_is_deleted(world: World) -> None:
    world.take(2)
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, replicas=[1, 3], isr=[1, 3], leader=1))
    world.answer()
    stop, update = world.take(2)
    (row,) = stop.topic_states[0].partition_states
    assert (row.leader_epoch, row.delete_partition) == (4, True)
    assert names([update]) == ["UpdateMetadataRequest"]


def test_changes_during_a_request_are_sent_together(world: World) -> None:
    world.take(1)
    for number in range(5):
        world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1, 2] if number % 2 else [1, 2, 3]))
    world.answer()
    assert len(world.take(1)) == 4, "the first change, and all others"


@pytest.mark.parametrize("answer", [{"error_code": 77}, None])
def test_after_a_failure_a_broker_gets_all_metadata_again(world: World, answer: dict[str, int] | None) -> None:
    world.take(1)
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]))
    for request, done in world.waiting:
        done(OSError("gone") if answer is None else RESPONSES[request.SCHEMA.api_key](**answer))
    world.waiting = []
    assert names(world.take(1)) == ["LeaderAndIsrRequest"]
    assert world.steering.waiting == [1, 2]
    world.time.advance(10_000)
    world.answer()
    assert [request.type for request in world.take(1)] == [FULL, FULL]
    assert world.steering.waiting == []


@pytest.mark.parametrize("is_mended", [True, False])
def test_a_broker_that_fails_at_a_full_request_is_led_by_an_incremental_one(world: World, is_mended: bool) -> None:
    """A broker of 3.9.2 looks for stray logs then, and fails at a log without a topic id, as a kill may leave it.

    It got the same request every five seconds, and followed no leader.
    """

    def answered() -> list[tuple[str, int]]:
        """The broker fails at each full LeaderAndIsr, until it is mended by an incremental one."""
        nonlocal fails
        world.time.advance(10_000)
        while world.waiting:
            assert len(world.sent) < REQUESTS_MAX, "the broker gets requests without end"
            request, done = world.waiting.pop(0)
            is_leaders = request.SCHEMA.api_key == 4
            done(
                RESPONSES[request.SCHEMA.api_key](error_code=-1 if is_leaders and request.type == FULL and fails else 0)
            )
            fails = fails and not (is_mended and is_leaders and request.type == INCREMENTAL)
            world.time.advance(10_000)
        return [(type(one).__name__.removesuffix("Request"), one.type) for one in world.take(1)]

    fails = True
    world.take(1)
    world.commit(broker(1, epoch=9))
    first = [("UpdateMetadata", FULL), ("LeaderAndIsr", FULL), ("UpdateMetadata", FULL), ("LeaderAndIsr", INCREMENTAL)]
    again = [("UpdateMetadata", FULL), ("LeaderAndIsr", FULL)]
    assert answered() == first + (again if is_mended else first)
    assert world.steering.waiting == []
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]))
    assert answered() == [("LeaderAndIsr", INCREMENTAL), ("UpdateMetadata", INCREMENTAL)]


def test_only_replicas_that_began_since_are_called_new(world: World) -> None:
    """A broker with an offline directory made an empty log in place of the log there, because it was called new."""
    world.take(2)
    world.commit(TopicRecord("b", B), partition(B, 0, 2))
    for _, done in world.waiting:
        done(OSError("gone"))
    world.waiting = []
    world.time.advance(10_000)
    world.answer()
    (leaders,) = (one for one in world.take(2) if "LeaderAndIsr" in type(one).__name__ and one.type == FULL)
    assert {topic.topic_name: topic.partition_states[0].is_new for topic in leaders.topic_states} == {
        "a": False,
        "b": True,
    }
    world.commit(broker(2, epoch=9))
    world.answer()
    _, leaders = world.take(2)
    assert [topic.partition_states[0].is_new for topic in leaders.topic_states] == [False, False]


def test_a_restarted_broker_gets_all_metadata(world: World) -> None:
    world.take(1), world.take(2)
    world.commit(broker(1, epoch=9, fenced=True))
    world.answer()
    update, _ = world.take(1)
    assert (update.type, update.broker_epoch, [one.id for one in update.live_brokers]) == (FULL, 9, [2, 3])
    (update,) = world.take(2)
    assert update.topic_states == []
    assert [one.id for one in update.live_brokers] == [2, 3]


def test_brokers_learn_that_a_leader_is_alive_before_they_follow_it(world: World) -> None:
    """A broker of 3.9.2 ignores LeaderAndIsr with a leader that it takes for dead, and answers NONE."""
    world.commit(broker(2, fenced=True), PartitionChangeRecord(partition_id=0, topic_id=A, isr=[2], leader=-1))
    world.answer()
    world.take(1)
    world.commit(broker(2, epoch=9), PartitionChangeRecord(partition_id=0, topic_id=A, leader=2))
    world.answer()
    alive, leaders, update = world.take(1)
    assert ([one.id for one in alive.live_brokers], alive.topic_states) == ([1, 2, 3], [])
    assert [one.leader for one in leaders.topic_states[0].partition_states] == [2]
    assert [one.partition_states[0].leader for one in update.topic_states] == [2]


def test_a_full_request_has_the_brokers_that_came_while_it_was_made(monkeypatch: pytest.MonkeyPatch) -> None:
    """A partition that was read late could be led by a broker that the request called dead."""
    monkeypatch.setattr("kraft_node.migration.control_requests.ROWS_AT_ONCE", 1)
    world = World()
    world.commit(broker(1), broker(2, fenced=True), TopicRecord("a", A), partition(A, 0, 1))
    world.commit(TopicRecord("b", B), PartitionRecord(0, B, replicas=[1, 2], isr=[2], leader=-1, leader_epoch=3))
    world.steering.begin(CLAIM)
    world.commit(broker(2, epoch=9), PartitionChangeRecord(partition_id=0, topic_id=B, leader=2))
    world.settle()
    full, leaders = world.take(1)[:2]
    assert [one.id for one in full.live_brokers] == [1, 2]
    assert {one.broker_id for one in leaders.live_leaders} == {1, 2}
    (state,) = full.topic_states[1].partition_states
    assert (state.leader, state.offline_replicas) == (2, [])


def test_a_large_request_is_encoded_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """The encoding of 100,000 partitions held the loop for 149 ms."""
    world = World()
    count = 2_000
    world.commit(broker(1), TopicRecord("a", A), *(partition(A, number, 1) for number in range(count)))
    turns = []
    monkeypatch.setattr(world.time, "call_soon", lambda call, *args: turns.append((call, args)))
    world.steering.begin(CLAIM)
    steps = 0
    while turns and not world.sent:
        steps += 1
        call, args = turns.pop(0)
        call(*args)
    assert steps >= 3
    (update,) = world.take(1)
    assert len(update.topic_states[0].partition_states) == count


def test_a_broker_that_left_zookeeper_is_told_nothing(world: World) -> None:
    world.take(1)
    world.commit(broker(1, epoch=9, zookeeper=False))
    world.answer()
    world.commit(TopicRecord("b", B), partition(B, 0, 1))
    world.answer()
    assert world.take(1) == []


def test_nothing_is_sent_after_the_end(world: World) -> None:
    world.take(1)
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1]))
    world.steering.end()
    world.answer()
    assert len(world.take(1)) == 1
    world.commit(PartitionChangeRecord(partition_id=0, topic_id=A, isr=[1, 2]))
    world.time.advance(60_000)
    assert world.take(1) == []


def test_everything_is_made_in_turns_and_later_changes_follow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft_node.migration.control_requests.ROWS_AT_ONCE", 2)
    world = World()
    topics = {name: Uuid(name.encode() * 16) for name in "abcdef"}
    world.commit(broker(1), *(TopicRecord(name, number) for name, number in topics.items()))
    world.commit(*(partition(number, 0, 1) for number in topics.values()))
    world.steering.begin(CLAIM)
    assert world.waiting == [], "the loop has other work meanwhile"
    assert world.steering.waiting == [1]
    world.commit(RemoveTopicRecord(topics["a"]), RemoveTopicRecord(topics["f"]))
    world.commit(TopicRecord("g", G), partition(G, 0, 1), PartitionChangeRecord(0, topics["b"], isr=[1], leader=1))
    world.settle()
    full, leaders, stop, new, update = world.take(1)
    assert [request.type for request in (full, leaders, new, update)] == [FULL, FULL, INCREMENTAL, INCREMENTAL]
    assert [topic.topic_name for topic in full.topic_states] == list("abcde")
    assert [topic.topic_name for topic in leaders.topic_states] == list("abcde")
    assert [topic.topic_name for topic in stop.topic_states] == ["a"]
    assert {topic.topic_name for topic in new.topic_states} == {"g", "b"}
    assert {topic.topic_name for topic in update.topic_states} == {"a", "f", "g", "b"}
    assert world.steering.waiting == []
