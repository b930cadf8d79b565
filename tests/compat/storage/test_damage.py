"""Real nodes with damaged files: the node quarantines the replica and fetches a new copy; its neighbours continue."""

from __future__ import annotations

import shutil
import urllib.request
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from kraft_protocol.wire.api import ApiKey
from kraft_protocol.wire.messages import DescribeLogDirsRequest, MetadataRequest
from tests.compat.members import Members, wait_for
from tests.compat.targets import free_ports

CLIENT = "Damaged replicas"
pytestmark = pytest.mark.xdist_group("damage")

VALUES = [b"%04d" % number + bytes(5_000) for number in range(40)]
LENGTH_AT = 8
"""Where a batch says how long it is."""


@pytest.fixture
def members(tmp_path: Path) -> Iterator[Members]:
    """A controller and two brokers."""
    made = Members(tmp_path, controllers=("kraftcluster",), overrides={"min.insync.replicas": "1"})
    made.http = dict(zip(made.broker_ids, free_ports(3), strict=True))  # type: ignore[attr-defined]
    for node_id, port in made.http.items():  # type: ignore[attr-defined]
        made.nodes[node_id].overrides["http.listener"] = f"127.0.0.1:{port}"
    yield made.start()
    made.stop()


def metrics(members: Members, node_id: int) -> str:
    port = members.http[node_id]  # type: ignore[attr-defined]
    with closing(urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10)) as answer:
        return str(answer.read().decode())


def make_topic(members: Members, name: str, replicas: int) -> None:
    admin = AdminClient({"bootstrap.servers": members.bootstrap})
    config = {"internal.segment.bytes": "20000"}
    admin.create_topics([NewTopic(name, 1, replicas, config=config)])[name].result(20)
    producer = Producer({"bootstrap.servers": members.bootstrap, "linger.ms": 0, "acks": "all"})
    for value in VALUES:
        producer.produce(name, value, partition=0)
        producer.flush(10)


def state(members: Members, name: str) -> Any:
    """The partition's state as a running broker knows it."""
    request = MetadataRequest(topics=[MetadataRequest.MetadataRequestTopic(name=name)])
    asked = next(node_id for node_id in members.broker_ids if members.runs(node_id))
    return members.ask(asked, ApiKey.METADATA, request).topics[0].partitions[0]


def damage(members: Members, node_id: int, name: str) -> None:
    """Damage the first batch of a closed segment while the node runs."""
    paths = sorted(Path(members.nodes[node_id].data / f"{name}-0").glob("*.log"))
    with paths[2].open("r+b") as file:
        file.seek(LENGTH_AT)
        file.write(b"\x7f\xff\xff\xff")


