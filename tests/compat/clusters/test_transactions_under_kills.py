"""Transactional producers of librdkafka while brokers, and with them coordinators, are killed one after the other."""

from __future__ import annotations

import random
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from tests.compat.members import Members, wait_for

CLIENT = "Clusters under kills"
pytestmark = [pytest.mark.peer, pytest.mark.slow, pytest.mark.xdist_group("transactions-under-kills")]

TOPICS = ("left", "right")
PARTITIONS = 3
PRODUCERS = 4
SETTINGS = {
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "transaction.state.log.num.partitions": "6",
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000",
    "broker.session.timeout.ms": "3000",
    "broker.heartbeat.interval.ms": "500",
}


class Worker(threading.Thread):
    """Writes transactions of four records to both topics until it is stopped; notes which must be there or not."""

    def __init__(self, bootstrap: str, number: int) -> None:
        super().__init__(daemon=True)
        self.bootstrap = bootstrap
        self.number = number
        self.stopped = threading.Event()
        self.committed: list[list[str]] = []
        self.aborted: list[list[str]] = []
        self.unsure: list[list[str]] = []

    def run(self) -> None:
        from confluent_kafka import KafkaException

        rng = random.Random(self.number)
        producer: Any = None
        count = 0
        while not self.stopped.is_set():
            count += 1
            values = [f"{self.number}-{count}-{i}" for i in range(4)]
            commit = rng.random() < 0.7
            try:
                producer = producer or self._producer()
                producer.begin_transaction()
                for i, value in enumerate(values):
                    producer.produce(TOPICS[i % 2], value, partition=rng.randrange(PARTITIONS))
                if commit:
                    producer.commit_transaction(30)
                else:
                    producer.abort_transaction(30)
            except KafkaException:
                (self.unsure if commit else self.aborted).append(values)
                producer = None  # the next one fences it, and its transaction ends before the next begins
            else:
                (self.committed if commit else self.aborted).append(values)

    def _producer(self) -> Any:
        from confluent_kafka import Producer

        name = f"worker-{self.number}"
        settings = {"bootstrap.servers": self.bootstrap, "transactional.id": name, "transaction.timeout.ms": 8_000}
        producer = Producer(settings | {"message.timeout.ms": 8_000, "linger.ms": 0, "log_level": 0})
        producer.init_transactions(30)
        return producer


def _read(bootstrap: str) -> dict[str, int]:
    """How often a consumer of committed records finds each value; it must reach the end of each partition."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_committed"}
        | {"enable.partition.eof": True}
    )
    # Asked by a reader of committed records, the end is before the last transaction if its marker is still on its way.
    ends = Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "isolation.level": "read_uncommitted"})
    found: dict[str, int] = {}
    for topic in TOPICS:
        for number in range(PARTITIONS):
            end = ends.get_watermark_offsets(TopicPartition(topic, number), 10)[1]
            consumer.assign([TopicPartition(topic, number, 0)])
            deadline = time.monotonic() + 60
            while consumer.position([TopicPartition(topic, number)])[0].offset < end:
                assert time.monotonic() < deadline, f"{topic}-{number} has an open transaction before {end}"
                message = consumer.poll(1)
                if message is not None and not message.error():
                    value = (message.value() or b"").decode()
                    found[value] = found.get(value, 0) + 1
    ends.close()
    consumer.close()
    return found


def _wait_for_commits(workers: list[Worker], count: int) -> None:
    """Wait for so many further commits."""
    until = sum(len(worker.committed) for worker in workers) + count
    wait_for(f"{until} commits", lambda: sum(len(worker.committed) for worker in workers) >= until)


@pytest.mark.parametrize(
    "brokers",
    [
        pytest.param(("kraftcluster",) * 3, id="ours"),
        pytest.param(("kraftcluster", "apache", "kraftcluster"), id="mixed"),
    ],
)
def test_transactions_stay_whole_while_coordinators_are_killed(tmp_path: Path, brokers: tuple[str, ...]) -> None:
    from confluent_kafka.admin import AdminClient, NewTopic  # type: ignore[attr-defined]  # it has no stubs

    members = Members(tmp_path, controllers=("kraftcluster",), brokers=brokers, overrides=SETTINGS)
    members.start()
    workers = [Worker(members.bootstrap, number) for number in range(PRODUCERS)]
    try:
        admin = AdminClient({"bootstrap.servers": members.bootstrap})
        topics = [NewTopic(name, PARTITIONS, 3, config={"min.insync.replicas": "2"}) for name in TOPICS]
        for future in admin.create_topics(topics).values():
            future.result(60)
        for worker in workers:
            worker.start()
        for victim in (101, 102, 103):
            _wait_for_commits(workers, 100)
            members.nodes[victim].kill()
            time.sleep(4)
            members.nodes[victim].launch()
            members.nodes[victim].wait_ready()
        _wait_for_commits(workers, 100)
        for worker in workers:
            worker.stopped.set()
        for worker in workers:
            worker.join(90)
        found = _read(members.bootstrap)
    finally:
        for worker in workers:
            worker.stopped.set()
        members.stop()
    assert {value: times for value, times in found.items() if times > 1} == {}
    assert [value for worker in workers for values in worker.committed for value in values if value not in found] == []
    assert [value for worker in workers for values in worker.aborted for value in values if value in found] == []
    torn = [values for worker in workers for values in worker.unsure if len({value in found for value in values}) > 1]
    assert torn == []
