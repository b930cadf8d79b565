"""A data directory written by one server is served by the other with all records, in both directions."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

import pytest

from tests.compat.targets import Target

CLIENT = "Data directories, written by one server and served by the other"
pytestmark = [pytest.mark.peer, pytest.mark.xdist_group("exchange")]

CODECS = ["none", "gzip", "snappy", "lz4", "zstd"]
COUNT = 300
MakeTarget = Callable[..., Target]
MOVING_S = 60.0
T = TypeVar("T")


def as_clients_do(ask: Callable[[], T]) -> T:
    """Retry while the coordinator loads or is unknown: for manual commits librdkafka leaves this to the caller."""
    from confluent_kafka import KafkaError, KafkaException

    moving = {KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.COORDINATOR_LOAD_IN_PROGRESS}
    deadline = time.monotonic() + MOVING_S
    while True:
        try:
            return ask()
        except KafkaException as e:
            if e.args[0].code() not in moving or time.monotonic() > deadline:
                raise
            time.sleep(0.1)


def _topic(codec: str) -> str:
    return f"exchange-{codec}"


def _write(target: Target) -> None:
    """Write with idempotent producers: all compressions, several segments, committed offsets, topic configs."""
    from confluent_kafka import Consumer, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, NewTopic

    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    topics = [NewTopic(_topic(c), 2, 1, config={"segment.bytes": "1048576"}) for c in CODECS]
    for future in admin.create_topics(topics).values():
        future.result(30)
    for codec in CODECS:
        producer = Producer(
            {
                "bootstrap.servers": target.bootstrap,
                "enable.idempotence": True,
                "compression.type": codec,
                "linger.ms": 1,
            }
        )
        for i in range(COUNT):
            producer.produce(_topic(codec), f"{codec}-{i}", key=f"k{i}", partition=i % 2, headers={"i": str(i)})
            if i % 50 == 0:
                producer.flush(30)
        assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": target.bootstrap, "group.id": "exchange", "enable.auto.commit": False})
    offsets = [TopicPartition(_topic(c), p, 10 + p) for c in CODECS for p in (0, 1)]
    as_clients_do(lambda: consumer.commit(offsets=offsets, asynchronous=False))
    consumer.close()


def _check(target: Target) -> None:
    """Check that everything from `_write` is there, and that the server accepts more."""
    from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
    from confluent_kafka.admin import AdminClient, ConfigResource

    settings: dict[str, Any] = {
        "bootstrap.servers": target.bootstrap,
        "group.id": "exchange",
        "enable.auto.commit": False,
        "check.crcs": True,
        "auto.offset.reset": "error",
    }
    consumer = Consumer(settings)
    wanted = [TopicPartition(_topic(c), p) for c in CODECS for p in (0, 1)]

    def fetch() -> list[TopicPartition]:
        found = consumer.committed(wanted, timeout=30)
        for partition in found:
            if partition.error is not None:
                raise KafkaException(partition.error)
        return found

    committed = as_clients_do(fetch)
    assert [(t.topic, t.partition, t.offset) for t in committed] == [
        (_topic(c), p, 10 + p) for c in CODECS for p in (0, 1)
    ]
    for codec in CODECS:
        consumer.assign([TopicPartition(_topic(codec), p, 0) for p in (0, 1)])
        got: dict[int, list[str]] = {0: [], 1: []}
        while sum(map(len, got.values())) < COUNT:
            message = consumer.poll(30)
            assert message is not None, (codec, {p: len(v) for p, v in got.items()})
            assert message.error() is None, message.error()
            assert message.offset() == len(got[message.partition()])
            got[message.partition()].append(message.value().decode())
        assert got == {p: [f"{codec}-{i}" for i in range(p, COUNT, 2)] for p in (0, 1)}
    consumer.close()
    admin = AdminClient({"bootstrap.servers": target.bootstrap})
    (configs,) = [f.result(30) for f in admin.describe_configs([ConfigResource("topic", _topic("gzip"))]).values()]
    assert configs["segment.bytes"].value == "1048576"
    producer = Producer({"bootstrap.servers": target.bootstrap, "enable.idempotence": True})
    delivered: list[int] = []
    producer.produce(
        _topic("none"), "more", partition=0, callback=lambda e, m: delivered.append(-1 if e else m.offset())
    )
    assert producer.flush(30) == 0
    assert delivered == [COUNT // 2]


@pytest.mark.parametrize("stop", [pytest.param("stop", marks=pytest.mark.slow), "kill"])
@pytest.mark.parametrize(("writer", "reader"), [("kraftcluster", "apache"), ("apache", "kraftcluster")])
def test_data_directory_is_exchangeable(make_target: MakeTarget, writer: str, reader: str, stop: str) -> None:
    first = make_target(writer, "writer")
    shared = {"log.dirs": str(first.folder / "data")}
    first.start()
    _write(first)
    getattr(first, stop)()
    second = make_target(reader, "reader", **shared)
    second.start()
    _check(second)
    assert second.stop() in {0, 143}