def read(members: Members, name: str, count: int) -> list[bytes]:
    consumer = Consumer({"bootstrap.servers": members.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    found: list[bytes] = []
    while len(found) < count:
        some = [m.value() or b"" for m in consumer.consume(count, 20) if m.error() is None]
        assert some, f"{len(found)} of {count} were read"
        found += some
    consumer.close()
    return found


def lags(members: Members, node_id: int, name: str) -> list[int]:
    """offsetLag of a partition, as kafka-log-dirs shows it."""
    answer = members.ask(node_id, ApiKey.DESCRIBE_LOG_DIRS, DescribeLogDirsRequest(topics=None))
    return [
        row.offset_lag
        for result in answer.results
        for topic in result.topics
        for row in topic.partitions
        if topic.name == name
    ]


def test_a_damaged_leader_hands_over_and_fetches_a_new_copy(members: Members) -> None:
    make_topic(members, "t", 3)
    make_topic(members, "other", 1)
    leader = state(members, "t").leader_id
    damage(members, leader, "t")
    assert read(members, "t", len(VALUES)) == VALUES
    wait_for("the replica to be whole again", lambda: set(state(members, "t").isr_nodes) == {101, 102, 103}, 60)
    assert all(members.runs(node_id) and members.nodes[node_id].process.poll() is None for node_id in (101, 102, 103))
    assert list(Path(members.nodes[leader].data).glob("t-0.*-stray"))
    log = sorted((members.nodes[leader].data / "t-0").glob("*.log"))
    assert b"\x7f\xff\xff\xff" not in b"".join(path.read_bytes()[LENGTH_AT : LENGTH_AT + 4] for path in log)
    assert read(members, "other", len(VALUES)) == VALUES


def test_a_damaged_sole_replica_is_named_and_its_neighbours_continue(members: Members) -> None:
    make_topic(members, "t", 1)
    make_topic(members, "other", 1)
    leader = state(members, "t").leader_id
    damage(members, leader, "t")
    consumer = Consumer({"bootstrap.servers": members.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition("t", 0, 0)])
    name = 'kraft_quarantined_replica{logDirectory="'
    wait_for("the quarantine", lambda: consumer.consume(100, 0.5) is None or name in metrics(members, leader), 60)
    consumer.close()
    shown = [line for line in metrics(members, leader).splitlines() if "quarantined" in line]
    assert any(line.endswith('"0",topic="t"} 1') for line in shown), shown
    assert lags(members, leader, "t") == [-1]
    assert lags(members, leader, "other") in ([0], [])
    assert read(members, "other", len(VALUES)) == VALUES


def quarantine(members: Members, leader: int, name: str) -> Path:
    """Damage the only replica of a topic, and read it. Returns the damaged file; beside it is a copy of before."""
    path = sorted(Path(members.nodes[leader].data / f"{name}-0").glob("*.log"))[2]
    path.with_suffix(".backup").write_bytes(path.read_bytes())
    damage(members, leader, name)
    consumer = Consumer({"bootstrap.servers": members.bootstrap, "group.id": "r", "auto.offset.reset": "earliest"})
    consumer.assign([TopicPartition(name, 0, 0)])
    shown = f'topic="{name}"}} 1'
    wait_for("the quarantine", lambda: consumer.consume(100, 0.5) is None or shown in metrics(members, leader), 60)
    consumer.close()
    wait_for("no leader", lambda: state(members, name).leader_id == -1, 30)
    return path


def restart(members: Members, node_id: int) -> None:
    members.nodes[node_id].stop()
    members.start(node_id)


def append(members: Members, name: str) -> None:
    producer = Producer({"bootstrap.servers": members.bootstrap, "linger.ms": 0, "acks": "all"})
    errors: list[Any] = []
    producer.produce(name, b"later", partition=0, on_delivery=lambda error, _: errors.append(error))
    producer.flush(30)
    assert errors == [None]


def test_a_sole_replica_serves_all_records_once_its_file_is_restored(members: Members) -> None:
    """It stayed without a leader; before its restoration it must not serve a part as if it were all."""
    make_topic(members, "t", 1)
    leader = state(members, "t").leader_id
    path = quarantine(members, leader, "t")
    size = path.stat().st_size
    restart(members, leader)
    wait_for("the quarantine", lambda: 'topic="t"} 1' in metrics(members, leader), 60)
    assert path.stat().st_size == size, "the damaged file was cut"
    assert state(members, "t").leader_id == -1
    members.nodes[leader].stop()
    path.with_suffix(".backup").rename(path)
    members.start(leader)
    wait_for("a leader", lambda: state(members, "t").leader_id == leader, 30)
    assert state(members, "t").isr_nodes == [leader]
    assert read(members, "t", len(VALUES)) == VALUES
    append(members, "t")
    restart(members, leader)
    assert read(members, "t", len(VALUES) + 1) == [*VALUES, b"later"]


def test_a_sole_replica_begins_anew_once_its_folder_is_removed(members: Members) -> None:
    make_topic(members, "t", 1)
    leader = state(members, "t").leader_id
    path = quarantine(members, leader, "t")
    members.nodes[leader].stop()
    shutil.rmtree(path.parent)
    members.start(leader)
    wait_for("a leader", lambda: state(members, "t").leader_id == leader, 30)
    append(members, "t")
    assert read(members, "t", 1) == [b"later"]


def test_a_restored_last_member_leads_rather_than_a_replica_that_lagged(members: Members) -> None:
    """Its log counted as begun anew, so the replica that lagged could lead, and acknowledged records were lost."""
    make_topic(members, "t", 3)
    leader = state(members, "t").leader_id
    others = [node_id for node_id in members.broker_ids if node_id != leader]
    for node_id in others:
        members.nodes[node_id].stop()
    wait_for("the ISR to shrink", lambda: state(members, "t").isr_nodes == [leader])
    append(members, "t")
    path = quarantine(members, leader, "t")
    members.start(*others)
    members.nodes[leader].stop()
    path.with_suffix(".backup").rename(path)
    members.start(leader)
    wait_for("the replica to lead", lambda: state(members, "t").leader_id == leader, 30)
    assert read(members, "t", len(VALUES) + 1) == [*VALUES, b"later"]
    wait_for("the other replicas", lambda: set(state(members, "t").isr_nodes) == {101, 102, 103})
