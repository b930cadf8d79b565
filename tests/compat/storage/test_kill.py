"""SIGKILL at any moment: records acknowledged with acks=all survive the restart."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from tests.compat.targets import Target

CLIENT = "The process, killed"
pytestmark = pytest.mark.xdist_group("exchange")

KILLS = 3


@pytest.mark.parametrize("idempotent", [True, False])
def test_acknowledged_records_survive_sigkill(make_target: Callable[..., Target], idempotent: bool) -> None:
    from confluent_kafka import Consumer, Producer, TopicPartition

    target = make_target("kraftcluster").start()
    acknowledged: dict[str, int] = {}

    def report(error: Any, message: Any) -> None:
        if error is None:
            acknowledged[message.value().decode()] = message.offset()

    producer = Producer(
        {
            "bootstrap.servers": target.bootstrap,
            "enable.idempotence": idempotent,
            "acks": "all",
            "linger.ms": 1,
            "message.timeout.ms": 60_000,
            "reconnect.backoff.max.ms": 200,
        }
    )
    stopped = threading.Event()

    def produce() -> None:
        number = 0
        while not stopped.is_set():
            producer.produce("survivors", str(number), callback=report)
            number += 1
            producer.poll(0.001)

    thread = threading.Thread(target=produce)
    thread.start()
    try:
        for _ in range(KILLS):
            seen = len(acknowledged)
            deadline = time.monotonic() + 60
            while len(acknowledged) < seen + 200 and time.monotonic() < deadline:
                time.sleep(0.01)
            assert len(acknowledged) >= seen + 200, "it does not go on after the restart"
            target.kill()
            target.start()
    finally:
        stopped.set()
        thread.join()
    assert producer.flush(60) == 0
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "check", "enable.auto.commit": False})
    partition = TopicPartition("survivors", 0, 0)
    _, end = consumer.get_watermark_offsets(partition, timeout=30)
    consumer.assign([partition])
    found: list[str] = []
    while len(found) < end:
        message = consumer.poll(30)
        assert message is not None, f"{len(found)} of {end}"
        assert message.error() is None, message.error()
        assert message.offset() == len(found)
        found.append(message.value().decode())
    consumer.close()
    assert {value: found[offset] for value, offset in acknowledged.items()} == {v: v for v in acknowledged}
    if idempotent:
        assert found == [str(i) for i in range(len(found))]
    assert target.stop() == 0
