"""Requests of brokers about replicas: the same answers and records as Apache Kafka's controller gives.

Four brokers, which are nothing but requests, register with a controller of Apache Kafka and with ours. Kafka's runs as
a process, ours in memory. Both receive the same requests. Answers are compared at once, records at the end.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

import pytest

from kraft_node.metadata.features import ELR_VERSION, KRAFT_VERSION, METADATA_VERSION, SUPPORTED_RANGES, default_level
from kraft_protocol.ids import Uuid
from kraft_protocol.wire import messages as m
from kraft_protocol.wire.stored import FeatureLevelRecord
from tests.compat.targets import CLUSTER_ID, Apache
from tests.golden.controller.test_answers_parity import KafkaController, apart, log_of, ours_asked
from tests.unit.controller.harness import Quorum, uuid

pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("replicas-parity")]

START_S = 120
SETTINGS = {"broker.session.timeout.ms": "3600000", "auto.leader.rebalance.enable": "false"}
SEEN = 10**9
"""A metadata offset that holds everything."""

D1A, D1B, D2, D3, D4, NOWHERE = (uuid(1000 + n) for n in range(6))
DIRECTORIES = {1: [D1A, D1B], 2: [D2], 3: [D3], 4: [D4]}


class Side:
    """One of the two controllers, and its names of things."""

    def __init__(self, ask: Callable[[Any, int], Any]) -> None:
        self._ask = ask
        self.topics: dict[str, Uuid] = {}
        self.epochs: dict[int, int] = {}

    def ask(self, request: Any, version: int) -> Any:
        answer = self._ask(request, version)
        if isinstance(request, m.CreateTopicsRequest):
            self.topics.update((topic.name, topic.topic_id) for topic in answer.topics)
        if isinstance(request, m.BrokerRegistrationRequest) and not answer.error_code:
            self.epochs[request.broker_id] = answer.broker_epoch
        return self.plain(answer)

    def plain(self, value: Any, field: str = "") -> Any:
        fields = getattr(value, "_fields", None)
        if fields is not None:
            dropped = {"throttle_time_ms", "unknown_tags", "configs", "zk_migration_ready"}
            return {f: self.plain(getattr(value, f), f) for f in fields if f not in dropped}
        if isinstance(value, (list, tuple)):
            items = [self.plain(item, field) for item in value]
            return sorted(items, key=str) if field == "replica_election_results" else items
        if field == "topic_id":
            return next((name for name, topic_id in self.topics.items() if topic_id == value), bytes(value))
        if field == "broker_epoch" and value > 0:
            return next((f"epoch of {n}" for n, epoch in self.epochs.items() if epoch == value), "an older epoch")
        return bytes(value) if isinstance(value, (bytes, memoryview)) else value


Step = Callable[[Side], Any]


class Both:
    """Sends the same requests to both."""

    def __init__(self, kafka: Side, ours: Side, quorum: Quorum) -> None:
        self.kafka = kafka
        self.ours = ours
        self.quorum = quorum
        self.differences: list[str] = []

    def tell(self, step: Step, version: int) -> Any:
        """Send a request to both; returns our answer and notes a difference."""
        theirs = self.kafka.ask(step(self.kafka), version)
        mine = self.ours.ask(step(self.ours), version)
        if theirs != mine:
            self.differences.append(f"{step(self.ours)!r} v{version}\n" + "\n".join(apart(theirs, mine)))
        return mine

    # Requests of brokers and administrators

    def register(self, broker_id: int, incarnation: int = 1, **fields: Any) -> None:
        request = m.BrokerRegistrationRequest
        listener = request.Listener("PLAINTEXT", "localhost", 9092 + broker_id, 0)
        features = [request.Feature(name, r.min_level, r.max_level) for name, r in SUPPORTED_RANGES.items()]
        given = {
            "cluster_id": CLUSTER_ID,
            "incarnation_id": uuid(broker_id * 100 + incarnation),
            "listeners": [listener],
            "features": features,
            "log_dirs": DIRECTORIES[broker_id],
            **fields,
        }
        self.tell(lambda _: request(broker_id=broker_id, **given), 4)

    def beat(self, broker_id: int, epoch_off: int = 0, **fields: Any) -> None:
        request = m.BrokerHeartbeatRequest
        self.tell(lambda s: request(broker_id, s.epochs[broker_id] + epoch_off, SEEN, **fields), 2)

    def create(self, name: str, *assignments: list[int], **configs: str) -> None:
        request = m.CreateTopicsRequest
        placed = [request.CreatableReplicaAssignment(number, replicas) for number, replicas in enumerate(assignments)]
        wanted = [request.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()]
        self.tell(lambda _: request([request.CreatableTopic(name, -1, -1, placed, wanted)], 60_000), 7)

    def alter(self, sender: int, topic: str, isr: list[int], version: int = 3, **over: Any) -> None:
        """An ISR change of partition 0, as that broker would request it; `over` names the error that it contains."""
        state = self.quorum.partition(topic)
        request = m.AlterPartitionRequest
        epochs = over.pop("member_epochs", {})

        def made(side: Side) -> Any:
            members = [request.BrokerState(b, epochs.get(b, side.epochs.get(b, -1))) for b in isr]
            fields = {
                "partition_index": 0,
                "leader_epoch": state.leader_epoch,
                "partition_epoch": state.partition_epoch,
                "new_isr_with_epochs" if version >= 3 else "new_isr": members if version >= 3 else isr,
                "leader_recovery_state": 0,
                **{key: value for key, value in over.items() if key not in ("topic_id", "sender_epoch")},
            }
            topic_id = over.get("topic_id", side.topics[topic])
            epoch = over.get("sender_epoch", side.epochs[sender])
            return request(sender, epoch, [request.TopicData(topic_id, [request.PartitionData(**fields)])])

        self.tell(made, version)

    def assign(self, broker_id: int, *rows: tuple[Uuid, Any, int], epoch_off: int = 0) -> None:
        request = m.AssignReplicasToDirsRequest

        def made(side: Side) -> Any:
            return request(
                broker_id,
                side.epochs[broker_id] + epoch_off,
                [
                    request.DirectoryData(
                        directory,
                        [request.TopicData(side.topics.get(topic, topic), [request.PartitionData(number)])],
                    )
                    for directory, topic, number in rows
                ],
            )

        self.tell(made, 0)

    def elect(self, kind: int, *topics: str, all_topics: bool = False) -> None:
        request = m.ElectLeadersRequest
        asked = None if all_topics else [request.TopicPartitions(topic, [0, 7]) for topic in topics]
        self.tell(lambda _: request(kind, asked, 1000), 2)

    def move(self, topic: str, replicas: list[int] | None) -> None:
        request = m.AlterPartitionReassignmentsRequest
        part = request.ReassignablePartition(0, replicas)
        self.tell(lambda _: request(1000, topics=[request.ReassignableTopic(topic, [part])]), 0)

    def configure(self, topic: str, key: str, value: str | None) -> None:
        request = m.IncrementalAlterConfigsRequest
        change = request.AlterableConfig(key, 0 if value is not None else 1, value)
        kind = 2 if topic else 4
        self.tell(lambda _: request([request.AlterConfigsResource(kind, topic, [change])]), 1)

    def unregister(self, broker_id: int) -> None:
        self.tell(lambda _: m.UnregisterBrokerRequest(broker_id), 0)


@pytest.fixture
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Both, Apache]]:
    target = Apache("apache", tmp_path_factory.mktemp("replicas-parity"), dict(SETTINGS), is_lone=False)
    place = f"127.0.0.1:{target.controller_port}"
    target.overrides |= {
        "process.roles": "controller",
        "node.id": "3000",
        "controller.quorum.voters": f"3000@{place}",
        "listeners": f"CONTROLLER://{place}",
    }
    target.launch()
    try:
        with closing(_connected(target)) as kafka:
            levels = {name: default_level(name, 30) for name in SUPPORTED_RANGES if name != KRAFT_VERSION}
            keys = {key.replace(".", "_"): value for key, value in SETTINGS.items()}
            quorum = Quorum(
                bootstrap=[FeatureLevelRecord(n, level) for n, level in levels.items() if level],
                broker_session_replace_on_restart="false",
                **keys,
            )
            quorum.controller.cluster.cluster_id = CLUSTER_ID
            made = Both(Side(kafka.ask), Side(lambda request, version: ours_asked(quorum, request, version)), quorum)
            yield made, target
    finally:
        target.kill()


def _connected(target: Apache) -> KafkaController:
    """Connect once it is the active controller."""
    deadline = time.monotonic() + START_S
    while True:
        try:
            kafka = KafkaController(target.controller_port)
            answer = kafka.ask(m.AllocateProducerIdsRequest(77, 1), 0)
            if not isinstance(answer, str) and answer.error_code != 41:
                return kafka
            kafka.close()
        except OSError:
            pass
        assert time.monotonic() < deadline, target.tail()
        time.sleep(0.1)


def test_requests_about_replicas_get_the_same_answers_and_records(both: tuple[Both, Apache]) -> None:
    story, target = both
    kafka_before, ours_before = len(log_of(target)), story.quorum.log.next_offset
    brokers_come(story)
    in_sync_sets(story)
    directories(story)
    elections(story)
    eligible_replicas(story)
    moves(story)
    brokers_go(story)
    theirs = _lines(story.kafka, log_of(target)[kafka_before:])
    mine = _lines(story.ours, story.quorum.written(since=ours_before))
    both_written = zip(theirs, mine, strict=False)
    story.differences += [f"record\n  Kafka {kafka}\n  ours  {ours}" for kafka, ours in both_written if kafka != ours]
    assert not story.differences, "\n".join([f"{len(story.differences)} difference(s)", *story.differences])
    assert len(mine) == len(theirs)
    assert len(mine) > 60


def _lines(side: Side, records: list[Any]) -> list[str]:
    """Records as text with shared placeholders, by their subject: Kafka orders the changes of one request at random.

    Records that a controller writes by itself are left out, and the names of topics that have their own ids.
    """
    own = {"NoOpRecord", "ProducerIdsRecord", "RegisterControllerRecord", "TopicRecord"}
    reported = [(type(record).__name__, side.plain(record)) for record in records if type(record).__name__ not in own]

    def about(entry: tuple[str, Any]) -> tuple[str, ...]:
        kind, fields = entry
        names = ("topic_id", "partition_id", "broker_id", "topic_name", "resource_name", "name")
        # The records of a partition, its creation and its changes, keep their order.
        return (kind.replace("Change", ""), *(str(fields.get(name)) for name in names))

    lines = [f"{kind} {fields}" for kind, fields in sorted(reported, key=about)]
    # Kafka fences a fenced broker once more when it unregisters it.
    again = [line == before and "RegistrationChange" in line for before, line in zip(["", *lines], lines, strict=False)]
    return [line for line, is_again in zip(lines, again, strict=True) if not is_again]


def brokers_come(story: Both) -> None:
    for broker_id in (1, 2, 3, 4):
        story.register(broker_id)
        story.beat(broker_id)
    story.register(1, 2)
    story.register(1, cluster_id="another")
    story.register(1, is_migrating_zk_broker=True)
    story.register(1, log_dirs=[])
    story.register(1, log_dirs=[D1A, D1A])
    story.register(1, log_dirs=[D1A, D2])
    story.register(1, log_dirs=[Uuid(bytes(15) + b"\5")])
    story.register(1, features=[])
    feature = m.BrokerRegistrationRequest.Feature
    story.register(1, features=[feature(METADATA_VERSION, 7, 8)])
    story.register(1, features=[feature(METADATA_VERSION, 7, 40)])
    story.register(1, listeners=[])
    story.register(1)
    story.beat(1, 1)
    story.beat(1, -1)
    story.beat(1)
    controller = m.ControllerRegistrationRequest
    listener = controller.Listener("CONTROLLER", "c", 9093, 0)
    reported = controller(3001, uuid(9), False, [listener], [controller.Feature(METADATA_VERSION, 7, 30)])
    story.tell(lambda _: reported, 0)
    story.create("t", [1, 2, 3], [1, 2, 3], min_insync_replicas="1")
    story.create("u", [2, 3], unclean_leader_election_enable="true", min_insync_replicas="1")
    story.create("e", [1, 2, 3], min_insync_replicas="2")
    story.create("m", [1, 2], min_insync_replicas="1")


def in_sync_sets(story: Both) -> None:
    for version in (2, 3):
        story.alter(1, "t", [1, 2], version, sender_epoch=77)
        story.alter(1, "t", [1, 2], version, topic_id=uuid(5))
        story.alter(1, "t", [1, 2], version, topic_id=Uuid(bytes(16)))
        story.alter(1, "t", [1, 2], version, partition_index=9)
        story.alter(1, "t", [1, 2], version, leader_epoch=50)
        story.alter(1, "t", [1, 2], version, leader_epoch=-1)
        story.alter(1, "t", [1, 2], version, partition_epoch=50)
        story.alter(1, "t", [1, 2], version, partition_epoch=-1)
        story.alter(2, "t", [1, 2], version)
        story.alter(1, "t", [1, 1], version)
        story.alter(1, "t", [1, 4], version)
        story.alter(1, "t", [], version)
        story.alter(1, "t", [2, 3], version)
        story.alter(1, "t", [1, 2], version, leader_recovery_state=1)
        story.alter(1, "t", [1], version, leader_recovery_state=1)
        story.alter(1, "t", [1], version)
        story.alter(1, "t", [1, 2], version)
        story.alter(1, "t", [1, 2, 3], version)
        story.alter(1, "t", [1, 2, 3], version)
    story.alter(1, "t", [1, 2], member_epochs={2: 5})
    story.alter(1, "t", [1, 2], member_epochs={2: -1})
    story.beat(3, want_fence=True)
    story.alter(1, "t", [1, 2, 3])
    story.beat(3)
    story.alter(1, "t", [1, 2, 3])


def directories(story: Both) -> None:
    story.assign(1, (D1A, "t", 0), (D1B, "t", 1), (D1B, "m", 0))
    story.assign(1, (D1A, "t", 0), (D1B, "t", 1))
    story.assign(1, (D1A, "t", 0), epoch_off=1)
    story.assign(1, (D1A, uuid(5), 0), (D1A, "u", 0), (D1A, "t", 9))
    story.assign(2, (NOWHERE, "t", 1), (NOWHERE, "u", 0))
    story.assign(2, (NOWHERE, "u", 0))
    story.alter(3, "u", [3, 2])
    story.assign(2, (NOWHERE, "u", 0))
    story.assign(2, (D2, "t", 1), (D2, "u", 0))
    story.alter(3, "u", [3, 2])
    story.beat(1, offline_log_dirs=[D1B])
    story.beat(1, offline_log_dirs=[D1B])
    story.beat(1, offline_log_dirs=[NOWHERE])
    story.register(1)
    story.beat(1)


def elections(story: Both) -> None:
    story.elect(0, "t", "u", "nope")
    story.elect(1, "t", "u", "nope")
    story.elect(2, "t")
    story.elect(0, all_topics=True)
    story.beat(3, want_fence=True)
    story.beat(2, want_fence=True)
    story.elect(1, "u")
    story.beat(2)
    story.elect(0, "u")
    story.beat(3)
    story.elect(0, "u", "t")


def eligible_replicas(story: Both) -> None:
    story.alter(1, "e", [1])
    story.beat(1, want_fence=True)
    story.elect(0, "e")
    story.elect(1, "e")
    for broker_id in (2, 3):
        story.beat(broker_id, want_fence=True)
    story.beat(1)
    story.beat(2)
    story.beat(3)
    story.configure("e", "min.insync.replicas", "3")
    story.configure("e", "min.insync.replicas", "2")
    story.configure("", "min.insync.replicas", "2")
    story.configure("", "min.insync.replicas", None)
    request = m.UpdateFeaturesRequest
    for level, kind in ((0, 1), (0, 2), (1, 1), (2, 1)):
        update = request.FeatureUpdateKey(ELR_VERSION, level, upgrade_type=kind)
        story.tell(lambda _, update=update: request(1000, [update]), 2)  # type: ignore[misc]


def moves(story: Both) -> None:
    story.move("m", [1, 3])
    story.tell(lambda _: m.ListPartitionReassignmentsRequest(1000, None), 0)
    story.move("m", None)
    story.move("m", None)
    story.move("m", [])
    story.move("m", [9])
    story.move("m", [3, 3])
    story.move("m", [3, 4])
    leader = story.quorum.partition("m").leader
    story.alter(leader, "m", [*story.quorum.partition("m").isr, 3])
    story.alter(leader, "m", [*story.quorum.partition("m").isr, 4])
    story.alter(3, "m", [3, 4])
    story.move("m", [2, 4])


def brokers_go(story: Both) -> None:
    for broker_id in (1, 2, 3, 4):
        story.beat(broker_id)  # after a change of a registration Kafka waits for the broker's next heartbeat
    story.beat(3, want_shut_down=True)
    story.beat(3, want_shut_down=True)
    story.beat(4, want_fence=True)
    story.beat(4, want_shut_down=True)
    story.unregister(4)
    story.unregister(4)
    story.unregister(2)
    story.register(2, 7)
    story.beat(2)


def test_a_replaced_reassignment_ends(both: tuple[Both, Apache]) -> None:
    """Kafka's keeps adding and removing the same replicas: see docs/differences.md, between nodes."""
    story, _ = both
    for broker_id in (1, 2):
        story.register(broker_id, 9)
        story.beat(broker_id)
    story.create("replaced", [1], min_insync_replicas="1")
    story.move("replaced", [2])
    story.move("replaced", [1])
    assert not story.differences
    request = m.ListPartitionReassignmentsRequest
    asked = request(1000, [request.ListPartitionReassignmentsTopics("replaced", [0])])
    ongoing = story.kafka.ask(asked, 0)["topics"][0]["partitions"][0]
    assert ongoing["adding_replicas"] == ongoing["removing_replicas"] != []
    assert story.ours.ask(asked, 0)["topics"] == []
