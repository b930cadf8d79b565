"""A producer that writes while a cluster migrates, and a consumer that reads everything at the end."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from confluent_kafka import Consumer, Producer

from tests.compat.members import wait_for

TOPIC = "written"
PARTITIONS = 3
READER = "judge"
NO_SECURITY: Final[Mapping[str, str]] = {}


class Writer:
    """A producer with acks=all that writes all the time; `acknowledged` counts each value."""

    def __init__(self, bootstrap: str, security: Mapping[str, str] = NO_SECURITY) -> None:
        """`security`: options of librdkafka."""
        self.acknowledged: Counter[bytes] = Counter()
        self.failures: list[str] = []
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "delivery.timeout.ms": 120_000,
                **security,
            }
        )
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        number = 0
        while not self._stop.is_set():
            value = b"%d" % number
            self._producer.produce(TOPIC, value, partition=number % PARTITIONS, on_delivery=self._delivered)
            number += 1
            self._producer.poll(0.01)

    def _delivered(self, error: Any, message: Any) -> None:
        if error is None:
            self.acknowledged[message.value()] += 1
        else:
            self.failures.append(str(error))

    def goes_on(self) -> None:
        """Wait until a hundred more records are acknowledged."""
        target = sum(self.acknowledged.values()) + 100
        wait_for("acknowledged records", lambda: sum(self.acknowledged.values()) >= target)

    def stop(self) -> None:
        self._stop.set()
        self._thread.join()
        assert self._producer.flush(60) == 0


def read_all(bootstrap: str, count: int, security: Mapping[str, str] = NO_SECURITY) -> Counter[bytes]:
    """Read `count` records of the topic. Counts each value; more records are an error."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "client.id": READER,
            "group.id": READER,
            "auto.offset.reset": "earliest",
            **security,
        }
    )
    found: Counter[bytes] = Counter()
    try:
        consumer.subscribe([TOPIC])
        while sum(found.values()) < count:
            message = consumer.poll(30)
            assert message is not None, f"{sum(found.values())} of {count} records"
            assert message.error() is None, message.error()
            found[message.value() or b""] += 1
        assert consumer.poll(2) is None
    finally:
        consumer.close()
    return found
