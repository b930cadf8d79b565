"""Replicas on several processes: no acknowledged record is lost, ISRs heal, and our logs equal Apache Kafka's."""

from __future__ import annotations

import json
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer

from kraft_protocol.records.batch import iter_headers
from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import CreateTopicsRequest, MetadataRequest
from tests.compat.members import MakeMembers, Members, wait_for
from tests.compat.tools import run_tool

pytestmark = pytest.mark.xdist_group("replication")

OURS, APACHE = "kraftcluster", "apache"
Acked = dict[bytes, tuple[int, int]]
"""Value to partition and offset."""


def _create(members: Members, name: str, assignments: list[list[int]], **configs: str) -> None:
    request = CreateTopicsRequest.CreatableTopic
    topic = request(
        name,
        -1,
        -1,
        [CreateTopicsRequest.CreatableReplicaAssignment(i, replicas) for i, replicas in enumerate(assignments)],
        [CreateTopicsRequest.CreatableTopicConfig(key.replace("_", "."), value) for key, value in configs.items()],
    )
    asked = next(n for n in members.broker_ids if members.runs(n))
    response = members.ask(asked, ApiKey.CREATE_TOPICS, CreateTopicsRequest([topic], timeout_ms=30_000))
    assert response.topics[0].error_code == 0, response.topics[0]
    wait_for("the broker knows the topic", lambda: len(_partitions(members, name)) == len(assignments))


def _partitions(members: Members, name: str) -> dict[int, Any]:
    asked = next(n for n in members.broker_ids if members.runs(n))
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    (topic,) = members.ask(asked, ApiKey.METADATA, request).topics
    return {row.partition_index: row for row in topic.partitions}


def _led_by(members: Members, name: str, leader: int) -> bool:
    return all(row.leader_id == leader for row in _partitions(members, name).values())


def _in_sync(members: Members, name: str, size: int) -> bool:
    return all(len(row.isr_nodes) == size for row in _partitions(members, name).values())


def _produce(members: Members, name: str, values: list[bytes], acked: Acked, **settings: Any) -> None:
    """Produce with acks=all, idempotently; every value must be acknowledged in the end."""
    producer = Producer(
        {"bootstrap.servers": members.bootstrap, "acks": "all", "enable.idempotence": True, "linger.ms": 1, **settings}
    )
    partitions = len(_partitions(members, name))
    errors = []

    def done(error: Any, message: Any) -> None:
        if error is not None:
            errors.append(error)
        else:
            acked[message.value()] = (message.partition(), message.offset())

    for number, value in enumerate(values):
        producer.produce(name, value, partition=number % partitions, on_delivery=done)
        producer.poll(0)
    assert producer.flush(150) == 0, "records are not acknowledged"
    assert not errors


def _consume(members: Members, name: str, count: int) -> Acked:
    """All values of a topic. Fails if a value is repeated: no group restarts here."""
    consumer = Consumer(
        {"bootstrap.servers": members.bootstrap, "group.id": "readers", "auto.offset.reset": "earliest"}
    )
    consumer.subscribe([name])
    seen: Acked = {}

    def enough() -> bool:
        for message in consumer.consume(500, 0.5):
            if message.error() is None:
                place = (message.partition(), message.offset())
                assert seen.setdefault(message.value(), place) == place, message.value()
        return len(seen) >= count

    try:
        wait_for(f"{count} records of {name}", enough)
    finally:
        consumer.close()
    return seen


def _log(members: Members, broker: int, name: str, index: int) -> bytes:
    return (members.nodes[broker].data / f"{name}-{index}" / f"{0:020d}.log").read_bytes()


def _same_bytes(members: Members, name: str, brokers: list[int], partitions: int) -> bool:
    return all(
        len({_log(members, broker, name, index) for broker in brokers}) == 1 and _log(members, brokers[0], name, index)
        for index in range(partitions)
    )


def _values(start: int, count: int) -> list[bytes]:
    return [b"value %d" % number for number in range(start, start + count)]


def test_killed_leaders_lose_no_acknowledged_record(make: MakeMembers) -> None:
    members = make((OURS,), (OURS, OURS, OURS)).start()
    wait_for("three brokers", lambda: members.unfenced(101) == {101, 102, 103})
    assignments = [[101, 102, 103], [102, 103, 101], [103, 101, 102]]
    _create(members, "t", assignments, min_insync_replicas="2")
    acked: Acked = {}
    _produce(members, "t", _values(0, 300), acked)
    members.nodes[101].kill()
    _produce(members, "t", _values(300, 300), acked)
    members.start(101)
    wait_for("all in sync again", lambda: _in_sync(members, "t", 3))
    members.nodes[102].kill()
    _produce(members, "t", _values(600, 300), acked)
    members.start(102)
    wait_for("all in sync again", lambda: _in_sync(members, "t", 3))
    assert len(acked) == 900
    assert _consume(members, "t", 900) == acked
    wait_for("the replicas are the same", lambda: _same_bytes(members, "t", [101, 102, 103], 3))


