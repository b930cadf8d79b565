"""Clients that run through a whole migration, and what they must find at its end."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from tests.compat.members import wait_for

PARTITIONS: Final = 3
RECORDS: Final = 5
"""Of each transaction."""
GROUP: Final = "followers"
CLIENT: Final = "faults"
PROGRESS_S: Final = 300.0


class FaultClient(ABC):
    """A thread that works until it is stopped. `count` grows with its progress."""

    def __init__(self, bootstrap: str) -> None:
        self.bootstrap = bootstrap
        self.count = 0
        self.problems: list[str] = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def start(self) -> None:
        self._thread.start()

    def goes_on(self, help_on: Callable[[], None]) -> None:
        """Wait for progress. `help_on` is called meanwhile."""
        target = self.count + 5

        def has_progress() -> bool:
            help_on()
            return self.count >= target

        wait_for(f"progress of {type(self).__name__}", has_progress, timeout_s=PROGRESS_S)

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(PROGRESS_S)
        assert not self._thread.is_alive(), f"{type(self).__name__} does not end"

    def _work(self) -> None:
        while not self._ended.is_set():
            try:
                self._once()
            except (KafkaException, BufferError) as e:
                self.problems.append(str(e))
                self._ended.wait(0.5)
        self._close()

    @abstractmethod
    def _once(self) -> None:
        """One piece of work."""

    @abstractmethod
    def _close(self) -> None:
        """End what is open."""


class IdempotentWriter(FaultClient):
    """Writes with acks=all to `topic`."""

    topic = "written"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.acknowledged: Counter[bytes] = Counter()
        self._number = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": CLIENT,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 300_000,
            }
        )

    def _once(self) -> None:
        value = b"%d" % self._number
        self._producer.produce(self.topic, value, partition=self._number % PARTITIONS, on_delivery=self._delivered)
        self._number += 1
        self._producer.poll(0.02)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] += 1
            self.count += 1
        else:
            self.problems.append(str(error))

    def _close(self) -> None:
        assert self._producer.flush(PROGRESS_S) == 0


class TransactionalWriter(FaultClient):
    """Commits and aborts transactions on `topic`; a producer whose state is unknown is made anew."""

    topic = "transacted"

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.committed: set[bytes] = set()
        self.aborted: set[bytes] = set()
        """Aborted for certain. A transaction without an answer is in neither set."""
        self._number = 0
        self._producer: Producer | None = None

    def _once(self) -> None:
        if self._producer is None:
            made = Producer(
                {
                    "bootstrap.servers": self.bootstrap,
                    "client.id": CLIENT,
                    "transactional.id": "mover",
                    "transaction.timeout.ms": 60_000,
                }
            )
            made.init_transactions(60)
            self._producer = made
        values = [b"%d-%d" % (self._number, index) for index in range(RECORDS)]
        self._number += 1
        is_aborted = self._number % 5 == 0
        producer = self._producer
        try:
            producer.begin_transaction()
            for index, value in enumerate(values):
                producer.produce(self.topic, value, partition=index % PARTITIONS)
            if is_aborted:
                producer.abort_transaction(60)
                self.aborted |= set(values)
            else:
                producer.commit_transaction(60)
                self.committed |= set(values)
        except KafkaException:
            self._producer = None
            raise
        self.count += 1
        self._ended.wait(0.1)

    def _close(self) -> None:
        self._producer = None


class Follower(FaultClient):
    """A member of a group that commits what it has read."""

    def __init__(self, bootstrap: str) -> None:
        super().__init__(bootstrap)
        self.offsets: dict[int, int] = {}
        """Partition -> the last offset whose commit was acknowledged."""
        self._consumer = Consumer(
            {
                "bootstrap.servers": bootstrap,
                "client.id": CLIENT,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        self._consumer.subscribe([IdempotentWriter.topic])

    def _once(self) -> None:
        message = self._consumer.poll(1)
        if message is None or message.error() is not None:
            return
        for one in self._consumer.commit(message=message, asynchronous=False) or ():
            if one.error is None:
                self.offsets[one.partition] = one.offset
                self.count += 1

    def _close(self) -> None:
        self._consumer.close()


def read_all(bootstrap: str, topic: str) -> Counter[bytes]:
    """All committed records of a topic."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": CLIENT,
            "group.id": "judge",
            "enable.auto.commit": False,
            "isolation.level": "read_committed",
            "auto.offset.reset": "earliest",
        }
    )
    found: Counter[bytes] = Counter()
    try:
        places = [TopicPartition(topic, number, 0) for number in range(PARTITIONS)]
        # Asked by a reader of committed records, the end is before a transaction whose marker is still on its way.
        asking = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge", "isolation.level": "read_uncommitted"})
        ends = {one.partition: asking.get_watermark_offsets(one, timeout=60)[1] for one in places}
        asking.close()
        consumer.assign(places)

        def is_read() -> bool:
            while some := consumer.consume(1_000, 1):
                found.update(message.value() or b"" for message in some if message.error() is None)
            return all(one.offset >= ends[one.partition] for one in consumer.position(places))

        wait_for(f"the end of {topic}", is_read, timeout_s=PROGRESS_S)
    finally:
        consumer.close()
    return found


def committed_offsets(bootstrap: str) -> dict[int, int]:
    """What the group has committed."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": GROUP})
    try:
        places = [TopicPartition(IdempotentWriter.topic, number) for number in range(PARTITIONS)]
        return {one.partition: one.offset for one in consumer.committed(places, timeout=60)}
    finally:
        consumer.close()
