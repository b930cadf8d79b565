"""Broker configurations that change while a node runs take effect for clients without a restart."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from confluent_kafka import KafkaError, KafkaException, Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic, ResourceType

from tests.compat.targets import Ours

CLIENT = "Configurations at run time"
pytestmark = pytest.mark.xdist_group("rough-configs")


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Ours]:
    folder: Path = tmp_path_factory.mktemp("configs")
    ours = Ours("node", folder, {"log.retention.check.interval.ms": "200", "log.initial.task.delay.ms": "100"})
    try:
        ours.start()
        yield ours
        assert ours.stop() == 0
        assert "Traceback" not in ours.log.read_text()
    finally:
        ours.kill()


def alter(node: Ours, key: str, value: str | None) -> None:
    """Set `key` of broker 1; None deletes it."""
    operation = AlterConfigOpType.DELETE if value is None else AlterConfigOpType.SET
    entry = ConfigEntry(key, value or "", incremental_operation=operation)
    resource = ConfigResource(ResourceType.BROKER, "1", incremental_configs=[entry])
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    for future in admin.incremental_alter_configs([resource]).values():
        future.result(10)


@pytest.fixture
def topic(node: Ours, name: str) -> str:
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    admin.create_topics([NewTopic(name, 1, 1)])[name].result(10)
    return name


def send(node: Ours, topic: str, value: bytes, timestamp: int = 0) -> int:
    """The error code of one produced record."""
    codes: list[int] = []
    producer = Producer({"bootstrap.servers": node.bootstrap, "message.timeout.ms": 60_000})
    producer.produce(topic, value, timestamp=timestamp, callback=lambda e, _: codes.append(e.code() if e else 0))
    producer.flush(60)
    return codes[0]


def until(check: Callable[[], object], what: str, timeout_s: float = 60) -> None:
    end = time.monotonic() + timeout_s
    while not check():
        assert time.monotonic() < end, what
        time.sleep(0.1)


def served(node: Ours, count: int) -> int:
    """How many of `count` new connections are left open."""
    sockets = [socket.create_connection(("127.0.0.1", node.port)) for _ in range(count)]
    left = 0
    try:
        for s in sockets:
            s.settimeout(0.2)
            try:
                s.recv(1)
            except TimeoutError:
                left += 1
            except ConnectionError:
                continue
    finally:
        for s in sockets:
            s.close()
    time.sleep(0.2)
    return left


@pytest.mark.parametrize(
    ("key", "value"),
    [("max.connections.per.ip", "8"), ("max.connections.per.ip.overrides", "127.0.0.1:8"), ("max.connections", "8")],
)
def test_limits_on_connections(node: Ours, key: str, value: str) -> None:
    # The node learns a little later that connections were closed, and then closes connections beyond a limit.
    until(lambda: served(node, 12) == 12, "not all are served")
    alter(node, key, value)
    try:
        until(lambda: 0 < served(node, 12) <= 8, "more are served than the limit allows")
    finally:
        alter(node, key, None)
    until(lambda: served(node, 12) == 12, "not all are served")


def test_the_largest_message(node: Ours, topic: str) -> None:
    alter(node, "message.max.bytes", "1000")
    assert send(node, topic, bytes(5_000)) == KafkaError.MSG_SIZE_TOO_LARGE
    alter(node, "message.max.bytes", None)
    assert send(node, topic, bytes(5_000)) == 0


def test_bounds_of_timestamps(node: Ours, topic: str) -> None:
    assert send(node, topic, b"x", timestamp=1_000) == 0
    alter(node, "log.message.timestamp.before.max.ms", "1000")
    assert send(node, topic, b"x", timestamp=1_000) == KafkaError.INVALID_TIMESTAMP
    alter(node, "log.message.timestamp.type", "LogAppendTime")
    assert send(node, topic, b"x", timestamp=1_000) == 0
    alter(node, "log.message.timestamp.type", None)
    alter(node, "log.message.timestamp.before.max.ms", None)


def test_rolling_and_retention(node: Ours, topic: str) -> None:
    alter(node, "log.roll.ms", "200")
    assert send(node, topic, b"a") == 0
    time.sleep(0.4)
    assert send(node, topic, b"b") == 0
    assert len(list((node.data / f"{topic}-0").glob("*.log"))) == 2
    alter(node, "log.retention.ms", "500")
    first = node.data / f"{topic}-0/00000000000000000000.log"
    until(lambda: not first.exists(), "the first segment stays")
    alter(node, "log.retention.ms", None)
    alter(node, "log.roll.ms", None)


@pytest.mark.parametrize("key", ["num.partitions", "auto.create.topics.enable", "socket.request.max.bytes"])
def test_fixed_keys_cannot_change_at_run_time(node: Ours, key: str) -> None:
    with pytest.raises(KafkaException, match="Cannot update these configs dynamically"):
        alter(node, key, "1")
