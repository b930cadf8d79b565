"""Committed offsets never go back after SIGKILL, however they are read; Apache Kafka must pass the same test."""

from __future__ import annotations

import time
from collections.abc import Callable

import pytest

from tests.compat.targets import Target

CLIENT = "The process, killed"
pytestmark = pytest.mark.xdist_group("exchange")

KILLS = 3
COMMITS = 200
READS = 20


@pytest.mark.parametrize("isolation", ["read_uncommitted", "read_committed"])
@pytest.mark.parametrize("kind", ["kraftcluster", pytest.param("apache", marks=pytest.mark.slow)])
def test_committed_offsets_never_go_back_after_sigkill(
    make_target: Callable[..., Target], kind: str, isolation: str
) -> None:
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

    target = make_target(kind).start()
    producer = Producer({"bootstrap.servers": target.bootstrap})
    producer.produce("consumed", b"v")
    assert producer.flush(60) == 0
    config = {
        "bootstrap.servers": target.bootstrap,
        "group.id": "readers",
        "enable.auto.commit": False,
        "isolation.level": isolation,  # read_uncommitted asks without require_stable
        "reconnect.backoff.max.ms": 200,
    }
    acknowledged = 0

    def read(consumer: Consumer) -> int:
        deadline = time.monotonic() + 60
        while True:
            try:
                return int(consumer.committed([TopicPartition("consumed", 0)], timeout=10)[0].offset)
            except KafkaException:
                assert time.monotonic() < deadline, "the offset cannot be read"

    for _ in range(KILLS):
        consumer = Consumer(config)
        deadline = time.monotonic() + 60
        for _ in range(COMMITS):
            wanted = acknowledged + 1
            while acknowledged < wanted:
                try:
                    consumer.commit(offsets=[TopicPartition("consumed", 0, wanted)], asynchronous=False)
                    acknowledged = wanted
                except KafkaException:
                    assert time.monotonic() < deadline, "commits do not go on after the restart"
        target.kill()
        consumer.close()
        target.start()
        consumer = Consumer(config)
        assert [read(consumer) for _ in range(READS)] == [acknowledged] * READS
        consumer.close()
