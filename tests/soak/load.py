"""The clients: idempotent producers, groups of both protocols, copies in transactions, a compacted topic."""

from __future__ import annotations

import random
import threading
import time
from collections import defaultdict
from typing import Any

from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from tests.faults.workload import QUIET, Clients
from tests.soak.reading import FINDINGS_MAX, Latencies, Sequences

EVENTS, COPIES, STATE = "events", "copies", "state"
PARTITIONS = 6
VALUE_BYTES = 500
KEYS = 5_000
SEGMENT_BYTES = 1 << 20
KEPT_BYTES = 8 << 20
"""What retention leaves of each partition."""
TOPICS = {
    EVENTS: {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(KEPT_BYTES)},
    COPIES: {"segment.bytes": str(SEGMENT_BYTES), "retention.bytes": str(KEPT_BYTES)},
    STATE: {
        "cleanup.policy": "compact",
        "segment.bytes": str(SEGMENT_BYTES),
        "min.cleanable.dirty.ratio": "0.2",
    },
}
COMMIT_S = 1.0
DELIVERY_S = 300.0


def create_topics(bootstrap: str) -> None:
    admin = AdminClient({**QUIET, "bootstrap.servers": bootstrap})
    topics = [NewTopic(name, PARTITIONS, 3, config=config) for name, config in TOPICS.items()]
    for created in admin.create_topics(topics).values():
        created.result(60)


class Writing:
    """One idempotent producer with acks=all: to every partition of `EVENTS`, or keys of `STATE`."""

    def __init__(self, clients: Clients, name: str, bootstrap: str, rate: float, acknowledged: Latencies) -> None:
        self.findings: list[str] = []
        self.sent: dict[tuple[str, int], int] = defaultdict(int)
        """Acknowledged records, by producer and partition."""
        self.latest: dict[int, int] = {}
        """The latest acknowledged value of each key of `STATE`."""
        self._clients, self._name, self._pause_s, self._acknowledged = clients, name, 1 / rate, acknowledged
        self._rng = random.Random(name)
        self._lock = threading.Lock()
        self._producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "enable.idempotence": True,
                "linger.ms": 5,
                "message.timeout.ms": int(DELIVERY_S * 1000),
            }
        )

    def write_events(self) -> None:
        self._clients.run(self._name, self._events)

    def write_state(self) -> None:
        self._clients.run(self._name, self._state)

    @property
    def records(self) -> int:
        with self._lock:
            return sum(self.sent.values()) + len(self.latest)

    def _events(self) -> None:
        sequences: dict[int, int] = defaultdict(int)
        while not self._clients.stopping.is_set():
            partition = self._rng.randrange(PARTITIONS)
            value = f"{self._name} {sequences[partition]} ".encode().ljust(VALUE_BYTES, b"x")
            sequences[partition] += 1
            self._send(EVENTS, value, partition, None, lambda p=partition: self._count(p))
        self._producer.flush(DELIVERY_S)

    def _state(self) -> None:
        number = 0
        while not self._clients.stopping.is_set():
            key, value = self._rng.randrange(KEYS), f"{number} ".encode().ljust(VALUE_BYTES, b"x")
            self._send(STATE, value, key % PARTITIONS, str(key).encode(), lambda k=key, n=number: self._note(k, n))
            number += 1
        self._producer.flush(DELIVERY_S)

    def _send(self, topic: str, value: bytes, partition: int, key: bytes | None, done: Any) -> None:
        begun = time.monotonic()

        def delivered(error: KafkaError | None, _: Message) -> None:
            self._acknowledged.add((time.monotonic() - begun) * 1000)
            if error is None:
                done()
            elif len(self.findings) < FINDINGS_MAX:
                self.findings.append(f"not acknowledged: {self._name}: {error}")

        self._producer.produce(topic, value, key=key, partition=partition, on_delivery=delivered)
        self._producer.poll(self._pause_s)

    def _count(self, partition: int) -> None:
        with self._lock:
            self.sent[self._name, partition] += 1

    def _note(self, key: int, number: int) -> None:
        with self._lock:
            self.latest[key] = number


class Reading:
    """One member of a group that reads `topic`, checks the sequences, and commits each second."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        bootstrap: str,
        topic: str,
        protocol: str,
        sequences: Sequences,
        end_to_end: Latencies,
    ) -> None:
        self._clients, self._topic, self._sequences, self._end_to_end = clients, topic, sequences, end_to_end
        group = name.rpartition("-")[0]
        self._consumer = Consumer(
            {
                **QUIET,
                "bootstrap.servers": bootstrap,
                "client.id": name,
                "group.id": group,
                "group.protocol": protocol,
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "isolation.level": "read_committed",
            }
        )
        clients.run(name, self._work)

    def _work(self) -> None:
        self._consumer.subscribe([self._topic])
        committed = time.monotonic()
        while not self._clients.stopping.is_set():
            for message in self._consumer.consume(500, 0.05):
                if message.error() is None:
                    self._take(message)
            if time.monotonic() - committed > COMMIT_S:
                committed = time.monotonic()
                self._consumer.commit(asynchronous=True)
        self._consumer.close()

    def _take(self, message: Message) -> None:
        if self._sequences.take(message.partition() or 0, message.offset() or 0, message.value() or b""):
            self._end_to_end.add(time.time() * 1000 - message.timestamp()[1])


def state_wrong(bootstrap: str, latest: dict[int, int], timeout_s: float = 120.0) -> list[str]:
    """Keys of the compacted topic whose last record is not the one acknowledged last."""
    consumer = Consumer({**QUIET, "bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True})
    consumer.assign([TopicPartition(STATE, partition, 0) for partition in range(PARTITIONS)])
    found: dict[int, int] = {}
    left = set(range(PARTITIONS))
    deadline = time.monotonic() + timeout_s
    while left:
        assert time.monotonic() < deadline, f"{STATE}: partitions {sorted(left)} not read to their end"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                found[int(message.key() or b"")] = int((message.value() or b"").split(b" ")[0])
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    consumer.close()
    wrong = [f"{STATE}: key {key}: {found.get(key)} instead of {n}" for key, n in latest.items() if found.get(key) != n]
    return wrong[:FINDINGS_MAX]
