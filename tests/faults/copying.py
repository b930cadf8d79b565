"""Applications that copy a topic in transactions, and the judgement: each record once, together with its offset."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition

from tests.faults.workload import QUIET, Clients

GROUP = "copiers"
RECORDS_A_TRANSACTION = 60
TRANSACTION_MS = 10_000
ABANDONED = 0.05
"""The share of transactions that their application leaves open, as if it had been killed."""
HANGS_S = 25.0
"""After this long without a step, an application is given up, as by a supervisor, and its successor fences it.

librdkafka 2.16 may never return from send_offsets_to_transaction if the group's coordinator restarts meanwhile (its
issues 5456 and 5511).
"""
SETTLED_S = 90.0
"""The time for transactions that were left open to time out, and for markers to arrive."""


class Copying:
    """One application: consumes a topic in a group, and produces each record to another topic in transactions."""

    def __init__(
        self,
        clients: Clients,
        name: str,
        bootstrap: str,
        source: str,
        target: str,
        protocol: str,
        abandoned: float = ABANDONED,
    ) -> None:
        """`protocol`: the group protocol, classic or consumer; all applications of a group need the same."""
        self.transactions = 0
        """Committed transactions."""
        self._clients = clients
        self._name = name
        self._bootstrap = bootstrap
        self._source, self._target = source, target
        self._protocol = protocol
        self._abandoned = abandoned
        self._rng = random.Random(name)
        self._life = 0
        self._step_s = 0.0
        clients.run(name, self._work)

    def _work(self) -> None:
        errors: list[BaseException] = []
        while not self._clients.stopping.is_set() and not errors:
            self._life += 1
            self._step_s = time.monotonic()
            thread = threading.Thread(target=self._run, args=(self._life, errors), daemon=True)
            thread.start()
            while thread.is_alive() and time.monotonic() - self._step_s < HANGS_S:
                thread.join(0.2)
        self._life += 1
        if errors:
            raise errors[0]

    def _run(self, life: int, errors: list[BaseException]) -> None:
        consumer = Consumer(_member(self._bootstrap, self._name, self._protocol))
        consumer.subscribe([self._source])
        try:
            self._live(life, consumer)
        except KafkaException as error:
            if self._may_go_on(life) and not _ends_a_life(error):
                errors.append(error)
        except BaseException as error:
            errors.append(error)
        finally:
            consumer.close()

    def _may_go_on(self, life: int) -> bool:
        self._step_s = time.monotonic() if life == self._life else self._step_s
        return life == self._life and not self._clients.stopping.is_set()

    def _live(self, life: int, consumer: Consumer) -> None:
        """Copy until a transaction is left open, or an error ends the producer or its place in the group."""
        producer = Producer(
            {
                **QUIET,
                "bootstrap.servers": self._bootstrap,
                "client.id": self._name,
                "transactional.id": self._name,
                "transaction.timeout.ms": TRANSACTION_MS,
                "linger.ms": 5,
            }
        )
        producer.init_transactions(20)
        while self._may_go_on(life):
            records = _values(consumer.consume(RECORDS_A_TRANSACTION, 0.3))
            if not records:
                continue
            producer.begin_transaction()
            for record in records:
                producer.produce(self._target, record.value(), partition=record.partition() or 0)
            if self._rng.random() < self._abandoned:
                producer.poll(0.2)
                return
            try:
                positions = consumer.position(consumer.assignment())
                producer.send_offsets_to_transaction(positions, consumer.consumer_group_metadata(), 20)
                producer.commit_transaction(20)
            except KafkaException as error:
                if not error.args[0].txn_requires_abort():
                    raise
                producer.abort_transaction(20)
                return  # the consumer begins again at the committed offsets
            self.transactions += 1


def _member(bootstrap: str, name: str, protocol: str) -> dict[str, Any]:
    settings = {
        **QUIET,
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "group.id": GROUP,
        "group.protocol": protocol,
        "max.poll.interval.ms": 20_000,
        "enable.auto.commit": False,
        "auto.offset.reset": "earliest",
        "isolation.level": "read_committed",
    }
    return settings | ({"session.timeout.ms": 6000} if protocol == "classic" else {})


def _values(messages: list[Message]) -> list[Message]:
    return [message for message in messages if message.error() is None]


def _ends_a_life(error: KafkaException) -> bool:
    """Whether an application makes a new producer after this error: it was fenced, or the brokers were away."""
    reason: KafkaError = error.args[0]
    return reason.fatal() or reason.retriable() or reason.txn_requires_abort() or reason.code() in _AWAY


_AWAY = {KafkaError._TIMED_OUT, KafkaError._STATE, KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}


def copies_wrong(bootstrap: str, target: str, log: dict[tuple[str, int], list[tuple[int, str]]]) -> list[str]:
    """What is wrong with the copy of `log` (a topic by partition: offset and value), once it has settled."""
    deadline = time.monotonic() + SETTLED_S
    while True:
        found = _differences(_read_committed(bootstrap, target, len(log)), _copied(bootstrap, log))
        if not found or time.monotonic() > deadline:
            return found
        time.sleep(2)


def _copied(bootstrap: str, log: dict[tuple[str, int], list[tuple[int, str]]]) -> Counter[str]:
    """The records below the group's committed offsets."""
    consumer = Consumer(_member(bootstrap, "judge", "classic"))
    try:
        committed = consumer.committed([TopicPartition(topic, partition) for topic, partition in log], 60)
    finally:
        consumer.close()
    ends = {(one.topic, one.partition): one.offset for one in committed}
    return Counter(value for key, records in log.items() for offset, value in records if offset < ends[key])


def _read_committed(bootstrap: str, topic: str, partitions: int) -> Counter[str]:
    """The committed records of a topic up to its last stable offsets."""
    settings = {**_member(bootstrap, "judge", "classic"), "group.id": "judge", "enable.partition.eof": True}
    consumer = Consumer(settings)
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(partitions)])
    values: Counter[str] = Counter()
    left = set(range(partitions))
    deadline = time.monotonic() + SETTLED_S
    while left:
        assert time.monotonic() < deadline, f"{topic}: partitions {sorted(left)} not read to their end"
        for message in consumer.consume(1000, 0.5):
            error = message.error()
            if error is None:
                values[(message.value() or b"").decode()] += 1
            elif error.code() == KafkaError._PARTITION_EOF:
                left.discard(message.partition() or 0)
    consumer.close()
    return values


def _differences(copies: Counter[str], expected: Counter[str]) -> list[str]:
    found = [f"copied {count} times: {value[:60]}" for value, count in copies.items() if count > 1]
    found += [f"offset committed without the copy: {value[:60]}" for value in expected - copies]
    found += [f"copied without its offset: {value[:60]}" for value in copies - expected if copies[value] == 1]
    return found[:50]