def test_a_stopping_broker_hands_over_its_partitions_first(make: MakeMembers) -> None:
    members = make((OURS,), (OURS, OURS)).start()
    wait_for("two brokers", lambda: members.unfenced(101) == {101, 102})
    _create(members, "t", [[102, 101]] * 4)
    acked: Acked = {}
    _produce(members, "t", _values(0, 100), acked)
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    assert members.nodes[102].stop() == 0  # a clean stop ends only when another replica leads
    wait_for("the other leads", lambda: _led_by(members, "t", 101))
    _produce(members, "t", _values(100, 100), acked)
    members.start(102)
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    wait_for("the replicas are the same", lambda: _same_bytes(members, "t", [101, 102], 4))


@pytest.mark.peer
def test_replicas_of_both_kinds_follow_leaders_of_either(make: MakeMembers) -> None:
    """Leadership moves both ways by Kafka's own tools. Both logs hold the same bytes; Kafka's dump finds no fault."""
    members = make((OURS,), (OURS, APACHE)).start()
    wait_for("both brokers", lambda: members.unfenced(101) == members.unfenced(102) == {101, 102})
    _create(members, "t", [[101, 102], [101, 102]], min_insync_replicas="2")
    acked: Acked = {}
    _produce(members, "t", _values(0, 200), acked)
    assert _led_by(members, "t", 101)

    _prefer(members, "t", [102, 101])
    _produce(members, "t", _values(200, 200), acked, **{"compression.type": "zstd"})
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    wait_for("the replicas are the same", lambda: _same_bytes(members, "t", [101, 102], 2))

    _prefer(members, "t", [101, 102])
    _produce(members, "t", _values(400, 200), acked, **{"compression.type": "lz4"})
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    wait_for("the replicas are the same", lambda: _same_bytes(members, "t", [101, 102], 2))
    assert _consume(members, "t", 600) == acked

    epochs = [header.partition_leader_epoch for header in iter_headers(_log(members, 102, "t", 0))]
    assert sorted(epochs) == epochs
    assert len(set(epochs)) == 3
    path = members.nodes[101].data / "t-0" / f"{0:020d}.log"
    dumped = run_tool("org.apache.kafka.tools.DumpLogSegments", "--deep-iteration", "--files", str(path))
    assert "isvalid: true" in dumped.out
    assert "isvalid: false" not in dumped.out


@pytest.mark.peer
@pytest.mark.parametrize("killed", [101, pytest.param(102, marks=pytest.mark.slow)])
def test_a_killed_broker_of_either_kind_catches_up_from_the_other(make: MakeMembers, killed: int) -> None:
    members = make((OURS,), (OURS, APACHE)).start()
    wait_for("both brokers", lambda: members.unfenced(101) == members.unfenced(102) == {101, 102})
    other = 203 - killed
    _create(members, "t", [[killed, other], [other, killed]], min_insync_replicas="1")
    acked: Acked = {}
    _produce(members, "t", _values(0, 200), acked)
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    members.nodes[killed].kill()
    _produce(members, "t", _values(200, 200), acked)
    wait_for("the other leads", lambda: _led_by(members, "t", other))
    members.start(killed)
    wait_for("both in sync", lambda: _in_sync(members, "t", 2))
    wait_for("the replicas are the same", lambda: _same_bytes(members, "t", [101, 102], 2))
    assert _consume(members, "t", 400) == acked


def _prefer(members: Members, name: str, replicas: list[int]) -> None:
    """Reorder the replicas with kafka-reassign-partitions, and elect the first with kafka-leader-election."""
    count = len(_partitions(members, name))
    plan = members.folder / "plan.json"
    rows = [{"topic": name, "partition": index, "replicas": replicas} for index in range(count)]
    plan.write_text(json.dumps({"version": 1, "partitions": rows}))
    bootstrap = ("--bootstrap-server", members.bootstrap)
    tool = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
    done = run_tool(tool, *bootstrap, "--reassignment-json-file", str(plan), "--execute")
    assert "Successfully started" in done.text, done.text
    wait_for("reassigned", lambda: all(row.replica_nodes == replicas for row in _partitions(members, name).values()))
    elect = "org.apache.kafka.tools.LeaderElectionCommand"
    done = run_tool(elect, *bootstrap, "--election-type", "preferred", "--all-topic-partitions")
    assert done.code == 0, done.text
    wait_for("the preferred one leads", lambda: _led_by(members, name, replicas[0]))
